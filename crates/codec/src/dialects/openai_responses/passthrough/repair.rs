//! Completes replies of servers that leave out members and events which clients require. llama.cpp,
//! for example, sends no sequence numbers, no indexes and few members of the response. What a server
//! does send stays as it is.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use throughline_canonical::Request;

use super::super::RepeatedMembers;
use super::super::client_reply::response::setting_members;
use crate::dialects::ReplyIdentity;
use crate::dialects::passthrough::ReplyRepair;
use crate::json::{Kind, each_member};

/// Members of a response that OpenAI's libraries declare as required.
const REQUIRED: [&[u8]; 6] =
    [b"created_at", b"model", b"output", b"parallel_tool_calls", b"tool_choice", b"tools"];

/// Members of a response that may be null.
const NULLABLE: [&str; 8] = [
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "user",
];

/// Whether the first event of a stream, or a whole reply, lacks what every client requires. A server
/// that is complete there is complete everywhere.
pub(in super::super) fn is_sloppy(first: &[u8]) -> bool {
    let (mut numbered, mut response, mut is_response) = (false, None, false);
    let read = each_member(first, 0, |key, kind, span| match (key, kind) {
        (b"sequence_number", Kind::Number) => numbered = true,
        (b"response", Kind::Object) => response = Some(span.start),
        (b"object", Kind::String) => is_response = &first[span] == b"\"response\"",
        _ => {}
    });
    match response {
        Some(start) => read.is_ok() && (!numbered || lacks_members(first, start)),
        // Anything else is an error, or an event that no client reads first.
        None => read.is_ok() && is_response && lacks_members(first, 0),
    }
}

fn lacks_members(json: &[u8], start: usize) -> bool {
    let mut found = 0;
    let read = each_member(json, start, |key, _, _| found += usize::from(REQUIRED.contains(&key)));
    read.is_ok() && found < REQUIRED.len()
}

/// Completes one reply.
#[derive(Debug)]
pub(in super::super) struct Repairer {
    /// The members of a response that its request decides.
    settings: Map<String, Value>,
    /// Makes ids for what has none.
    identity: String,
    created: u64,
    now: fn() -> u64,
    sequence: u64,
    /// The items so far. The position of an item is its index.
    items: Vec<Item>,
}

/// An item of the output.
#[derive(Debug, Default)]
struct Item {
    id: String,
    /// Its content parts, by index.
    parts: BTreeMap<u64, Part>,
    /// The arguments of a call so far, and whether their end was written.
    arguments: String,
    arguments_done: bool,
}

/// A content part.
#[derive(Debug)]
struct Part {
    kind: PartKind,
    text: String,
    text_done: bool,
    done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PartKind {
    Text,
    Refusal,
    Reasoning,
}

impl PartKind {
    /// The kind whose events begin with this name.
    fn of_event(name: &str) -> Option<Self> {
        Some(match name {
            "response.output_text" => Self::Text,
            "response.refusal" => Self::Refusal,
            "response.reasoning_text" => Self::Reasoning,
            _ => return None,
        })
    }

    fn event(self) -> &'static str {
        match self {
            Self::Text => "response.output_text",
            Self::Refusal => "response.refusal",
            Self::Reasoning => "response.reasoning_text",
        }
    }

    fn member(self) -> &'static str {
        if self == Self::Refusal { "refusal" } else { "text" }
    }

    fn of_part(part: &Value) -> Self {
        match part["type"].as_str() {
            Some("refusal") => Self::Refusal,
            Some("reasoning_text") => Self::Reasoning,
            _ => Self::Text,
        }
    }

    fn part(self, text: &str) -> Value {
        match self {
            Self::Text => {
                json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
            }
            Self::Refusal => json!({"type": "refusal", "refusal": text}),
            Self::Reasoning => json!({"type": "reasoning_text", "text": text}),
        }
    }
}

impl From<Repairer> for Box<dyn ReplyRepair> {
    fn from(repairer: Repairer) -> Self {
        Box::new(repairer)
    }
}

impl ReplyRepair for Repairer {
    fn event(&mut self, data: &[u8], out: &mut Vec<u8>) {
        let Ok(Value::Object(event)) = serde_json::from_slice(data) else {
            // `[DONE]`, for example.
            out.extend_from_slice(b"data: ");
            out.extend_from_slice(data);
            out.extend_from_slice(b"\n\n");
            return;
        };
        let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        self.complete_event(&kind, event, out);
    }

    fn whole(&mut self, reply: &[u8]) -> Vec<u8> {
        match serde_json::from_slice(reply) {
            Ok(Value::Object(mut response)) => {
                self.complete_response(&mut response, "completed");
                Value::Object(response).to_string().into_bytes()
            }
            _ => reply.to_vec(),
        }
    }
}

impl Repairer {
    pub(in super::super) fn new(
        request: &Request,
        repeated: &RepeatedMembers,
        identity: &ReplyIdentity,
    ) -> Self {
        let mut settings = setting_members(request, identity.model(request), repeated);
        // Storing is the default of the dialect.
        if !repeated.0.contains_key("store") {
            settings.insert("store".to_owned(), true.into());
        }
        Self {
            settings,
            identity: identity.id.clone(),
            created: identity.created,
            now: identity.now,
            sequence: 0,
            items: Vec::new(),
        }
    }

    fn complete_event(&mut self, kind: &str, mut event: Map<String, Value>, out: &mut Vec<u8>) {
        if let Some(Value::Object(response)) = event.get_mut("response") {
            let status = match kind {
                "response.created" => "in_progress",
                kind => kind.strip_prefix("response.").unwrap_or("in_progress"),
            };
            self.complete_response(response, status);
        }
        match kind {
            "response.output_item.added" => {
                self.item_event(&mut event, "in_progress");
            }
            "response.output_item.done" => {
                let known = self.items.len();
                let index = self.item_event(&mut event, "completed");
                if self.items.len() > known {
                    self.announce(index, &event["item"], out);
                }
                self.end_item(index, &event["item"], out);
            }
            "response.content_part.added" => {
                let (index, at) = self.locate(&mut event);
                let part = event.entry("part").or_insert_with(|| PartKind::Text.part(""));
                complete_part(part);
                self.items[index].parts.insert(at, Part::new(PartKind::of_part(part)));
            }
            "response.content_part.done" => {
                let (index, at) = self.locate(&mut event);
                let part = event.entry("part").or_insert_with(|| PartKind::Text.part(""));
                complete_part(part);
                self.open_part(index, at, PartKind::of_part(part), out);
                self.end_text(index, at, out);
                self.items[index].parts.entry(at).and_modify(|part| part.done = true);
            }
            "response.function_call_arguments.delta" => {
                let index = self.find_item(&mut event);
                let delta = event.get("delta").and_then(Value::as_str).unwrap_or_default();
                self.items[index].arguments.push_str(delta);
            }
            "response.function_call_arguments.done" => {
                let index = self.find_item(&mut event);
                let item = &mut self.items[index];
                event.entry("arguments").or_insert_with(|| item.arguments.as_str().into());
                item.arguments_done = true;
            }
            _ => self.text_event(kind, &mut event, out),
        }
        self.write(kind, event, out);
    }

    /// Completes an event about the text of a part. Other events stay as they are.
    fn text_event(&mut self, kind: &str, event: &mut Map<String, Value>, out: &mut Vec<u8>) {
        let Some((name, step)) = kind.rsplit_once('.') else {
            return;
        };
        let Some(part_kind) = PartKind::of_event(name) else {
            return;
        };
        let (index, at) = self.locate(event);
        self.open_part(index, at, part_kind, out);
        let Some(part) = self.items[index].parts.get_mut(&at) else {
            return;
        };
        match step {
            "delta" => {
                part.text.push_str(event.get("delta").and_then(Value::as_str).unwrap_or_default());
            }
            "done" => {
                event.entry(part_kind.member()).or_insert_with(|| part.text.as_str().into());
                part.text_done = true;
            }
            _ => return,
        }
        if part_kind == PartKind::Text {
            event.entry("logprobs").or_insert_with(|| json!([]));
        }
    }

    /// Completes an event that has an item; returns the item's index.
    fn item_event(&mut self, event: &mut Map<String, Value>, status: &str) -> usize {
        let item = event.entry("item").or_insert_with(|| json!({}));
        complete_item(item, status, &format!("{}_{}", self.identity, self.items.len()));
        let id = item["id"].as_str().unwrap_or_default().to_owned();
        let known = self.items.iter().position(|known| known.id == id);
        let index = known.unwrap_or_else(|| {
            self.items.push(Item { id, ..Item::default() });
            self.items.len() - 1
        });
        event.entry("output_index").or_insert_with(|| index.into());
        index
    }

    /// Adds the item's id and index to an event; returns the index.
    fn find_item(&mut self, event: &mut Map<String, Value>) -> usize {
        let named = event.get("item_id").and_then(Value::as_str);
        let given = event.get("output_index").and_then(Value::as_u64);
        let given = given.and_then(|index| usize::try_from(index).ok());
        let by_id = named.and_then(|id| self.items.iter().position(|item| item.id == id));
        let last = self.items.len().saturating_sub(1);
        let index = by_id.or(given).unwrap_or(last).min(last);
        if self.items.is_empty() {
            // An event before its item: clients reject it, whatever it says.
            self.items.push(Item::default());
        }
        event.entry("item_id").or_insert_with(|| self.items[index].id.as_str().into());
        event.entry("output_index").or_insert_with(|| index.into());
        index
    }

    /// Like [`Self::find_item`], and adds the index of the content part.
    fn locate(&mut self, event: &mut Map<String, Value>) -> (usize, u64) {
        let index = self.find_item(event);
        let at = event.entry("content_index").or_insert_with(|| 0.into());
        (index, at.as_u64().unwrap_or_default())
    }

    /// Writes the start of an item that the server never announced.
    fn announce(&mut self, index: usize, item: &Value, out: &mut Vec<u8>) {
        let mut begun = item.clone();
        begun["status"] = "in_progress".into();
        for (member, empty) in
            [("content", json!([])), ("summary", json!([])), ("arguments", json!(""))]
        {
            if begun.get(member).is_some() {
                begun[member] = empty;
            }
        }
        let event =
            json!({"type": "response.output_item.added", "output_index": index, "item": begun});
        self.write_value(event, out);
    }

    /// Writes the start of a part, unless the server did.
    fn open_part(&mut self, index: usize, at: u64, kind: PartKind, out: &mut Vec<u8>) {
        if self.items[index].parts.contains_key(&at) {
            return;
        }
        let event = json!({"type": "response.content_part.added", "item_id": self.items[index].id,
                           "output_index": index, "content_index": at, "part": kind.part("")});
        self.items[index].parts.insert(at, Part::new(kind));
        self.write_value(event, out);
    }

    /// Writes the end of a text, unless the server did.
    fn end_text(&mut self, index: usize, at: u64, out: &mut Vec<u8>) {
        let item = &mut self.items[index];
        let Some(part) = item.parts.get_mut(&at).filter(|part| !part.text_done) else {
            return;
        };
        part.text_done = true;
        let mut event = json!({"type": format!("{}.done", part.kind.event()), "item_id": item.id,
                               "output_index": index, "content_index": at});
        event[part.kind.member()] = part.text.as_str().into();
        if part.kind == PartKind::Text {
            event["logprobs"] = json!([]);
        }
        self.write_value(event, out);
    }

    /// Writes the ends of everything in an item that the server left open.
    fn end_item(&mut self, index: usize, item: &Value, out: &mut Vec<u8>) {
        let content = item["content"].as_array().into_iter().flatten();
        for (at, part) in (0..).zip(content) {
            let kind = PartKind::of_part(part);
            self.open_part(index, at, kind, out);
            let text = part[kind.member()].as_str().unwrap_or_default();
            self.say(index, at, text, out);
        }
        let open: Vec<u64> = self.items[index].parts.keys().copied().collect();
        for at in open {
            self.end_text(index, at, out);
            let item = &mut self.items[index];
            if let Some(part) = item.parts.get_mut(&at).filter(|part| !part.done) {
                part.done = true;
                let event = json!({"type": "response.content_part.done", "item_id": item.id,
                    "output_index": index, "content_index": at, "part": part.kind.part(&part.text)});
                self.write_value(event, out);
            }
        }
        let known = &mut self.items[index];
        if item["type"] == "function_call" && !std::mem::replace(&mut known.arguments_done, true) {
            let (id, arguments) = (known.id.clone(), &item["arguments"]);
            if known.arguments.is_empty() {
                let kind = "response.function_call_arguments.delta";
                let event = json!({"type": kind, "item_id": id, "output_index": index,
                                   "delta": arguments});
                self.write_value(event, out);
            }
            let kind = "response.function_call_arguments.done";
            let event = json!({"type": kind, "item_id": id, "output_index": index,
                               "name": item["name"], "arguments": arguments});
            self.write_value(event, out);
        }
    }

    /// Writes the text of a part as one delta, if the server sent none.
    fn say(&mut self, index: usize, at: u64, text: &str, out: &mut Vec<u8>) {
        let item = &mut self.items[index];
        let Some(part) = item.parts.get_mut(&at).filter(|part| !part.text_done) else {
            return;
        };
        let silent = part.text.is_empty() && !text.is_empty();
        text.clone_into(&mut part.text);
        if silent {
            let mut event = json!({"type": format!("{}.delta", part.kind.event()),
                "item_id": item.id, "output_index": index, "content_index": at, "delta": text});
            if part.kind == PartKind::Text {
                event["logprobs"] = json!([]);
            }
            self.write_value(event, out);
        }
    }

    fn write_value(&mut self, event: Value, out: &mut Vec<u8>) {
        if let Value::Object(event) = event {
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            self.write(&kind, event, out);
        }
    }

    /// Writes an event with the next number: events were added.
    fn write(&mut self, kind: &str, mut event: Map<String, Value>, out: &mut Vec<u8>) {
        event.insert("sequence_number".to_owned(), self.sequence.into());
        self.sequence += 1;
        let event = Value::Object(event);
        out.extend_from_slice(format!("event: {kind}\ndata: {event}\n\n").as_bytes());
    }

    fn complete_response(&self, response: &mut Map<String, Value>, status: &str) {
        let mut fill = |name: &str, value: Value| {
            let nullable = NULLABLE.contains(&name);
            let missing = response.get(name).is_none_or(|found| found.is_null() && !nullable);
            if missing {
                response.insert(name.to_owned(), value);
            }
        };
        fill("id", format!("resp_{}", self.identity).into());
        fill("object", "response".into());
        fill("status", status.into());
        fill("created_at", self.created.into());
        fill("output", json!([]));
        for (name, value) in &self.settings {
            fill(name, value.clone());
        }
        for name in ["error", "incomplete_details", "usage"] {
            response.entry(name).or_insert(Value::Null);
        }
        let completed = response["status"] == "completed";
        let completed = completed.then(|| (self.now)().max(self.created));
        response.entry("completed_at").or_insert_with(|| completed.into());
        if let Some(Value::Array(items)) = response.get_mut("output") {
            for (index, item) in items.iter_mut().enumerate() {
                complete_item(item, "completed", &format!("{}_{index}", self.identity));
            }
        }
        if let Some(Value::Object(usage)) = response.get_mut("usage") {
            complete_usage(usage);
        }
    }
}

impl Part {
    fn new(kind: PartKind) -> Self {
        Self { kind, text: String::new(), text_done: false, done: false }
    }
}

/// Completes an item. `unique` makes its id, if it has none.
fn complete_item(item: &mut Value, status: &str, unique: &str) {
    let Value::Object(members) = item else {
        return;
    };
    let kind = members.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut fill = |name: &str, value: Value| {
        if members.get(name).is_none_or(Value::is_null) {
            members.insert(name.to_owned(), value);
        }
    };
    match kind.as_str() {
        "message" => {
            fill("id", format!("msg_{unique}").into());
            fill("status", status.into());
            fill("role", "assistant".into());
            fill("content", json!([]));
        }
        "function_call" => {
            fill("call_id", format!("call_{unique}").into());
            fill("status", status.into());
            fill("arguments", "".into());
            fill("name", "".into());
        }
        "reasoning" => {
            fill("id", format!("rs_{unique}").into());
            fill("summary", json!([]));
        }
        _ => {}
    }
    if kind == "function_call" && members.get("id").is_none_or(Value::is_null) {
        // The deltas of llama.cpp name the call instead of the item.
        let id = members["call_id"].clone();
        members.insert("id".to_owned(), id);
    }
    for name in ["encrypted_content", "phase"] {
        if members.get(name).is_some_and(Value::is_null) {
            members.remove(name);
        }
    }
    if let Some(Value::Array(parts)) = members.get_mut("content") {
        parts.iter_mut().for_each(complete_part);
    }
}

fn complete_part(part: &mut Value) {
    let whole = PartKind::of_part(part).part("");
    if let (Value::Object(part), Value::Object(whole)) = (part, whole) {
        for (name, value) in whole {
            if part.get(&name).is_none_or(Value::is_null) {
                part.insert(name, value);
            }
        }
    }
}

/// Strict clients require all counts.
fn complete_usage(usage: &mut Map<String, Value>) {
    let count = |usage: &Map<String, Value>, name: &str| {
        usage.get(name).and_then(Value::as_u64).unwrap_or_default()
    };
    let total = count(usage, "input_tokens").saturating_add(count(usage, "output_tokens"));
    for (name, value) in [
        ("input_tokens", json!(0)),
        ("output_tokens", json!(0)),
        ("total_tokens", total.into()),
        ("input_tokens_details", json!({})),
        ("output_tokens_details", json!({})),
    ] {
        if usage.get(name).is_none_or(Value::is_null) {
            usage.insert(name.to_owned(), value);
        }
    }
    for (details, name) in
        [("input_tokens_details", "cached_tokens"), ("output_tokens_details", "reasoning_tokens")]
    {
        if let Some(Value::Object(details)) = usage.get_mut(details) {
            details.entry(name).or_insert_with(|| 0.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{check_stream_of_any_server, repaired_stream};
    use super::*;

    const LLAMA_STREAM: &[u8] = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../corpus/openai_responses/upstream_reply/llama-cpp-reasoning-text.sse"
    ));
    const LLAMA_WHOLE: &[u8] = include_bytes!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../corpus/openai_responses/upstream_reply/llama-cpp-whole.json"
    ));

    #[test]
    fn only_replies_without_required_members_are_sloppy() {
        let whole = json!({"object": "response", "created_at": 1, "model": "m", "output": [],
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": []});
        let event = json!({"type": "response.created", "sequence_number": 0, "response": whole});
        for complete in [&whole, &event] {
            assert!(!is_sloppy(complete.to_string().as_bytes()), "{complete}");
        }
        for member in ["created_at", "model", "output", "tools"] {
            let mut less = whole.clone();
            less.as_object_mut().unwrap().remove(member);
            assert!(is_sloppy(less.to_string().as_bytes()), "{member}");
            let event = json!({"sequence_number": 0, "response": less});
            assert!(is_sloppy(event.to_string().as_bytes()), "{member}");
        }
        assert!(is_sloppy(json!({"response": whole}).to_string().as_bytes()));
        for other in ["", "[DONE]", "{}", r#"{"error":{"message":"x"}}"#, r#"{"type":"error"}"#] {
            assert!(!is_sloppy(other.as_bytes()), "{other}");
        }
        assert!(is_sloppy(LLAMA_WHOLE));
    }

    fn repairer() -> Repairer {
        let request = Request { model: "m".to_owned(), ..Request::default() };
        let identity = ReplyIdentity { now: || 9, ..ReplyIdentity::new("x", 5) };
        Repairer::new(&request, &RepeatedMembers::default(), &identity)
    }

    #[test]
    fn stream_of_llama_cpp_becomes_complete() {
        let events = repaired_stream(&mut repairer(), LLAMA_STREAM);
        let response = check_stream_of_any_server(&events);
        assert_eq!(response["output"][0]["type"], "reasoning");
        assert!(
            response["output"][0]["content"][0]["text"].as_str().unwrap().starts_with("The sky")
        );
        assert_eq!(response["output"][1]["content"][0]["type"], "output_text");
        assert_eq!(response["model"], "qwq-smollm2");
        assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
    }

    #[test]
    fn calls_without_item_ids_and_ends_become_complete() {
        let events = [
            json!({"type": "response.created", "response": {"id": "resp_1", "object": "response"}}),
            json!({"type": "response.output_item.added", "item": {"type": "function_call", "status": "in_progress",
                "call_id": "fc_1", "name": "f", "arguments": ""}}),
            json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"}),
            json!({"type": "response.output_item.done", "item": {"type": "function_call", "status": "completed",
                "call_id": "fc_1", "name": "f", "arguments": "{}"}}),
            json!({"type": "response.output_item.done", "item": {"type": "message", "content": [
                {"type": "output_text", "text": "never announced"}]}}),
            json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [
                {"type": "function_call", "status": "completed", "call_id": "fc_1", "name": "f", "arguments": "{}"},
                {"type": "message", "id": "msg_x_1", "content": [{"type": "output_text", "text": "never announced"}]}]}}),
        ];
        let events = repaired_stream(&mut repairer(), &super::super::super::tests::stream(&events));
        let response = check_stream_of_any_server(&events);
        assert_eq!(response["completed_at"], 9);
        assert_eq!(response["output"][0]["id"], "fc_1");
    }

    #[test]
    fn whole_reply_of_llama_cpp_becomes_complete() {
        let before: Value = serde_json::from_slice(LLAMA_WHOLE).unwrap();
        let after: Value = serde_json::from_slice(&repairer().whole(LLAMA_WHOLE)).unwrap();
        for (name, value) in before.as_object().unwrap() {
            if name != "usage" {
                assert_eq!(after[name], *value, "{name}");
            }
        }
        assert_eq!(after["tools"], json!([]));
        assert_eq!(after["temperature"], 1.0);
        assert_eq!(after["usage"]["input_tokens_details"]["cached_tokens"], 18);
    }
}
