//! The providers' replies of nodes, byte for byte as the providers sent them.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::Simulator;

use crate::support::{ANTHROPIC, Api, CHAT, GEMINI, RESPONSES, done, kinds, text};

/// What a simulator answers to the last request that it received: names and data of its events.
/// Equal requests get equal replies.
pub(crate) async fn sent_events(simulator: &Simulator) -> Vec<(String, String)> {
    let received = simulator.last_received().await;
    let own = ["host", "content-length", "accept-encoding", "connection"];
    let headers: Vec<(&str, &str)> = received
        .headers
        .iter()
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let path = format!("{}?{}", received.path, received.query);
    let answer = simulator.client.send(Method::POST, &path, &headers, received.body).await;
    let text = answer.expect_ok().text();
    let frames = text.split("\n\n").filter(|frame| frame.contains("data:"));
    let member = |frame: &str, name: &str| {
        let found = frame.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_default().trim_start().to_owned()
    };
    frames
        .map(|frame| (member(frame, "event:"), member(frame, "data:")))
        .filter(|(_, data)| data != "[DONE]")
        .collect()
}

/// Covers: S4-2, S4-6, S4-11, S4-14, S4-15, S4-16, S4-21, S4-29, S4-37, S4-38, S4-44, S4-45
#[tokio::test]
async fn raw_reply_has_the_providers_bytes() {
    for (backend, blocks) in [
        (ANTHROPIC, &["thinking", "text"][..]),
        (GEMINI, &["thinking", "text"]),
        (CHAT, &["thinking", "text"]),
        (RESPONSES, &["thinking", "text"]),
    ] {
        let api = Api::over(&[backend]).await;
        let project = api.project(json!({"title": "t"})).await;
        let chat = json!({"message": "please ponder", "thinking": "medium"});
        let lines = api.chat(&project, chat).await;
        let node = text(&done(&lines)["nodeId"]).to_owned();
        let path = format!("{project}/nodes/{node}");
        let answer = api.send(Method::GET, &format!("{path}/raw"), &Value::Null).await.expect_ok();
        let (raw, envelope) = (answer.text(), answer.json());
        assert_eq!(envelope["provider"], backend.0);
        assert_eq!(envelope["version"], 1);
        assert!(envelope["capturedAt"].as_u64() > Some(0), "{envelope}");
        let sent = sent_events(&api.simulators[0]).await;
        assert!(!sent.is_empty());
        let data: Vec<&str> = sent.iter().map(|(_, data)| data.as_str()).collect();
        let list = format!("[{}]", data.join(","));
        let payload = &envelope["payload"];
        let parsed: Vec<Value> =
            data.iter().map(|data| serde_json::from_str(data).expect("JSON")).collect();
        match text(&envelope["dialect"]) {
            "anthropic" => {
                for (event, (name, data)) in payload.as_array().unwrap().iter().zip(&sent) {
                    assert_eq!(text(&event["event"]), name);
                    assert!(raw.contains(data.as_str()), "{data}\n{raw}");
                }
                assert_eq!(payload.as_array().unwrap().len(), sent.len());
            }
            "gemini" => {
                assert!(raw.contains(&list), "{list}\n{raw}");
                assert_eq!(payload["response"], *parsed.last().unwrap());
            }
            "openai_chat" => assert!(raw.contains(&list), "{list}\n{raw}"),
            "openai_responses" => {
                assert!(raw.contains(&list), "{list}\n{raw}");
                assert_eq!(payload["response"], parsed.last().unwrap()["response"]);
            }
            other => panic!("{other}"),
        }
        let shown = api.get(&path).await;
        assert_eq!(kinds(&shown)[..blocks.len()], *blocks, "{shown:#}");
        // Raw stays on the server unless a client asks for it.
        let streamed = lines.iter().map(ToString::to_string).collect::<String>();
        assert!(!streamed.contains("capturedAt"));
        assert_eq!(api.refusals().await, [""; 0], "{}", backend.0);
    }
}

#[tokio::test]
async fn user_node_has_no_raw_reply() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain").await;
    let user = api.nodes(&project, "main").await[0]["id"].clone();
    let path = format!("{project}/nodes/{}/raw", text(&user));
    let answer = api.send(Method::GET, &path, &Value::Null).await;
    assert_eq!(answer.status, 404);
    assert!(text(&answer.json()["hint"]).contains("store.raw"), "{}", answer.text());
}
