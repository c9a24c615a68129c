//! Which requests use the passthrough lane, and which are translated although both dialects match.

use serde_json::{Value, json};
use throughline_testkit::{block_fates, ok_reply};

use crate::support::{CHAT, DialectSample, GEMINI, SAMPLES, send_and_answer, send_to};

/// Returns the lane and the upstream dialect of the newest turn.
async fn last_lane(gateway: &throughline_testkit::Gateway) -> (Value, Value) {
    let turn = gateway.last_turn().await;
    (turn["lane"].clone(), turn["upstream_dialect"].clone())
}

#[tokio::test]
async fn raw_text_upstream_uses_the_translate_lane() {
    let raw = DialectSample { more: "variant = \"vllm\"", ..CHAT };
    for (more, lane) in [("", "across"), ("family = \"none\"", "through")] {
        let (upstream, gateway) = raw.over("", more).await;
        let at = (&upstream, &gateway);
        let reply = raw.whole.replace("\"Yes.\"", "\"<think>Hm.</think>Yes.\"");
        let (_, answer) = raw.whole(at, &raw.first_request().to_string(), &reply).await;
        assert_eq!(last_lane(&gateway).await.0, lane);
        assert_eq!(answer.text() == reply, lane == "through");
    }
}

#[tokio::test]
async fn openai_reasoning_request_is_translated_to_responses() {
    let official = DialectSample { more: "variant = \"openai\"", ..CHAT };
    let (upstream, gateway) = official.over("", "").await;
    let tool =
        json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    for (members, path) in [
        (json!({"reasoning_effort": "high", "tools": [tool]}), "/v1/responses"),
        (json!({"reasoning_effort": "high"}), "/v1/responses"),
        (json!({"reasoning_effort": "high", "logprobs": true}), "/v1/chat/completions"),
        (json!({"tools": [tool]}), "/v1/chat/completions"),
    ] {
        let mut request = official.first_request();
        for (key, value) in members.as_object().unwrap() {
            request[key] = value.clone();
        }
        let answer = ok_reply("application/json", "", official.whole);
        let body = request.to_string();
        let (exchange, _) =
            send_and_answer(&upstream, &gateway, official.whole_path, &body, &answer).await;
        assert_eq!(exchange.target, path, "{members}");
        let through = path.ends_with("completions");
        assert_eq!(last_lane(&gateway).await.0 == "through", through, "{members}");
    }
}

/// Only the chat dialect supports all settings of a model that does not reason.
#[tokio::test]
async fn non_reasoning_model_stays_on_chat_completions() {
    let official = DialectSample { more: "variant = \"openai\"", ..CHAT };
    let (upstream, gateway) = official.over("", "").await;
    let mut request = official.first_request();
    request["model"] = "gpt-4o".into();
    request["reasoning_effort"] = "high".into();
    request["stop"] = "END".into();
    let answer = ok_reply("application/json", "", official.whole);
    let body = request.to_string();
    let (exchange, got) =
        send_and_answer(&upstream, &gateway, official.whole_path, &body, &answer).await;
    assert_eq!(exchange.target, "/v1/chat/completions");
    let sent: Value = serde_json::from_slice(&exchange.body).unwrap();
    assert_eq!(sent["stop"], json!(["END"]), "{sent}");
    assert_eq!(sent.get("reasoning_effort"), None, "{sent}");
    let loss = got.header("x-throughline-loss");
    assert_eq!(loss, "setting_adapted=thinking;reason=model_does_not_think");
}

#[tokio::test]
async fn json_array_stream_passes_through_unless_its_model_is_mapped() {
    let path = "/v1beta/models/gemini-3-pro:streamGenerateContent";
    let list = format!("[{}\n,\n{}]\n", GEMINI.whole, GEMINI.whole);
    for (more, lane) in [("", "through"), ("models = { \"*\" = \"g\" }", "across")] {
        let (upstream, gateway) = GEMINI.over("", more).await;
        let answer = ok_reply("application/json", "", &list);
        let body = GEMINI.first_request().to_string();
        let (_, got) = send_and_answer(&upstream, &gateway, path, &body, &answer).await;
        assert_eq!(last_lane(&gateway).await.0, lane);
        assert_eq!(got.text() == list, lane == "through");
        assert_eq!(gateway.last_turn().await["usage"]["thinking"], 3);
    }
}

/// Some clients keep only the id of a tool call.
#[tokio::test]
async fn dropped_thinking_is_restored_in_an_open_tool_loop() {
    let (upstream, gateway) = CHAT.over("", "").await;
    let call = json!([{"id": "call_9f8e7d6c5b", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]);
    let reply = CHAT
        .whole
        .replace("\"content\":\"Yes.\"", &format!("\"content\":null,\"tool_calls\":{call}"));
    let first = CHAT.first_request();
    let at = ("a", &upstream);
    let (_, answer) = send_to(&CHAT, &gateway, at, &first, &reply).await;
    let kept = CHAT.follow_up(first.clone(), &answer);
    let (body, _) = send_to(&CHAT, &gateway, at, &kept, &CHAT.another_reply()).await;
    assert_eq!(body, kept.to_string());
    let mut lost = kept.clone();
    lost["messages"][1] = json!({"role": "assistant", "content": null, "tool_calls": call});
    let (body, _) = send_to(&CHAT, &gateway, at, &lost, &CHAT.another_reply()).await;
    assert_eq!(last_lane(&gateway).await, ("across".into(), CHAT.dialect.into()));
    assert_eq!(block_fates(&gateway.last_turn().await), ["restored"]);
    let body: Value = serde_json::from_str(&body).unwrap();
    let details = &body["messages"][1]["reasoning_details"][0];
    assert_eq!(details["signature"], "Z2VudWluZQ==", "{body}");
    // A later turn does not need the block, so the gateway accepts that the client dropped it.
    let messages = lost["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": "And?"}));
    let (body, _) = send_to(&CHAT, &gateway, at, &lost, &CHAT.another_reply()).await;
    assert_eq!(body, lost.to_string());
}

#[tokio::test]
async fn every_dialect_uses_the_passthrough_lane_by_default() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "").await;
        let at = (&upstream, &gateway);
        sample.whole(at, &sample.first_request().to_string(), sample.whole).await;
        assert_eq!(last_lane(&gateway).await, ("through".into(), sample.dialect.into()));
    }
}
