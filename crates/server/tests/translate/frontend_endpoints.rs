//! Endpoints for front ends: dialects that no provider speaks, each with its own path.

use http::Method;
use serde_json::{Value, json};

use crate::support::{BedOptions, TestBed};

const JSON: (&str, &str) = ("content-type", "application/json");

/// Returns the paths with a request for each.
fn endpoint_requests() -> [(&'static str, Value); 3] {
    let words = json!([{"role": "user", "content": "ponder this"}]);
    ["/ui/chat", "/ndjson/chat", "/v1/stream"].map(|path| (path, json!({"messages": words})))
}

/// A request may omit the model, may name a backend, and names its conversation.
#[tokio::test]
async fn request_without_a_model_uses_the_default_model() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget", "gemini 3"],
        backend: "default_model = \"chosen-here\"",
        ..BedOptions::default()
    })
    .await;
    for (path, mut body) in endpoint_requests() {
        body["backend"] = "b".into();
        let client = &bed.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.expect_ok();
        assert_eq!(answer.header("x-throughline-backend"), "b", "{path}");
        let text = answer.text();
        // The text may be split over several events.
        assert!(text.contains("\"houg\""), "{path}: {text}");
        let turn = &bed.gateway.turns().await[0];
        assert_eq!((&turn["lane"], &turn["status"]), (&json!("across"), &json!(200)));
        body["backend"] = "nobody".into();
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await;
        assert_eq!(answer.status, 400, "{path}");
        let text = answer.text();
        assert!(text.contains("there is no backend `nobody`"), "{text}");
    }
}

/// The reply names the model that answered, in the form of each dialect.
#[tokio::test]
async fn reply_names_the_model_that_answered() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        backend: "default_model = \"chosen-here\"",
        ..BedOptions::default()
    })
    .await;
    let words = json!([{"role": "user", "content": "ponder this"}]);
    let ag_ui = json!({"threadId": "t", "runId": "r", "messages":
        [{"id": "m", "role": "user", "content": "ponder this"}]});
    let mut requests = Vec::from(endpoint_requests());
    requests.push(("/ag-ui", ag_ui));
    for stream in [true, false] {
        let chat = json!({"messages": words, "stream": stream});
        requests.push(("/api/chat", chat));
        let question = json!({"prompt": "ponder this", "stream": stream});
        requests.push(("/api/generate", question));
    }
    for (path, body) in requests {
        let client = &bed.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.expect_ok();
        let text = answer.text();
        // AG-UI has no member for the model.
        let named = text.contains("\"chosen-here\"");
        assert!(named || path == "/ag-ui", "{path}: {text}");
        assert!(!text.contains("\"model\":\"\""), "{path}: {text}");
    }
    bed.expect_no_refusals().await;
}

/// The last event of a stream lists the same losses as the header and the turn.
#[tokio::test]
async fn last_event_lists_the_losses_of_the_turn() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        backend: "default_model = \"chosen-here\"",
        ..BedOptions::default()
    })
    .await;
    let settings = json!({"parallel_calls": false});
    let ag_ui = json!({"threadId": "t", "runId": "r", "forwardedProps": settings, "messages":
        [{"id": "m", "role": "user", "content": "ponder this"}]});
    let mut requests = Vec::from(endpoint_requests());
    for (_, body) in &mut requests {
        body["parallel_calls"] = false.into();
    }
    requests.push(("/ag-ui", ag_ui));
    for (path, body) in requests {
        let client = &bed.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.expect_ok();
        let losses = bed.gateway.turns().await[0]["losses"].clone();
        assert!(losses.as_array().is_some_and(|losses| !losses.is_empty()), "{path}: {losses}");
        assert!(answer.header("x-throughline-loss").contains("parallel_tool_calls"), "{path}");
        let text = answer.text();
        assert!(text.contains(&format!("\"losses\":{losses}")), "{path}: {losses} in {text}");
    }
}

#[tokio::test]
async fn content_type_matches_the_reply() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    for (path, mut body) in endpoint_requests() {
        body["model"] = "some-model".into();
        let client = &bed.gateway.client;
        let answer = client.send(Method::POST, path, &[JSON], body.to_string()).await.expect_ok();
        let (kind, expected_version) = match path {
            "/ndjson/chat" => ("application/x-ndjson", ""),
            "/ui/chat" => ("text/event-stream; charset=utf-8", "v1"),
            _ => ("text/event-stream; charset=utf-8", ""),
        };
        assert_eq!(answer.header("content-type"), kind, "{path}");
        let version = answer.header("x-vercel-ai-ui-message-stream");
        assert_eq!(version, expected_version, "{path}");
        assert_eq!(answer.header("x-accel-buffering"), "no", "{path}");
    }
}

/// A backend of another dialect does not know these paths.
#[tokio::test]
async fn probes_of_frontend_endpoints_are_not_sent() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    for (path, _) in endpoint_requests() {
        for (method, status) in [(Method::OPTIONS, 204), (Method::HEAD, 405), (Method::GET, 405)] {
            let client = &bed.gateway.client;
            let answer = client.send(method.clone(), path, &[], "").await;
            assert_eq!(answer.status, status, "{method} {path}");
        }
    }
    let client = &bed.gateway.client;
    let resumed = client.send(Method::GET, "/ui/chat/chat-1/stream", &[], "").await;
    assert_eq!((resumed.status, resumed.text().as_str()), (204, ""));
    assert!(bed.simulators[0].received().await.is_empty());
}

#[tokio::test]
async fn default_thinking_is_shown_at_every_frontend_endpoint() {
    // Both models think by default, and show it only on request.
    for row in ["anthropic, adaptive", "gemini 3"] {
        let bed = TestBed::over(&[row]).await;
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
            let sent = bed.gateway.client.send(Method::POST, path, &headers, body.to_string());
            let answer = sent.await.expect_ok().text();
            // The thinking may be split over several events.
            assert!(answer.contains("Firs"), "{path} over {row}: {answer}");
        }
        bed.expect_no_refusals().await;
    }
}
