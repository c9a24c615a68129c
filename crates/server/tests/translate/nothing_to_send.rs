//! Requests of which nothing is left for the backend: the gateway refuses them, in words about what the
//! caller wrote.

use serde_json::json;

use crate::stored_responses::{KEY, PATH};
use crate::support::TestBed;

#[tokio::test]
async fn response_request_with_nothing_to_send_is_refused_by_the_gateway() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    for (input, words) in [
        (json!([]), "nothing in it can be sent"),
        (json!([{"type": "reasoning", "id": "rs_1", "summary": []}]), "nothing in it can be sent"),
        (json!([search]), "`web_search_call`"),
    ] {
        for row in ["anthropic, budget", "gemini 3", "deepseek-v4"] {
            let bed = TestBed::over(&[row]).await;
            for store in [true, false] {
                let request = json!({"model": "some-model", "input": input, "store": store});
                let answer = bed.gateway.client.post(PATH, &KEY, &request).await;
                assert_eq!(answer.status, 400, "{input} over {row}: {}", answer.text());
                let error = answer.json()["error"].clone();
                assert_eq!(error["param"], "input", "{error}");
                let message = error["message"].as_str().expect("a message");
                assert!(message.contains(words) && message.contains("add a message"), "{message}");
            }
            assert_eq!(bed.simulators[0].received().await.len(), 0, "{input} over {row}");
        }
    }
}
