//! Prefix-bound thinking: models that sign a block together with everything before it.

use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Answer, Gateway, Simulator, block_fates};

use crate::support::{BINARY, Mismatches, TestBed, new_client, thinking_in, upstream};
use crate::test_client::{ClientView, TestClient, send, text};
use crate::upstreams::SCENARIO;

/// A client of each dialect other than the models' own.
const CLIENTS: [&str; 3] = ["openai_chat", "openai_responses", "gemini"];

/// Starts a gateway over a simulator that binds its signatures.
async fn bound_bed(row: &str) -> TestBed {
    let simulator = Simulator::with(Options {
        prefix_binding: true,
        scenario: Some(Scenario::from_toml(SCENARIO).expect("a scenario")),
        ..Options::default()
    })
    .await;
    let config = upstream(row).backend("a", &simulator.url);
    TestBed { gateway: Gateway::start(BINARY, &config).await, simulators: vec![simulator] }
}

/// Sends the conversation with another system text, and keeps the answer.
async fn send_after(
    bed: &TestBed,
    dialect: &str,
    test_client: &mut dyn TestClient,
    beginning: &str,
) -> (ClientView, Answer) {
    let mut request = test_client.next_request("some-model", true);
    let body = &mut request.body;
    match dialect {
        _ if beginning.is_empty() => {}
        "openai_chat" => {
            let messages = body["messages"].as_array_mut().expect("a list");
            messages.insert(0, json!({"role": "system", "content": beginning}));
        }
        "openai_responses" => body["instructions"] = beginning.into(),
        _ => body["systemInstruction"] = json!({"parts": [{"text": beginning}]}),
    }
    let answer = send(&request, &bed.gateway.client).await.expect_ok();
    let view = test_client.read(&answer.text(), true);
    (view, answer)
}

/// Returns the setting for blocks with another prefix.
fn binding_setting(body: &Value) -> &str {
    text(&body["thinking"]["block_binding"]["prefix_mismatch_behavior"])
}

/// The translated history must be the same in every request.
///
/// Covers: C-1
#[tokio::test]
async fn bound_thinking_stays_valid_over_a_tool_loop() {
    let mut mismatches = Mismatches::default();
    for row in ["anthropic, budget", "anthropic, adaptive", "anthropic, bound"] {
        for dialect in CLIENTS {
            let bed = bound_bed(row).await;
            let case = format!("{dialect} over {row}");
            let mut test_client = new_client(dialect);
            test_client.push_user("use one tool");
            let mut sent = Vec::new();
            for result in ["row blue", "row green", ""] {
                let (view, answer) = bed.send(test_client.as_mut()).await;
                sent.push(thinking_in(&bed.last_received(0).await.json()));
                let losses = answer.header("x-throughline-loss").to_owned();
                mismatches.check(!losses.contains("thinking_omitted"), format!("{case}: {losses}"));
                if !result.is_empty() {
                    test_client.push_results(&view.calls, result);
                }
            }
            test_client.push_user("ponder this");
            bed.send(test_client.as_mut()).await;
            let last = bed.last_received(0).await.json();
            sent.push(thinking_in(&last));
            mismatches.check_equal(&case, sent, [0, 1, 2, 3]);
            mismatches.check_equal(&case, binding_setting(&last), "");
            mismatches.check_equal(&case, bed.into_refusals().await, [""; 0]);
        }
    }
    mismatches.assert_none();
}

/// For a model that is known to bind, the gateway predicts which blocks are invalid.
#[tokio::test]
async fn invalid_bound_thinking_is_dropped_without_a_refusal() {
    let mut mismatches = Mismatches::default();
    for dialect in CLIENTS {
        let bed = bound_bed("anthropic, bound").await;
        let mut test_client = new_client(dialect);
        test_client.push_user("use one tool");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        let terse = "Be terse.";
        let (view, answer) = send_after(&bed, dialect, test_client.as_mut(), terse).await;
        mismatches.check_equal(dialect, view.text.trim(), "Blue, then green.");
        mismatches.check_equal(
            dialect,
            binding_setting(&bed.last_received(0).await.json()),
            "drop_block",
        );
        let losses = answer.header("x-throughline-loss").to_owned();
        let reported = losses.contains("thinking_omitted=1;reason=prefix");
        mismatches.check(reported, format!("{dialect}: {losses}"));
        let turn = bed.gateway.turns().await.swap_remove(0);
        mismatches.check_equal(dialect, block_fates(&turn), ["left_out prefix"]);
        test_client.push_user("ponder this");
        send_after(&bed, dialect, test_client.as_mut(), terse).await;
        let turn = bed.gateway.turns().await.swap_remove(0);
        mismatches.check_equal(
            dialect,
            block_fates(&turn).pop().as_deref(),
            Some(expected_fate(dialect)),
        );
        mismatches.check_equal(dialect, bed.into_refusals().await, [""; 0]);
    }
    mismatches.assert_none();
}

/// Returns the fate of thinking that the client sent back, or that the vault restored.
fn expected_fate(dialect: &str) -> &'static str {
    match dialect {
        "openai_chat" => "restored",
        _ => "sent",
    }
}

/// The gateway learns the binding from one refusal. The block itself was valid: with its own prefix
/// it is sent again.
#[tokio::test]
async fn prefix_binding_is_learnt_without_marking_blocks_as_refused() {
    let mut mismatches = Mismatches::default();
    for dialect in CLIENTS {
        let bed = bound_bed("anthropic, adaptive").await;
        let mut test_client = new_client(dialect);
        test_client.push_user("use one tool");
        let (view, _) = bed.send(test_client.as_mut()).await;
        test_client.push_results(&view.calls, "row green");
        let (_, answer) = send_after(&bed, dialect, test_client.as_mut(), "Be terse.").await;
        mismatches.check_equal(dialect, bed.simulators[0].received().await.len(), 3);
        mismatches.check_equal(
            dialect,
            binding_setting(&bed.last_received(0).await.json()),
            "drop_block",
        );
        let losses = answer.header("x-throughline-loss").to_owned();
        let reported = losses.contains("thinking_omitted=1;reason=prefix");
        mismatches.check(reported, format!("{dialect}: {losses}"));

        test_client.push_user("ponder once more");
        bed.send(test_client.as_mut()).await;
        let turn = bed.gateway.turns().await.swap_remove(0);
        let expected: &[&str] = match dialect {
            // The client has dropped the answer it got under another system text.
            "openai_chat" => &["sent"],
            _ => &["sent", "left_out prefix"],
        };
        mismatches.check_equal(dialect, block_fates(&turn), expected);
        mismatches.check_equal(dialect, bed.into_refusals().await.len(), 1);
    }
    mismatches.assert_none();
}
