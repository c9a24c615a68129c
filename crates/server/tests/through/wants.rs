//! What some servers of a dialect want of every message, and what others refuse there: the request is
//! made so, and passes all the same.

use serde_json::{Value, json};
use throughline_testkit::Gateway;

use crate::support::{BINARY, CHAT, ELSEWHERE, Spoken, ask, fates, last_turn};
use crate::upstream::Upstream;

const DEEPSEEK: Spoken = Spoken { more: "variant = \"deepseek-v4\"", ..CHAT };

/// The usual reply, as servers give it that have reasoning in one plain member.
const PLAIN: &str = r#"{"id":"1","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":"Yes.","reasoning_content":"Hm."},"finish_reason":"stop"}],"usage":{"prompt_tokens":11,"completion_tokens":7}}"#;

/// A conversation that nobody here has seen.
fn stranger() -> Value {
    json!({"model": "gpt-5", "messages": [
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Look."},
    ]})
}

/// Covers: C-17
#[tokio::test]
async fn a_server_that_wants_reasoning_of_every_answer_gets_an_empty_one_where_none_is_known() {
    let (upstream, gateway) = DEEPSEEK.over("", "").await;
    let request = stranger();
    let (body, answer) = ask(&DEEPSEEK, &gateway, ("a", &upstream), &request, PLAIN).await;
    let mut expected = request.clone();
    expected["messages"][1]["reasoning_content"] = "".into();
    assert_eq!(body, expected.to_string());
    assert_eq!(answer.text(), PLAIN);
    assert_eq!(answer.header("x-throughline-loss"), "");
    assert_eq!(last_turn(&gateway).await["lane"], "through");
    // Thinking that is off needs none.
    let mut off = request;
    off["thinking"] = json!({"type": "disabled"});
    let (body, _) = ask(&DEEPSEEK, &gateway, ("a", &upstream), &off, PLAIN).await;
    assert_eq!(body, off.to_string());
}

#[tokio::test]
async fn reasoning_that_had_to_stay_behind_leaves_an_empty_one() {
    let (a, b) = (Upstream::start().await, Upstream::start().await);
    let config = format!(
        "{}\n[[backend]]\nname = \"b\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n",
        DEEPSEEK.backend("a", &a.url, ""),
        b.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    let begun = DEEPSEEK.begin();
    let (_, reply) = ask(&DEEPSEEK, &gateway, ("b", &b), &begun, ELSEWHERE).await;
    let request = DEEPSEEK.go_on(begun, &reply);
    let (body, answer) = ask(&DEEPSEEK, &gateway, ("a", &a), &request, PLAIN).await;
    assert!(!body.contains("Elsewhere."), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["messages"][1]["reasoning_content"], "");
    let loss = answer.header("x-throughline-loss");
    assert_eq!(loss, "thinking_omitted=1;reason=origin");
    assert_eq!(last_turn(&gateway).await["lane"], "through");
}

/// As most programs do that keep a conversation themselves: they keep what was said.
#[tokio::test]
async fn reasoning_of_an_earlier_turn_that_the_client_lost_comes_back_where_it_is_wanted() {
    let (upstream, gateway) = DEEPSEEK.over("", "").await;
    let at = ("a", &upstream);
    let mut request = DEEPSEEK.begin();
    ask(&DEEPSEEK, &gateway, at, &request, PLAIN).await;
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Yes."}));
    messages.push(json!({"role": "user", "content": "And?"}));
    let (body, _) = ask(&DEEPSEEK, &gateway, at, &request, PLAIN).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["messages"][1]["reasoning_content"], "Hm.", "{body}");
    assert_eq!(fates(&last_turn(&gateway).await), ["restored"]);
}

#[tokio::test]
async fn reasoning_stays_behind_where_it_would_be_refused() {
    for variant in ["openai", "deepseek-r1"] {
        let more = format!("variant = \"{variant}\"");
        let spoken = Spoken { more: more.leak(), ..CHAT };
        let (upstream, gateway) = spoken.over("", "").await;
        let at = ("a", &upstream);
        let mut request = spoken.begin();
        ask(&spoken, &gateway, at, &request, PLAIN).await;
        let messages = request["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": "Yes.",
            "reasoning": "Hm.", "reasoning_content": "Hm."}));
        messages.push(json!({"role": "user", "content": "And?"}));
        let (body, answer) = ask(&spoken, &gateway, at, &request, PLAIN).await;
        request["messages"][1] = json!({"role": "assistant", "content": "Yes."});
        assert_eq!(body, request.to_string(), "{variant}");
        // It is never read there, so nothing is lost.
        assert_eq!(answer.header("x-throughline-loss"), "");
        assert_eq!(fates(&last_turn(&gateway).await), ["left_out policy"]);
    }
}

#[tokio::test]
async fn ids_of_calls_made_elsewhere_are_spelled_as_the_server_wants_them() {
    let spoken = Spoken { more: "variant = \"mistral\"", ..CHAT };
    let (upstream, gateway) = spoken.over("", "").await;
    let mut request = spoken.begin();
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "toolu_01A2b3C4d5", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        {"id": "D681PevKs", "type": "function", "function": {"name": "look", "arguments": "{}"}},
    ]}));
    for id in ["toolu_01A2b3C4d5", "D681PevKs"] {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "7"}));
    }
    let (body, answer) = ask(&spoken, &gateway, ("a", &upstream), &request, PLAIN).await;
    let sent: Value = serde_json::from_str(&body).unwrap();
    let id = sent["messages"][2]["tool_call_id"].as_str().unwrap();
    assert_eq!(id.len(), 9, "{body}");
    assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    assert_eq!(body, request.to_string().replace("toolu_01A2b3C4d5", id));
    let loss = answer.header("x-throughline-loss");
    assert_eq!(loss, "setting_adapted=tool_call.id;reason=characters");
}

/// Of a server that nobody knows it is not known what it refuses; its own reasoning it may well want back.
#[tokio::test]
async fn an_unknown_servers_reasoning_goes_back_as_it_came() {
    let spoken = Spoken { more: "variant = \"compatible\"", ..CHAT };
    let (upstream, gateway) = spoken.over("", "").await;
    let at = ("a", &upstream);
    let mut request = spoken.begin();
    ask(&spoken, &gateway, at, &request, PLAIN).await;
    let messages = request["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}));
    messages.push(json!({"role": "user", "content": "And?"}));
    let (body, answer) = ask(&spoken, &gateway, at, &request, PLAIN).await;
    assert_eq!(body, request.to_string());
    assert_eq!(answer.header("x-throughline-loss"), "");
}
