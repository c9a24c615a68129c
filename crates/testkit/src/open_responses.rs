//! Checks a response and its events against the specification of Open Responses (2026-04-24): the
//! members that each object must have, and the order of events.

use std::collections::BTreeMap;

use serde_json::Value;

/// The members of an object, each as `name:type`. Types: `s` string, `i` integer, `n` number, `b`
/// boolean, `o` object, `a` list, `*` anything. With `?` the member may be null; a name in brackets
/// may be absent, but then not null either.
type Members = &'static str;

const RESPONSE: Members = "id:s object:s created_at:i completed_at:i? status:s \
    incomplete_details:o? model:s previous_response_id:s? instructions:s? output:a error:o? tools:a \
    tool_choice:* truncation:s parallel_tool_calls:b text:o top_p:n presence_penalty:n \
    frequency_penalty:n top_logprobs:i temperature:n reasoning:o? usage:o? max_output_tokens:i? \
    max_tool_calls:i? store:b background:b service_tier:s metadata:* safety_identifier:s? \
    prompt_cache_key:s?";
const COMPACTION: Members = "id:s object:s created_at:i output:a usage:o";
const USAGE: Members = "input_tokens:i output_tokens:i total_tokens:i input_tokens_details:o \
    output_tokens_details:o";

/// The members of items, by type.
const ITEMS: &[(&str, Members)] = &[
    ("message", "id:s status:s role:s content:a [phase]:s"),
    ("function_call", "id:s call_id:s name:s arguments:s status:s"),
    ("function_call_output", "id:s call_id:s output:* status:s"),
    ("reasoning", "id:s summary:a [content]:a [encrypted_content]:s"),
    ("compaction", "id:s encrypted_content:s"),
];
/// The members of content parts, by type.
const PARTS: &[(&str, Members)] = &[
    ("output_text", "text:s annotations:a [logprobs]:a"),
    ("refusal", "refusal:s"),
    ("summary_text", "text:s"),
    ("reasoning_text", "text:s"),
    ("input_text", "text:s"),
    ("input_image", "detail:s"),
];
const ITEM: Members = "output_index:i item:o";
const TEXT_DELTA: Members = "item_id:s output_index:i content_index:i delta:s [logprobs]:a";
const TEXT_DONE: Members = "item_id:s output_index:i content_index:i text:s [logprobs]:a";
const PART: Members = "item_id:s output_index:i content_index:i part:o";
const SUMMARY_PART: Members = "item_id:s output_index:i summary_index:i part:o";
/// The members of events, by type. The specification calls the events of raw reasoning
/// `response.reasoning.delta` and `.done`; OpenAI's libraries know only the names below.
const EVENTS: &[(&str, Members)] = &[
    ("response.created", "response:o"),
    ("response.queued", "response:o"),
    ("response.in_progress", "response:o"),
    ("response.completed", "response:o"),
    ("response.incomplete", "response:o"),
    ("response.failed", "response:o"),
    ("response.output_item.added", ITEM),
    ("response.output_item.done", ITEM),
    ("response.content_part.added", PART),
    ("response.content_part.done", PART),
    ("response.output_text.delta", TEXT_DELTA),
    ("response.output_text.done", TEXT_DONE),
    (
        "response.output_text.annotation.added",
        "item_id:s output_index:i content_index:i annotation_index:i annotation:o",
    ),
    ("response.refusal.delta", TEXT_DELTA),
    ("response.refusal.done", "item_id:s output_index:i content_index:i refusal:s"),
    ("response.reasoning_text.delta", TEXT_DELTA),
    ("response.reasoning_text.done", TEXT_DONE),
    ("response.reasoning_summary_part.added", SUMMARY_PART),
    ("response.reasoning_summary_part.done", SUMMARY_PART),
    ("response.reasoning_summary_text.delta", "item_id:s output_index:i summary_index:i delta:s"),
    ("response.reasoning_summary_text.done", "item_id:s output_index:i summary_index:i text:s"),
    ("response.function_call_arguments.delta", "item_id:s output_index:i delta:s"),
    ("response.function_call_arguments.done", "item_id:s output_index:i arguments:s"),
    ("keepalive", ""),
];

/// Checks a response.
///
/// # Panics
/// If the response violates the specification.
pub fn check_response(response: &Value) {
    check_members("the response", response, RESPONSE);
    assert_eq!(response["object"], "response");
    if response["status"] == "completed" {
        assert!(response["completed_at"].is_i64(), "completed without a time: {response}");
    }
    for item in elements(&response["output"]) {
        check_item(item);
    }
    for tool in elements(&response["tools"]).filter(|tool| tool["type"] == "function") {
        check_members("a tool", tool, "name:s description:s? parameters:o? strict:b?");
    }
    if response["usage"].is_object() {
        check_usage(&response["usage"]);
    }
    if response["reasoning"].is_object() {
        check_members("reasoning", &response["reasoning"], "effort:s? summary:s?");
    }
    assert!(response["text"]["format"]["type"].is_string(), "{}", response["text"]);
}

/// Checks the reply to a request to compact a conversation.
///
/// # Panics
/// If the reply violates the specification.
pub fn check_compaction(reply: &Value) {
    check_members("the compaction", reply, COMPACTION);
    assert_eq!(reply["object"], "response.compaction");
    check_usage(&reply["usage"]);
    for item in elements(&reply["output"]) {
        check_item(item);
    }
}

/// Checks all events of one response, in order, and returns the final response.
///
/// # Panics
/// If an event, or the order of the events, violates the specification.
pub fn check_events(events: &[Value]) -> Value {
    let first = events.first().expect("a stream has events");
    assert_eq!(first["type"], "response.created");
    let mut open: BTreeMap<u64, OpenItem> = BTreeMap::new();
    let mut done: BTreeMap<u64, Value> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        let kind = event["type"].as_str().unwrap_or_default();
        let (_, members) = EVENTS
            .iter()
            .find(|(name, _)| *name == kind)
            .unwrap_or_else(|| panic!("an unknown event: {event}"));
        check_members(kind, event, members);
        assert_eq!(event["sequence_number"], number, "{event}");
        let at = event["output_index"].as_u64();
        if let Some(response) = event.get("response") {
            check_response(response);
            assert_eq!(response["id"], first["response"]["id"], "another response: {event}");
        }
        match (kind, at) {
            ("response.output_item.added", Some(at)) => {
                check_item(&event["item"]);
                let item = OpenItem { id: event["item"]["id"].clone(), parts: BTreeMap::new() };
                assert!(open.insert(at, item).is_none() && !done.contains_key(&at), "{event}");
            }
            ("response.output_item.done", Some(at)) => {
                check_item(&event["item"]);
                let item = open.remove(&at).unwrap_or_else(|| panic!("never added: {event}"));
                assert_eq!(item.id, event["item"]["id"], "{event}");
                assert!(item.parts.values().all(|part| part.done), "an open part: {event}");
                done.insert(at, event["item"].clone());
            }
            (_, Some(at)) => {
                let item = open.get_mut(&at).unwrap_or_else(|| panic!("no open item: {event}"));
                item.push(kind, event);
            }
            (_, None) => {}
        }
    }
    let last = &events[events.len() - 1];
    let response = &last["response"];
    let status = response["status"].as_str().unwrap_or_default();
    assert_eq!(last["type"], format!("response.{status}"), "{last}");
    assert!(["completed", "incomplete", "failed"].contains(&status), "no end: {last}");
    assert!(open.is_empty() || status == "failed", "unfinished items: {open:?}");
    let items: Vec<Value> = done.into_values().collect();
    assert_eq!(response["output"], Value::from(items), "the end does not repeat the items");
    response.clone()
}

/// An item that was added and is not done.
#[derive(Debug)]
struct OpenItem {
    id: Value,
    /// Its parts, by kind and index.
    parts: BTreeMap<(bool, u64), OpenPart>,
}

#[derive(Debug, Default)]
struct OpenPart {
    text: String,
    text_done: bool,
    done: bool,
}

impl OpenItem {
    /// Checks the order of the events of a part: added, deltas, done, part done.
    fn push(&mut self, kind: &str, event: &Value) {
        assert_eq!(self.id, event["item_id"], "{event}");
        let summary = event["summary_index"].as_u64();
        let index = summary.or(event["content_index"].as_u64());
        if kind.ends_with("part.added") {
            check_part(&event["part"]);
            let key = (summary.is_some(), index.unwrap_or_default());
            assert!(self.parts.insert(key, OpenPart::default()).is_none(), "{event}");
            return;
        }
        let Some(index) = index else {
            return;
        };
        let part = self.parts.get_mut(&(summary.is_some(), index));
        let part = part.unwrap_or_else(|| panic!("no such part: {event}"));
        assert!(!part.done, "the part was done: {event}");
        let text = |member: &str| event[member].as_str().unwrap_or_default().to_owned();
        match kind {
            "response.output_text.annotation.added" => {}
            _ if kind.ends_with("part.done") => {
                check_part(&event["part"]);
                assert!(part.text_done, "the text was not done: {event}");
                part.done = true;
            }
            _ if kind.ends_with(".delta") => part.text += &text("delta"),
            _ => {
                part.text_done = true;
                let whole = if kind.contains("refusal") { text("refusal") } else { text("text") };
                assert_eq!(part.text, whole, "{event}");
            }
        }
    }
}

fn check_usage(usage: &Value) {
    check_members("the usage", usage, USAGE);
    let cached = &usage["input_tokens_details"]["cached_tokens"];
    let reasoning = &usage["output_tokens_details"]["reasoning_tokens"];
    assert!(cached.is_u64() && reasoning.is_u64(), "{usage}");
}

fn check_item(item: &Value) {
    check_typed(item, ITEMS);
    if let Some(status) = item["status"].as_str() {
        assert!(["in_progress", "completed", "incomplete"].contains(&status), "{item}");
    }
    for part in elements(&item["content"]).chain(elements(&item["summary"])) {
        check_part(part);
    }
}

fn check_part(part: &Value) {
    check_typed(part, PARTS);
}

/// Checks an object whose members depend on its type. Types of providers are not specified.
fn check_typed(value: &Value, table: &[(&str, Members)]) {
    let kind = value["type"].as_str().unwrap_or_else(|| panic!("no type: {value}"));
    if let Some((_, members)) = table.iter().find(|(name, _)| *name == kind) {
        check_members(kind, value, members);
    }
}

fn check_members(object: &str, value: &Value, members: Members) {
    for member in members.split_whitespace() {
        let (name, kind) = member.split_once(':').expect("a name and a type");
        let required = name.trim_matches(['[', ']']);
        let optional = required.len() < name.len();
        let kind = match kind.strip_suffix('?') {
            Some(_) if value.get(required).is_some_and(Value::is_null) => continue,
            Some(kind) => kind,
            None => kind,
        };
        let Some(found) = value.get(required) else {
            assert!(optional, "{object} has no `{required}`: {value}");
            continue;
        };
        let right = match kind {
            "s" => found.is_string(),
            "i" => found.is_i64() || found.is_u64(),
            "n" => found.is_number(),
            "b" => found.is_boolean(),
            "o" => found.is_object(),
            "a" => found.is_array(),
            _ => true,
        };
        assert!(right, "`{required}` of {object} has the wrong type: {value}");
    }
}

fn elements(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
