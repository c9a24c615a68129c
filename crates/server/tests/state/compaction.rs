//! Compaction: summaries that stand for earlier turns go on over any backend, or are refused by name.

use serde_json::{Value, json};
use throughline_testkit::{Answer, Client, Gateway, RawUpstream, open_responses};

use crate::anthropic::Anthropic;
use crate::support::{BINARY, ENVELOPE, Mismatches, TestBed, envelopes, thinking_in};
use crate::test_client::{TestClient, list, text};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const COMPACT: &str = "/v1/responses/compact";
const KEY: &[(&str, &str)] = &[("authorization", "Bearer key")];
const LOSS: &str = "x-throughline-loss";

/// A picture of one pixel.
const PIXEL: &str = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A fact that only the turns before a summary have.
const FACT: &str = "the heron waits at gate 47";

fn code(answer: &Answer) -> (u16, String) {
    let error = &answer.json()["error"];
    let code = error["details"]["error_code"].as_str().or(error["code"].as_str());
    (answer.status, code.unwrap_or_default().to_owned())
}

/// A client of the Anthropic dialect with a summary that the backend wrote.
async fn summarised(bed: &TestBed) -> Anthropic {
    let mut client = Anthropic::compacting();
    client.set_thinking(true);
    client.push_user(&format!("ponder: {FACT}"));
    bed.send(&mut client).await;
    let messages = &client.history().messages;
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["content"][0]["type"], "compaction");
    client
}

#[tokio::test]
async fn summary_stays_with_its_maker_and_becomes_text_elsewhere() {
    let mut mismatches = Mismatches::default();
    for row in ["anthropic, bound", "gemini 3", "openai_responses", "deepseek-v4", "ollama"] {
        let bed = TestBed::over(&["anthropic, budget", row]).await;
        let mut client = summarised(&bed).await;
        client.push_user("plain, please");
        let (_, answer) = bed.send(&mut client).await;
        let sent = bed.last_received(0).await.json();
        mismatches.check_equal(row, text(&sent["messages"][0]["content"][0]["type"]), "compaction");
        mismatches.check(!answer.header(LOSS).contains("compaction"), answer.header(LOSS));

        client = summarised(&bed).await;
        bed.gateway.switch("b").await;
        client.push_user("plain, please");
        let (_, answer) = bed.send(&mut client).await;
        let sent = bed.last_received(1).await;
        mismatches.check(sent.body.contains(FACT), format!("{row}: the fact is lost"));
        mismatches.check(!sent.body.contains("\"compaction\""), format!("{row}: {}", sent.body));
        mismatches.check(
            answer.header(LOSS).contains("setting_adapted=compaction;reason=as_text"),
            format!("{row}: {}", answer.header(LOSS)),
        );
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// A summary that the gateway has not seen may be of this provider, so it is tried. If the provider
/// refuses it, its words are sent as text, and the next turn knows that.
#[tokio::test]
async fn refused_summary_of_unknown_origin_is_sent_as_text() {
    let other = TestBed::over(&["anthropic, adaptive"]).await;
    let mut client = summarised(&other).await;
    // The second backend has another identity than the maker of the summary.
    let bed = TestBed::over(&["ollama", "anthropic, budget"]).await;
    bed.gateway.switch("b").await;
    let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "compact-2026-09-04")];
    for turn in 1..=2 {
        client.push_user("plain, please");
        let request = client.next_request("some-model", false);
        let sender = &bed.gateway.client;
        let answer = sender.post(MESSAGES, &headers, &request.body).await;
        assert_eq!(answer.status, 200, "turn {turn}: {} {:?}", answer.text(), bed.gateway.log());
        let loss = answer.header(LOSS);
        assert!(loss.contains("setting_adapted=compaction;reason=as_text"), "turn {turn}: {loss}");
        let sent = bed.last_received(1).await;
        assert!(sent.body.contains(FACT), "turn {turn}: {}", sent.body);
        assert!(!sent.body.contains(r#""compaction""#), "turn {turn}: {}", sent.body);
    }
    let refusals = bed.into_refusals().await;
    // In the first turn the backend refuses the summary, then the thinking after it.
    assert_eq!(refusals.len(), 2, "only the first turn is refused: {refusals:?}");
}

#[tokio::test]
async fn turns_before_a_summary_are_not_sent_as_well() {
    let bed = TestBed::over(&["anthropic, budget", "gemini 3"]).await;
    let mut client = summarised(&bed).await;
    let summary = client.history().messages.remove(0);
    bed.gateway.switch("b").await;
    // One that failed means nothing.
    let failed = json!({"role": "assistant", "content": [
        {"type": "text", "text": "I try."}, {"type": "compaction", "content": null},
    ]});
    let body = json!({
        "model": "some-model", "max_tokens": 100,
        "messages": [
            {"role": "user", "content": "an old question"}, {"role": "assistant", "content": "old"},
            {"role": "user", "content": "another old question"}, summary,
            {"role": "user", "content": "a new question"}, failed,
            {"role": "user", "content": "plain, please"},
        ],
    });
    let headers = [("anthropic-version", "2023-06-01")];
    bed.gateway.client.post(MESSAGES, &headers, &body).await.expect_ok();
    let sent = bed.last_received(1).await.body;
    assert!(sent.contains(FACT) && sent.contains("a new question"), "{sent}");
    assert!(sent.contains("I try."), "{sent}");
    assert!(!sent.contains("old question"), "{sent}");
    bed.expect_no_refusals().await;
}

/// Turns that a client keeps after a summary were made after other turns. The provider accepts them,
/// so the prefix guard must not drop their thinking.
#[tokio::test]
async fn prefix_guard_keeps_the_turns_after_a_summary() {
    let bed = TestBed::over(&["anthropic, bound"]).await;
    let mut client = Anthropic::default();
    client.set_thinking(true);
    for said in ["ponder one", "ponder two"] {
        client.push_user(said);
        bed.send(&mut client).await;
    }
    let mut request = client.next_request("some-model", false);
    let messages = request.body["messages"].as_array().expect("messages").clone();
    let headers = [("anthropic-version", "2023-06-01"), ("anthropic-beta", "compact-2026-09-04")];
    let question = |said: &str| json!({"role": "user", "content": said});
    let edits = json!({"edits": [{"type": "compact_20260904", "pause_after_compaction": true}]});
    request.body["context_management"] = edits;
    request.body["messages"] = [messages.clone(), vec![question("compact")]].concat().into();
    let client = &bed.gateway.client;
    let reply = client.post(MESSAGES, &headers, &request.body).await.expect_ok().json();
    assert_eq!(reply["stop_reason"], "compaction");

    let summary = json!({"role": "assistant", "content": reply["content"]});
    let kept = [vec![summary], messages[2..].to_vec(), vec![question("ponder three")]].concat();
    request.body["messages"] = kept.into();
    let answer = client.post(MESSAGES, &headers, &request.body).await.expect_ok();
    assert_eq!(answer.header(LOSS).matches("thinking_omitted").count(), 0);
    let sent = bed.last_received(0).await;
    assert_eq!(thinking_in(&sent.json()), 1);
    assert!(!sent.body.contains("drop_block"), "the provider need not be asked: {}", sent.body);
    // A tool that loads later is no part of the prefix.
    let later =
        json!([{"name": "later", "defer_loading": true, "input_schema": {"type": "object"}}]);
    request.body["tools"] = later;
    client.post(MESSAGES, &headers, &request.body).await.expect_ok();
    let sent = bed.last_received(0).await;
    assert!(!sent.body.contains("drop_block"), "{}", sent.body);
    // The provider does refuse kept turns that have lost their prefix.
    let mut unbound = sent.json();
    unbound["messages"].as_array_mut().expect("messages").remove(0);
    let direct = Client::new(&bed.simulators[0].url);
    let refused = direct.post(MESSAGES, &headers, &unbound).await;
    assert!(refused.text().contains("bound to a different"), "{}", refused.text());
    let refusals = bed.into_refusals().await;
    assert_eq!(refusals.len(), 1, "{refusals:?}");
}

/// A conversation of the Responses dialect.
fn conversation() -> Vec<Value> {
    vec![
        json!({"type": "message", "role": "user", "content": format!("ponder: {FACT}")}),
        json!({"type": "message", "role": "assistant", "content": [
            {"type": "output_text", "text": "It waits.", "annotations": []},
        ]}),
        json!({"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}),
        json!({"type": "function_call_output", "call_id": "call_1", "output": "a row"}),
    ]
}

async fn compact(client: &Client, input: &[Value]) -> Value {
    let body = json!({"model": "some-model", "input": input});
    let compacted = client.post(COMPACT, KEY, &body).await.expect_ok().json();
    open_responses::check_compaction(&compacted);
    compacted
}

fn after(item: &Value) -> Value {
    let question = json!({"type": "message", "role": "user", "content": "plain, please"});
    json!({"model": "some-model", "input": [item, question], "store": false})
}

#[tokio::test]
async fn any_model_compacts_a_conversation() {
    let mut mismatches = Mismatches::default();
    for row in ["anthropic, budget", "gemini 3", "openai", "deepseek-v4", "ollama"] {
        let bed = TestBed::over(&[row]).await;
        let client = &bed.gateway.client;
        let compacted = compact(client, &conversation()).await;
        let asked = bed.last_received(0).await.body;
        mismatches.check(asked.contains(FACT), format!("{row}: the model was not told"));
        mismatches.check(asked.contains("Write a summary"), format!("{row}: {asked}"));
        mismatches.check_equal(row, text(&compacted["object"]), "response.compaction");
        let output: Vec<&Value> = list(&compacted["output"]).collect();
        mismatches.check_equal(row, output.len(), 2);
        let said = json!([{"type": "input_text", "text": conversation()[0]["content"]}]);
        mismatches.check_equal(row, output[0]["content"].clone(), said);
        let item = output[1];
        mismatches.check(text(&item["id"]).starts_with("cmp_"), format!("{row}: {item}"));
        let sealed = text(&item["encrypted_content"]);
        mismatches.check(sealed.starts_with(ENVELOPE), format!("{row}: {sealed}"));
        mismatches
            .check(compacted["usage"]["output_tokens"].as_u64() > Some(0), format!("{row}: usage"));

        client.post(RESPONSES, KEY, &after(item)).await.expect_ok();
        let sent = bed.last_received(0).await.body;
        mismatches
            .check(sent.contains("Summary of the conversation so far"), format!("{row}: {sent}"));

        // What was altered or sealed elsewhere is not sent, and not left out.
        let mut altered = after(item);
        envelopes(&mut altered, &mut |sealed| sealed.truncate(sealed.len() - 8));
        let received = bed.simulators[0].received().await.len();
        let answer = client.post(RESPONSES, KEY, &altered).await;
        let expected = (400, "invalid_encrypted_content".to_owned());
        mismatches.check_equal(row, code(&answer), expected);
        mismatches.check_equal(row, bed.simulators[0].received().await.len(), received);
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

/// Clients may write items in short forms. A reply has whole items, and they go back as they are.
#[tokio::test]
async fn compaction_has_whole_items_of_what_the_user_said() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses", "deepseek-v4", "ollama"] {
        let bed = TestBed::over(&[row]).await;
        let client = &bed.gateway.client;
        let image = json!({"type": "input_image", "image_url": PIXEL});
        let short = [
            json!({"role": "user", "content": FACT}),
            json!({"role": "user", "content": [{"type": "input_text", "text": "Look."}, image]}),
        ];
        let compacted = compact(client, &short).await;
        let mut kept: Vec<Value> = list(&compacted["output"]).cloned().collect();
        assert_eq!(kept.len(), 3, "{row}: {compacted}");
        kept.push(json!({"type": "message", "role": "user", "content": "plain, please"}));
        let body = json!({"model": "some-model", "input": kept, "store": false});
        client.post(RESPONSES, KEY, &body).await.expect_ok();
        assert!(bed.last_received(0).await.body.contains(FACT), "{row}");
        bed.expect_no_refusals().await;
    }
}

/// Half a summary, or a refusal, must not become the whole history.
#[tokio::test]
async fn summary_that_the_model_did_not_finish_is_an_error() {
    for (reason, status) in [("stop", 200), ("length", 502), ("content_filter", 502)] {
        let chunk = |delta: Value, reason: Option<&str>| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
            let chunk = json!({"id": "1", "object": "chat.completion.chunk", "created": 1,
                "model": "m", "choices": [choice]});
            format!("data: {chunk}\n\n")
        };
        let events = [
            chunk(json!({"role": "assistant", "content": "The heron wai"}), None),
            chunk(json!({}), Some(reason)),
            "data: [DONE]\n\n".to_owned(),
        ];
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let upstream = RawUpstream::always_answering(format!("{head}{}", events.concat())).await;
        let config = format!(
            "[[backend]]\nname = \"a\"\ndialect = \"openai_chat\"\nvariant = \"vllm\"\nbase_url = \"{upstream}\"\n"
        );
        let gateway = Gateway::start(BINARY, &config).await;
        let body = json!({"model": "qwen3-32b", "input": conversation()});
        let answer = gateway.client.post(COMPACT, KEY, &body).await;
        assert_eq!(answer.status, status, "{reason}: {}", answer.text());
        assert_eq!(answer.text().contains(ENVELOPE), status == 200, "{reason}: {}", answer.text());
    }
}

#[tokio::test]
async fn backend_of_the_dialect_compacts_by_itself_and_keeps_its_items() {
    let bed = TestBed::over(&["openai_responses", "openai_responses", "gemini 3"]).await;
    let client = &bed.gateway.client;
    let compacted = compact(client, &conversation()).await;
    let seen = bed.last_received(0).await;
    assert_eq!((seen.path.as_str(), &seen.json()["model"]), (COMPACT, &json!("gpt-6.1-sol")));
    let item = list(&compacted["output"]).last().expect("an item").clone();
    assert!(!text(&item["encrypted_content"]).starts_with(ENVELOPE));
    client.post(RESPONSES, KEY, &after(&item)).await.expect_ok();
    assert!(bed.last_received(0).await.body.contains(text(&item["encrypted_content"])));
    for (at, name) in [(1, "b"), (2, "c")] {
        bed.gateway.switch(name).await;
        for stream in [false, true] {
            let mut body = after(&item);
            body["stream"] = stream.into();
            let answer = client.post(RESPONSES, KEY, &body).await;
            assert_eq!(code(&answer), (400, "invalid_encrypted_content".to_owned()));
            assert!(answer.text().contains(&format!("`{name}`")), "{}", answer.text());
        }
        let again = json!({"model": "some-model", "input": [item]});
        let answer = client.post(COMPACT, KEY, &again).await;
        assert_eq!(code(&answer), (400, "invalid_encrypted_content".to_owned()));
        let turns = bed.simulators[at].received().await;
        assert!(turns.iter().all(|seen| seen.path != RESPONSES), "a turn was asked");
    }
}

#[tokio::test]
async fn stored_responses_are_compacted_and_continued() {
    let bed = TestBed::over(&["anthropic, budget", "gemini 3"]).await;
    let client = &bed.gateway.client;
    let first = json!({"model": "some-model", "input": format!("ponder: {FACT}")});
    let first = client.post(RESPONSES, KEY, &first).await.expect_ok().json();
    let body = json!({"model": "some-model", "previous_response_id": first["id"]});
    let compacted = client.post(COMPACT, KEY, &body).await.expect_ok().json();
    assert!(bed.last_received(0).await.body.contains(FACT));
    bed.gateway.switch("b").await;
    let mut next = after(list(&compacted["output"]).last().expect("an item"));
    next["store"] = true.into();
    let second = client.post(RESPONSES, KEY, &next).await.expect_ok().json();
    bed.gateway.switch("a").await;
    let third =
        json!({"model": "some-model", "previous_response_id": second["id"], "input": "plain"});
    client.post(RESPONSES, KEY, &third).await.expect_ok();
    let sent = bed.last_received(0).await.body;
    assert!(sent.contains("Summary of the conversation so far"), "{sent}");
    // Another caller has no such response.
    let other = [("authorization", "Bearer other")];
    let answer = client.post(COMPACT, &other, &body).await;
    assert_eq!(code(&answer), (400, "previous_response_not_found".to_owned()));
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn request_to_compact_is_refused_if_no_backend_can_compact() {
    let bed = TestBed::over(&["gemini 3"]).await;
    let mut body = after(&json!({"type": "compaction_trigger"}));
    body["input"].as_array_mut().expect("items").swap(0, 1);
    let answer = bed.gateway.client.post(RESPONSES, KEY, &body).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains(COMPACT), "{}", answer.text());
    assert_eq!(bed.simulators[0].received().await.len(), 0);
}

/// A conversation that only another server knows must not be answered from the newest message.
#[tokio::test]
async fn unknown_previous_response_is_refused_on_every_lane() {
    let mut mismatches = Mismatches::default();
    for row in ["openai_responses", "gemini 3", "ollama"] {
        let bed = TestBed::over(&[row]).await;
        for reasoning in [json!({"effort": "medium"}), Value::Null] {
            let body = json!({
                "model": "some-model", "input": "plain", "previous_response_id": "resp_elsewhere",
                "reasoning": reasoning,
            });
            let answer = bed.gateway.client.post(RESPONSES, KEY, &body).await;
            let found = code(&answer).1;
            mismatches.check_equal(
                &format!("{row} {reasoning}"),
                found,
                "previous_response_not_found",
            );
        }
    }
    mismatches.assert_none();
}
