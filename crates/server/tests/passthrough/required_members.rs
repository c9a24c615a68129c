//! Members that some servers of a dialect require in every message and others refuse. The gateway
//! edits the request, and it still uses the passthrough lane.

use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, block_fates};

use crate::support::{ANTHROPIC_REPLY, BINARY, CHAT, DialectSample, send_to};

const DEEPSEEK: DialectSample = DialectSample { more: "variant = \"deepseek-v4\"", ..CHAT };

/// A reply with its reasoning in the plain member `reasoning_content`.
const REASONING_CONTENT_REPLY: &str = r#"{"id":"1","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":"Yes.","reasoning_content":"Hm."},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7}}"#;

/// Returns a conversation that the gateway has not seen before.
fn unseen_conversation() -> Value {
    json!({"model": "gpt-5", "messages": [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Look."},
    ]})
}

/// Covers: C-17
#[tokio::test]
async fn missing_reasoning_becomes_empty_where_the_server_requires_it() {
    let (upstream, gateway) = DEEPSEEK.over("", "").await;
    let request = unseen_conversation();
    let (body, answer) =
        send_to(&DEEPSEEK, &gateway, ("a", &upstream), &request, REASONING_CONTENT_REPLY).await;
    let mut expected = request.clone();
    expected["messages"][1]["reasoning_content"] = "".into();
    assert_eq!(body, expected.to_string());
    assert_eq!(answer.text(), REASONING_CONTENT_REPLY);
    assert_eq!(answer.header("x-throughline-loss"), "");
    assert_eq!(gateway.last_turn().await["lane"], "through");
    // Without thinking, the member is not required.
    let mut off = request;
    off["thinking"] = json!({"type": "disabled"});
    let (body, _) =
        send_to(&DEEPSEEK, &gateway, ("a", &upstream), &off, REASONING_CONTENT_REPLY).await;
    assert_eq!(body, off.to_string());
}

#[tokio::test]
async fn foreign_reasoning_becomes_empty_where_the_server_requires_it() {
    let (a, b) = (RawUpstream::start().await, RawUpstream::start().await);
    let config = format!(
        "{}\n[[backend]]\nname = \"b\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n",
        DEEPSEEK.backend("a", &a.url, ""),
        b.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let first = DEEPSEEK.first_request();
    let (_, reply) = send_to(&DEEPSEEK, &gateway, ("b", &b), &first, ANTHROPIC_REPLY).await;
    let request = DEEPSEEK.follow_up(first, &reply);
    let (body, answer) =
        send_to(&DEEPSEEK, &gateway, ("a", &a), &request, REASONING_CONTENT_REPLY).await;
    assert!(!body.contains("Elsewhere."), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["messages"][1]["reasoning_content"], "");
    let loss = answer.header("x-throughline-loss");
    assert_eq!(loss, "thinking_omitted=1;reason=origin");
    assert_eq!(gateway.last_turn().await["lane"], "through");
}

/// Many programs keep only the text of an answer.
#[tokio::test]
async fn dropped_reasoning_of_an_earlier_turn_is_restored() {
    let (upstream, gateway) = DEEPSEEK.over("", "").await;
    let at = ("a", &upstream);
    let mut request = DEEPSEEK.first_request();
    send_to(&DEEPSEEK, &gateway, at, &request, REASONING_CONTENT_REPLY).await;
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Yes."}));
    messages.push(json!({"role": "user", "content": "And?"}));
    let (body, _) = send_to(&DEEPSEEK, &gateway, at, &request, REASONING_CONTENT_REPLY).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["messages"][1]["reasoning_content"], "Hm.", "{body}");
    assert_eq!(block_fates(&gateway.last_turn().await), ["restored"]);
}

#[tokio::test]
async fn reasoning_is_left_out_where_the_server_refuses_it() {
    for variant in ["openai", "deepseek-r1"] {
        let more = format!("variant = \"{variant}\"");
        let sample = DialectSample { more: more.leak(), ..CHAT };
        let (upstream, gateway) = sample.over("", "").await;
        let at = ("a", &upstream);
        let mut request = sample.first_request();
        send_to(&sample, &gateway, at, &request, REASONING_CONTENT_REPLY).await;
        let messages = request["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": "Yes.",
            "reasoning": "Hm.", "reasoning_content": "Hm."}));
        messages.push(json!({"role": "user", "content": "And?"}));
        let (body, answer) =
            send_to(&sample, &gateway, at, &request, REASONING_CONTENT_REPLY).await;
        request["messages"][1] = json!({"role": "assistant", "content": "Yes."});
        assert_eq!(body, request.to_string(), "{variant}");
        // The server never reads reasoning, so nothing is lost.
        assert_eq!(answer.header("x-throughline-loss"), "");
        assert_eq!(block_fates(&gateway.last_turn().await), ["left_out policy"]);
    }
}

#[tokio::test]
async fn foreign_call_ids_are_adapted_to_the_server() {
    let sample = DialectSample { more: "variant = \"mistral\"", ..CHAT };
    let (upstream, gateway) = sample.over("", "").await;
    let mut request = sample.first_request();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "toolu_01A2b3C4d5", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "D681PevKs", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]}));
    for id in ["toolu_01A2b3C4d5", "D681PevKs"] {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "7"}));
    }
    let (body, answer) =
        send_to(&sample, &gateway, ("a", &upstream), &request, REASONING_CONTENT_REPLY).await;
    let sent: Value = serde_json::from_str(&body).unwrap();
    let id = sent["messages"][2]["tool_call_id"].as_str().unwrap();
    assert_eq!(id.len(), 9, "{body}");
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(body, request.to_string().replace("toolu_01A2b3C4d5", id));
    let loss = answer.header("x-throughline-loss");
    assert_eq!(loss, "setting_adapted=tool_call.id;reason=characters");
}

/// The gateway does not know what such a server refuses, and the server may need its own reasoning.
#[tokio::test]
async fn reasoning_goes_back_unchanged_to_a_compatible_server() {
    let sample = DialectSample { more: "variant = \"compatible\"", ..CHAT };
    let (upstream, gateway) = sample.over("", "").await;
    let at = ("a", &upstream);
    let mut request = sample.first_request();
    send_to(&sample, &gateway, at, &request, REASONING_CONTENT_REPLY).await;
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}));
    messages.push(json!({"role": "user", "content": "And?"}));
    let (body, answer) = send_to(&sample, &gateway, at, &request, REASONING_CONTENT_REPLY).await;
    assert_eq!(body, request.to_string());
    assert_eq!(answer.header("x-throughline-loss"), "");
}
