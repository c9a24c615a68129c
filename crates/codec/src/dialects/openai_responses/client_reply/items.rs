//! The items of a reply for a client.

use throughline_canonical::Citation;

use super::super::{PHASE, annotations};
use crate::dialects::shared::openai_annotations;
use crate::json::{decode, escape};

/// An open item. All its texts are kept as escaped JSON.
pub(super) struct Item {
    pub(super) position: u32,
    pub(super) kind: OutputKind,
    /// Empty until the client knows the item.
    pub(super) id: String,
    /// All bytes of a delta before its text; empty before the first delta.
    pub(super) delta: String,
    pub(super) text: String,
    pub(super) signature: String,
    /// The annotations of a text, each as JSON.
    pub(super) annotations: Vec<String>,
    /// The id of a call.
    pub(super) call: String,
    /// The tool of a call.
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputKind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

impl OutputKind {
    pub(super) fn delta(self) -> &'static str {
        match self {
            Self::Text => "response.output_text.delta",
            Self::Refusal => "response.refusal.delta",
            Self::Reasoning => "response.reasoning_summary_text.delta",
            Self::Call => "response.function_call_arguments.delta",
        }
    }
}

impl Item {
    /// An item without an index.
    pub(super) fn new(kind: OutputKind) -> Self {
        Self {
            position: 0,
            kind,
            id: String::new(),
            delta: String::new(),
            text: String::new(),
            signature: String::new(),
            annotations: Vec::new(),
            call: String::new(),
            name: String::new(),
        }
    }

    /// Gives it the next index, and an id.
    pub(super) fn assign_index(&mut self, identity: &str, items: &mut u32) {
        self.position = *items;
        *items += 1;
        let sort = match self.kind {
            OutputKind::Text | OutputKind::Refusal => "msg",
            OutputKind::Reasoning => "rs",
            OutputKind::Call => "fc",
        };
        self.id = format!("{sort}_{identity}_{}", self.position);
    }

    /// The position of the item, as members of an event.
    pub(super) fn at(&self) -> String {
        format!(",\"output_index\":{}", self.position)
    }

    /// Builds the annotations of a complete text.
    pub(super) fn cite(&mut self, citations: &[Citation]) {
        if !citations.is_empty() {
            let length = openai_annotations::length(&decode(self.text.as_bytes()));
            let written =
                citations.iter().filter_map(|citation| annotations::write(citation, length));
            self.annotations = written.collect();
        }
    }

    /// The position of the text, as members of an event.
    pub(super) fn part_at(&self) -> String {
        let Self { id, position, .. } = self;
        let part = match self.kind {
            OutputKind::Text | OutputKind::Refusal => ",\"content_index\":0",
            OutputKind::Reasoning => ",\"summary_index\":0",
            OutputKind::Call => "",
        };
        format!(",\"item_id\":\"{id}\",\"output_index\":{position}{part}")
    }

    pub(super) fn part(&self) -> String {
        let text = &self.text;
        match self.kind {
            OutputKind::Text => format!(
                "{{\"type\":\"output_text\",\"text\":\"{text}\",\"annotations\":[{}],\"logprobs\":[]}}",
                self.annotations.join(",")
            ),
            OutputKind::Refusal => format!("{{\"type\":\"refusal\",\"refusal\":\"{text}\"}}"),
            OutputKind::Reasoning | OutputKind::Call => {
                format!("{{\"type\":\"summary_text\",\"text\":\"{text}\"}}")
            }
        }
    }

    pub(super) fn json(&self, status: &str) -> String {
        let Self { id, text, signature, call, name, .. } = self;
        // A new item is empty.
        let begun = status != "in_progress";
        match self.kind {
            OutputKind::Text | OutputKind::Refusal => {
                let part = if begun { self.part() } else { String::new() };
                let phase = match signature.strip_prefix(PHASE) {
                    Some(phase) => format!(",\"phase\":\"{phase}\""),
                    None => String::new(),
                };
                format!(
                    "{{\"id\":\"{id}\",\"type\":\"message\",\"status\":\"{status}\",\
                     \"role\":\"assistant\",\"content\":[{part}]{phase}}}"
                )
            }
            OutputKind::Reasoning => {
                let part = if text.is_empty() { String::new() } else { self.part() };
                let encrypted = if signature.is_empty() {
                    String::new()
                } else {
                    format!(",\"encrypted_content\":\"{signature}\"")
                };
                format!(
                    "{{\"id\":\"{id}\",\"type\":\"reasoning\",\"status\":\"{status}\",\
                     \"summary\":[{part}]{encrypted}}}"
                )
            }
            OutputKind::Call => format!(
                "{{\"id\":\"{id}\",\"type\":\"function_call\",\"status\":\"{status}\",\
                 \"call_id\":\"{call}\",\"name\":\"{name}\",\"arguments\":\"{text}\"}}"
            ),
        }
    }
}

/// Escapes a text for a JSON string, without the quotes.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out
}
