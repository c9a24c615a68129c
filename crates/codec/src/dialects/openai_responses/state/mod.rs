//! Server-side state for clients of this dialect: the state that a request refers to, the stateless
//! request for one turn, and the reply events to store.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use throughline_canonical::Fault;

use super::client_reply::Writer;
pub use super::client_reply::recorder::{Recorder, Written, WrittenEvent};
use super::{RepeatedMembers, client_request};
use crate::dialects::{Accepted, ReplyIdentity};
use crate::json::read_object;

mod compact;
mod repeated;

pub use compact::compacted;

/// Members about state.
const STATE: [&str; 5] =
    ["previous_response_id", "conversation", "background", "store", "generate"];

/// A request and its references to stored state.
#[derive(Clone, Debug)]
pub struct StatefulRequest {
    body: Map<String, Value>,
    /// A duplicate member about state.
    repeated: Option<&'static str>,
}

impl StatefulRequest {
    /// Reads a request that nests at most `max_depth` levels deep. Other mistakes than those of JSON
    /// are reported when the request is answered.
    pub fn read(body: &[u8], max_depth: usize) -> Result<Self, Fault> {
        let repeated = repeated::find(body, &[&STATE[..], &["input"]].concat());
        let Value::Object(body) = read_object(body, Some(max_depth))? else {
            return Err(Fault::invalid("the body is not a JSON object"));
        };
        Ok(Self { body, repeated })
    }

    /// Creates it from a JSON object.
    pub fn new(body: Map<String, Value>) -> Self {
        Self { body, repeated: None }
    }

    fn text(&self, member: &str) -> Option<&str> {
        self.body.get(member)?.as_str()
    }

    fn flag(&self, member: &str) -> Option<bool> {
        self.body.get(member)?.as_bool()
    }

    /// The requested model.
    pub fn model(&self) -> Option<&str> {
        self.text("model")
    }

    /// Whether to store the response. This is the default.
    pub fn store(&self) -> bool {
        self.flag("store").unwrap_or(true)
    }

    /// The response that it continues.
    pub fn previous(&self) -> Option<&str> {
        self.text("previous_response_id")
    }

    /// The conversation that it belongs to.
    pub fn conversation(&self) -> Option<&str> {
        match self.body.get("conversation")? {
            Value::String(id) => Some(id),
            other => other.get("id")?.as_str(),
        }
    }

    /// Whether to run in the background.
    pub fn background(&self) -> bool {
        self.flag("background").unwrap_or(false)
    }

    /// Whether to stream the response.
    pub fn streams(&self) -> bool {
        self.flag("stream").unwrap_or(false)
    }

    /// Whether to generate a response. Clients that only warm up a connection do not want one.
    pub fn generates(&self) -> bool {
        self.flag("generate").unwrap_or(true)
    }

    /// Whether it needs stored state.
    pub fn needs_state(&self) -> bool {
        self.repeated.is_some()
            || self.previous().is_some()
            || self.conversation().is_some()
            || self.background()
            || !self.references().is_empty()
    }

    /// Rejects contradictory members.
    pub fn check(&self) -> Result<(), Fault> {
        if let Some(member) = self.repeated {
            return Err(Fault::at(member, "occurs more than once in the request"));
        }
        if self.previous().is_some() && self.conversation().is_some() {
            return Err(Fault::at(
                "previous_response_id",
                "cannot be used together with `conversation`",
            )
            .with_code("mutually_exclusive_parameters"));
        }
        if self.background() && !self.store() {
            return Err(Fault::at(
                "background",
                "needs `store` to be true; without it the response cannot be requested later",
            ));
        }
        Ok(())
    }

    /// Ids of referenced items.
    pub fn references(&self) -> Vec<&str> {
        let items = self.body.get("input").and_then(Value::as_array);
        items
            .into_iter()
            .flatten()
            .filter(|item| is_reference(item))
            .filter_map(|item| item.get("id")?.as_str())
            .collect()
    }

    /// The items it adds, each with an id. `found` are the referenced items, `id` creates new ids.
    pub fn items(
        &self,
        found: &HashMap<String, Value>,
        id: &mut dyn FnMut() -> String,
    ) -> Vec<Value> {
        items(self.body.get("input"), found, id)
    }

    /// The complete request for one turn: the history, then the added items.
    pub fn with_history(
        self,
        history: Vec<Value>,
        added: &[Value],
        streams: bool,
    ) -> Result<StatefulTurn, Fault> {
        self.check_results(&history, added)?;
        let repeated = self.repeated_members();
        let mut body = self.body;
        // Members of a wrong type stay, so that the reader reports them.
        body.retain(|name, value| !STATE.contains(&name.as_str()) || !has_right_type(name, value));
        // The reader reports a missing or malformed input.
        let listed = matches!(
            body.get("input"),
            None | Some(Value::Null | Value::String(_) | Value::Array(_))
        );
        let unset = body.get("input").is_none_or(Value::is_null);
        let missing = unset && history.is_empty() && added.is_empty();
        let history_length = history.len();
        if listed && !missing {
            let input = history.into_iter().chain(added.iter().cloned()).collect();
            body.insert("input".to_owned(), Value::Array(input));
        }
        if body.get("stream").is_none_or(|value| has_right_type("stream", value)) {
            body.insert("stream".to_owned(), streams.into());
        }
        let read = client_request::read_value(&Value::Object(body), history_length)?;
        Ok(StatefulTurn { accepted: Accepted::new(read, repeated.clone()), repeated })
    }

    /// Rejects results of calls that the conversation does not have, as OpenAI does. Only a request
    /// that continues a conversation is checked: other clients may have shortened their history.
    fn check_results(&self, history: &[Value], added: &[Value]) -> Result<(), Fault> {
        if self.previous().is_none() && self.conversation().is_none() {
            return Ok(());
        }
        let call_id = |item: &'_ Value| item.get("call_id")?.as_str().map(str::to_owned);
        let is_result = |item: &&Value| {
            item.get("type").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("_output"))
        };
        let calls = history.iter().chain(added).filter(|item| !is_result(item));
        let calls: HashSet<String> = calls.filter_map(call_id).collect();
        let mut results = added.iter().filter(is_result).filter_map(call_id);
        match results.find(|id| !calls.contains(id)) {
            Some(id) => {
                let what =
                    format!("No tool call found for function call output with call_id {id}.");
                Err(Fault::at("input", what))
            }
            None => Ok(()),
        }
    }

    /// The members of the response that repeat what the request says about state.
    fn repeated_members(&self) -> RepeatedMembers {
        let RepeatedMembers(mut members) = RepeatedMembers::of(&self.body);
        members.insert("store".to_owned(), self.store().into());
        members.insert("background".to_owned(), self.background().into());
        if let Some(previous) = self.previous() {
            members.insert("previous_response_id".to_owned(), previous.into());
        }
        if let Some(conversation) = self.conversation() {
            members.insert("conversation".to_owned(), json!({"id": conversation}));
        }
        RepeatedMembers(members)
    }
}

/// A request with its whole history.
#[derive(Debug)]
pub struct StatefulTurn {
    /// The request.
    pub accepted: Accepted,
    repeated: RepeatedMembers,
}

impl StatefulTurn {
    /// A recorder of the reply.
    pub fn recorder(&self, identity: &ReplyIdentity) -> Recorder {
        Recorder::new(Writer::new(&self.accepted.request, &self.repeated, identity))
    }
}

/// Corrects the item index in a fault: the client did not send the items of the history.
pub(super) fn with_client_index(mut fault: Fault, history: usize) -> Fault {
    let moved = |path: &str| {
        let (number, rest) = path.strip_prefix("input[")?.split_once(']')?;
        let number = number.parse::<usize>().ok()?.checked_sub(history)?;
        Some(format!("input[{number}]{rest}"))
    };
    if let Some(path) = &mut fault.path
        && let Some(new) = moved(path)
    {
        fault.message.replace_range(..path.len(), &new);
        *path = new;
    }
    fault
}

/// Whether a response has reasoning that only its provider can continue: it came neither as text
/// nor encrypted.
pub fn needs_its_maker(response: &Value) -> bool {
    let empty = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(parts)) => parts.is_empty(),
        _ => true,
    };
    output(response).iter().any(|item| {
        item.get("type").is_some_and(|kind| kind == "reasoning")
            && empty(item.get("encrypted_content"))
            && empty(item.get("content"))
    })
}

/// Whether a member about state has the right type.
fn has_right_type(name: &str, value: &Value) -> bool {
    value.is_null()
        || match name {
            "previous_response_id" => value.is_string(),
            "conversation" => value.is_string() || value["id"].is_string(),
            _ => value.is_boolean(),
        }
}

/// The items of an `input` or another list of items, each with an id and a type.
pub fn items(
    input: Option<&Value>,
    found: &HashMap<String, Value>,
    id: &mut dyn FnMut() -> String,
) -> Vec<Value> {
    let listed = match input {
        Some(Value::String(text)) => vec![json!({
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        })],
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let mut complete = |item: Value| {
        if is_reference(&item)
            && let Some(item) = item.get("id").and_then(Value::as_str)
            && let Some(item) = found.get(item)
        {
            return item.clone();
        }
        let Value::Object(mut item) = item else {
            return item;
        };
        if item.get("type").is_none() && item.contains_key("role") {
            item.insert("type".to_owned(), "message".into());
        }
        if item.get("id").is_none_or(Value::is_null) {
            let kind = item.get("type").and_then(Value::as_str);
            let start = match kind.unwrap_or_default() {
                "message" => "msg",
                "reasoning" => "rs",
                "function_call" => "fc",
                "function_call_output" => "fco",
                _ => "item",
            };
            item.insert("id".to_owned(), format!("{start}_{}", id()).into());
        }
        Value::Object(item)
    };
    listed.into_iter().map(&mut complete).collect()
}

fn is_reference(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str);
    // The type may be omitted if there is only an id.
    kind == Some("item_reference")
        || kind.is_none() && item.get("role").is_none() && item.get("id").is_some()
}

/// The ids of items.
pub fn ids(items: &[Value]) -> impl Iterator<Item = &str> {
    items.iter().filter_map(|item| item.get("id")?.as_str())
}

/// The output items of a response.
pub fn output(response: &Value) -> &[Value] {
    let output = response.get("output").and_then(Value::as_array);
    output.map_or(&[], Vec::as_slice)
}

/// Marks a response that could not be stored. It cannot be continued, and it is part of no
/// conversation.
pub fn mark_unstored(response: &mut Value) {
    if let Some(response) = response.as_object_mut() {
        response.insert("store".to_owned(), false.into());
        response.entry("conversation").and_modify(|conversation| *conversation = Value::Null);
    }
}

/// What an event contributes to the stored response.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The response, before its first item.
    Began(Value),
    /// A complete item and its index.
    Item(u64, Value),
    /// The final response, complete or not.
    Ended(Value),
    /// Nothing.
    Other,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    sequence_number: Option<u64>,
}

/// Reads the data of an event: its sequence number and its contribution.
pub fn step(data: &[u8]) -> (Option<u64>, Step) {
    let Ok(head) = serde_json::from_slice::<Head<'_>>(data) else {
        return (None, Step::Other);
    };
    let number = head.sequence_number;
    let worth: fn(Value) -> Step = match &*head.kind {
        "response.created" => |mut event| Step::Began(event["response"].take()),
        "response.output_item.done" => |mut event| {
            let index = event["output_index"].as_u64().unwrap_or_default();
            Step::Item(index, event["item"].take())
        },
        "response.completed" | "response.incomplete" | "response.failed" => {
            |mut event| Step::Ended(event["response"].take())
        }
        _ => return (number, Step::Other),
    };
    let event = serde_json::from_slice(data).unwrap_or(Value::Null);
    (number, worth(event))
}

/// Why a response did not finish.
#[derive(Clone, Debug)]
pub struct Broken {
    /// The error code of the dialect.
    pub code: &'static str,
    /// A message for people.
    pub message: String,
}

impl Broken {
    /// The failure is ours.
    pub fn here(message: impl Into<String>) -> Self {
        Self { code: "server_error", message: message.into() }
    }

    /// The provider answered with this status.
    pub fn refused(status: u16, message: impl Into<String>) -> Self {
        let code = match status {
            429 => "rate_limit_exceeded",
            400..=499 => "invalid_prompt",
            _ => "server_error",
        };
        Self { code, message: message.into() }
    }
}

/// The response built from the events so far.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    began: Option<Value>,
    items: BTreeMap<u64, Value>,
    ended: Option<Value>,
}

impl Progress {
    /// A response that has not started.
    pub fn queued(response: Value) -> Self {
        Self { began: Some(response), ..Self::default() }
    }

    /// Adds the next event.
    pub fn take(&mut self, step: Step) {
        match step {
            Step::Began(response) => self.began = Some(response),
            Step::Item(index, item) => {
                self.items.insert(index, item);
            }
            Step::Ended(response) => self.ended = Some(response),
            Step::Other => {}
        }
    }

    /// The final response, if it has ended.
    pub fn ended(&self) -> Option<&Value> {
        self.ended.as_ref()
    }

    /// The current response; `None` if nothing has arrived.
    pub fn so_far(&self, status: &str, error: Option<&Broken>) -> Option<Value> {
        if let Some(ended) = &self.ended {
            return Some(ended.clone());
        }
        let mut response = self.began.clone()?;
        response["status"] = status.into();
        response["output"] = self.items.values().cloned().collect();
        if let Some(Broken { code, message }) = error {
            response["error"] = json!({"code": code, "message": message});
        }
        Some(response)
    }
}

#[cfg(test)]
mod tests {
    use throughline_canonical::Block;

    use super::*;

    fn stateful(body: Value) -> StatefulRequest {
        let Value::Object(body) = body else {
            panic!("a request is an object");
        };
        StatefulRequest::new(body)
    }

    #[test]
    fn state_members_are_read_in_every_form() {
        let plain = stateful(json!({"model": "m", "input": "hi"}));
        assert!(plain.store() && !plain.needs_state() && plain.generates());
        let on = stateful(json!({"previous_response_id": "resp_1", "store": false}));
        assert_eq!((on.previous(), on.store()), (Some("resp_1"), false));
        for conversation in [json!("conv_1"), json!({"id": "conv_1"})] {
            let within = stateful(json!({"conversation": conversation}));
            assert_eq!(within.conversation(), Some("conv_1"));
        }
        let pointing =
            stateful(json!({"input": [{"id": "rs_1"}, {"type": "item_reference", "id": "m"},
            {"role": "user", "content": "x", "id": "msg_1"}]}));
        assert_eq!(pointing.references(), ["rs_1", "m"]);
        assert!(pointing.needs_state());
        let both = json!({"previous_response_id": "a", "conversation": "b"});
        assert_eq!(
            stateful(both).check().unwrap_err().path.as_deref(),
            Some("previous_response_id")
        );
        let lost = json!({"background": true, "store": false});
        assert_eq!(stateful(lost).check().unwrap_err().path.as_deref(), Some("background"));
    }

    #[test]
    fn turn_has_the_whole_history_and_no_state_members() {
        let asked = stateful(json!({
            "model": "m", "previous_response_id": "resp_1", "background": true,
            "input": [{"role": "user", "content": "more"}, {"id": "rs_9"}],
        }));
        let found = HashMap::from([(
            "rs_9".to_owned(),
            json!({"type": "reasoning", "id": "rs_9", "summary": []}),
        )]);
        let mut count = 0;
        let added = asked.items(&found, &mut || {
            count += 1;
            count.to_string()
        });
        assert_eq!(added[0]["id"], "msg_1");
        assert_eq!(added[1]["type"], "reasoning");
        let history = [json!({"type": "message", "role": "user", "content": "hi"})];
        let turn = asked.with_history(history.to_vec(), &added, true).unwrap();
        let request = &turn.accepted.request;
        assert_eq!(request.messages[0].content, [Block::text("hi")]);
        assert!(request.stream && request.extra.is_empty());

        let queued = turn.recorder(&ReplyIdentity::new("7", 5)).queued("queued");
        assert_eq!(queued["id"], "resp_7");
        assert_eq!(queued["status"], "queued");
        assert_eq!(queued["background"], true);
        assert_eq!(queued["previous_response_id"], "resp_1");
        assert_eq!(queued["output"], json!([]));
    }

    #[test]
    fn continued_conversation_must_have_the_call_of_a_result() {
        let result = json!({"type": "function_call_output", "call_id": "c", "output": "x"});
        let call = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""});
        let with_history = |request: Value, history: &[Value]| {
            let request = stateful(request);
            let added = request.items(&HashMap::new(), &mut || "1".to_owned());
            request.with_history(history.to_vec(), &added, true).err().map(|fault| fault.message)
        };
        let continued = json!({"model": "m", "previous_response_id": "r", "input": [result]});
        assert_eq!(with_history(continued.clone(), &[call]), None);
        let message = with_history(continued, &[]).expect("a fault");
        assert!(message.contains("No tool call found"), "{message}");
        assert_eq!(with_history(json!({"model": "m", "input": [result]}), &[]), None);
    }

    #[test]
    fn item_index_in_a_fault_counts_only_client_items() {
        let asked = stateful(json!({"model": "m", "input": [{"role": "user", "content": 5}]}));
        let history = [
            json!({"type": "message", "role": "user", "content": "hi"}),
            json!({"type": "message", "role": "assistant", "content": "ho"}),
        ];
        let added = asked.items(&HashMap::new(), &mut || "1".to_owned());
        let fault = asked.with_history(history.to_vec(), &added, true).unwrap_err();
        assert_eq!(fault.path.as_deref(), Some("input[0].content"));
    }

    #[test]
    fn unstored_response_is_part_of_no_conversation() {
        let mut response = json!({"id": "resp_1", "store": true, "conversation": {"id": "c"}});
        mark_unstored(&mut response);
        assert_eq!(response, json!({"id": "resp_1", "store": false, "conversation": null}));
        let mut alone = json!({"id": "resp_1"});
        mark_unstored(&mut alone);
        assert_eq!(alone, json!({"id": "resp_1", "store": false}));
    }

    #[test]
    fn reasoning_without_text_or_encryption_needs_its_provider() {
        let bare = json!({"type": "reasoning", "id": "rs_1", "summary": [{"text": "in short"}]});
        let mut whole = bare.clone();
        whole["encrypted_content"] = "x".into();
        let mut open = bare.clone();
        open["content"] = json!([{"type": "reasoning_text", "text": "all"}]);
        open["encrypted_content"] = "".into();
        let message = json!({"type": "message", "content": []});
        for (items, needs) in
            [(json!([message]), false), (json!([whole, open]), false), (json!([whole, bare]), true)]
        {
            assert_eq!(needs_its_maker(&json!({"output": items})), needs);
        }
    }

    #[test]
    fn partial_response_keeps_what_has_arrived() {
        let mut progress = Progress::default();
        assert_eq!(progress.so_far("failed", None), None);
        let event = |text: &str| step(text.as_bytes());
        let (number, began) = event(
            r#"{"type":"response.created","sequence_number":0,"response":{"id":"r","output":[]}}"#,
        );
        assert_eq!(number, Some(0));
        progress.take(began);
        let item = r#"{"type":"response.output_item.done","sequence_number":4,"output_index":0,"item":{"id":"rs"}}"#;
        progress.take(event(item).1);
        progress.take(event(r#"{"type":"response.output_text.delta","delta":"x"}"#).1);
        let stopped = Broken::here("stopped");
        let cut = progress.so_far("failed", Some(&stopped)).unwrap();
        assert_eq!(cut["output"], json!([{"id": "rs"}]));
        assert_eq!(cut["error"]["message"], "stopped");
        let done = r#"{"type":"response.completed","response":{"id":"r","status":"completed"}}"#;
        progress.take(event(done).1);
        assert_eq!(progress.so_far("failed", None), progress.ended().cloned());
    }
}
