//! Dialogues: the order and the pairing of calls and responses.

use serde_json::{Value, json};

use crate::common::Server;
use crate::{OLDER, accept, refuse, user, with_contents};

/// Contents of a question, calls of the given names and ids, and these responses.
fn dialogue(calls: &[(&str, &str)], responses: Vec<Value>) -> Value {
    let named = |(name, id): &(&str, &str)| match *id {
        "" => json!({"name": name, "args": {}}),
        id => json!({"id": id, "name": name, "args": {}}),
    };
    let calls: Vec<Value> = calls.iter().map(|one| json!({"functionCall": named(one)})).collect();
    let responses = responses.into_iter().map(|one| json!({"functionResponse": one}));
    let responses: Vec<Value> = responses.collect();
    with_contents(json!([
        user("hi"),
        {"role": "model", "parts": calls},
        {"role": "user", "parts": responses},
    ]))
}

fn response(name: &str, id: &str) -> Value {
    match id {
        "" => json!({"name": name, "response": {"output": "1"}}),
        id => json!({"id": id, "name": name, "response": {"output": "1"}}),
    }
}

#[tokio::test]
async fn function_response_needs_a_name_and_an_object() {
    let server = Server::strict().await;
    let path = "contents[2].parts[0].function_response";
    for bad in [json!("21"), json!(["a"]), json!(7)] {
        let body = dialogue(&[("f", "")], vec![json!({"name": "f", "response": bad})]);
        let text = format!(
            "Invalid value at '{path}.response' (type.googleapis.com/google.protobuf.Struct)"
        );
        refuse(&server, OLDER, &body, &text).await;
    }
    let body = dialogue(&[("f", "")], vec![json!({"name": "f"})]);
    refuse(&server, OLDER, &body, &format!("{path}.response: Response must be specified.")).await;
    let body = dialogue(&[("f", "")], vec![json!({"response": {}})]);
    refuse(&server, OLDER, &body, &format!("{path}.name: Name cannot be empty.")).await;
    let image = json!({"name": "f", "response": {}, "parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBO"}}]});
    accept(&server, OLDER, &dialogue(&[("f", "")], vec![image])).await;
}

#[tokio::test]
async fn response_matches_its_call_by_id_or_by_name() {
    let server = Server::strict().await;
    let two = [("f", "1"), ("g", "2")];
    for (calls, responses) in [
        (&two[..], vec![response("f", "1"), response("g", "2")]),
        (&two, vec![response("g", "2"), response("f", "1")]),
        (&two, vec![response("f", ""), response("g", "")]),
        (&[("f", ""), ("f", "")], vec![response("f", ""), response("f", "")]),
        (&[("f", "")], vec![response("f", "made-up")]),
        // A client that resumes sends its responses twice.
        (&[("f", "1")], vec![response("f", "1"), response("f", "1")]),
    ] {
        accept(&server, OLDER, &dialogue(calls, responses)).await;
    }
    let count =
        "the number of function response parts is equal to the number of function call parts";
    let other = "does not match any function call";
    for (calls, responses, text) in [
        (&two[..], vec![response("f", "1")], count),
        (&two, vec![response("f", "1"), response("g", "3")], other),
        (&two, vec![response("f", "1"), response("h", "2")], other),
        (&[("f", "1")], vec![response("f", "1"), response("g", "2")], count),
        (&[("f", "")], vec![response("f", ""), response("f", "")], count),
        (&[("f", "")], vec![response("g", "")], other),
    ] {
        refuse(&server, OLDER, &dialogue(calls, responses), text).await;
    }
}

#[tokio::test]
async fn calls_and_responses_must_alternate() {
    let server = Server::strict().await;
    let call = json!({"functionCall": {"name": "f"}});
    let result = json!({"functionResponse": response("f", "")});
    let model = |part: &Value| json!({"role": "model", "parts": [part]});
    let by_user = |part: &Value| json!({"role": "user", "parts": [part]});
    let number = "the number of function response parts";
    let after_call = "function response turn comes immediately after a function call turn";
    let after_user = "function call turn comes immediately after a user turn";
    for (contents, text) in [
        (json!([user("a"), model(&call)]), number),
        (json!([user("a"), model(&call), user("b")]), number),
        (
            json!([user("a"), model(&call), user("b"), model(&json!({"text": "c"})), user("d")]),
            number,
        ),
        (json!([user("a"), by_user(&result)]), after_call),
        (json!([user("a"), model(&json!({"text": "b"})), by_user(&result)]), after_call),
        (json!([user("a"), model(&call), model(&result)]), after_call),
        (json!([user("a"), by_user(&call), by_user(&result)]), after_user),
        (json!([model(&call), by_user(&result)]), after_user),
    ] {
        refuse(&server, OLDER, &with_contents(contents), text).await;
    }
    for contents in [
        json!([user("a"), model(&call), by_user(&result)]),
        json!([user("a"), model(&call), by_user(&result), user("b")]),
        json!([user("a"), model(&call), model(&call), by_user(&result), by_user(&result)]),
        json!([user("a"), model(&json!({"text": "b"}))]),
    ] {
        accept(&server, OLDER, &with_contents(contents)).await;
    }
}
