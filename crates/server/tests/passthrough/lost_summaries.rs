//! Reasoning items of which the client lost a part of the summary. The encrypted content identifies
//! them.

use serde_json::{Value, json};
use throughline_testkit::{Gateway, Simulator, block_fates};

use crate::support::BINARY;

const SCENARIO: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "First this.\n\nThen that." }, { text = "I have thought." }]
"#;

fn request(input: &Value) -> Value {
    json!({"model": "gpt-6.1-sol", "store": false, "input": input,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "medium", "summary": "auto"}})
}

#[tokio::test]
async fn item_is_known_by_its_encrypted_content_alone() {
    for lost in [1, 2] {
        let simulator = Simulator::with_scenario("a", SCENARIO).await;
        let config = format!(
            "[thinking]\nunknown = \"drop\"\n[[backend]]\nname = \"a\"\n\
             dialect = \"openai_responses\"\nbase_url = \"{}\"\n",
            simulator.url
        );
        let gateway = Gateway::start(BINARY, &config).await;
        let mut input = vec![json!({"role": "user", "content": "ponder this"})];
        let answer = gateway.client.post("/v1/responses", &[], &request(&json!(input))).await;
        let mut output = answer.expect_ok().json()["output"].as_array().unwrap().clone();
        let summary = output[0]["summary"].as_array_mut().unwrap();
        assert_eq!(summary.len(), 2, "{summary:?}");
        summary.truncate(2 - lost);
        input.extend(output);
        input.push(json!({"role": "user", "content": "ponder more"}));
        let sent = request(&json!(input));
        let answer = gateway.client.post("/v1/responses", &[], &sent).await.expect_ok();
        let turn = gateway.turn_of(&answer).await;
        assert_eq!(turn["lane"], "through");
        assert_eq!(block_fates(&turn), ["sent"], "{lost} parts lost");
        assert_eq!(simulator.last_received().await.json(), sent);
    }
}
