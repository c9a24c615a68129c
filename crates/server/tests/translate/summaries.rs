//! Reasoning summaries in whole answers, in the dialects that have a member for them.

use http::Method;
use serde_json::{Value, json};

use crate::support::TestBed;

const THINKING: &str = "First this, then that.";

/// Upstreams, and whether they summarise the thinking of their models.
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
async fn summary_comes_from_the_provider_or_is_absent() {
    let request = |text: &str, more: Value| {
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
        let bed = TestBed::over(&[row]).await;
        let clients = [
            ("/v1/chat/completions", json!({"reasoning_effort": "high"})),
            ("/ndjson/chat", thinking.clone()),
            ("/api/chat", json!({"think": true})),
        ];
        for (path, more) in clients {
            // If both sides have the same dialect, the answer is the provider's, byte for byte.
            if path == "/v1/chat/completions"
                && !["anthropic, adaptive", "gemini 3", "openai_responses", "ollama"].contains(&row)
            {
                continue;
            }
            let headers = [("content-type", "application/json")];
            let send = |body: Value| {
                bed.gateway.client.send(Method::POST, path, &headers, body.to_string())
            };
            let answer = send(request("ponder", more.clone())).await.expect_ok().json();
            let extensions = &answer["extensions"];
            assert_eq!(extensions["reasoning_chunks"], json!([THINKING]), "{row} {path}: {answer}");
            assert_eq!(
                extensions.get("reasoning_summary"),
                sums_up.then(|| json!(THINKING)).as_ref(),
                "{row} {path}"
            );
            let answer = send(request("plain", more)).await.expect_ok().json();
            assert_eq!(answer.get("extensions"), None, "{row} {path}");
        }
        bed.expect_no_refusals().await;
    }
}
