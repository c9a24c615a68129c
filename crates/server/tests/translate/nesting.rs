//! Deeply nested bodies: they are translated up to the configured depth and rejected beyond it.

use http::Method;
use throughline_testkit::{Gateway, RawUpstream};

use crate::support::BINARY;

const DIALECTS: [&str; 4] = ["anthropic", "openai_chat", "openai_responses", "gemini"];

/// Returns an object of this many levels.
fn nested(levels: usize) -> String {
    let open = r#"{"type":"object","properties":"#.repeat(levels - 1);
    format!("{open}{{}}{}", "}".repeat(levels - 1))
}

/// Returns a request with a schema, call arguments and an unknown member of about this depth.
fn request(dialect: &str, levels: usize) -> (&'static str, String) {
    let deep = nested(levels - 12);
    match dialect {
        "anthropic" => (
            "/v1/messages",
            format!(
                r#"{{"model":"m","max_tokens":9,"odd":{deep},"tools":[{{"name":"f","input_schema":{deep}}}],"messages":[{{"role":"user","content":"hi"}},{{"role":"assistant","content":[{{"type":"tool_use","id":"t1","name":"f","input":{deep}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t1"}},{{"type":"odd","odd":{deep}}}]}}]}}"#
            ),
        ),
        "openai_chat" => (
            "/v1/chat/completions",
            format!(
                r#"{{"model":"m","odd":{deep},"tools":[{{"type":"function","function":{{"name":"f","parameters":{deep}}}}}],"messages":[{{"role":"user","content":"hi"}},{{"role":"assistant","tool_calls":[{{"id":"t1","type":"function","function":{{"name":"f","arguments":{deep}}}}}]}},{{"role":"tool","tool_call_id":"t1","content":"x"}},{{"role":"user","content":[{{"type":"odd","odd":{deep}}}]}}]}}"#
            ),
        ),
        "openai_responses" => (
            "/v1/responses",
            format!(
                r#"{{"model":"m","odd":{deep},"tools":[{{"type":"function","name":"f","parameters":{deep}}}],"input":[{{"role":"user","content":"hi"}},{{"type":"odd","odd":{deep}}}]}}"#
            ),
        ),
        _ => (
            "/v1beta/models/m:generateContent",
            format!(
                r#"{{"odd":{deep},"tools":[{{"functionDeclarations":[{{"name":"f","parametersJsonSchema":{deep}}}]}}],"contents":[{{"role":"user","parts":[{{"text":"hi"}}]}},{{"role":"model","parts":[{{"functionCall":{{"name":"f","args":{deep}}}}}]}},{{"role":"user","parts":[{{"functionResponse":{{"name":"f","response":{deep}}}}}]}}]}}"#
            ),
        ),
    }
}

#[tokio::test]
async fn body_is_translated_up_to_the_nesting_limit() {
    let refusal = b"HTTP/1.1 403 No\r\ncontent-type: application/json\r\n\
        connection: close\r\ncontent-length: 2\r\n\r\n{}";
    let url = RawUpstream::always_answering(*refusal).await;
    let mut config = "[limits]\njson_depth = 1024\n".to_owned();
    for dialect in DIALECTS {
        config.push_str(&format!(
            "[[backend]]\nname = \"{dialect}\"\ndialect = \"{dialect}\"\nbase_url = \"{url}\"\n"
        ));
    }
    let gateway = Gateway::start(BINARY, &config).await;
    for client in DIALECTS {
        for backend in DIALECTS {
            for (levels, status) in
                [(100, 403), (140, 403), (1016, 403), (1100, 400), (10_000, 400)]
            {
                let (path, body) = request(client, levels);
                let headers =
                    [("content-type", "application/json"), ("x-throughline-backend", backend)];
                let answer = gateway.client.send(Method::POST, path, &headers, body);
                let answer = answer.await;
                let case = format!("{client} over {backend}, {levels}: {}", answer.text());
                assert_eq!(answer.status, status, "{case}");
                let reported = answer.text().contains("nested too deeply");
                assert_eq!(reported, status == 400, "{case}");
            }
        }
    }
}
