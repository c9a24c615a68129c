//! Model names, and requests that load a model. All other cases are in
//! `corpus/ollama/client_request`.

use serde_json::{Value, json};
use throughline_canonical::{EndReason, Request};

use super::{Ollama, lines, read, read_at};
use crate::dialects::ClientDialect;

fn with(members: &Value) -> Request {
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
        let request = with(&json!({"model": asked}));
        assert_eq!(request.model, model);
        // The reply has the name that the client used.
        let written =
            lines(&request, &[throughline_canonical::Event::Ended { reason: EndReason::Stop }]);
        assert!(written.contains(&format!("\"model\":\"{asked}\"")), "{written}");
        let mut sent = request;
        Ollama.forget_own_members(&mut sent);
        assert!(sent.extra.is_empty(), "{asked}");
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
        let request = read_at(path, &body).unwrap().value;
        let reason = word.map(|word| EndReason::Other(word.to_owned()));
        assert_eq!(Ollama.immediate_end(&request), reason, "{path} {body}");
    }
}
