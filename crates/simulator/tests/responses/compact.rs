//! `POST /v1/responses/compact`: an encrypted summary that only its maker can read.

use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};

use super::common::Server;
use super::{accept, post, refuse};

const COMPACT: &str = "/v1/responses/compact";
const UNREADABLE: &str = "Encrypted content could not be decrypted or parsed.";
const SCENARIO: &str = r#"
[[step]]
when = { contains = "what was it" }
say = [{ text = "It was ", recall = "the code is " }]
"#;

async fn named(identity: &str) -> Server {
    let scenario = Some(Scenario::from_toml(SCENARIO).unwrap());
    Server::start(Options { identity: identity.to_owned(), scenario, ..Options::default() }).await
}

/// The summary of a conversation about a code.
async fn summary(server: &Server) -> Value {
    let user = json!({"role": "user", "content": "the code is kiwi7"});
    let body = json!({"model": "gpt-6.1-sol", "input": [user], "store": false});
    let first = accept(server, &body).await;
    let items = [vec![user], first["output"].as_array().unwrap().clone()].concat();
    let body = json!({"model": "gpt-6.1-sol", "input": items});
    let answer = post(server, COMPACT, &body, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let compacted = answer.json();
    assert_eq!(compacted["object"], "response.compaction");
    let output = compacted["output"].as_array().unwrap();
    let said = json!([{"type": "input_text", "text": "the code is kiwi7"}]);
    assert_eq!(
        (&output[0]["role"], &output[0]["content"], &output[0]["status"]),
        (&json!("user"), &said, &json!("completed"))
    );
    let item = output.last().unwrap().clone();
    assert_eq!(item["type"], "compaction");
    assert!(!item.to_string().contains("kiwi7"), "the summary is encrypted");
    item
}

fn question(item: &Value) -> Value {
    let user = json!({"role": "user", "content": "what was it"});
    json!({"model": "gpt-6.1-sol", "input": [item, user], "store": false})
}

#[tokio::test]
async fn only_its_maker_reads_a_compaction() {
    let (one, two) = (named("one").await, named("two").await);
    let item = summary(&one).await;
    let answer = accept(&one, &question(&item)).await;
    assert!(answer["output"].to_string().contains("It was kiwi7"), "{answer}");
    let error = refuse(&two, &question(&item), UNREADABLE).await;
    assert_eq!(error["code"], "invalid_encrypted_content");
    let mut altered = item.clone();
    altered["encrypted_content"] = json!("gAAAAAB");
    refuse(&one, &question(&altered), UNREADABLE).await;
    let mut misnamed = item.clone();
    misnamed["id"] = json!("cmp_other");
    refuse(&one, &question(&misnamed), UNREADABLE).await;
}

#[tokio::test]
async fn compaction_of_a_compaction_keeps_its_contents() {
    let server = named("one").await;
    let item = summary(&server).await;
    let body = json!({"model": "gpt-6.1-sol", "input": [item]});
    let again = post(&server, COMPACT, &body, &[]).await.json();
    let item = again["output"].as_array().unwrap().last().unwrap().clone();
    let answer = accept(&server, &question(&item)).await;
    assert!(answer["output"].to_string().contains("It was kiwi7"), "{answer}");
    let empty = post(&server, COMPACT, &json!({"input": "hi"}), &[]).await;
    assert_eq!(empty.status, 400, "a model is required: {}", empty.text());
}
