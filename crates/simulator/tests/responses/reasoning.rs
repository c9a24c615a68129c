//! Reasoning in requests: accepted and refused.

use serde_json::{Value, json};
use throughline_simulator::Options;

use super::common::Server;
use super::{
    PATH, accept, accept_with, append, lookup, places, play, post, refuse, refuse_as, say, shape,
    stateless,
};

const UNREADABLE: &str =
    "could not be verified. Reason: Encrypted content could not be decrypted or parsed.";

/// A finished turn with two tool rounds, a second turn, and a third question.
async fn history(server: &Server, model: &str) -> Value {
    let mut body = play(server, stateless(model, "use a tool twice")).await;
    say(&mut body, "And now?");
    let mut body = play(server, body).await;
    say(&mut body, "And once more?");
    accept(server, &body).await;
    body
}

fn with(body: &Value, place: usize, key: &str, value: Value) -> Value {
    let mut body = body.clone();
    body["input"][place][key] = value;
    body
}

fn without(body: &Value, place: usize) -> Value {
    let mut body = body.clone();
    body["input"].as_array_mut().unwrap().remove(place);
    body
}

fn without_member(body: &Value, kind: &str, key: &str) -> Value {
    let mut body = body.clone();
    for place in places(&body, kind) {
        let item = body["input"][place].as_object_mut().unwrap();
        item.remove(key);
    }
    body
}

fn text(body: &Value, place: usize, key: &str) -> String {
    body["input"][place][key].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn unchanged_history_is_accepted() {
    let server = Server::strict().await;
    for model in ["gpt-6.1-sol", "gpt-5.5", "o3", "qwen"] {
        let body = history(&server, model).await;
        assert_eq!(places(&body, "reasoning").len(), 4, "{model}");
        let response = accept(&server, &body).await;
        assert_eq!(shape(&response), ["reasoning", "message"]);
    }
}

#[tokio::test]
async fn foreign_identity_is_rejected() {
    let named = |identity: &str| {
        Server::start(Options { identity: identity.to_owned(), ..Options::default() })
    };
    let (one, twin, two) = (named("one").await, named("one").await, named("two").await);
    let body = history(&one, "gpt-5.5").await;
    accept(&twin, &body).await;
    let error = refuse(&two, &body, UNREADABLE).await;
    assert_eq!(error["code"], "invalid_encrypted_content");
    assert_eq!(error["param"], Value::Null);
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("The encrypted content gAAA..."), "{message}");
    let mut count = body.clone();
    let members = count.as_object_mut().unwrap();
    members.retain(|key, _| !matches!(key.as_str(), "store" | "include"));
    let path = "/v1/responses/input_tokens";
    assert_eq!(post(&one, path, &count, &[]).await.status, 200);
    let refused = post(&two, path, &count, &[]).await;
    assert_eq!(refused.json()["error"]["code"], "invalid_encrypted_content");
    // Without its reasoning and item ids, every identity accepts it.
    let mut bare = without_member(&body, "function_call", "id");
    let input = bare["input"].as_array_mut().unwrap();
    input.retain(|item| item["type"] != "reasoning");
    accept(&two, &bare).await;
}

#[tokio::test]
async fn altered_or_foreign_content_is_rejected() {
    let server = Server::strict().await;
    let body = history(&server, "gpt-5.5").await;
    let reasoning = places(&body, "reasoning");
    let (first, last) = (reasoning[0], reasoning[3]);
    let content = text(&body, first, "encrypted_content");
    let standard = content.replace('-', "+").replace('_', "/");
    let middle = content.len() / 2;
    let mut altered = content.clone();
    let letter = if &altered[middle..=middle] == "A" { "B" } else { "A" };
    altered.replace_range(middle..=middle, letter);
    for bad in [
        "Et4BCkYIBRgCKkD//of another+vendor==",
        "é",
        &standard,
        &altered,
        &content[..content.len() - 4],
        &content[..16],
    ] {
        for place in [first, last] {
            let bad = with(&body, place, "encrypted_content", bad.into());
            let error = refuse(&server, &bad, UNREADABLE).await;
            assert_eq!(error["code"], "invalid_encrypted_content");
        }
    }
}

#[tokio::test]
async fn content_is_bound_to_its_item_and_family_but_not_to_its_summary() {
    let server = Server::strict().await;
    let body = history(&server, "gpt-5.5").await;
    let reasoning = places(&body, "reasoning");
    let other = text(&body, reasoning[1], "encrypted_content");
    let swapped = with(&body, reasoning[0], "encrypted_content", other.into());
    let misnamed = "Encrypted content item_id did not match the target item id.";
    let error = refuse(&server, &swapped, misnamed).await;
    assert_eq!(error["code"], "invalid_encrypted_content");
    let renamed = with(&body, reasoning[0], "id", "rs_minted".into());
    let text = "The encrypted content for item rs_minted could not be verified.";
    refuse(&server, &renamed, text).await;
    let retold = with(&body, reasoning[0], "summary", json!([]));
    accept(&server, &retold).await;
    for (model, reads) in [("gpt-5.6-sol", true), ("gpt-6-sol", false), ("o3", false)] {
        let mut moved = body.clone();
        moved["model"] = model.into();
        if reads {
            accept(&server, &moved).await;
        } else {
            refuse(&server, &moved, UNREADABLE).await;
        }
    }
}

#[tokio::test]
async fn items_without_ids_are_accepted() {
    let server = Server::strict().await;
    let body = history(&server, "gpt-5.5").await;
    let nameless = without_member(&body, "reasoning", "id");
    accept(&server, &nameless).await;
    let nameless = without_member(&nameless, "function_call", "id");
    let nameless = without_member(&nameless, "message", "id");
    accept(&server, &nameless).await;
}

#[tokio::test]
async fn reasoning_without_content_must_be_stored() {
    let server = Server::strict().await;
    let body = history(&server, "gpt-5.5").await;
    let place = places(&body, "reasoning")[0];
    let id = text(&body, place, "id");
    let expected = format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input."
    );
    for empty in [Value::Null, json!("")] {
        let bad = with(&body, place, "encrypted_content", empty);
        let error = refuse_as(&server, &bad, 404, &expected).await;
        assert_eq!(error["param"], "input");
    }
    let mut nameless = with(&body, place, "encrypted_content", Value::Null);
    nameless["input"][place]["id"] = Value::Null;
    let missing = format!("Missing required parameter: 'input[{place}].id'.");
    refuse(&server, &nameless, &missing).await;
}

#[tokio::test]
async fn reasoning_needs_a_following_item() {
    let server = Server::strict().await;
    let body = history(&server, "gpt-5.5").await;
    let last = places(&body, "reasoning")[3];
    let id = text(&body, last, "id");
    let expected = format!(
        "Item '{id}' of type 'reasoning' was provided without its required following item."
    );
    // Its message is missing, and a user message follows.
    refuse(&server, &without(&body, last + 1), &expected).await;
    // Or nothing follows.
    let mut cut = body.clone();
    cut["input"].as_array_mut().unwrap().truncate(last + 1);
    refuse(&server, &cut, &expected).await;
    let nameless = without_member(&cut, "reasoning", "id");
    let expected = "of type 'reasoning' was provided without its required following item.";
    refuse(&server, &nameless, expected).await;
    // Several reasoning items in a row are accepted.
    let mut row = stateless("gpt-5.5", "redacted");
    let response = accept(&server, &row).await;
    super::append(&mut row, &response);
    say(&mut row, "next");
    assert_eq!(places(&row, "reasoning"), [1, 2]);
    accept(&server, &row).await;
}

#[tokio::test]
async fn call_needs_the_reasoning_it_was_made_with() {
    let server = Server::strict().await;
    let body = history(&server, "gpt-5.5").await;
    let (reasoning, call) = (places(&body, "reasoning")[1], places(&body, "function_call")[1]);
    assert_eq!(call, reasoning + 1);
    let expected = format!(
        "Item '{}' of type 'function_call' was provided without its required 'reasoning' item: '{}'.",
        text(&body, call, "id"),
        text(&body, reasoning, "id"),
    );
    let error = refuse(&server, &without(&body, reasoning), &expected).await;
    assert_eq!(error["param"], "input");
    assert_eq!(error["code"], Value::Null);
    // A call with another id, or none, needs no reasoning.
    let renamed = with(&without(&body, reasoning), reasoning, "id", "fc_1".into());
    accept(&server, &renamed).await;
    accept(&server, &without_member(&without(&body, reasoning), "function_call", "id")).await;
}

#[tokio::test]
async fn call_made_without_reasoning_needs_none() {
    let server = Server::strict().await;
    let mut body = stateless("gpt-5.5", "use a tool");
    body["reasoning"] = json!({"effort": "none"});
    let mut body = play(&server, body).await;
    assert!(places(&body, "reasoning").is_empty());
    body["reasoning"] = json!({"effort": "high"});
    say(&mut body, "next");
    accept(&server, &body).await;
}

#[tokio::test]
async fn parallel_calls_share_their_reasoning_in_any_order_of_outputs() {
    let server = Server::strict().await;
    let body = play(&server, stateless("gpt-5.5", "use a tool in parallel")).await;
    let calls = places(&body, "function_call");
    assert_eq!(calls.len(), 2);
    let mut woven = body.clone();
    woven["input"].as_array_mut().unwrap().swap(calls[1], calls[1] + 1);
    say(&mut woven, "next");
    accept(&server, &woven).await;
}

#[tokio::test]
async fn empty_style_skips_verification() {
    let server = Server::strict().await;
    let mut body = stateless("qwen", "use a tool");
    let headers = [("x-simulator-signature", "empty")];
    let response = super::accept_with(&server, &body, &headers).await;
    super::append(&mut body, &response);
    super::accept_with(&server, &body, &headers).await;
    refuse_as(&server, &body, 404, "not found").await;
    let lax = Server::start(Options { strict: false, ..Options::default() }).await;
    accept(&lax, &body).await;
    accept(&lax, &json!({"input": [7, {"type": "item_reference", "id": "x"}], "other": 1})).await;
}

/// vLLM has no encrypted reasoning, and reads its own reasoning back from the content.
#[tokio::test]
async fn vllm_sends_raw_reasoning_and_wants_it_back_whole() {
    let server = Server::strict().await;
    let variant = [("x-simulator-variant", "vllm")];
    let mut body = json!({"model": "gpt-oss-120b", "input": [{"role": "user", "content": "use a tool"}],
        "tools": [lookup()]});
    let response = accept_with(&server, &body, &variant).await;
    let item = &response["output"][0];
    assert_eq!(item["type"], "reasoning");
    assert!(
        item["content"][0]["text"].is_string() && item["encrypted_content"].is_null(),
        "{item}"
    );
    assert_eq!(append(&mut body, &response), 1);
    accept_with(&server, &body, &variant).await;
    for (member, value, words) in [
        ("id", Value::Null, "Missing required parameter"),
        ("encrypted_content", json!(""), "Encrypted content is not supported."),
        ("content", json!([]), "Reasoning content must be one part"),
    ] {
        let mut changed = body.clone();
        let item = changed["input"][1].as_object_mut().unwrap();
        match value {
            Value::Null => item.remove(member),
            value => item.insert(member.to_owned(), value),
        };
        let answer = post(&server, PATH, &changed, &variant).await;
        assert_eq!(answer.status, 400, "{member}");
        assert!(answer.text().contains(words), "{}", answer.text());
    }
}
