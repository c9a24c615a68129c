//! Model names, and requests that load a model. All other cases are in
//! `corpus/ollama/client_request`.

use serde_json::{Value, json};
use throughline_canonical::{EndReason, Event};

use super::{identity, lines, read, read_at};
use crate::dialects::Accepted;

fn with(members: &Value) -> Accepted {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    read(&body)
}

#[test]
fn the_latest_tag_is_removed_from_the_model_name() {
    for (asked, model) in [
        ("qwen3:latest", "qwen3"),
        ("qwen3:8b", "qwen3:8b"),
        ("claude-opus-5", "claude-opus-5"),
        (":latest", ":latest"),
    ] {
        let accepted = with(&json!({"model": asked}));
        assert_eq!(accepted.request.model, model);
        // The reply has the name that the client used.
        let written =
            lines(accepted.reply_writer(&identity()), &[Event::Ended { reason: EndReason::Stop }]);
        assert!(written.contains(&format!("\"model\":\"{asked}\"")), "{written}");
        assert!(accepted.request.extra.is_empty(), "{asked}");
    }
}

#[test]
fn an_empty_request_loads_or_unloads_the_model() {
    for (path, body, word) in [
        ("/api/chat", json!({"model": "m"}), Some("load")),
        ("/api/chat", json!({"model": "m", "messages": []}), Some("load")),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": 0}), Some("unload")),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": "0s"}), Some("unload")),
        ("/api/generate", json!({"model": "m"}), Some("load")),
        ("/api/generate", json!({"model": "m", "prompt": "", "keep_alive": "5m"}), Some("load")),
        ("/api/generate", json!({"model": "m", "prompt": "x"}), None),
        (
            "/api/chat",
            json!({"model": "m", "messages": [{"role": "system", "content": "x"}]}),
            None,
        ),
    ] {
        let accepted = read_at(path, &body).unwrap();
        let reason = word.map(|word| EndReason::Other(word.to_owned()));
        assert_eq!(accepted.session.immediate_end(), reason, "{path} {body}");
    }
}
