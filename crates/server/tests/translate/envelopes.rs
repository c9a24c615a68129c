//! Envelopes: the opaque fields of a client replace the memory, and only an intact envelope of our
//! own is accepted.

use serde_json::Value;
use throughline_testkit::{Answer, Gateway, block_fates};

use crate::support::{
    BINARY, BedOptions, Mismatches, TestBed, envelopes, new_client, thinking_in, upstream,
};
use crate::test_client::{ClientRequest, TestClient, send, send_turn};

/// Clients that send opaque fields back, over upstreams that require their thinking.
const PAIRS: [(&str, &str); 9] = [
    ("anthropic", "openai_responses"),
    ("anthropic", "gemini 3"),
    ("anthropic", "deepseek-v4"),
    ("openai_responses", "anthropic, budget"),
    ("openai_responses", "gemini 3"),
    ("openai_responses", "openrouter"),
    ("gemini", "anthropic, adaptive"),
    ("gemini", "openai_responses"),
    ("gemini", "litellm"),
];

/// Returns a client inside a tool loop.
async fn client_in_tool_loop(bed: &TestBed, dialect: &str) -> Box<dyn TestClient> {
    let mut test_client = new_client(dialect);
    test_client.push_user("use one tool");
    let (view, _) = bed.send(test_client.as_mut()).await;
    test_client.push_results(&view.calls, "row green");
    test_client
}

/// Returns the next request with every envelope changed.
fn request_with_envelopes(
    test_client: &dyn TestClient,
    mut change: impl FnMut(&mut String),
) -> ClientRequest {
    let mut request = test_client.next_request("some-model", true);
    let mut found = 0;
    envelopes(&mut request.body, &mut |envelope| {
        found += 1;
        change(envelope);
    });
    assert!(found > 0, "no envelope in {}", request.body);
    request
}

fn alter(envelope: &mut String) {
    let middle = envelope.len() / 2;
    let other = if envelope.as_bytes()[middle] == b'A' { "B" } else { "A" };
    envelope.replace_range(middle..=middle, other);
}

async fn turn_of_answer(gateway: &Gateway, answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.turns().await.swap_remove(0)
}

/// Covers: S0-65
#[tokio::test]
async fn envelopes_restore_thinking_without_the_memory() {
    let mut mismatches = Mismatches::default();
    for (dialect, row) in PAIRS {
        let mut bed = TestBed::over(&[row]).await;
        let mut test_client = client_in_tool_loop(&bed, dialect).await;
        bed.reset_memory().await;
        let (view, answer) = bed.send(test_client.as_mut()).await;
        let case = format!("{dialect} over {row}");
        mismatches.check_equal(&case, view.text.trim(), "Blue, then green.");
        mismatches.check_equal(&case, thinking_in(&bed.last_received(0).await.json()), 1);
        let losses = answer.header("x-throughline-loss");
        mismatches.check(!losses.contains("thinking_omitted"), format!("{case}: {losses}"));
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Some models sign their calls. Some dialects have no room for that signature in a call, but have
/// room in the thinking.
///
/// Covers: S0-65
#[tokio::test]
async fn envelope_of_thinking_contains_the_signature_of_its_call() {
    let mut mismatches = Mismatches::default();
    for row in ["gemini 3", "google"] {
        for dialect in ["anthropic", "openai_responses"] {
            for stream in [true, false] {
                let mut bed = TestBed::over(&[row]).await;
                let case = format!("{dialect} over {row}, streamed: {stream}");
                let mut test_client = new_client(dialect);
                test_client.push_user("use one tool");
                for (round, result) in ["row blue", "row green", ""].into_iter().enumerate() {
                    let client = &bed.gateway.client;
                    let (view, _) =
                        send_turn(test_client.as_mut(), client, "some-model", stream).await;
                    let body = bed.last_received(0).await.json();
                    mismatches.check_equal(&case, thinking_in(&body), round);
                    let skipped = body.to_string().contains("skip_thought_signature");
                    mismatches.check_equal(&case, skipped, false);
                    if !result.is_empty() {
                        test_client.push_results(&view.calls, result);
                    }
                    bed.reset_memory().await;
                }
                bed.expect_no_refusals().await;
            }
        }
    }
    mismatches.assert_none();
}

/// A signature belongs to one call only.
#[tokio::test]
async fn changed_call_gets_no_signature() {
    let mut bed = TestBed::over(&["gemini 3"]).await;
    let test_client = client_in_tool_loop(&bed, "anthropic").await;
    bed.reset_memory().await;
    let mut request = test_client.next_request("some-model", true);
    let body = request.body.to_string();
    let id = body.split("\"tool_use_id\":\"").nth(1).expect("a result");
    let id = id.split('"').next().expect("an id");
    let body = body.replace(id, "toolu_another");
    request.body = serde_json::from_str(&body).expect("JSON");
    let answer = send(&request, &bed.gateway.client).await;
    turn_of_answer(&bed.gateway, &answer).await;
    assert_eq!(thinking_in(&bed.last_received(0).await.json()), 0);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn envelope_with_one_altered_character_is_foreign() {
    let mut mismatches = Mismatches::default();
    for (dialect, row) in PAIRS {
        for forgets in [false, true] {
            let mut bed = TestBed::over(&[row]).await;
            let test_client = client_in_tool_loop(&bed, dialect).await;
            if forgets {
                bed.reset_memory().await;
            }
            let request = request_with_envelopes(test_client.as_ref(), alter);
            let answer = send(&request, &bed.gateway.client).await;
            let case = format!("{dialect} over {row}, forgotten: {forgets}");
            let turn = turn_of_answer(&bed.gateway, &answer).await;
            mismatches.check_equal(&case, block_fates(&turn), ["left_out origin"]);
            let losses = answer.header("x-throughline-loss");
            let lost = losses.contains("thinking_omitted=1;reason=origin");
            mismatches.check(lost, format!("{case}: {losses}"));
            let seen = bed.last_received(0).await;
            // The signature of the call comes from the vault and was not altered.
            let own = usize::from(row == "gemini 3" && !forgets);
            mismatches.check_equal(&case, thinking_in(&seen.json()), own);
            bed.expect_no_refusals().await;
        }
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn envelope_of_another_keyring_is_left_out_as_sealed() {
    let mut mismatches = Mismatches::default();
    for (dialect, row) in PAIRS {
        let other = TestBed::over(&[row]).await;
        let test_client = client_in_tool_loop(&other, dialect).await;
        let bed = TestBed::over(&[row]).await;
        let request = request_with_envelopes(test_client.as_ref(), |_| {});
        let answer = send(&request, &bed.gateway.client).await;
        let turn = turn_of_answer(&bed.gateway, &answer).await;
        let case = format!("{dialect} over {row}");
        mismatches.check_equal(&case, block_fates(&turn), ["left_out sealed"]);
        mismatches.check_equal(&case, thinking_in(&bed.last_received(0).await.json()), 0);
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn gateways_with_one_keyring_read_each_others_envelopes() {
    let keyring = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let mut mismatches = Mismatches::default();
    for (dialect, row) in [PAIRS[0], PAIRS[3], PAIRS[6]] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row],
            environment: &[("THROUGHLINE_KEYRING", keyring)],
            ..BedOptions::default()
        })
        .await;
        let config = upstream(row).backend("a", &bed.simulators[0].url);
        let other =
            Gateway::start_with_env(BINARY, &config, &[("THROUGHLINE_KEYRING", keyring)]).await;
        let test_client = client_in_tool_loop(&bed, dialect).await;
        let request = test_client.next_request("some-model", true);
        let answer = send(&request, &other.client).await;
        let turn = turn_of_answer(&other, &answer).await;
        let case = format!("{dialect} over {row}");
        mismatches.check_equal(&case, block_fates(&turn), ["sent"]);
        mismatches.check_equal(&case, thinking_in(&bed.last_received(0).await.json()), 1);
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// A signature covers the exact text of its block.
#[tokio::test]
async fn changed_text_is_not_sent_with_its_signature() {
    let mut mismatches = Mismatches::default();
    for (dialect, row) in [
        ("anthropic", "openai_responses"),
        ("anthropic", "openrouter"),
        ("openai_responses", "anthropic, budget"),
        ("openai_responses", "litellm"),
        ("gemini", "anthropic, adaptive"),
    ] {
        for forgets in [false, true] {
            let mut bed = TestBed::over(&[row]).await;
            let test_client = client_in_tool_loop(&bed, dialect).await;
            if forgets {
                bed.reset_memory().await;
            }
            let mut request = test_client.next_request("some-model", true);
            let body = request.body.to_string();
            assert!(body.contains("I need a row."), "{body}");
            let body = body.replace("I need a row.", "I need a cow.");
            request.body = serde_json::from_str(&body).expect("JSON");
            let answer = send(&request, &bed.gateway.client).await;
            let turn = turn_of_answer(&bed.gateway, &answer).await;
            let case = format!("{dialect} over {row}, forgotten: {forgets}");
            mismatches.check_equal(&case, block_fates(&turn), ["left_out shape"]);
            let seen = bed.last_received(0).await;
            mismatches.check_equal(&case, thinking_in(&seen.json()), 0);
            bed.expect_no_refusals().await;
        }
    }
    mismatches.assert_none();
}
