//! What a model's text is made of, in the order the model wrote it.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// One step of a model's text. Text is borrowed from the piece it came in, or from what was held.
///
/// Neighbouring deltas of one kind may be cut anywhere; joined, they are the same for every way
/// the text was cut into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Reasoning, without its tags.
    Reasoning(&'a str),
    /// Answer text.
    Content(&'a str),
    /// A call began: its name is known.
    CallStarted {
        /// Which call of this text, from 0.
        index: usize,
        /// The model's own id of it, or one that was made.
        id: &'a str,
        /// The tool.
        name: &'a str,
    },
    /// More of the call's arguments, as JSON text.
    CallArguments {
        /// Which call.
        index: usize,
        /// What was added.
        delta: &'a str,
    },
    /// The call's arguments are complete.
    CallEnded {
        /// Which call.
        index: usize,
    },
    /// A call could not be read (`tool_call_parse_error`); stands in the place of its text.
    Fault {
        /// What was wrong, and where.
        message: &'a str,
    },
    /// The last event of every text.
    Ended(EndReason),
}

/// How a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// With its answer.
    Stop,
    /// With calls that wait for their results.
    ToolCalls,
    /// Inside reasoning.
    UnclosedReasoning,
    /// Inside the arguments of a call.
    UnclosedToolCall,
    /// A call could not be read, and the caller asked to be told.
    Error,
}

/// As `throughline parse` prints it: one object with a `type`.
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
    fn events_are_lines_with_a_type() {
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
