//! Which requests pass, and which go by way of the canonical words although the dialect is the same.

use serde_json::{Value, json};

use crate::support::{ALL, CHAT, GEMINI, Spoken, answered, ask, fates, last_turn};
use crate::upstream::whole;

/// What the newest turn says of its way.
async fn way(gateway: &throughline_testkit::Gateway) -> (Value, Value) {
    let turn = last_turn(gateway).await;
    (turn["lane"].clone(), turn["upstream_dialect"].clone())
}

#[tokio::test]
async fn raw_text_has_to_be_read_and_so_goes_across() {
    let raw = Spoken { more: "variant = \"vllm\"", ..CHAT };
    for (more, lane) in [("", "across"), ("family = \"none\"", "through")] {
        let (upstream, gateway) = raw.over("", more).await;
        let at = (&upstream, &gateway);
        let reply = raw.whole.replace("\"Yes.\"", "\"<think>Hm.</think>Yes.\"");
        let (_, answer) = raw.whole(at, &raw.begin().to_string(), &reply).await;
        assert_eq!(way(&gateway).await.0, lane);
        assert_eq!(answer.text() == reply, lane == "through");
    }
}

#[tokio::test]
async fn what_openai_takes_in_its_newer_dialect_alone_goes_across() {
    let official = Spoken { more: "variant = \"openai\"", ..CHAT };
    let (upstream, gateway) = official.over("", "").await;
    let tool =
        json!({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}});
    for (members, path) in [
        (json!({"reasoning_effort": "high", "tools": [tool]}), "/v1/responses"),
        (json!({"reasoning_effort": "high"}), "/v1/responses"),
        (json!({"reasoning_effort": "high", "logprobs": true}), "/v1/chat/completions"),
        (json!({"tools": [tool]}), "/v1/chat/completions"),
    ] {
        let mut request = official.begin();
        for (key, value) in members.as_object().unwrap() {
            request[key] = value.clone();
        }
        let answer = whole("application/json", "", official.whole);
        let body = request.to_string();
        let (exchange, _) =
            answered(&upstream, &gateway, official.whole_path, &body, &answer).await;
        assert_eq!(exchange.target, path, "{members}");
        let through = path.ends_with("completions");
        assert_eq!(way(&gateway).await.0 == "through", through, "{members}");
    }
}

/// A model that does not reason stays where all its settings have a word.
#[tokio::test]
async fn what_a_model_does_not_think_about_does_not_need_the_newer_dialect() {
    let official = Spoken { more: "variant = \"openai\"", ..CHAT };
    let (upstream, gateway) = official.over("", "").await;
    let mut request = official.begin();
    request["model"] = "gpt-4o".into();
    request["reasoning_effort"] = "high".into();
    request["stop"] = "END".into();
    let answer = whole("application/json", "", official.whole);
    let body = request.to_string();
    let (exchange, got) = answered(&upstream, &gateway, official.whole_path, &body, &answer).await;
    assert_eq!(exchange.target, "/v1/chat/completions");
    let sent: Value = serde_json::from_slice(&exchange.body).unwrap();
    assert_eq!(sent["stop"], json!(["END"]), "{sent}");
    assert_eq!(sent.get("reasoning_effort"), None, "{sent}");
    let loss = got.header("x-throughline-loss");
    assert_eq!(loss, "setting_adapted=thinking;reason=model_does_not_think");
}

#[tokio::test]
async fn a_list_that_grows_passes_unless_its_model_is_mapped() {
    let path = "/v1beta/models/gemini-3-pro:streamGenerateContent";
    let list = format!("[{}\n,\n{}]\n", GEMINI.whole, GEMINI.whole);
    for (more, lane) in [("", "through"), ("models = { \"*\" = \"g\" }", "across")] {
        let (upstream, gateway) = GEMINI.over("", more).await;
        let answer = whole("application/json", "", &list);
        let body = GEMINI.begin().to_string();
        let (_, got) = answered(&upstream, &gateway, path, &body, &answer).await;
        assert_eq!(way(&gateway).await.0, lane);
        assert_eq!(got.text() == list, lane == "through");
        assert_eq!(last_turn(&gateway).await["usage"]["thinking"], 3);
    }
}

/// A call's id is all that some clients keep of a turn.
#[tokio::test]
async fn thinking_that_the_client_lost_is_put_back_before_its_maker_misses_it() {
    let (upstream, gateway) = CHAT.over("", "").await;
    let call = json!([{"id": "call_9f8e7d6c5b", "type": "function",
        "function": {"name": "look", "arguments": "{}"}}]);
    let reply = CHAT
        .whole
        .replace("\"content\":\"Yes.\"", &format!("\"content\":null,\"tool_calls\":{call}"));
    let begun = CHAT.begin();
    let at = ("a", &upstream);
    let (_, answer) = ask(&CHAT, &gateway, at, &begun, &reply).await;
    let kept = CHAT.go_on(begun.clone(), &answer);
    let (body, _) = ask(&CHAT, &gateway, at, &kept, &CHAT.another()).await;
    assert_eq!(body, kept.to_string());
    let mut lost = kept.clone();
    lost["messages"][1] = json!({"role": "assistant", "content": null, "tool_calls": call});
    let (body, _) = ask(&CHAT, &gateway, at, &lost, &CHAT.another()).await;
    assert_eq!(way(&gateway).await, ("across".into(), CHAT.dialect.into()));
    assert_eq!(fates(&last_turn(&gateway).await), ["restored"]);
    let body: Value = serde_json::from_str(&body).unwrap();
    let details = &body["messages"][1]["reasoning_details"][0];
    assert_eq!(details["signature"], "Z2VudWluZQ==", "{body}");
    // A later turn does not need it, and what the client leaves out there is its own decision.
    let messages = lost["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "user", "content": "And?"}));
    let (body, _) = ask(&CHAT, &gateway, at, &lost, &CHAT.another()).await;
    assert_eq!(body, lost.to_string());
}

#[tokio::test]
async fn every_dialect_passes_by_default() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "").await;
        let at = (&upstream, &gateway);
        spoken.whole(at, &spoken.begin().to_string(), spoken.whole).await;
        assert_eq!(way(&gateway).await, ("through".into(), spoken.dialect.into()));
    }
}
