//! Thinking that an upstream refuses: it goes once more without, and the refusal is remembered.

use crate::support::{House, Plan, Wrong, client, fates, thinking_in};

/// Two backends that claim to read each other's signatures, and do not.
const LIE: &str = "signature_domain = \"shared\"";

/// Covers: C-38
#[tokio::test]
async fn thinking_that_is_refused_is_taken_out_once_and_for_all() {
    let mut wrong = Wrong::default();
    for (dialect, row) in [
        ("openai_responses", "anthropic, budget"),
        ("openai_chat", "anthropic, budget"),
        ("gemini", "anthropic, adaptive"),
        ("anthropic", "openai_responses"),
        ("openai_chat", "openai_responses"),
        ("gemini", "openai_responses"),
        ("openai_chat", "gemini 3"),
        ("anthropic", "gemini 3"),
        ("anthropic", "openrouter"),
        ("openai_responses", "litellm"),
        ("anthropic", "google"),
    ] {
        let house = House::build(&Plan {
            upstreams: &[row, row],
            backend: LIE,
            ..Plan::default()
        })
        .await;
        let what = format!("{dialect} over {row}");
        let mut speaker = client(dialect);
        speaker.user("use one tool");
        let (said, _) = house.hear(speaker.as_mut()).await;
        house.gateway.switch("b").await;
        speaker.results(&said.calls, "row green");
        let (said, answer) = house.hear(speaker.as_mut()).await;
        wrong.unless_equal(&what, said.text.trim(), "Blue, then green.");
        let seen = house.simulators[1].seen().await;
        let bodies: Vec<usize> = seen.iter().map(|seen| thinking_in(&seen.json())).collect();
        wrong.unless_equal(&what, bodies, [1, 0]);
        let losses = answer.header("x-throughline-loss").to_owned();
        let turn = house.gateway.turns().await.swap_remove(0);
        if !matches!(row, "gemini 3" | "google") {
            let told = losses.contains("thinking_omitted=1;reason=origin");
            wrong.unless(told, format!("{what}: {losses}"));
            wrong.unless_equal(&what, fates(&turn), ["left_out origin"]);
        }

        speaker.user("ponder this");
        house.hear(speaker.as_mut()).await;
        let after = house.simulators[1].seen().await;
        wrong.unless_equal(&format!("{what}, learnt"), after.len(), seen.len() + 1);
        let refused = house.end().await;
        wrong.unless_equal(&format!("{what}, refusals"), refused.len(), 1);
    }
    wrong.end();
}
