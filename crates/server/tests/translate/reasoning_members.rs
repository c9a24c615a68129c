//! The member in which a chat server takes reasoning back. Servers ignore a name that they do not
//! know, so the gateway learns the right one from replies.

use http::Method;
use serde_json::{Value, json};

use crate::support::{BedOptions, Mismatches, TestBed, lost_parts, new_client};
use crate::test_client::{list, text};

const SCENARIO: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "I ponder all the colours there are, one after the other." }, { text = "Green." }]
[[step]]
when = { contains = "plain" }
say = [{ text = "Just green." }]
"#;

const THOUGHT: &str = "I ponder all the colours there are, one after the other.";

/// Local servers, and the member that each of them knows.
const SERVERS: [(&str, &str); 3] =
    [("vllm", "reasoning"), ("sglang", "reasoning_content"), ("llamacpp", "reasoning_content")];

/// Returns the members with the thought in the assistant messages of a recorded request.
fn members(body: &Value) -> Vec<&str> {
    let names = ["reasoning", "reasoning_content"];
    let messages = list(&body["messages"]);
    messages
        .flat_map(|message| names.into_iter().filter(|name| text(&message[*name]) == THOUGHT))
        .collect()
}

/// Returns the prompt tokens that the server counts for a body, with these members removed.
async fn prompt_tokens(bed: &TestBed, body: &Value, removed: &[&str]) -> u64 {
    let mut body = body.clone();
    body["stream"] = false.into();
    body.as_object_mut().expect("a body").shift_remove("stream_options");
    for message in body["messages"].as_array_mut().expect("messages") {
        let message = message.as_object_mut().expect("a message");
        removed.iter().for_each(|name| {
            message.shift_remove(*name);
        });
    }
    let client = throughline_testkit::Client::new(&bed.simulators[0].url);
    let headers = [("content-type", "application/json"), ("authorization", "Bearer key")];
    let path = "/v1/chat/completions";
    let answer = client.send(Method::POST, path, &headers, body.to_string()).await.expect_ok();
    answer.json()["usage"]["prompt_tokens"].as_u64().expect("a count")
}

/// A backend on this machine without `variant` may be any of these servers.
#[tokio::test]
async fn local_server_gets_reasoning_back_in_the_member_of_its_replies() {
    let mut mismatches = Mismatches::default();
    for (server, member) in SERVERS {
        for dialect in ["anthropic", "openai_chat", "gemini"] {
            let bed = TestBed::of_server(server, "qwen3-32b", SCENARIO, "").await;
            let mut test_client = new_client(dialect);
            test_client.push_user("ponder this");
            bed.send(test_client.as_mut()).await;
            test_client.push_user("plain, please");
            let (_, answer) = bed.send(test_client.as_mut()).await;
            let case = format!("{dialect} over {server}");
            mismatches.check_equal(&case, lost_parts(&answer), [""; 0]);
            let sent = bed.last_received(0).await.json();
            mismatches.check_equal(&case, members(&sent), vec![member]);
            // The server itself counts the reasoning as part of its prompt.
            let counted = prompt_tokens(&bed, &sent, &[]).await;
            let without = prompt_tokens(&bed, &sent, &[member]).await;
            let (least, found) = (THOUGHT.len() as u64 / 4, counted - without);
            mismatches.check(found >= least, format!("{case}: {found} tokens of reasoning"));
            bed.expect_no_refusals().await;
        }
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn learnt_member_survives_a_restart() {
    for (server, member) in SERVERS {
        let mut bed = TestBed::of_server(server, "qwen3-32b", SCENARIO, "").await;
        let mut test_client = new_client("openai_chat");
        test_client.push_user("ponder this");
        bed.send(test_client.as_mut()).await;
        bed.stop().await;
        bed.gateway.restart().await;
        test_client.push_user("plain, please");
        bed.send(test_client.as_mut()).await;
        let sent = bed.last_received(0).await.json();
        assert_eq!(members(&sent), [member], "{server}");
        bed.expect_no_refusals().await;
    }
}

/// Another backend of the same domain made the reasoning, so no reply has named the member yet.
#[tokio::test]
async fn reasoning_goes_back_in_both_members_until_a_reply_names_one() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["vllm", "vllm, template opens"],
        scenario: SCENARIO,
        backend: "signature_domain = \"home\"",
        ..BedOptions::default()
    })
    .await;
    let mut test_client = new_client("anthropic");
    test_client.push_user("ponder this");
    bed.send(test_client.as_mut()).await;
    bed.gateway.switch("b").await;
    for (words, expected) in [
        ("plain, please", &["reasoning", "reasoning_content"][..]),
        ("ponder this too", &["reasoning", "reasoning_content"]),
        ("plain, once more", &["reasoning", "reasoning"]),
    ] {
        test_client.push_user(words);
        bed.send(test_client.as_mut()).await;
        let sent = bed.last_received(1).await.json();
        assert_eq!(members(&sent), expected, "{words}: {sent}");
    }
    bed.expect_no_refusals().await;
}

/// Clients keep reasoning as `reasoning_content`, whatever the server calls it. Nothing else of the
/// request changes.
#[tokio::test]
async fn forwarded_request_repeats_reasoning_in_the_member_that_the_server_knows() {
    for (server, member) in SERVERS {
        // Such a server gets the client's own body.
        let bed =
            TestBed::of_server(server, "qwen3-32b", SCENARIO, "variant = \"compatible\"").await;
        let headers = [("content-type", "application/json"), ("authorization", "Bearer key")];
        let client = &bed.gateway.client;
        let path = "/v1/chat/completions";
        let mut messages = vec![json!({"role": "user", "content": "ponder this"})];
        for (words, kept) in [("ponder that", "reasoning_content"), ("plain", "reasoning")] {
            let body = json!({"model": "qwen3-32b", "messages": messages});
            client.send(Method::POST, path, &headers, body.to_string()).await.expect_ok();
            let turn = json!({"role": "assistant", "content": "Green.", kept: THOUGHT});
            messages.extend([turn, json!({"role": "user", "content": words})]);
        }
        let body = json!({"model": "qwen3-32b", "messages": messages});
        client.send(Method::POST, path, &headers, body.to_string()).await.expect_ok();
        let turn = bed.gateway.turns().await.swap_remove(0);
        assert_eq!(turn["lane"], "through");
        let sent = bed.last_received(0).await.json();
        for message in list(&sent["messages"]).filter(|message| message["role"] == "assistant") {
            assert_eq!(message[member], THOUGHT, "{server}: {sent}");
        }
        bed.expect_no_refusals().await;
    }
}
