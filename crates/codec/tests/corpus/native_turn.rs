//! Turns that go back to their maker: for every recorded reply, the next request has the provider's own
//! output again. What the provider wrote is read here from the recording, without the dialect's reader.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use throughline_canonical::{Block, EndReason, Fold, MadeTurn, Message, Request, Role};
use throughline_codec::dialects::raw_reply::RawReply;
use throughline_codec::dialects::{Target, native_turn};

use super::upstream_reply::{Incoming, replies_of};

/// Recordings whose output is not a turn that can go back as it is, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("openai_responses/items-done-twice, line 2", "the server repeats items under other numbers"),
    (
        "openai_responses/items-without-deltas, line 4",
        "the call has no id, and its result needs one",
    ),
    ("anthropic/events-after-the-end", "what follows the end is not part of the reply"),
    ("anthropic/text-delta-inside-thinking", "the text belongs to the thinking"),
    ("anthropic/whole-keys-in-odd-order", "one of the blocks is a string"),
    ("gemini/arguments-in-pieces", "a call in pieces has no form in a request"),
    ("gemini/broken-and-foreign-data", "it has several candidates, and broken chunks"),
    ("gemini/cumulative", "every chunk repeats the answer"),
    ("gemini/repeated-calls, line ", "the server repeats calls"),
    ("gemini/signature-places, line 7", "the signature is not on a part"),
];

/// A reply that a conversation would send back: its captured payload and its blocks.
fn complete(reply: &Incoming) -> Option<(Value, String, Vec<Block>)> {
    let mut raw = RawReply::new(reply.dialect.raw_shape(), reply.streamed);
    raw.push(&reply.bytes);
    let payload = raw.finish();
    let mut fold = Fold::default();
    reply.read([&reply.bytes[..]], |event| fold.push(event));
    let read = fold.finish();
    let ends = [Some(EndReason::Stop), Some(EndReason::ToolCalls), Some(EndReason::Length)];
    let is_complete = read.fault.is_none() && ends.contains(&read.reason);
    let parsed = serde_json::from_str(&payload).unwrap();
    is_complete.then_some((parsed, payload, read.content))
}

/// The body of the next request of a conversation.
fn next_body(reply: &Incoming, payload: &str, blocks: &[Block], sent: Vec<Block>) -> Value {
    let native = native_turn::read(reply.dialect, payload, blocks);
    let made = native.map(|native| Arc::new(MadeTurn { native, blocks: blocks.to_vec() }));
    let said = |text: &str| Message::new(Role::User, vec![Block::text(text)]);
    let answer = Message { made, ..Message::new(Role::Assistant, sent) };
    let request = Request { messages: vec![said("a"), answer, said("b")], ..Request::default() };
    let target = Target { model: "m", profile: reply.dialect.profile("") };
    let written = reply.dialect.write_request(&request, &target);
    serde_json::from_slice(&written.value.body).unwrap()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Compares what each reply of a dialect wrote with what goes back. Returns how many were compared.
fn check(
    dialect: &str,
    keep: fn(&Block) -> bool,
    wrote: fn(&Value) -> Vec<Value>,
    sent: fn(&Value) -> Vec<Value>,
) -> usize {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for reply in replies_of(dialect) {
        let Some((captured, payload, blocks)) = complete(&reply) else { continue };
        let expected = wrote(&captured);
        if expected.is_empty() {
            continue;
        }
        count += 1;
        let kept = blocks.iter().filter(|block| keep(block)).cloned().collect();
        let found = sent(&next_body(&reply, &payload, &blocks, kept));
        let is_exception = EXCEPTIONS.iter().any(|(name, _)| reply.name.starts_with(name));
        if is_exception {
            assert_ne!(found, expected, "{} is no exception", reply.name);
        } else if found != expected {
            let show = |values: &[Value]| {
                values.iter().map(|value| format!("    {value}\n")).collect::<String>()
            };
            wrong.push(format!("{}:\n{}  sent:\n{}", reply.name, show(&expected), show(&found)));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    count
}

/// The items that a reply has completed, in the order of the output.
fn items(captured: &Value) -> Vec<Value> {
    let mut items = BTreeMap::new();
    for event in list(&captured["events"]) {
        if event["type"] == "response.output_item.done" {
            let place = event["output_index"].as_u64().unwrap_or(items.len() as u64);
            items.entry(place).or_insert(event["item"].clone());
        }
    }
    for (place, item) in list(&captured["response"]["output"]).into_iter().enumerate() {
        items.entry(place as u64).or_insert(item);
    }
    // An item with neither text nor an encrypted value says nothing.
    let says_something = |item: &Value| {
        let parts = [&item["summary"], &item["content"]];
        let is_empty = parts.iter().all(|parts| list(parts).is_empty());
        match text(item, "type") {
            "reasoning" => !is_empty || !text(item, "encrypted_content").is_empty(),
            "message" => !is_empty,
            _ => true,
        }
    };
    items.into_values().filter(says_something).collect()
}

/// Covers: S4-24, S4-39, S4-60, C-20, C-21
#[test]
fn responses_items_go_back_as_they_were_written() {
    let sent = |body: &Value| {
        let items = list(&body["input"]);
        items[1..items.len() - 1].to_vec()
    };
    assert!(check("openai_responses", |_| true, items, sent) > 10);
}

/// The blocks of a reply: their starts, grown by their deltas.
fn blocks(captured: &Value) -> Vec<Value> {
    let mut blocks: BTreeMap<u64, Value> = BTreeMap::new();
    let mut inputs: BTreeMap<u64, String> = BTreeMap::new();
    for event in list(captured) {
        let data = &event["data"];
        if data["content"].is_array() {
            return list(&data["content"]);
        }
        for block in list(&data["message"]["content"]) {
            blocks.insert(blocks.len() as u64, block);
        }
        let index = data["index"].as_u64().unwrap_or_default();
        let delta = &data["delta"];
        if data["type"] == "content_block_start" {
            blocks.insert(index, data["content_block"].clone());
        }
        let Some(block) = blocks.get_mut(&index).filter(|_| data["type"] == "content_block_delta")
        else {
            continue;
        };
        match text(delta, "type") {
            "text_delta" => {
                block["text"] = [text(block, "text"), text(delta, "text")].concat().into();
            }
            "thinking_delta" => {
                block["thinking"] =
                    [text(block, "thinking"), text(delta, "thinking")].concat().into();
            }
            "signature_delta" => block["signature"] = delta["signature"].clone(),
            "input_json_delta" => {
                inputs.entry(index).or_default().push_str(text(delta, "partial_json"));
            }
            "citations_delta" => {
                let mut citations = list(&block["citations"]);
                citations.push(delta["citation"].clone());
                block["citations"] = citations.into();
            }
            _ => {}
        }
    }
    for (index, input) in inputs.into_iter().filter(|(_, input)| !input.is_empty()) {
        if let Some(block) = blocks.get_mut(&index) {
            block["input"] = serde_json::from_str(&input).unwrap();
        }
    }
    blocks.into_values().collect()
}

/// Providers refuse a text of white space, and thinking without a signature.
fn sendable_blocks(captured: &Value) -> Vec<Value> {
    let is_sendable = |block: &Value| match text(block, "type") {
        "text" => !text(block, "text").trim().is_empty(),
        "thinking" => !text(block, "signature").is_empty(),
        _ => true,
    };
    let without_nulls = |block: Value| match block {
        Value::Object(members) => {
            let kept: Map<String, Value> =
                members.into_iter().filter(|(_, value)| !value.is_null()).collect();
            Value::Object(kept)
        }
        other => other,
    };
    blocks(captured).into_iter().filter(is_sendable).map(without_nulls).collect()
}

/// Covers: S4-22, S4-24
#[test]
fn anthropic_blocks_go_back_as_they_were_written() {
    let sent = |body: &Value| match &body["messages"][1]["content"] {
        Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
        content => list(content),
    };
    assert!(check("anthropic", |_| true, sendable_blocks, sent) > 30);
}

/// The parts of a reply without its thoughts. Neighbouring pieces of plain text are one text.
fn parts(captured: &Value) -> Vec<Value> {
    let mut chunks = list(&captured["stream"]);
    if chunks.is_empty() {
        chunks.push(captured["response"].clone());
    }
    let mut parts: Vec<Value> = Vec::new();
    for chunk in chunks {
        for part in list(&chunk["candidates"][0]["content"]["parts"]) {
            let members = part.as_object().map(Map::len);
            let is_plain = members == Some(1) && part["text"].is_string();
            if part["thought"] == true || is_plain && text(&part, "text").is_empty() {
                continue;
            }
            match parts.last_mut() {
                Some(last)
                    if is_plain
                        && last.as_object().is_some_and(|last| last.len() == 1)
                        && last["text"].is_string() =>
                {
                    last["text"] = [text(last, "text"), text(&part, "text")].concat().into();
                }
                _ => parts.push(part),
            }
        }
    }
    parts
}

/// Covers: S4-20, S4-24
#[test]
fn gemini_parts_go_back_as_they_were_written() {
    let thinks = |block: &Block| !matches!(block, Block::Thinking { .. });
    let sent = |body: &Value| list(&body["contents"][1]["parts"]);
    assert!(check("gemini", thinks, parts, sent) > 5);
}
