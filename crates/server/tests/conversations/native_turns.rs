//! Turns that go back to the model that wrote them: the next request has the provider's own output.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::Simulator;

use crate::raw_replies::sent_events;
use crate::support::{ANTHROPIC, Api, CHAT, Database, GEMINI, RESPONSES, done, text};

/// Thinking of two parts, texts between calls, and an answer at the end.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "row blue" }
say = [{ thinking = "Another thought." }, { text = "Blue it is." }]
[[step]]
when = { contains = "look it up" }
say = [
  { thinking = "First this.\n\nThen that." }, { text = "I look twice." }, { redacted = true },
  { tool = { name = "lookup", input = { key = "7" } } }, { tool = { name = "lookup", input = { key = "8" } } },
]
[[step]]
when = { contains = "and then" }
say = [{ thinking = "The end." }, { text = "That was all." }]
"#;

/// A provider that signs thinking together with everything before it.
const BOUND: (&str, &str) = ("bound", "anthropic, bound");

fn lookup() -> Value {
    json!([{"name": "lookup", "description": "Reads a row.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}])
}

/// What the provider wrote in answer to its last request.
async fn wrote(simulator: &Simulator, dialect: &str) -> Vec<Value> {
    let sent = sent_events(simulator).await;
    let events = sent.iter().map(|(_, data)| serde_json::from_str(data).expect("JSON"));
    let events: Vec<Value> = events.collect();
    match dialect {
        "openai_responses" => {
            let last = events.last().expect("an event");
            last["response"]["output"].as_array().cloned().expect("items")
        }
        "anthropic" => anthropic_blocks(&events),
        "gemini" => gemini_parts(&events),
        "openai_chat" => vec![chat_message(&events)],
        other => panic!("{other}"),
    }
}

fn anthropic_blocks(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    for event in events {
        let delta = &event["delta"];
        match (text(&event["type"]), blocks.last_mut()) {
            ("content_block_start", _) => blocks.push(event["content_block"].clone()),
            ("content_block_delta", Some(block)) => {
                let grown = |name: &str| json!([text(&block[name]), text(&delta[name])].concat());
                match text(&delta["type"]) {
                    "text_delta" => block["text"] = grown("text"),
                    "thinking_delta" => block["thinking"] = grown("thinking"),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "citations_delta" => block["citations"] = json!([delta["citation"]]),
                    "input_json_delta" => {
                        let whole = [text(&block["whole"]), text(&delta["partial_json"])].concat();
                        block["whole"] = whole.into();
                    }
                    other => panic!("{other}"),
                }
            }
            _ => {}
        }
    }
    for block in &mut blocks {
        if let Some(Value::String(whole)) = block.as_object_mut().expect("a block").remove("whole")
        {
            block["input"] = serde_json::from_str(&whole).expect("an object");
        }
    }
    blocks
}

/// Thoughts are left out, and pieces of a text are one text.
fn gemini_parts(chunks: &[Value]) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let is_plain = |part: &Value| part.as_object().is_some_and(|members| members.len() == 1);
    for chunk in chunks {
        let list = chunk["candidates"][0]["content"]["parts"].as_array();
        for part in list.into_iter().flatten().filter(|part| part["thought"] != true) {
            let joins = is_plain(part) && part["text"].is_string();
            match parts
                .last_mut()
                .filter(|last| joins && is_plain(last) && last["text"].is_string())
            {
                Some(last) => {
                    last["text"] = [text(&last["text"]), text(&part["text"])].concat().into();
                }
                None => parts.push(part.clone()),
            }
        }
    }
    parts.retain(|part| !(is_plain(part) && part["text"] == ""));
    parts
}

fn chat_message(chunks: &[Value]) -> Value {
    let deltas: Vec<&Value> = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]).collect();
    let joined = |name: &str| deltas.iter().map(|delta| text(&delta[name])).collect::<String>();
    let mut calls: Vec<Value> = Vec::new();
    for piece in deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten() {
        let index = usize::try_from(piece["index"].as_u64().unwrap_or_default()).expect("small");
        if calls.len() <= index {
            calls.push(json!({"id": piece["id"], "type": "function",
                "function": {"name": piece["function"]["name"], "arguments": ""}}));
        }
        let more = text(&piece["function"]["arguments"]);
        let whole = [text(&calls[index]["function"]["arguments"]), more].concat();
        calls[index]["function"]["arguments"] = whole.into();
    }
    let mut message = json!({"role": "assistant", "content": joined("content"),
        "reasoning_content": joined("reasoning_content")});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// The assistant's turns of a request, each as a list.
fn sent_turns(dialect: &str, body: &Value) -> Vec<Vec<Value>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    match dialect {
        "openai_responses" => {
            let is_own = |item: &Value| {
                item["role"] == "assistant"
                    || matches!(text(&item["type"]), "reasoning" | "function_call")
            };
            let items = list(&body["input"]);
            items
                .split(|item| !is_own(item))
                .filter(|turn| !turn.is_empty())
                .map(<[_]>::to_vec)
                .collect()
        }
        "anthropic" => {
            let turns = list(&body["messages"]).into_iter();
            turns
                .filter(|turn| turn["role"] == "assistant")
                .map(|turn| list(&turn["content"]))
                .collect()
        }
        "gemini" => {
            let turns = list(&body["contents"]).into_iter();
            turns.filter(|turn| turn["role"] == "model").map(|turn| list(&turn["parts"])).collect()
        }
        "openai_chat" => {
            let turns = list(&body["messages"]).into_iter();
            turns.filter(|turn| turn["role"] == "assistant").map(|turn| vec![turn]).collect()
        }
        other => panic!("{other}"),
    }
}

/// Covers: S4-20, S4-24, S4-39, S4-56, S4-60, C-20, C-21
#[tokio::test]
async fn next_request_has_the_providers_own_output() {
    for (backend, dialect) in [
        (BOUND, "anthropic"),
        (ANTHROPIC, "anthropic"),
        (GEMINI, "gemini"),
        (RESPONSES, "openai_responses"),
        (CHAT, "openai_chat"),
    ] {
        let api = Api::with(&[backend], SCENARIO, "").await;
        let simulator = &api.simulators[0];
        let project = api.project(json!({"title": "t"})).await;
        let ask =
            |message: &str| json!({"message": message, "tools": lookup(), "thinking": "medium"});
        let mut turns = Vec::new();
        let lines = api.chat(&project, ask("look it up and cite sources")).await;
        turns.push(wrote(simulator, dialect).await);
        let calls: Vec<&Value> = lines.iter().filter(|line| line["type"] == "tool_call").collect();
        assert_eq!(calls.len(), 2, "{}: {lines:#?}", backend.0);
        let results: Vec<Value> =
            calls.iter().map(|call| json!({"id": call["id"], "content": "row blue"})).collect();
        let next = json!({"toolResults": results, "tools": lookup(), "thinking": "medium"});
        for chat in [next, ask("and then, with sources to cite"), ask("and then")] {
            let lines = api.chat(&project, chat).await;
            assert_eq!(done(&lines)["reason"], "completed", "{}: {lines:#?}", backend.0);
            let received = simulator.last_received().await;
            assert_eq!(received.refusal, "", "{}", backend.0);
            let sent = sent_turns(dialect, &received.json());
            assert_eq!(json!(sent), json!(turns), "{}\n{:#}", backend.0, received.json());
            turns.push(wrote(simulator, dialect).await);
        }
        let has = |what: &str| json!(turns).to_string().contains(what);
        match dialect {
            "anthropic" => assert!(has("search_result_location"), "no citation was written"),
            "openai_responses" => {
                assert!(has("url_citation") && has("\"phase\"") && has("\"rs_"), "{turns:#?}");
                let parts = turns[0][0]["summary"].as_array().map(Vec::len);
                assert_eq!(parts, Some(2), "{turns:#?}");
            }
            _ => {}
        }
        assert_eq!(api.refusals().await, [""; 0], "{}", backend.0);
    }
}

/// What is not stored as raw goes back as it was written too.
///
/// Covers: S4-43
#[tokio::test]
async fn native_form_does_not_depend_on_stored_raw_replies() {
    // The table of the store has one writer, so the test cannot choose the database too.
    let settings = "store = { raw = false }";
    let api = Api::on(Database::Sqlite, &[RESPONSES], SCENARIO, settings).await;
    let project = api.project(json!({"title": "t"})).await;
    let chat = |message: &str| json!({"message": message, "thinking": "medium"});
    let lines = api.chat(&project, chat("and then")).await;
    let node = format!("{project}/nodes/{}/raw", text(&done(&lines)["nodeId"]));
    assert_eq!(api.send(Method::GET, &node, &Value::Null).await.status, 404);
    let written = wrote(&api.simulators[0], "openai_responses").await;
    api.chat(&project, chat("and then")).await;
    let received = api.simulators[0].last_received().await.json();
    assert_eq!(sent_turns("openai_responses", &received), [written]);
}
