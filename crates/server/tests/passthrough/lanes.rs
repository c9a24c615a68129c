//! Which requests use the passthrough lane, and which are translated although both dialects match.

use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, block_fates, ok_reply};

use crate::support::{
    BINARY, CHAT, DialectSample, GEMINI, RESPONSES, SAMPLES, send_and_answer, send_to,
};

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
    // A later turn does not need the block. It gets it, because the provider's prompt cache finds only
    // what does not change.
    let messages = lost["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": "And?"}));
    let (later, _) = send_to(&CHAT, &gateway, at, &lost, &CHAT.another_reply()).await;
    let later: Value = serde_json::from_str(&later).unwrap();
    let [first, later] = [&body, &later].map(|body| body["messages"].as_array().unwrap());
    assert_eq!(&later[..first.len()], first);
}

/// A reply of each dialect with two pieces of reasoning and a call.
fn reply_with_call(sample: &DialectSample) -> String {
    match sample.dialect {
        "openai_responses" => {
            let item = |id: &str, text: &str, data: &str| {
                json!({"type": "reasoning", "id": id, "encrypted_content": data,
                    "summary": [{"type": "summary_text", "text": text}]})
            };
            let call = json!({"type": "function_call", "id": "fc_1", "call_id": "call_9f8e7d6c5b",
                "name": "look", "arguments": "{\"k\":1}"});
            json!({"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5",
                "output": [item("rs_1", "Hm.", "Z2VudWluZQ=="), item("rs_2", "So.", "c2Vjb25k"), call]})
            .to_string()
        }
        _ => {
            let detail = |at: usize, text: &str, data: &str| {
                json!({"type": "reasoning.text", "text": text, "signature": data,
                    "format": "anthropic-claude-v1", "index": at})
            };
            let call = json!({"id": "call_9f8e7d6c5b", "type": "function",
                "function": {"name": "look", "arguments": "{\"k\":1}"}});
            let message = json!({"role": "assistant", "content": null, "reasoning": "Hm.So.",
                "reasoning_details": [detail(0, "Hm.", "Z2VudWluZQ=="), detail(1, "So.", "c2Vjb25k")],
                "tool_calls": [call]});
            json!({"id": "gen-1", "object": "chat.completion", "model": "gpt-5",
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
            .to_string()
        }
    }
}

/// Removes the pieces of reasoning whose signature is named.
fn without_reasoning(sample: &DialectSample, request: &Value, gone: &[&str]) -> Value {
    let mut request = request.clone();
    let named = |value: &Value| value.as_str().is_some_and(|text| gone.contains(&text));
    match sample.dialect {
        "openai_responses" => {
            let input = request["input"].as_array_mut().unwrap();
            input.retain(|item| !named(&item["encrypted_content"]));
        }
        _ => {
            let message = &mut request["messages"][1];
            let details = message["reasoning_details"].as_array_mut().unwrap();
            details.retain(|detail| !named(&detail["signature"]));
            if details.is_empty() {
                let message = message.as_object_mut().unwrap();
                message.remove("reasoning_details");
                message.remove("reasoning");
            }
        }
    }
    request
}

/// Returns the signatures in a body, in order.
fn signatures(body: &str) -> Vec<&'static str> {
    let mut found: Vec<(usize, &str)> = ["Z2VudWluZQ==", "c2Vjb25k"]
        .into_iter()
        .flat_map(|data| body.match_indices(data).map(move |(at, _)| (at, data)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, data)| data).collect()
}

/// Some clients return only a part of the reasoning.
#[tokio::test]
async fn dropped_part_of_the_thinking_is_restored() {
    let both = ["Z2VudWluZQ==", "c2Vjb25k"];
    for sample in [RESPONSES, CHAT] {
        let (upstream, gateway) = sample.over("", "").await;
        let at = ("a", &upstream);
        let first = sample.first_request();
        let (_, answer) = send_to(&sample, &gateway, at, &first, &reply_with_call(&sample)).await;
        let kept = sample.follow_up(first, &answer);
        let (body, _) = send_to(&sample, &gateway, at, &kept, &sample.another_reply()).await;
        assert_eq!(body, kept.to_string(), "complete, so it passes to the byte");
        for (gone, fates) in [
            (&both[..1], ["restored", "sent"]),
            (&both[1..], ["sent", "restored"]),
            (&both[..], ["restored", "restored"]),
        ] {
            let lost = without_reasoning(&sample, &kept, gone);
            let (body, answer) =
                send_to(&sample, &gateway, at, &lost, &sample.another_reply()).await;
            assert_eq!(signatures(&body), both, "{} {gone:?}: {body}", sample.dialect);
            assert_eq!(
                block_fates(&gateway.last_turn().await),
                fates,
                "{} {gone:?}",
                sample.dialect
            );
            assert_eq!(answer.header("x-throughline-loss"), "");
        }
    }
}

/// Thinking of another backend cannot be restored, and the reply reports it.
#[tokio::test]
async fn dropped_thinking_of_another_backend_is_reported() {
    for sample in [RESPONSES, CHAT] {
        let (a, b) = (RawUpstream::start().await, RawUpstream::start().await);
        let config = [sample.backend("a", &a.url, ""), sample.backend("b", &b.url, "")].concat();
        let gateway = Gateway::start(BINARY, &config).await;
        let mut first = sample.first_request();
        first["reasoning"] = json!({"effort": "low"});
        let (_, answer) =
            send_to(&sample, &gateway, ("a", &a), &first, &reply_with_call(&sample)).await;
        let kept = sample.follow_up(first, &answer);
        let lost = without_reasoning(&sample, &kept, &["Z2VudWluZQ==", "c2Vjb25k"]);
        let (body, answer) =
            send_to(&sample, &gateway, ("b", &b), &lost, &sample.another_reply()).await;
        assert_eq!(body, lost.to_string(), "the bytes stay the client's");
        let turn = gateway.last_turn().await;
        assert_eq!(turn["lane"], "through");
        assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=2;reason=origin");
        assert_eq!(block_fates(&turn), ["left_out origin"; 2]);
        let path = if sample.dialect == "openai_chat" { "messages.1" } else { "input.1" };
        assert_eq!(turn["blocks"][0]["path"], path);
        assert_eq!(
            turn["losses"],
            json!([{"kind": "thinking_omitted", "count": 2, "reason": "origin"}])
        );
        let log = gateway.log();
        let line = log.lines().rfind(|line| line.contains("Turn ended")).unwrap();
        assert!(line.contains("thinking_omitted=2;reason=origin"), "{line}");
        let metrics = gateway.metrics().await;
        assert_eq!(metrics.sum("throughline_losses_total", &[("kind", "thinking_omitted")]), 2.0);
    }
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
