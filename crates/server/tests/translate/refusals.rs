//! Refused thinking: the gateway retries without it and remembers the refusal.

use serde_json::json;
use throughline_testkit::{Gateway, RawUpstream, block_fates, ok_reply};

use crate::support::{BINARY, BedOptions, Mismatches, TestBed, new_client, thinking_in};
use crate::test_client::send_turn;

/// Two backends that are configured to read each other's signatures, but do not.
const SHARED_DOMAIN: &str = "signature_domain = \"shared\"";

/// Covers: C-38
#[tokio::test]
async fn refused_thinking_is_dropped_permanently() {
    let mut mismatches = Mismatches::default();
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
        let bed = TestBed::build(&BedOptions {
            upstreams: &[row, row],
            backend: SHARED_DOMAIN,
            ..BedOptions::default()
        })
        .await;
        let case = format!("{dialect} over {row}");
        let mut test_client = new_client(dialect);
        test_client.push_user("use one tool");
        let (reply, _) = bed.send(test_client.as_mut()).await;
        bed.gateway.switch("b").await;
        test_client.push_results(&reply.calls, "row green");
        let (reply, answer) = bed.send(test_client.as_mut()).await;
        mismatches.check_equal(&case, reply.text.trim(), "Blue, then green.");
        let seen = bed.simulators[1].received().await;
        let bodies: Vec<usize> = seen.iter().map(|seen| thinking_in(&seen.json())).collect();
        mismatches.check_equal(&case, bodies, [1, 0]);
        let losses = answer.header("x-throughline-loss").to_owned();
        let turn = bed.gateway.turns().await.swap_remove(0);
        if !matches!(row, "gemini 3" | "google") {
            let reported = losses.contains("thinking_omitted=1;reason=origin");
            mismatches.check(reported, format!("{case}: {losses}"));
            mismatches.check_equal(&case, block_fates(&turn), ["left_out origin"]);
        }

        test_client.push_user("ponder this");
        bed.send(test_client.as_mut()).await;
        let after = bed.simulators[1].received().await;
        mismatches.check_equal(&format!("{case}, learnt"), after.len(), seen.len() + 1);
        let refused = bed.into_refusals().await;
        mismatches.check_equal(&format!("{case}, refusals"), refused.len(), 1);
    }
    mismatches.assert_none();
}

/// The refused block is remembered, and newer blocks stay.
///
/// Covers: C-38
#[tokio::test]
async fn refusal_of_a_known_block_drops_older_thinking_only() {
    let mut mismatches = Mismatches::default();
    for dialect in ["openai_chat", "openai_responses", "gemini"] {
        let bed = TestBed::build(&BedOptions {
            upstreams: &["anthropic, adaptive", "anthropic, adaptive"],
            backend: SHARED_DOMAIN,
            ..BedOptions::default()
        })
        .await;
        let mut test_client = new_client(dialect);
        for _ in 0..2 {
            test_client.push_user("ponder this");
            bed.send(test_client.as_mut()).await;
        }
        bed.gateway.switch("b").await;
        test_client.push_user("use one tool");
        let (reply, answer) = bed.send(test_client.as_mut()).await;
        let losses = answer.header("x-throughline-loss").to_owned();
        let reported = losses.contains("thinking_omitted=2;reason=origin");
        mismatches.check(reported, format!("{dialect}: {losses}"));
        test_client.push_results(&reply.calls, "row green");
        bed.send(test_client.as_mut()).await;
        let seen = bed.simulators[1].received().await;
        let sent: Vec<_> = seen.iter().map(|seen| thinking_in(&seen.json())).collect();
        mismatches.check_equal(dialect, sent, [2, 0, 1]);
        mismatches.check_equal(dialect, bed.into_refusals().await.len(), 1);
    }
    mismatches.assert_none();
}

/// A refusal about missing thinking says nothing about the thinking that was sent.
#[tokio::test]
async fn missing_thinking_refusal_keeps_existing_thinking() {
    let upstream = RawUpstream::start().await;
    let config = format!(
        "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n\
         models = {{ \"*\" = \"claude-sonnet-4-5\" }}\n",
        upstream.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let message = |content: serde_json::Value| {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1},
        })
    };
    let good = |body: serde_json::Value| ok_reply("application/json", "", body.to_string());
    let missing = json!({"type": "error", "error": {"type": "invalid_request_error",
        "message": "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`."}});
    let missing = missing.to_string();
    let missing = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{missing}",
        missing.len()
    );
    let called = message(json!([
        {"type": "thinking", "thinking": "I look.", "signature": "c2lnbmVkIGJ5IG1l"},
        {"type": "tool_use", "id": "toolu_01abcdefgh", "name": "lookup", "input": {"key": "7"}},
    ]));
    let reply = message(json!([{"type": "text", "text": "Done."}]));
    let answers = [good(called), missing.into_bytes(), good(reply.clone()), good(reply)];
    let served = tokio::spawn(async move {
        let mut bodies = Vec::new();
        for answer in answers {
            let exchange = upstream.next().await;
            let body: serde_json::Value = serde_json::from_slice(&exchange.body).unwrap();
            bodies.push((thinking_in(&body), body["thinking"]["type"].clone()));
            exchange.answer(&answer).await;
        }
        bodies
    });
    let mut test_client = new_client("openai_chat");
    for step in 0..3 {
        let (reply, _) = {
            if step != 1 {
                test_client.push_user("look it up");
            }
            send_turn(test_client.as_mut(), &gateway.client, "some-model", false).await
        };
        test_client.push_results(&reply.calls, "seven");
    }
    let expected = [
        (0, json!("enabled")),
        (1, json!("enabled")),
        (1, json!("disabled")),
        (1, json!("enabled")),
    ];
    assert_eq!(served.await.unwrap(), expected);
}
