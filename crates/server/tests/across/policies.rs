//! What the policies mean where backends speak different dialects.

use crate::support::{House, Plan, Wrong, client, fates, thinking_in};

/// Pairs of backends of different dialects, and a client of a third.
const TRIPLES: [(&str, [&str; 2]); 6] = [
    ("openai_chat", ["anthropic, budget", "openai_responses"]),
    ("anthropic", ["openai_responses", "deepseek-v4"]),
    ("openai_responses", ["anthropic, adaptive", "deepseek-v4"]),
    ("openai_responses", ["openrouter", "anthropic, budget"]),
    ("gemini", ["anthropic, budget", "openai_responses"]),
    ("gemini", ["deepseek-v4", "anthropic, budget"]),
];

async fn there_and_back(policy: &str, come_back: bool) {
    let mut wrong = Wrong::default();
    for (dialect, rows) in TRIPLES {
        let house = House::build(&Plan {
            upstreams: &rows,
            settings: &format!("[thinking]\npolicy = \"{policy}\"\n"),
            ..Plan::default()
        })
        .await;
        let what = format!("{dialect} over {rows:?}");
        let mut speaker = client(dialect);
        speaker.user("ponder this");
        house.hear(speaker.as_mut()).await;
        house.gateway.switch("b").await;
        speaker.user("ponder that");
        let (_, answer) = house.hear(speaker.as_mut()).await;
        let losses = answer.header("x-throughline-loss");
        let omitted = losses.contains("thinking_omitted=1");
        wrong.unless(omitted, format!("{what}, b: {losses}"));
        wrong.unless_equal(&what, thinking_in(&house.last(1).await.json()), 0);
        house.gateway.switch("a").await;
        speaker.user("ponder this again");
        house.hear(speaker.as_mut()).await;
        let turn = house.gateway.turns().await.swap_remove(0);
        let back = usize::from(come_back);
        wrong.unless_equal(&what, thinking_in(&house.last(0).await.json()), back);
        let fates = fates(&turn);
        wrong.unless_equal(&what, fates.len(), 2);
        let came = fates[0] == "sent" || fates[0] == "restored";
        wrong.unless(came == come_back, format!("{what}: {fates:?}"));
        wrong.unless(fates[1].starts_with("left_out"), format!("{what}: {fates:?}"));
        if !come_back {
            wrong.unless_equal(&what, fates[0].as_str(), "left_out session");
        }
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn a_conversation_that_comes_back_brings_the_first_backends_thinking_along() {
    there_and_back("origin", true).await;
}

#[tokio::test]
async fn under_the_policy_session_nothing_survives_a_switch() {
    there_and_back("session", false).await;
}

/// What nobody knows is not tried at a backend of another dialect, and by `drop` at none.
#[tokio::test]
async fn thinking_nobody_knows_stays_behind() {
    let mut wrong = Wrong::default();
    for unknown in ["try", "drop"] {
        for (dialect, row) in [
            ("anthropic", "openai_responses"),
            ("anthropic", "deepseek-v4"),
            ("openai_responses", "anthropic, budget"),
            ("gemini", "anthropic, budget"),
        ] {
            let stranger = House::over(&[dialect_row(dialect)]).await;
            let mut speaker = client(dialect);
            speaker.user("ponder this");
            // A provider of the client's own dialect, asked without a gateway.
            let ask = speaker.ask(model_of(dialect), true);
            let answer = crate::speaker::send(&ask, &stranger.simulators[0].client).await;
            speaker.read(&answer.good().text(), true);
            let house = House::build(&Plan {
                upstreams: &[row],
                settings: &format!("[thinking]\nunknown = \"{unknown}\"\n"),
                ..Plan::default()
            })
            .await;
            let what = format!("{dialect} over {row}, {unknown}");
            speaker.user("ponder that");
            let (_, answer) = house.hear(speaker.as_mut()).await;
            let losses = answer.header("x-throughline-loss");
            let told = losses.contains("thinking_omitted=1;reason=unknown");
            wrong.unless(told, format!("{what}: {losses}"));
            let turn = house.gateway.turns().await.swap_remove(0);
            wrong.unless_equal(&what, fates(&turn), ["left_out unknown"]);
            wrong.unless_equal(&what, thinking_in(&house.last(0).await.json()), 0);
            house.end_in_peace().await;
        }
    }
    wrong.end();
}

fn dialect_row(dialect: &str) -> &'static str {
    match dialect {
        "anthropic" => "anthropic, budget",
        "gemini" => "gemini 3",
        _ => "openai_responses",
    }
}

fn model_of(dialect: &str) -> &'static str {
    crate::support::upstream(dialect_row(dialect)).model
}
