//! The thinking policies with backends of different dialects.

use throughline_testkit::block_fates;

use crate::support::{BedOptions, Mismatches, TestBed, new_client, thinking_in};

/// Pairs of backends of different dialects, each with a client of a third dialect.
const TRIPLES: [(&str, [&str; 2]); 6] = [
    ("openai_chat", ["anthropic, budget", "openai_responses"]),
    ("anthropic", ["openai_responses", "deepseek-v4"]),
    ("openai_responses", ["anthropic, adaptive", "deepseek-v4"]),
    ("openai_responses", ["openrouter", "anthropic, budget"]),
    ("gemini", ["anthropic, budget", "openai_responses"]),
    ("gemini", ["deepseek-v4", "anthropic, budget"]),
];

async fn switch_and_return(policy: &str, come_back: bool) {
    let mut mismatches = Mismatches::default();
    for (dialect, rows) in TRIPLES {
        let bed = TestBed::build(&BedOptions {
            upstreams: &rows,
            settings: &format!("[thinking]\npolicy = \"{policy}\"\n"),
            ..BedOptions::default()
        })
        .await;
        let case = format!("{dialect} over {rows:?}");
        let mut test_client = new_client(dialect);
        test_client.push_user("ponder this");
        bed.send(test_client.as_mut()).await;
        bed.gateway.switch("b").await;
        test_client.push_user("ponder that");
        let (_, answer) = bed.send(test_client.as_mut()).await;
        let losses = answer.header("x-throughline-loss");
        let omitted = losses.contains("thinking_omitted=1");
        mismatches.check(omitted, format!("{case}, b: {losses}"));
        mismatches.check_equal(&case, thinking_in(&bed.last_received(1).await.json()), 0);
        bed.gateway.switch("a").await;
        test_client.push_user("ponder this again");
        bed.send(test_client.as_mut()).await;
        let turn = bed.gateway.turns().await.swap_remove(0);
        let back = usize::from(come_back);
        mismatches.check_equal(&case, thinking_in(&bed.last_received(0).await.json()), back);
        let fates = block_fates(&turn);
        mismatches.check_equal(&case, fates.len(), 2);
        let came = fates[0] == "sent" || fates[0] == "restored";
        mismatches.check(came == come_back, format!("{case}: {fates:?}"));
        mismatches.check(fates[1].starts_with("left_out"), format!("{case}: {fates:?}"));
        if !come_back {
            mismatches.check_equal(&case, fates[0].as_str(), "left_out session");
        }
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn switching_back_restores_the_first_backends_thinking() {
    switch_and_return("origin", true).await;
}

#[tokio::test]
async fn session_policy_keeps_nothing_across_a_switch() {
    switch_and_return("session", false).await;
}

/// Unknown thinking is never tried at a backend of another dialect, and with `drop` at no backend.
#[tokio::test]
async fn unknown_thinking_is_left_out() {
    let mut mismatches = Mismatches::default();
    for unknown in ["try", "drop"] {
        for (dialect, row) in [
            ("anthropic", "openai_responses"),
            ("anthropic", "deepseek-v4"),
            ("openai_responses", "anthropic, budget"),
            ("gemini", "anthropic, budget"),
        ] {
            let provider = TestBed::over(&[dialect_row(dialect)]).await;
            let mut test_client = new_client(dialect);
            test_client.push_user("ponder this");
            // A provider of the client's own dialect, without a gateway.
            let request = test_client.next_request(model_of(dialect), true);
            let answer = crate::test_client::send(&request, &provider.simulators[0].client).await;
            test_client.read(&answer.expect_ok().text(), true);
            let bed = TestBed::build(&BedOptions {
                upstreams: &[row],
                settings: &format!("[thinking]\nunknown = \"{unknown}\"\n"),
                ..BedOptions::default()
            })
            .await;
            let case = format!("{dialect} over {row}, {unknown}");
            test_client.push_user("ponder that");
            let (_, answer) = bed.send(test_client.as_mut()).await;
            let losses = answer.header("x-throughline-loss");
            let reported = losses.contains("thinking_omitted=1;reason=unknown");
            mismatches.check(reported, format!("{case}: {losses}"));
            let turn = bed.gateway.turns().await.swap_remove(0);
            mismatches.check_equal(&case, block_fates(&turn), ["left_out unknown"]);
            mismatches.check_equal(&case, thinking_in(&bed.last_received(0).await.json()), 0);
            bed.expect_no_refusals().await;
        }
    }
    mismatches.assert_none();
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
