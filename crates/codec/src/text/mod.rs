//! Finds reasoning and tool calls in the raw text of open models, while it streams.
//!
//! Models write both into plain text, each family in its own way, and a server may cut that text
//! anywhere. A [`Reader`] takes the pieces and emits [`Event`]s in the order of the model:
//! reasoning, content, and for each call its start, its arguments and its end. The joined events do
//! not depend on how the text is cut, and the work is linear in its length.
//!
//! ```
//! use throughline_codec::text::{Event, Options, Reader, Recipe};
//!
//! let recipe = Recipe::for_model("Qwen/Qwen3-32B");
//! let mut reader = Reader::new(&recipe, Options::default());
//! let mut events = Vec::new();
//! let mut out = |event: Event<'_>| events.push(serde_json::to_string(&event).unwrap());
//! reader.push_str("<think>Weather?</think>Let me look.<tool_call>{\"name\": \"wea", &mut out);
//! reader.push_str("ther\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>", &mut out);
//! reader.finish(&mut out);
//! assert_eq!(events, [
//!     r#"{"type":"reasoning","delta":"Weather?"}"#,
//!     r#"{"type":"content","delta":"Let me look."}"#,
//!     r#"{"type":"tool_call_start","index":0,"id":"call_0","name":"weather"}"#,
//!     r#"{"type":"tool_call_args","index":0,"delta":"{\"city\": \"Oslo\"}"}"#,
//!     r#"{"type":"tool_call_end","index":0}"#,
//!     r#"{"type":"end","reason":"tool_calls"}"#,
//! ]);
//! ```
//!
//! A [`Recipe`] says what to look for: a tag set and tool formats, chosen by the name of a family
//! ([`Recipe::family`]), of a model ([`Recipe::for_model`]) or of the parts ([`Recipe::named`]).
//! [`Evidence`] combines all that is known about a request. If a format writes parameters as plain
//! text, the schemas of the offered [`Tools`] give their types:
//!
//! ```
//! use std::sync::Arc;
//! use throughline_codec::text::{Event, Options, Reader, Recipe, Tools};
//!
//! let tools = br#"[{"name": "roll", "parameters": {"properties": {
//!     "sides": {"type": "integer"}, "label": {"type": "string"}}}}]"#;
//! let options = Options {
//!     tools: Some(Arc::new(Tools::read(tools)?)),
//!     ..Options::default()
//! };
//! let mut reader = Reader::new(&Recipe::family("glm-4.7")?, options);
//! let mut arguments = String::new();
//! let text = "<tool_call>roll<arg_key>sides</arg_key><arg_value>6</arg_value>\
//!     <arg_key>label</arg_key><arg_value>6</arg_value></tool_call>";
//! reader.push_str(text, |event| {
//!     if let Event::CallArguments { delta, .. } = event {
//!         arguments.push_str(delta);
//!     }
//! });
//! assert_eq!(arguments, r#"{"sides":6,"label":"6"}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Malformed output is data. With [`OnError::Text`], text that is no valid call becomes content.
//! With [`OnError::Error`], a fault replaces it.
//!
//! The path of a piece: `utf8.rs` decodes bytes to text, `marker.rs` finds markers in it, the
//! states in the `reader` folder decide what the markers mean, and the machines in the `calls`
//! folder read bodies. Tag sets, formats and families are rows in `reasoning.rs`, `formats.rs`,
//! `channels.rs` and `families.rs`. [`RawTextReader`] adds all of this to the reader of a dialect.

mod calls;
mod channels;
mod event;
mod evidence;
mod families;
mod fence;
mod formats;
mod marker;
mod marker_sets;
mod reader;
mod reasoning;
mod recipe;
mod schema;
mod stage;
mod turn_end;
mod utf8;

pub use calls::ToolFormat;
pub use event::{EndReason, Event};
pub use evidence::{Evidence, promises_reasoning};
pub use families::{FAMILIES, Family};
pub use formats::TOOL_FORMATS;
pub use reader::Reader;
pub use reasoning::{TAG_SETS, TagSet};
pub use recipe::{OnError, Options, ReasoningFormat, Recipe, UnknownName};
pub use schema::{Tools, ToolsError};
pub use stage::{Delivery, RawTextReader, Stage};
