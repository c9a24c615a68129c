//! How closely a model looks at an image: OpenAI's dialects say it to each other, and other dialects have
//! no place for it.

use serde_json::{Value, json};

use crate::stored_responses::PATH;
use crate::support::TestBed;

const IMAGE: &str = "data:image/png;base64,iVBORw0KGgo=";

/// A request with an image, in a chat client's form and in a Responses client's form.
fn requests(detail: &str) -> [(&'static str, Value); 2] {
    let chat = json!([{"role": "user", "content": [
        {"type": "text", "text": "plain"},
        {"type": "image_url", "image_url": {"url": IMAGE, "detail": detail}},
    ]}]);
    let responses = json!([{"role": "user", "content": [
        {"type": "input_text", "text": "plain"},
        {"type": "input_image", "image_url": IMAGE, "detail": detail},
    ]}]);
    [
        ("/v1/chat/completions", json!({"model": "some-model", "messages": chat})),
        (PATH, json!({"model": "some-model", "store": false, "input": responses})),
    ]
}

#[tokio::test]
async fn detail_of_an_image_survives_between_the_dialects_of_openai() {
    for (row, pointer) in [
        ("openai_responses", "/input/0/content/1/detail"),
        ("vllm", "/messages/0/content/1/image_url/detail"),
    ] {
        let bed = TestBed::over(&[row]).await;
        for (path, request) in requests("low") {
            let answer = bed.gateway.client.post(path, &[], &request).await.expect_ok();
            let sent = bed.last_received(0).await.json();
            assert_eq!(sent.pointer(pointer), Some(&json!("low")), "{path} over {row}: {sent}");
            assert_eq!(answer.header("x-throughline-loss"), "", "{path} over {row}");
        }
        bed.expect_no_refusals().await;
    }
}

#[tokio::test]
async fn detail_of_an_image_is_reported_where_it_has_no_place() {
    for row in ["anthropic, budget", "gemini 3", "ollama"] {
        let bed = TestBed::over(&[row]).await;
        for (detail, losses) in [("high", 1), ("auto", 0)] {
            for (path, request) in requests(detail) {
                let answer = bed.gateway.client.post(path, &[], &request).await.expect_ok();
                let loss = answer.header("x-throughline-loss");
                let found = loss.matches("part_omitted=media.settings;reason=no_place").count();
                assert_eq!(found, losses, "{path} over {row}: {loss}");
            }
        }
        bed.expect_no_refusals().await;
    }
}
