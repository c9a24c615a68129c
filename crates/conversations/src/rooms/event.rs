//! The events of a room: what its log stores, and what readers get.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline_canonical::{Block, WaitingCall};
use throughline_codec::dialects::content_blocks;
use utoipa::ToSchema;

use super::machine::{Shown, Step};
use crate::store::bounded_name;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EventType {
    /// A member begins to think. Not stored.
    ThinkingStart,
    /// It thinks on. Not stored.
    ThinkingDelta,
    /// It has thought. Not stored.
    ThinkingEnd,
    /// It begins or stops to write. Not stored.
    Typing,
    /// A new message.
    Message,
    /// A model calls a tool.
    ToolCall,
    /// A call has a result.
    ToolResult,
    /// A call waits for a person.
    ApprovalNeeded,
    /// Something failed.
    Error,
}

impl EventType {
    /// Whether it shows what a model thinks.
    pub fn is_thinking(self) -> bool {
        matches!(self, Self::ThinkingStart | Self::ThinkingDelta | Self::ThinkingEnd)
    }
}

/// An event as readers get it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RoomEvent {
    /// The cursor. Events that are not stored have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The type.
    pub r#type: EventType,
    /// The room.
    pub room: String,
    /// The channel that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The run that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What happened.
    #[schema(value_type = Object)]
    pub data: Value,
}

/// An event as the log of a room stores it, sealed as JSON. A message is stored as the id of its node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The type.
    pub r#type: EventType,
    /// The channel that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// The run that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// What happened. For a message, the id of its node.
    pub data: Value,
}

impl StoredEvent {
    /// A message.
    pub fn message(node: &str, channel: Option<&str>, run: Option<&str>) -> Self {
        let (channel, run) = (channel.map(str::to_owned), run.map(str::to_owned));
        Self { r#type: EventType::Message, channel, run, data: json!({ "node": node }) }
    }

    /// An error that readers see.
    pub fn error(kind: &str, message: &str, channel: Option<&str>, run: Option<&str>) -> Self {
        let data = json!({"kind": kind, "message": message});
        let (channel, run) = (channel.map(str::to_owned), run.map(str::to_owned));
        Self { r#type: EventType::Error, channel, run, data }
    }

    /// A step of a tool loop.
    pub fn step(step: &Step, channel: &str, run: &str) -> Self {
        let (r#type, data) = match step {
            Step::Called { id, name, arguments } => {
                (EventType::ToolCall, json!({"id": id, "name": name, "arguments": arguments}))
            }
            Step::Waits { call, .. } => (EventType::ApprovalNeeded, waiting(call)),
            Step::Returned { id, content, is_error } => {
                let content = result_content(content);
                let data = json!({"id": id, "content": content, "isError": is_error});
                (EventType::ToolResult, data)
            }
        };
        Self { r#type, channel: Some(channel.to_owned()), run: Some(run.to_owned()), data }
    }

    /// The id of the node of a message.
    pub fn node(&self) -> Option<&str> {
        match self.r#type {
            EventType::Message => self.data["node"].as_str(),
            _ => None,
        }
    }
}

/// A name that only this step of a run has, so that it is stored once. It is not sealed, so it has no text of
/// the step.
pub fn name_of_step(step: &Step, run: &str) -> String {
    let name = match step {
        Step::Called { id, .. } => format!("call:{run}:{id}"),
        Step::Waits { question, call } => format!("wait:{run}:{question}:{}", call.id),
        Step::Returned { id, .. } => format!("result:{run}:{id}"),
    };
    bounded_name(&name).into_owned()
}

/// The name of the error of a run. A run has at most one.
pub fn name_of_failure(run: &str) -> String {
    format!("error:{run}")
}

fn waiting(call: &WaitingCall) -> Value {
    let arguments = serde_json::from_str(&call.arguments)
        .unwrap_or_else(|_| Value::from(call.arguments.as_str()));
    let mut data = json!({"id": call.id, "name": call.name, "arguments": arguments});
    if let Some(message) = &call.message {
        data["message"] = json!(message);
    }
    if let Some(schema) = &call.schema {
        data["schema"] = schema.clone();
    }
    data
}

/// A text if it is only that, or blocks.
fn result_content(content: &[Block]) -> Value {
    let text = |block: &Block| match block {
        Block::Text { text, .. } => Some(text.clone()),
        _ => None,
    };
    match content.iter().map(text).collect::<Option<String>>() {
        Some(text) => Value::from(text),
        None => content.iter().map(content_blocks::write).collect(),
    }
}

/// What is shown and not stored, as an event.
pub fn shown(room: &str, run: &str, member: &str, what: &Shown) -> RoomEvent {
    let (r#type, data) = match what {
        Shown::Typing { active } => (EventType::Typing, json!({ "active": active })),
        Shown::ThinkingStarted => (EventType::ThinkingStart, json!({})),
        Shown::ThinkingDelta { text } => (EventType::ThinkingDelta, json!({ "text": text })),
        Shown::ThinkingEnded { text, tokens } => {
            let mut data = json!({ "text": text });
            if let Some(tokens) = tokens {
                data["tokens"] = json!(tokens);
            }
            (EventType::ThinkingEnd, data)
        }
    };
    let (room, channel, run) = (room.to_owned(), Some(member.to_owned()), Some(run.to_owned()));
    RoomEvent { seq: None, r#type, room, channel, run, data }
}

/// An event, written once for all readers.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The cursor.
    pub seq: Option<u64>,
    /// Whether it shows what a model thinks.
    pub is_thinking: bool,
    /// The event as JSON.
    pub json: Arc<str>,
}

impl Frame {
    /// Writes an event.
    pub fn new(event: &RoomEvent) -> Self {
        Self {
            seq: event.seq,
            is_thinking: event.r#type.is_thinking(),
            json: serde_json::to_string(event).unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of entries are not sealed.
    #[test]
    fn name_of_a_step_is_short_and_has_no_text() {
        let waits = |id: &str, question: u32| {
            let (id, message) = (id.to_owned(), Some("What is your secretmark?".to_owned()));
            let (name, arguments) = ("ask".to_owned(), "{}".to_owned());
            let call = WaitingCall { id, name, arguments, message, schema: None };
            Step::Waits { question, call }
        };
        let long = "x".repeat(2_000);
        let steps = [waits("c1", 1), waits("c1", 2), waits("c2", 1), waits(&long, 1)];
        let mut names: Vec<String> = steps.iter().map(|step| name_of_step(step, "run_1")).collect();
        for name in &names {
            assert!(!name.contains("secretmark") && name.len() < 600, "{name}");
        }
        names.dedup();
        assert_eq!(names.len(), steps.len(), "each question has a name of its own");
    }
}
