//! Stored responses and the references to them.

use serde_json::{Value, json};

use super::common::Server;
use super::{PATH, accept, lookup, outputs, post, refuse, refuse_as, shape};

fn stored(text: &str) -> Value {
    json!({"model": "gpt-5.5", "input": text, "tools": [lookup()]})
}

fn next(previous: &Value, input: impl Into<Value>) -> Value {
    json!({"model": "gpt-5.5", "previous_response_id": previous["id"], "input": input.into(),
           "tools": [lookup()]})
}

#[tokio::test]
async fn previous_response_id_continues_a_stored_response() {
    let server = Server::strict().await;
    let first = accept(&server, &stored("use a tool")).await;
    assert_eq!(first["store"], true);
    let second = accept(&server, &next(&first, outputs(&first))).await;
    assert_eq!(shape(&second), ["reasoning", "message"]);
    assert_eq!(second["previous_response_id"], first["id"]);
    let text = second["output"][1]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("21 degrees"), "{text}");
    let third = accept(&server, &next(&second, "and now?")).await;
    let tokens = |response: &Value| response["usage"]["input_tokens"].as_u64().unwrap();
    assert!(tokens(&third) > tokens(&second));
    // Its calls need outputs, although they are not in the input.
    let call = first["output"][2]["call_id"].as_str().unwrap();
    let expected = format!("No tool output found for function call {call}.");
    refuse(&server, &next(&first, "and now?"), &expected).await;
}

#[tokio::test]
async fn unstored_response_is_not_found() {
    let server = Server::strict().await;
    let mut body = stored("hello");
    body["store"] = false.into();
    let response = accept(&server, &body).await;
    let expected =
        format!("Previous response with id '{}' not found.", response["id"].as_str().unwrap());
    let body = next(&response, "and now?");
    let error = refuse_as(&server, &body, 400, &expected).await;
    assert_eq!(error["code"], "previous_response_not_found");
    assert_eq!(error["param"], "previous_response_id");
}

#[tokio::test]
async fn item_reference_finds_a_stored_item() {
    let server = Server::strict().await;
    let response = accept(&server, &stored("use a tool")).await;
    let output = response["output"].as_array().unwrap();
    let mut input = vec![json!({"role": "user", "content": "use a tool"})];
    input.extend(output.iter().map(|item| json!({"type": "item_reference", "id": item["id"]})));
    input.extend(outputs(&response));
    let mut body = json!({"model": "gpt-5.5", "input": input, "tools": [lookup()]});
    let answer = accept(&server, &body).await;
    assert_eq!(shape(&answer), ["reasoning", "message"]);
    // Whole items without encrypted content are found by their ids.
    assert_eq!(output[0]["encrypted_content"], Value::Null);
    let mut whole = body.clone();
    for (index, item) in output.iter().enumerate() {
        whole["input"][index + 1] = item.clone();
    }
    accept(&server, &whole).await;
    // Without `store`, references are not resolved.
    body["store"] = false.into();
    let id = output[0]["id"].as_str().unwrap();
    let expected = format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false."
    );
    refuse_as(&server, &body, 404, &expected).await;
    body["store"] = true.into();
    body["input"][1]["id"] = "rs_other".into();
    refuse_as(&server, &body, 404, "Item with id 'rs_other' not found.").await;
}

#[tokio::test]
async fn a_stored_response_is_fetched_and_deleted() {
    let server = Server::strict().await;
    let response = accept(&server, &stored("hello")).await;
    let path = format!("{PATH}/{}", response["id"].as_str().unwrap());
    let fetched = server.get(&path).await;
    assert_eq!(fetched.json(), response);
    let deleted = server.send("DELETE", &path, &[], b"").await;
    assert_eq!(deleted.json()["deleted"], true);
    let gone = server.get(&path).await;
    assert_eq!(gone.status, 404);
    assert_eq!(gone.json()["error"]["type"], "invalid_request_error");
    assert_eq!(server.send("DELETE", &path, &[], b"").await.status, 404);
}

#[tokio::test]
async fn each_simulator_has_its_own_store() {
    let (one, two) = (Server::strict().await, Server::strict().await);
    let response = accept(&one, &stored("hello")).await;
    let body = next(&response, "go on");
    accept(&one, &body).await;
    let answer = post(&two, PATH, &body, &[]).await;
    assert_eq!(answer.status, 400);
}
