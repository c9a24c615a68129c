//! Reasoning and tool calls in the raw text of open models, read as it streams.
//!
//! Models write both into plain text, each family in its own way, and a server may cut that text
//! anywhere. A [`Reader`] takes the pieces and tells [`Event`]s in the order of the model: reasoning,
//! content, and for each call its start, its arguments and its end. However the text is cut, the
//! joined events are the same, and the work grows with its length alone.
//!
//! ```
//! use throughline_codec::text::{Event, Options, Reader, Recipe};
//!
//! let recipe = Recipe::for_model("Qwen/Qwen3-32B");
//! let mut reader = Reader::new(&recipe, Options::default());
//! let mut told = Vec::new();
//! let mut out = |event: Event<'_>| told.push(serde_json::to_string(&event).unwrap());
//! reader.push_str("<think>Weather?</think>Let me look.<tool_call>{\"name\": \"wea", &mut out);
//! reader.push_str("ther\", \"arguments\": {\"city\": \"Oslo\"}}</tool_call>", &mut out);
//! reader.finish(&mut out);
//! assert_eq!(told, [
//!     r#"{"type":"reasoning","delta":"Weather?"}"#,
//!     r#"{"type":"content","delta":"Let me look."}"#,
//!     r#"{"type":"tool_call_start","index":0,"id":"call_0","name":"weather"}"#,
//!     r#"{"type":"tool_call_args","index":0,"delta":"{\"city\": \"Oslo\"}"}"#,
//!     r#"{"type":"tool_call_end","index":0}"#,
//!     r#"{"type":"end","reason":"tool_calls"}"#,
//! ]);
//! ```
//!
//! What to look for is a [`Recipe`]: a tag set and tool formats, by the name of a family
//! ([`Recipe::family`]), of a model ([`Recipe::for_model`]) or of the parts ([`Recipe::named`]);
//! [`Evidence`] weighs all that is known of a request. Parameters that a format writes as plain text
//! are typed by the schemas of the [`Tools`] that were offered:
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
//! Broken output is data: by [`OnError::Text`] what is no call is content, by [`OnError::Error`] a
//! fault stands in its place.
//!
//! The way of a piece: `utf8.rs` makes text of bytes, `marker.rs` finds markers in it, the states of
//! the `reader` folder decide what they mean, and the machines of the `calls` folder read bodies. Tag
//! sets, formats and families are rows in `reasoning.rs`, `formats.rs`, `channels.rs` and
//! `families.rs`. [`RawTextReader`] puts it all behind the reader of a dialect.

mod calls;
mod channels;
mod event;
mod evidence;
mod families;
mod fence;
mod formats;
mod lookout;
mod marker;
mod reader;
mod reasoning;
mod recipe;
mod schema;
mod stage;
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
