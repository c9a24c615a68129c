//! What whole answers say besides, in the dialects that leave room for it.

use http::Method;
use serde_json::{Value, json};

use crate::support::House;

const THOUGHT: &str = "First this, then that.";

/// Which upstreams sum up what their models thought.
const ROWS: [(&str, bool); 8] = [
    ("anthropic, adaptive", true),
    ("gemini 3", true),
    ("openai_responses", true),
    ("google", true),
    ("litellm", true),
    ("vllm", false),
    ("deepseek-v4", false),
    ("ollama", false),
];

/// Covers: S2-23, S2-46
#[tokio::test]
async fn a_summary_is_the_providers_own_or_absent() {
    let ask = |text: &str, more: Value| {
        let mut body =
            json!({"model": "m", "stream": false, "messages": [{"role": "user", "content": text}]});
        for (name, value) in more.as_object().expect("members") {
            body[name.as_str()] = value.clone();
        }
        body
    };
    let thinking =
        json!({"thinking": {"amount": {"kind": "effort", "effort": "high"}, "show": "summary"}});
    for (row, sums_up) in ROWS {
        let house = House::over(&[row]).await;
        let clients = [
            ("/v1/chat/completions", json!({"reasoning_effort": "high"})),
            ("/ndjson/chat", thinking.clone()),
            ("/api/chat", json!({"think": true})),
        ];
        for (path, more) in clients {
            // Where both speak the same, the answer is the provider's, byte for byte.
            if path == "/v1/chat/completions"
                && !["anthropic, adaptive", "gemini 3", "openai_responses", "ollama"].contains(&row)
            {
                continue;
            }
            let headers = [("content-type", "application/json")];
            let send = |body: Value| {
                house.gateway.client.send(Method::POST, path, &headers, body.to_string())
            };
            let answer = send(ask("ponder", more.clone())).await.good().json();
            let extensions = &answer["extensions"];
            assert_eq!(extensions["reasoning_chunks"], json!([THOUGHT]), "{row} {path}: {answer}");
            assert_eq!(
                extensions.get("reasoning_summary"),
                sums_up.then(|| json!(THOUGHT)).as_ref(),
                "{row} {path}"
            );
            let answer = send(ask("plain", more)).await.good().json();
            assert_eq!(answer.get("extensions"), None, "{row} {path}");
        }
        house.end_in_peace().await;
    }
}
