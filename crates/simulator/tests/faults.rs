//! Faults, scenarios and the recording over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Server, adaptive, append, assemble};
use serde_json::{Value, json};
use throughline_simulator::Options;

fn streamed() -> Value {
    let mut body = adaptive("claude-opus-5-5", "use a tool");
    body["stream"] = true.into();
    body
}

fn fault(text: &str) -> [(&str, &str); 1] {
    [("x-simulator-fault", text)]
}

#[tokio::test]
async fn cut_breaks_the_connection() {
    let server = Server::strict().await;
    let whole = server.post(&streamed(), &[]).await;
    for bytes in [0, 1, 100, whole.body.len() - 1] {
        let cut = server.post(&streamed(), &fault(&format!("cut:bytes={bytes}"))).await;
        assert_eq!((cut.status, cut.complete), (200, false));
        assert_eq!(cut.body, whole.body[..bytes]);
    }
    for events in [0, 1, 7] {
        let cut = server.post(&streamed(), &fault(&format!("cut:event={events}"))).await;
        assert!(!cut.complete);
        assert_eq!(cut.events(), whole.events()[..events]);
    }
}

#[tokio::test]
async fn early_end_closes_the_body_cleanly() {
    let server = Server::strict().await;
    let whole = server.post(&streamed(), &[]).await.events();
    let last = whole.len() - 1;
    for events in [0, 4, last] {
        let ended = server.post(&streamed(), &fault(&format!("end:event={events}"))).await;
        assert!(ended.complete);
        assert_eq!(ended.events(), whole[..events]);
    }
}

#[tokio::test]
async fn stall_pauses_and_then_sends_the_rest() {
    let server = Server::strict().await;
    let whole = server.post(&streamed(), &[]).await.body;
    let stalled = server.post(&streamed(), &fault("stall:event=3,ms=150")).await;
    assert_eq!(stalled.body, whole);
    let gap = stalled.arrivals.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
    assert!(gap.as_millis() >= 120, "{gap:?}");
}

#[tokio::test]
async fn head_delay_delays_the_response_head() {
    let server = Server::strict().await;
    let late = server.post(&streamed(), &fault("head-delay:ms=150")).await;
    assert_eq!(late.status, 200);
    assert!(late.arrivals[0].0.as_millis() >= 140);
}

#[tokio::test]
async fn status_fault_uses_the_dialects_error_body() {
    let server = Server::strict().await;
    for (text, status, kind) in [
        ("status:400", 400, "invalid_request_error"),
        ("status:401", 401, "authentication_error"),
        ("status:404", 404, "not_found_error"),
        ("status:413", 413, "request_too_large"),
        ("status:429,retry-after=2", 429, "rate_limit_error"),
        ("status:500", 500, "api_error"),
        ("status:503", 503, "api_error"),
        ("status:504", 504, "timeout_error"),
        ("status:529", 529, "overloaded_error"),
    ] {
        let answer = server.post(&streamed(), &fault(text)).await;
        answer.assert_refused(status, kind, "");
        assert_eq!(answer.header("retry-after"), (status == 429).then_some("2"));
        let path = "/v1/messages/count_tokens";
        assert_eq!(server.post_to(path, &streamed(), &fault(text)).await.status, status);
    }
}

#[tokio::test]
async fn garbage_is_not_a_valid_event() {
    let server = Server::strict().await;
    let garbage = server.post(&streamed(), &fault("garbage")).await;
    assert_eq!(garbage.status, 200);
    assert!(garbage.complete && std::str::from_utf8(&garbage.body).is_err());
    let whole = server.post(&streamed(), &[]).await.body;
    let mixed = server.post(&streamed(), &fault("garbage:event=2")).await.body;
    assert!(mixed.len() > whole.len());
    let same = mixed.iter().zip(&whole).take_while(|(one, other)| one == other).count();
    assert!(same > 100 && mixed.ends_with(&whole[same..]));
}

#[tokio::test]
async fn error_event_ends_the_stream() {
    let server = Server::strict().await;
    let events = server.post(&streamed(), &fault("error:event=5")).await.events();
    assert_eq!(events.len(), 6);
    assert_eq!(
        events[5],
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    );
}

#[tokio::test]
async fn pings_line_ends_and_chunk_sizes_do_not_change_the_message() {
    let server = Server::strict().await;
    let whole = server.post(&streamed(), &[]).await;
    let message = assemble(&whole.events());
    let silent = server.post(&streamed(), &fault("no-ping")).await.events();
    assert!(silent.iter().all(|event| event["type"] != "ping"));
    assert_eq!(assemble(&silent), message);
    let crlf = server.post(&streamed(), &fault("crlf")).await;
    assert!(crlf.text().contains("event: ping\r\ndata: {\"type\":\"ping\"}\r\n\r\n"));
    assert_eq!(assemble(&crlf.events()), message);
    let chunked = server.post(&streamed(), &fault("chunk:bytes=7")).await;
    assert_eq!(chunked.body, whole.body);
    assert!(chunked.arrivals.len() > whole.arrivals.len() + 20, "{}", chunked.arrivals.len());
    let all = server.post(&streamed(), &fault("crlf; chunk:bytes=1; no-ping")).await;
    assert_eq!(assemble(&all.events()), message);
}

#[tokio::test]
async fn faults_act_on_replies_without_streams() {
    let server = Server::strict().await;
    let body = adaptive("claude-opus-5-5", "use a tool");
    let whole = server.post(&body, &[]).await;
    let cut = server.post(&body, &fault("cut:bytes=50")).await;
    assert_eq!((cut.body.as_slice(), cut.complete), (&whole.body[..50], false));
    let ended = server.post(&body, &fault("end:event=1")).await;
    assert_eq!((ended.body.as_slice(), ended.complete), (&whole.body[..32], true));
    let stalled = server.post(&body, &fault("stall:event=1,ms=60")).await;
    assert_eq!(stalled.body, whole.body);
    assert_eq!(server.post(&body, &fault("error:event=1")).await.status, 529);
}

#[tokio::test]
async fn invalid_fault_is_rejected_by_name() {
    let server = Server::strict().await;
    server
        .refuse_with(&streamed(), &fault("explode"), "x-simulator-fault: unknown fault `explode`")
        .await;
    let style = [("x-simulator-signature", "loud")];
    server
        .refuse_with(&streamed(), &style, "x-simulator-signature: unknown signature style `loud`")
        .await;
}

#[tokio::test]
async fn scenario_sets_replies_and_faults() {
    let server = Server::scenario(
        r#"
[[step]]
say = [{ thinking = "First." }, { redacted = true }, { text = "Then." }, { thinking = "Second." },
       { tool = { name = "lookup", input = { k = "seven" } } }]
[[step]]
fault = "status:529"
[[step]]
when = { contains = "21 degrees", model = "claude-*" }
signature = "start"
answer_model = "renamed"
"#,
    )
    .await;
    let mut body = streamed();
    let message = assemble(&server.post(&body, &[]).await.events());
    let content = message["content"].as_array().unwrap();
    assert_eq!(content.len(), 5);
    assert_eq!(content[0]["thinking"], "First.");
    assert_eq!(content[1]["type"], "redacted_thinking");
    assert_eq!(content[4]["input"], json!({"k": "seven"}));
    assert_eq!(message["stop_reason"], "tool_use");
    append(&mut body, &message);
    server.post(&body, &[]).await.assert_refused(529, "overloaded_error", "Overloaded");
    let events = server.post(&body, &[]).await.events();
    assert!(events.iter().all(|event| event["delta"]["type"] != "signature_delta"));
    assert_eq!(assemble(&events)["model"], "renamed");
    assert_eq!(assemble(&server.post(&streamed(), &[]).await.events())["model"], "claude-opus-5-5");
}

#[tokio::test]
async fn scenario_sets_the_signature_style_for_all_replies() {
    let server = Server::scenario("signature = \"empty\"").await;
    let message = server.accept(&adaptive("glm-5", "hello")).await;
    assert_eq!(message["content"][0]["signature"], "");
}

#[tokio::test]
async fn recording_keeps_exact_bytes_and_answers() {
    let server = Server::strict().await;
    let raw = b"{ \"model\" : \"caf\\u00e9\" ,\n\"x\":1 }";
    let headers = [
        ("anthropic-version", "2023-06-01"),
        ("x-api-key", "k-1"),
        ("x-twice", "a"),
        ("x-twice", "b"),
    ];
    server.send("POST", "/v1/messages?beta=true", &headers, raw).await;
    server.send("POST", "/v1/messages", &headers, b"\xff\xfe").await;
    server.post(&streamed(), &[]).await;
    let listed = server.get("/simulator/requests").await.json();
    let requests = listed["requests"].as_array().unwrap();
    assert_eq!((requests.len(), &listed["last"]), (3, &json!(3)));
    let first = &requests[0];
    assert_eq!(STANDARD.decode(first["body_base64"].as_str().unwrap()).unwrap(), raw);
    assert_eq!(first["body_text"].as_str().unwrap().as_bytes(), raw);
    assert_eq!(
        (&first["method"], &first["path"], &first["query"], &first["status"]),
        (&json!("POST"), &json!("/v1/messages"), &json!("beta=true"), &json!(400))
    );
    assert_eq!(first["refusal"], "x: Extra inputs are not permitted");
    let kept = first["headers"].as_array().unwrap();
    for pair in [["x-api-key", "k-1"], ["x-twice", "a"], ["x-twice", "b"]] {
        assert!(kept.contains(&json!(pair)), "{pair:?}");
    }
    assert_eq!(requests[1]["body_text"], Value::Null);
    assert_eq!(requests[1]["body_base64"], "//4=");
    assert_eq!((&requests[2]["status"], &requests[2]["refusal"]), (&json!(200), &Value::Null));
    let newer = server.get("/simulator/requests?after=2").await.json();
    assert_eq!(newer["requests"][0]["id"], 3);
    assert_eq!(server.send("DELETE", "/simulator/requests", &[], b"").await.status, 204);
    assert_eq!(server.get("/simulator/requests").await.json(), json!({"requests": [], "last": 3}));
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_stalled_stream() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = Server::at(listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(throughline_simulator::serve(listener, Options::default(), async {
        stopped.await.unwrap();
    }));
    let stalled =
        tokio::spawn(
            async move { server.post(&streamed(), &fault("stall:event=1,ms=60000")).await },
        );
    tokio::task::yield_now().await;
    stop.send(()).unwrap();
    let limit = std::time::Duration::from_secs(10);
    tokio::time::timeout(limit, serving).await.unwrap().unwrap().unwrap();
    stalled.abort();
}
