//! Thinking that an upstream refuses: it goes once more without, and the refusal is remembered.

use serde_json::json;
use throughline_testkit::Gateway;

use crate::bare;
use crate::speaker::go_on;
use crate::support::{BINARY, House, Plan, Wrong, client, fates, thinking_in};

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
        let house =
            House::build(&Plan { upstreams: &[row, row], backend: LIE, ..Plan::default() }).await;
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

/// What the provider names is known from then on; what was made since stays.
///
/// Covers: C-38
#[tokio::test]
async fn a_known_block_that_is_refused_takes_older_thinking_along_and_nothing_newer() {
    let mut wrong = Wrong::default();
    for dialect in ["openai_chat", "openai_responses", "gemini"] {
        let house = House::build(&Plan {
            upstreams: &["anthropic, adaptive", "anthropic, adaptive"],
            backend: LIE,
            ..Plan::default()
        })
        .await;
        let mut speaker = client(dialect);
        for _ in 0..2 {
            speaker.user("ponder this");
            house.hear(speaker.as_mut()).await;
        }
        house.gateway.switch("b").await;
        speaker.user("use one tool");
        let (said, answer) = house.hear(speaker.as_mut()).await;
        let losses = answer.header("x-throughline-loss").to_owned();
        let told = losses.contains("thinking_omitted=2;reason=origin");
        wrong.unless(told, format!("{dialect}: {losses}"));
        speaker.results(&said.calls, "row green");
        house.hear(speaker.as_mut()).await;
        let seen = house.simulators[1].seen().await;
        let sent: Vec<_> = seen.iter().map(|seen| thinking_in(&seen.json())).collect();
        wrong.unless_equal(dialect, sent, [2, 0, 1]);
        wrong.unless_equal(dialect, house.end().await.len(), 1);
    }
    wrong.end();
}

/// A model that misses thinking does not say that what it got is bad.
#[tokio::test]
async fn thinking_that_is_missed_condemns_none_that_is_there() {
    let upstream = bare::Upstream::start().await;
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
    let good = |body: serde_json::Value| bare::whole("application/json", "", body.to_string());
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
    let said = message(json!([{"type": "text", "text": "Done."}]));
    let answers = [good(called), missing.into_bytes(), good(said.clone()), good(said)];
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
    let mut speaker = client("openai_chat");
    for step in 0..3 {
        let (said, _) = {
            if step != 1 {
                speaker.user("look it up");
            }
            go_on(speaker.as_mut(), &gateway.client, "some-model", false).await
        };
        speaker.results(&said.calls, "seven");
    }
    let expected = [
        (0, json!("enabled")),
        (1, json!("enabled")),
        (1, json!("disabled")),
        (1, json!("enabled")),
    ];
    assert_eq!(served.await.unwrap(), expected);
}
