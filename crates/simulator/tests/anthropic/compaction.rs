//! Compaction: the simulator signs the summaries it writes, accepts the turns that are kept after
//! one, and refuses what its provider refuses.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::{Server, adaptive, append, assemble, say};

const OPUS: &str = "claude-opus-5-5";
const BETA: &[(&str, &str)] = &[("anthropic-beta", "compact-2026-09-04")];
const BOUND: &str = "bound to a different conversation";

/// A conversation of two turns whose third one asks for a summary.
async fn compactable(server: &Server, pauses: bool) -> Value {
    let mut body = server.play(adaptive(OPUS, "the code is kiwi7")).await;
    say(&mut body, "And now?");
    let mut body = server.play(body).await;
    say(&mut body, "Please compact this.");
    body["context_management"] =
        json!({"edits": [{"type": "compact_20260904", "pause_after_compaction": pauses}]});
    body
}

fn assistant(content: &[&Value]) -> Value {
    json!({"role": "assistant", "content": content})
}

#[tokio::test]
async fn summary_replaces_the_turns_before_it() {
    let server = Server::binding().await;
    let mut body = compactable(&server, false).await;
    let whole = server.accept_with(&body, BETA).await;
    let kinds: Vec<&str> =
        whole["content"].as_array().unwrap().iter().map(|b| b["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["compaction", "thinking", "text"]);
    let summary = whole["content"][0]["content"].as_str().unwrap();
    assert!(summary.contains("the code is kiwi7"), "{summary}");
    // The old turns may stay or go.
    append(&mut body, &whole);
    say(&mut body, "Go on.");
    server.accept_with(&body, BETA).await;
    let messages = body["messages"].as_array().unwrap();
    body["messages"] = json!(messages[messages.len() - 2..]);
    server.accept_with(&body, BETA).await;
    server.refuse(&body, "context_management").await;
}

#[tokio::test]
async fn streamed_summary_equals_the_whole_one() {
    let server = Server::binding().await;
    let mut body = compactable(&server, true).await;
    let whole = server.accept_with(&body, BETA).await;
    assert_eq!(whole["stop_reason"], "compaction");
    assert_eq!(whole["content"].as_array().unwrap().len(), 1);
    body["stream"] = json!(true);
    let events = server.post(&body, BETA).await.events();
    assert_eq!(assemble(&events)["content"], whole["content"]);
}

#[tokio::test]
async fn kept_turns_stay_valid_only_directly_after_the_summary() {
    let server = Server::binding().await;
    let body = compactable(&server, true).await;
    let reply = server.accept_with(&body, BETA).await;
    let summary = &reply["content"][0];
    // The second turn is kept: user, thinking and text.
    let kept = &body["messages"].as_array().unwrap()[2..4];
    let question = json!({"role": "user", "content": "Go on."});
    let with = |messages: Vec<Value>| {
        let mut body = body.clone();
        body["messages"] = messages.into();
        body
    };
    let follow = |first: Value| with([vec![first], kept.to_vec(), vec![question.clone()]].concat());
    server.accept_with(&follow(assistant(&[summary])), BETA).await;
    let mut later = follow(assistant(&[summary]));
    later["tools"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "later", "defer_loading": true, "input_schema": {"type": "object"}}));
    server.accept_with(&later, BETA).await;
    later["tools"][1]["defer_loading"] = json!(false);
    server.refuse_with(&later, BETA, BOUND).await;
    // Another text between them, or another role.
    let text = json!({"type": "text", "text": "So far."});
    server.refuse_with(&follow(assistant(&[summary, &text])), BETA, BOUND).await;
    // Without a summary the first turn is missing.
    server.refuse_with(&with([kept.to_vec(), vec![question.clone()]].concat()), BETA, BOUND).await;
    // A failed summary replaces nothing.
    let failed = json!({"type": "compaction", "content": null});
    server.refuse_with(&follow(assistant(&[&failed])), BETA, BOUND).await;
}

#[tokio::test]
async fn altered_or_foreign_summary_is_refused() {
    let named = |identity: &str| {
        Server::start(Options { identity: identity.to_owned(), ..Options::default() })
    };
    let (one, two) = (named("one").await, named("two").await);
    let body = compactable(&one, true).await;
    let reply = one.accept_with(&body, BETA).await;
    let go_on = |summary: &Value| {
        let question = json!({"role": "user", "content": "Go on."});
        let mut body = body.clone();
        body["messages"] = json!([assistant(&[summary]), question]);
        body
    };
    let summary = reply["content"][0].clone();
    one.accept_with(&go_on(&summary), BETA).await;
    let mut altered = summary.clone();
    altered["content"] = json!("the code is apple1");
    for (server, summary) in [(&one, &altered), (&two, &summary)] {
        let answer = server.post(&go_on(summary), BETA).await;
        answer.assert_refused(400, "invalid_request_error", "Invalid `signature`");
        assert_eq!(answer.json()["error"]["details"]["error_code"], "compaction_signature_invalid");
    }
}
