//! Streams: events, the growing array, usage counts and faults.

use serde_json::{Value, json};

use crate::common::Server;
use crate::{OLDER, PRO, accept, ask, assemble, call, events, plain, with};

const STREAM: &str = "/v1beta/models/gemini-3-pro-preview:streamGenerateContent";

#[tokio::test]
async fn streamed_reply_equals_the_whole_reply() {
    let server = Server::strict().await;
    for model in [PRO, OLDER] {
        for text in [
            "hello",
            "hello redacted",
            "think twice",
            "use a tool",
            "use a tool in parallel",
            "use a tool and think twice",
            "bench 50",
        ] {
            let hidden = with(&ask(text), "/generationConfig/thinkingConfig", json!({}));
            for body in [ask(text), hidden] {
                let whole = accept(&server, model, &body).await;
                let path = format!("/v1/models/{model}:streamGenerateContent");
                let streamed = call(&server, &format!("{path}?alt=sse"), &body, &[]).await;
                assert_eq!(assemble(&events(&streamed)), whole, "{model} {text}");
                let grown = call(&server, &path, &body, &[]).await;
                assert_eq!(grown.header("content-type"), Some("application/json"));
                let chunks: Vec<Value> = serde_json::from_slice(&grown.body).unwrap();
                assert_eq!(assemble(&chunks), whole, "{model} {text}");
            }
        }
    }
}

#[tokio::test]
async fn call_is_sent_as_one_part_in_one_chunk() {
    let server = Server::strict().await;
    let path = format!("{STREAM}?alt=sse");
    let answer = call(&server, &path, &ask("use a tool in parallel"), &[]).await;
    let calls: Vec<Value> = events(&answer)
        .iter()
        .flat_map(|chunk| chunk["candidates"][0]["content"]["parts"].as_array().unwrap().clone())
        .filter(|part| part["functionCall"].is_object())
        .collect();
    assert_eq!(calls.len(), 2);
    assert!(calls[0]["thoughtSignature"].is_string() && calls[1]["thoughtSignature"].is_null());
    assert!(calls.iter().all(|part| part["functionCall"]["args"]["k"].is_string()));
}

/// Google's JavaScript client keeps its history this way.
#[tokio::test]
async fn each_chunk_may_be_sent_back_as_its_own_content() {
    let server = Server::strict().await;
    let path = format!("{STREAM}?alt=sse");
    let mut body = ask("use a tool twice in parallel");
    for round in 0..3 {
        let chunks = events(&call(&server, &path, &body, &[]).await);
        let whole = assemble(&chunks);
        let contents = body["contents"].as_array_mut().unwrap();
        let pieces = chunks.iter().map(|chunk| chunk["candidates"][0]["content"].clone());
        contents.extend(pieces);
        // Appends only the results.
        let before = body["contents"].as_array().unwrap().len();
        let calls = crate::append(&mut body, &whole);
        body["contents"].as_array_mut().unwrap().remove(before);
        assert_eq!(calls, if round < 2 { 2 } else { 0 }, "{round}");
    }
    crate::say(&mut body, "And now?");
    accept(&server, PRO, &body).await;
}

#[tokio::test]
async fn thought_tokens_grow_with_the_stream() {
    let server = Server::strict().await;
    let path = format!("{STREAM}?alt=sse");
    let chunks = events(&call(&server, &path, &ask("hello"), &[]).await);
    let first = &chunks[0]["usageMetadata"];
    assert_eq!(first["thoughtsTokenCount"], 1);
    assert!(first["candidatesTokenCount"].is_null());
    let body = with(&ask("hello"), "/generationConfig/thinkingConfig", json!({}));
    let chunks = events(&call(&server, &path, &body, &[]).await);
    assert!(chunks[0]["usageMetadata"]["thoughtsTokenCount"].as_u64() > Some(10));
}

#[tokio::test]
async fn signature_style_decides_where_the_signature_is() {
    let server = Server::strict().await;
    for (style, expected) in [("delta", "txX"), ("late", "txX"), ("start", "tX"), ("empty", "tx")] {
        let headers = [("x-simulator-signature", style)];
        let path = format!("/v1beta/models/{PRO}:generateContent");
        let whole = call(&server, &path, &ask("hello"), &headers).await.json();
        assert_eq!(crate::outline(&whole), expected, "{style}");
        let path = format!("{STREAM}?alt=sse");
        let streamed = events(&call(&server, &path, &ask("hello"), &headers).await);
        assert_eq!(assemble(&streamed), whole, "{style}");
    }
}

#[tokio::test]
async fn faults_act_on_events_and_arrays() {
    let server = Server::strict().await;
    let path = format!("{STREAM}?alt=sse");
    let fault = |text| [("x-simulator-fault", text)];
    let broken = call(&server, &path, &plain("hello"), &fault("error:event=2")).await;
    let chunks = events(&broken);
    assert_eq!(chunks.len(), 3);
    assert_eq!(chunks[2]["error"]["status"], "UNAVAILABLE");
    let broken = call(&server, STREAM, &plain("hello"), &fault("error:event=2")).await;
    let chunks: Vec<Value> = serde_json::from_slice(&broken.body).unwrap();
    assert_eq!((chunks.len(), &chunks[2]["error"]["code"]), (3, &json!(503)));
    let cut = call(&server, &path, &plain("hello"), &fault("cut:event=1")).await;
    assert!(!cut.complete);
    let ended = call(&server, &path, &plain("hello"), &fault("end:event=1")).await;
    let chunks = events(&ended);
    assert!(ended.complete && chunks[0]["candidates"][0]["finishReason"].is_null());
    let crlf = call(&server, &path, &plain("hello"), &fault("crlf;chunk:bytes=3")).await;
    assemble(&events(&crlf));
}

#[tokio::test]
async fn status_fault_includes_the_retry_delay() {
    let server = Server::strict().await;
    let headers = [("x-simulator-fault", "status:429,retry-after=2")];
    let path = format!("{STREAM}?alt=sse");
    let answer = call(&server, &path, &plain("hello"), &headers).await;
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["status"]), (429, &json!("RESOURCE_EXHAUSTED")));
    assert_eq!(error["details"][0]["retryDelay"], "2s");
    // In a reply that is an array, the error is an element.
    let answer = call(&server, STREAM, &plain("hello"), &headers).await;
    assert_eq!(answer.json()[0]["error"]["code"], 429);
}

#[tokio::test]
async fn alt_selects_events_or_an_array() {
    let server = Server::strict().await;
    let array = call(&server, &format!("{STREAM}?alt=json"), &plain("hello"), &[]).await;
    assert!(array.json().is_array());
    let proto = call(&server, &format!("{STREAM}?alt=proto"), &plain("hello"), &[]).await;
    crate::assert_refused(&proto, "query parameter alt");
    let path = "/v1beta/models/gemini-3-pro-preview";
    for method in [":embedContent", ":", ""] {
        let unknown = call(&server, &format!("{path}{method}"), &plain("hello"), &[]).await;
        assert_eq!(unknown.status, 404, "{method}");
        assert_eq!(unknown.json()["error"]["status"], "NOT_FOUND");
    }
}
