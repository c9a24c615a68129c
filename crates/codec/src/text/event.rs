//! The parts of a model's text, in the order the model wrote them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// Takes the events of a text.
pub(crate) type Out<'o> = &'o mut dyn FnMut(Event<'_>);

/// One step of a model's text. Text is borrowed from its piece, or from text that was held back.
///
/// Neighbouring deltas of one kind may be cut anywhere. Joined, they do not depend on how the text
/// was cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Reasoning, without its tags.
    Reasoning(&'a str),
    /// Answer text.
    Content(&'a str),
    /// A call started: its name is known.
    CallStarted {
        /// Number of the call in this text, from 0.
        index: usize,
        /// The id that the model wrote, or a generated one.
        id: &'a str,
        /// The name of the tool.
        name: &'a str,
    },
    /// More of the call's arguments, as JSON text.
    CallArguments {
        /// Number of the call.
        index: usize,
        /// The added text.
        delta: &'a str,
    },
    /// The call's arguments are complete.
    CallEnded {
        /// Number of the call.
        index: usize,
    },
    /// A call could not be read (`tool_call_parse_error`). Replaces the text of the call.
    Fault {
        /// What is wrong, and where.
        message: &'a str,
    },
    /// The last event of every text.
    Ended(EndReason),
}

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// After the answer.
    Stop,
    /// After calls that wait for their results.
    ToolCalls,
    /// Inside reasoning.
    UnclosedReasoning,
    /// Inside the arguments of a call.
    UnclosedToolCall,
    /// A call could not be read, and [`OnError::Error`](super::OnError::Error) is set.
    Error,
}

/// Writes the form that `throughline parse` prints: one object with a `type`.
impl Serialize for Event<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let kind = match self {
            Self::Reasoning(_) => "reasoning",
            Self::Content(_) => "content",
            Self::CallStarted { .. } => "tool_call_start",
            Self::CallArguments { .. } => "tool_call_args",
            Self::CallEnded { .. } => "tool_call_end",
            Self::Fault { .. } => "error",
            Self::Ended(_) => "end",
        };
        map.serialize_entry("type", kind)?;
        match self {
            Self::Reasoning(delta) | Self::Content(delta) => map.serialize_entry("delta", delta)?,
            Self::CallStarted { index, id, name } => {
                map.serialize_entry("index", index)?;
                map.serialize_entry("id", id)?;
                map.serialize_entry("name", name)?;
            }
            Self::CallArguments { index, delta } => {
                map.serialize_entry("index", index)?;
                map.serialize_entry("delta", delta)?;
            }
            Self::CallEnded { index } => map.serialize_entry("index", index)?,
            Self::Fault { message } => {
                map.serialize_entry("kind", "tool_call_parse_error")?;
                map.serialize_entry("message", message)?;
            }
            Self::Ended(reason) => map.serialize_entry("reason", reason)?,
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers: S2-31
    #[test]
    fn events_serialize_to_objects_with_a_type() {
        let lines = [
            (Event::Reasoning("a\n"), r#"{"type":"reasoning","delta":"a\n"}"#),
            (Event::Content("é"), r#"{"type":"content","delta":"é"}"#),
            (
                Event::CallStarted { index: 1, id: "call_1", name: "f" },
                r#"{"type":"tool_call_start","index":1,"id":"call_1","name":"f"}"#,
            ),
            (
                Event::CallArguments { index: 1, delta: "{\"" },
                r#"{"type":"tool_call_args","index":1,"delta":"{\""}"#,
            ),
            (Event::CallEnded { index: 1 }, r#"{"type":"tool_call_end","index":1}"#),
            (
                Event::Fault { message: "m" },
                r#"{"type":"error","kind":"tool_call_parse_error","message":"m"}"#,
            ),
            (
                Event::Ended(EndReason::UnclosedToolCall),
                r#"{"type":"end","reason":"unclosed_tool_call"}"#,
            ),
        ];
        for (event, line) in lines {
            assert_eq!(serde_json::to_string(&event).unwrap(), line);
        }
    }
}
