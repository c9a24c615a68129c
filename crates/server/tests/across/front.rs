//! Front doors: dialects no provider speaks, each on a path of its own.

use http::Method;
use serde_json::{Value, json};

use crate::support::{House, Plan};

const JSON: (&str, &str) = ("content-type", "application/json");

/// The paths, and the words of a question there.
fn questions() -> [(&'static str, Value); 3] {
    let words = json!([{"role": "user", "content": "ponder this"}]);
    ["/ui/chat", "/ndjson/chat", "/v1/stream"].map(|path| (path, json!({"messages": words})))
}

/// A request need not name a model, may name a backend, and names its conversation.
#[tokio::test]
async fn a_front_end_may_leave_the_choice_of_the_model_to_the_gateway() {
    let house = House::build(&Plan {
        upstreams: &["anthropic, budget", "gemini 3"],
        backend: "default_model = \"chosen-here\"",
        ..Plan::default()
    })
    .await;
    for (path, mut body) in questions() {
        body["backend"] = "b".into();
        let client = &house.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.good();
        assert_eq!(answer.header("x-throughline-backend"), "b", "{path}");
        let text = answer.text();
        // As it is written: in pieces.
        assert!(text.contains("\"houg\""), "{path}: {text}");
        let turn = &house.gateway.turns().await[0];
        assert_eq!((&turn["lane"], &turn["status"]), (&json!("across"), &json!(200)));
        body["backend"] = "nobody".into();
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await;
        assert_eq!(answer.status, 400, "{path}");
        let text = answer.text();
        assert!(text.contains("there is no backend `nobody`"), "{text}");
    }
}

/// The reply names the model that answered, in whichever words.
#[tokio::test]
async fn a_client_that_names_no_model_is_told_which_one_answered() {
    let house = House::build(&Plan {
        upstreams: &["gemini 3"],
        backend: "default_model = \"chosen-here\"",
        ..Plan::default()
    })
    .await;
    let words = json!([{"role": "user", "content": "ponder this"}]);
    let ag_ui = json!({"threadId": "t", "runId": "r", "messages":
        [{"id": "m", "role": "user", "content": "ponder this"}]});
    let mut asked = Vec::from(questions());
    asked.push(("/ag-ui", ag_ui));
    for stream in [true, false] {
        let chat = json!({"messages": words, "stream": stream});
        asked.push(("/api/chat", chat));
        let question = json!({"prompt": "ponder this", "stream": stream});
        asked.push(("/api/generate", question));
    }
    for (path, body) in asked {
        let client = &house.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.good();
        let text = answer.text();
        // Runs have no place for it.
        let named = text.contains("\"chosen-here\"");
        assert!(named || path == "/ag-ui", "{path}: {text}");
        assert!(!text.contains("\"model\":\"\""), "{path}: {text}");
    }
    house.end_in_peace().await;
}

#[tokio::test]
async fn replies_are_what_their_headers_say() {
    let house = House::over(&["anthropic, budget"]).await;
    for (path, mut body) in questions() {
        body["model"] = "some-model".into();
        let client = &house.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.good();
        let (kind, marked) = match path {
            "/ndjson/chat" => ("application/x-ndjson", ""),
            "/ui/chat" => ("text/event-stream; charset=utf-8", "v1"),
            _ => ("text/event-stream; charset=utf-8", ""),
        };
        assert_eq!(answer.header("content-type"), kind, "{path}");
        let mark = answer.header("x-vercel-ai-ui-message-stream");
        assert_eq!(mark, marked, "{path}");
        assert_eq!(answer.header("x-accel-buffering"), "no", "{path}");
    }
}

/// A backend of another dialect knows nothing of such paths.
#[tokio::test]
async fn probes_of_a_front_door_go_nowhere() {
    let house = House::over(&["anthropic, budget"]).await;
    for (path, _) in questions() {
        for (method, status) in [(Method::OPTIONS, 204), (Method::HEAD, 405), (Method::GET, 405)] {
            let client = &house.gateway.client;
            let answer = client.send(method.clone(), path, &[], "").await;
            assert_eq!(answer.status, status, "{method} {path}");
        }
    }
    let client = &house.gateway.client;
    let resumed = client.send(Method::GET, "/ui/chat/chat-1/stream", &[], "").await;
    assert_eq!((resumed.status, resumed.text().as_str()), (204, ""));
    assert!(house.simulators[0].seen().await.is_empty());
}

#[tokio::test]
async fn what_a_model_thinks_anyway_is_shown_at_every_front_door() {
    // Both think when nobody asks, and show it only to whoever asks for that.
    for row in ["anthropic, adaptive", "gemini 3"] {
        let house = House::over(&[row]).await;
        for (path, body) in [
            (
                "/ag-ui",
                json!({"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "ponder"}], "tools": [], "context": []}),
            ),
            (
                "/ui/chat",
                json!({"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "ponder"}]}]}),
            ),
            (
                "/ndjson/chat",
                json!({"stream": false, "messages": [{"role": "user", "content": "ponder"}]}),
            ),
            (
                "/v1/stream",
                json!({"stream": false, "messages": [{"role": "user", "content": "ponder"}]}),
            ),
        ] {
            let mut body = body;
            body["model"] = "m".into();
            let headers = [("content-type", "application/json")];
            let sent = house.gateway.client.send(Method::POST, path, &headers, body.to_string());
            let answer = sent.await.good().text();
            // In whichever pieces it comes.
            assert!(answer.contains("Firs"), "{path} over {row}: {answer}");
        }
        house.end_in_peace().await;
    }
}
