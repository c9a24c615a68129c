//! Compacting a conversation: the request for its summary, and the reply that carries it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use throughline_canonical::{Fault, Usage};

use super::super::client_reply::usage;
use super::{RepeatedMembers, STATE, StatefulRequest, client_request};
use crate::dialects::Accepted;
use crate::dialects::compaction::Compaction;

/// The question that the model answers with the summary.
const QUESTION: &str = "Write a summary of the conversation above. Another model will go on with \
the summary instead of the conversation, so keep every fact, name, number, path, decision and open \
task that it may need, and quote exact values. Write only the summary.";

/// The members of a request that matter for its summary.
const KEPT: [&str; 5] = ["model", "instructions", "tools", "reasoning", "prompt_cache_key"];

impl StatefulRequest {
    /// The conversation with all its items, for a backend that compacts it and calls the model so.
    pub fn with_items(&self, items: &[Value], model: &str) -> Value {
        let mut body = self.body.clone();
        body.retain(|name, _| !STATE.contains(&name.as_str()));
        let items: Vec<Value> = items.iter().map(without_our_id).collect();
        body.insert("input".to_owned(), items.into());
        body.insert("model".to_owned(), model.into());
        Value::Object(body)
    }

    /// The same request, for a backend that calls the model so.
    pub fn with_model(&self, model: &str) -> Value {
        let mut body = self.body.clone();
        body.insert("model".to_owned(), model.into());
        Value::Object(body)
    }

    /// The request that asks the model for a summary of these items.
    pub fn summary_request(&self, items: &[Value]) -> Result<Accepted, Fault> {
        let mut body: Map<String, Value> = self.body.clone();
        body.retain(|name, _| KEPT.contains(&name.as_str()));
        let tools = tools(&body, items);
        if !tools.is_empty() {
            body.insert("tools".to_owned(), tools.into());
            body.insert("tool_choice".to_owned(), "none".into());
        }
        let question = json!({"type": "message", "role": "user", "content": QUESTION});
        let input: Vec<Value> = items.iter().cloned().chain([question]).collect();
        body.insert("input".to_owned(), input.into());
        body.insert("stream".to_owned(), true.into());
        let read = client_request::read_value(&Value::Object(body), 0)?;
        Ok(Accepted::new(read, RepeatedMembers::default()))
    }
}

/// Reasoning may have an id of ours. Its maker accepts it without an id, and not with another one.
fn without_our_id(item: &Value) -> Value {
    let mut item = item.clone();
    if item["type"] == "reasoning"
        && let Some(item) = item.as_object_mut()
    {
        item.remove("id");
    }
    item
}

/// The tools of a request, and those that only its items name. Providers reject a call of a tool that
/// is not on offer.
fn tools(body: &Map<String, Value>, items: &[Value]) -> Vec<Value> {
    let mut tools = body.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    let offered: BTreeSet<String> = tools.iter().filter_map(name).map(str::to_owned).collect();
    let calls =
        items.iter().filter(|item| item.get("type").is_some_and(|kind| kind == "function_call"));
    let called: BTreeSet<&str> = calls.filter_map(name).collect();
    let missing = called.into_iter().filter(|name| !offered.contains(*name));
    tools.extend(missing.map(|name| {
        json!({"type": "function", "name": name, "parameters": {"type": "object"}, "strict": false})
    }));
    tools
}

fn name(value: &Value) -> Option<&str> {
    value.get("name")?.as_str()
}

/// The reply to a request to compact these items: what the user said, then the summary.
pub fn compacted(id: &str, created: u64, items: &[Value], sealed: &str, counts: &Usage) -> Value {
    let is_users = |item: &&Value| item.get("role").is_some_and(|role| role == "user");
    let mut output: Vec<Value> = items.iter().filter(is_users).map(whole_message).collect();
    output.push(json!({
        "type": Compaction::NAME,
        "id": format!("cmp_{id}"),
        "encrypted_content": sealed,
    }));
    let usage: Value = serde_json::from_str(&usage(counts)).unwrap_or_default();
    json!({
        "id": format!("resp_{id}"),
        "object": "response.compaction",
        "created_at": created,
        "output": output,
        "usage": usage,
    })
}

/// A message that a client may have written in a short form, with the members that every message of a
/// reply has.
fn whole_message(message: &Value) -> Value {
    let mut message = message.clone();
    message["status"] = "completed".into();
    if let Value::String(text) = &message["content"] {
        message["content"] = json!([{"type": "input_text", "text": text}]);
    }
    let parts = message["content"].as_array_mut().into_iter().flatten();
    for part in parts.filter(|part| part["type"] == "input_image" && part["detail"].is_null()) {
        part["detail"] = "auto".into();
    }
    message
}

#[cfg(test)]
mod tests {
    use throughline_canonical::{Block, Tool, ToolChoice};

    use super::*;

    #[test]
    fn summary_is_asked_for_with_every_tool_that_was_called() {
        let body = json!({"model": "m", "store": true, "previous_response_id": "resp_1",
            "temperature": 1, "tools": [{"type": "function", "name": "a", "parameters": {}}]});
        let Value::Object(body) = body else { panic!("an object") };
        let request = StatefulRequest::new(body);
        let items = [
            json!({"type": "message", "role": "user", "content": "hi"}),
            json!({"type": "function_call", "call_id": "1", "name": "b", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "1", "output": "x"}),
        ];
        let asked = request.summary_request(&items).unwrap().request;
        let names: Vec<&str> = asked
            .tools
            .iter()
            .filter_map(|tool| match tool {
                Tool::Function { name, .. } => Some(name.as_str()),
                Tool::Opaque { .. } => None,
            })
            .collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(asked.tool_choice, Some(ToolChoice::None));
        assert_eq!(asked.messages.last().unwrap().content, [Block::text(QUESTION)]);
        assert_eq!(request.with_items(&items, "n")["input"].as_array().unwrap().len(), 3);
        let reply = compacted("7", 5, &items, "sealed", &Usage::default());
        let said = json!([{"type": "input_text", "text": "hi"}]);
        let whole =
            json!({"type": "message", "role": "user", "content": said, "status": "completed"});
        assert_eq!(reply["output"][0], whole);
        assert_eq!(reply["output"][1]["encrypted_content"], "sealed");
        assert_eq!(reply["object"], "response.compaction");
    }
}
