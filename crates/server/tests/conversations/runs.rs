//! Streams of runs: formats, cursors and filters.

use http::Method;
use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, FORMATS, cursors, lines};

async fn events(api: &Api, run: &str, query: &str) -> String {
    let path = format!("/api/runs/{run}/events?{query}");
    api.send(Method::GET, &path, &Value::Null).await.expect_ok().text()
}

/// Starts a run with thinking and text, reads it to its end, and returns its id.
async fn finished_run(api: &Api) -> String {
    let project = api.project(json!({"title": "t"})).await;
    let chat = json!({"message": "ponder", "thinking": "medium"});
    let answer = api.post(&format!("{project}/chat"), chat).await.expect_ok();
    answer.header("x-throughline-run").to_owned()
}

#[tokio::test]
async fn every_format_goes_on_after_every_cursor() {
    let api = Api::over(&[ANTHROPIC]).await;
    let run = finished_run(&api).await;
    for format in FORMATS {
        let whole = events(&api, &run, &format!("format={format}")).await;
        let cursors = cursors(format, &whole);
        assert!(cursors.len() > 4, "{whole}");
        for (cursor, length) in cursors {
            let rest = events(&api, &run, &format!("format={format}&after={cursor}")).await;
            assert_eq!(rest, whole[length..], "{format} {cursor}");
            let path = format!("/api/runs/{run}/events?format={format}&after=1");
            let headers = [("authorization", "Bearer ada"), ("last-event-id", cursor.as_str())];
            let rest = api.gateway.client.send(Method::GET, &path, &headers, "").await.text();
            assert_eq!(rest, whole[length..], "the header wins");
        }
    }
}

#[tokio::test]
async fn turn_streams_the_format_that_the_caller_wants() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    for (query, accept, content_type, part) in [
        ("", "", "application/x-ndjson", "\"type\":\"done\""),
        ("", "*/*", "application/x-ndjson", "\"type\":\"done\""),
        ("", "text/event-stream", "text/event-stream", "event: ended"),
        ("?format=ndjson", "text/event-stream", "application/x-ndjson", "\"type\":\"done\""),
        ("?format=sse", "", "text/event-stream", "event: ended"),
        ("?format=ag-ui", "", "text/event-stream", "RUN_FINISHED"),
        ("?format=ui", "", "text/event-stream", "data: [DONE]"),
    ] {
        let path = format!("{project}/chat{query}");
        let mut headers = vec![("authorization", "Bearer ada")];
        if !accept.is_empty() {
            headers.push(("accept", accept));
        }
        let body = json!({"message": "plain"});
        let answer = api.gateway.client.post(&path, &headers, &body).await.expect_ok();
        assert!(answer.header("content-type").starts_with(content_type), "{query} {accept}");
        assert!(answer.text().contains(part), "{query} {accept}: {}", answer.text());
    }
    let before = api.count(&project).await;
    let wrong = api.post(&format!("{project}/chat?format=xml"), json!({"message": "plain"})).await;
    assert_eq!((wrong.status, api.count(&project).await), (400, before));
}

#[tokio::test]
async fn ag_ui_stream_names_the_run() {
    let api = Api::over(&[ANTHROPIC]).await;
    let run = finished_run(&api).await;
    let stream = events(&api, &run, "format=ag-ui").await;
    assert!(stream.contains(&format!("\"runId\":\"{run}\"")), "{stream}");
}

#[tokio::test]
async fn reader_filters_by_kind() {
    let api = Api::over(&[ANTHROPIC]).await;
    let run = finished_run(&api).await;
    for (kinds, expected) in [
        ("text", &["text", "done"][..]),
        ("thinking", &["thinking", "thinking_signature", "done"]),
        ("tools", &["done"]),
        ("text,thinking", &["thinking", "thinking_signature", "text", "done"]),
    ] {
        let path = format!("/api/runs/{run}/events?kinds={kinds}");
        let lines = lines(&api.send(Method::GET, &path, &Value::Null).await.expect_ok());
        let mut found: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
        found.dedup();
        assert_eq!(found, expected, "{kinds}");
    }
}

#[tokio::test]
async fn unknown_cursors_kinds_and_formats_are_refused() {
    let api = Api::over(&[ANTHROPIC]).await;
    let run = finished_run(&api).await;
    for query in
        ["after=9999", "after=x", "after=-1", "after=1.9&format=sse", "kinds=images", "format=xml"]
    {
        let path = format!("/api/runs/{run}/events?{query}");
        let answer = api.send(Method::GET, &path, &Value::Null).await;
        assert_eq!(answer.status, 400, "{query}: {}", answer.text());
    }
    let answer = api.send(Method::GET, "/api/runs/run_x/events", &Value::Null).await;
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn silent_run_sends_keep_alives() {
    let scenario = r#"
[[step]]
fault = "stall:event=5,ms=600000"
say = [{ thinking = "One, two, three, four, five, six, seven." }, { text = "Never." }]
"#;
    let api = Api::with(&[ANTHROPIC], scenario, "keep_alive = \"50ms\"\n").await;
    let project = api.project(json!({"title": "t"})).await;
    let path = format!("{project}/chat?format=sse");
    let mut stream = api.open(Method::POST, &path, &json!({"message": "x"})).await;
    loop {
        let piece = stream.next().await.expect("a keep-alive");
        if piece.starts_with(b":") {
            break;
        }
    }
}

/// Covers: X-4
#[tokio::test]
async fn equal_requests_at_once_get_the_same_run() {
    let api = Api::over(&[ANTHROPIC]).await;
    for round in 0..10 {
        let project = api.project(json!({"title": format!("t{round}")})).await;
        let chat = json!({"message": "plain", "clientRequestId": "once"});
        let path = format!("{project}/chat");
        let (one, other) = tokio::join!(api.post(&path, chat.clone()), api.post(&path, chat));
        let (one, other) = (one.expect_ok(), other.expect_ok());
        let run =
            |answer: &throughline_testkit::Answer| answer.header("x-throughline-run").to_owned();
        assert_eq!(run(&one), run(&other));
        assert_eq!(api.count(&project).await, 2);
    }
}

#[tokio::test]
async fn purged_branch_leaves_no_log_behind() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain").await;
    api.branch(&project, json!({"name": "side"})).await;
    let chat = json!({"branch": "side", "message": "plain"});
    let answer = api.post(&format!("{project}/chat"), chat).await.expect_ok();
    let events = format!("/api/runs/{}/events", answer.header("x-throughline-run"));
    assert_eq!(api.send(Method::GET, &events, &Value::Null).await.status, 200);
    assert_eq!(api.delete(&format!("{project}/branches/side?purge=true")).await.status, 204);
    assert_eq!(api.send(Method::GET, &events, &Value::Null).await.status, 404);
    // A project without a branch starts again.
    assert_eq!(api.delete(&format!("{project}/branches/main?purge=true")).await.status, 204);
    api.branch(&project, json!({"name": "main"})).await;
    api.say(&project, "main", "plain").await;
}
