//! The items of a reply for a client, as they are written.

use throughline_canonical::Citation;

use super::{PHASE, annotations};
use crate::dialects::shared::openai_annotations;
use crate::json::{decode, escape};

/// An item that is not done. All its texts are kept as they stand between quotes.
pub(super) struct Item {
    pub(super) place: u32,
    pub(super) kind: Kind,
    pub(super) id: String,
    /// All of its deltas up to the text, once there was one.
    pub(super) delta: String,
    pub(super) text: String,
    pub(super) signature: String,
    /// Of a text: what it refers to, each as JSON.
    pub(super) annotations: Vec<String>,
    /// Of a call: its id.
    pub(super) call: String,
    /// Of a call: the tool.
    pub(super) name: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Refusal,
    Reasoning,
    Call,
}

impl Kind {
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
    /// Where the item stands, as members of an event about it.
    pub(super) fn at(&self) -> String {
        format!(",\"output_index\":{}", self.place)
    }

    /// Notes what its text refers to, which is complete.
    pub(super) fn cite(&mut self, citations: &[Citation]) {
        if !citations.is_empty() {
            let length = openai_annotations::length(&decode(self.text.as_bytes()));
            let written =
                citations.iter().filter_map(|citation| annotations::write(citation, length));
            self.annotations = written.collect();
        }
    }

    /// Where its text stands, as members of an event about that.
    pub(super) fn part_at(&self) -> String {
        let Self { id, place, .. } = self;
        let part = match self.kind {
            Kind::Text | Kind::Refusal => ",\"content_index\":0",
            Kind::Reasoning => ",\"summary_index\":0",
            Kind::Call => "",
        };
        format!(",\"item_id\":\"{id}\",\"output_index\":{place}{part}")
    }

    pub(super) fn part(&self) -> String {
        let text = &self.text;
        match self.kind {
            Kind::Text => format!(
                "{{\"type\":\"output_text\",\"text\":\"{text}\",\"annotations\":[{}],\"logprobs\":[]}}",
                self.annotations.join(",")
            ),
            Kind::Refusal => format!("{{\"type\":\"refusal\",\"refusal\":\"{text}\"}}"),
            Kind::Reasoning | Kind::Call => {
                format!("{{\"type\":\"summary_text\",\"text\":\"{text}\"}}")
            }
        }
    }

    pub(super) fn json(&self, status: &str) -> String {
        let Self { id, text, signature, call, name, .. } = self;
        // Nothing is in an item that has just begun.
        let begun = status != "in_progress";
        match self.kind {
            Kind::Text | Kind::Refusal => {
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
            Kind::Reasoning => {
                let part = if text.is_empty() { String::new() } else { self.part() };
                let encrypted = if signature.is_empty() {
                    "null".to_owned()
                } else {
                    format!("\"{signature}\"")
                };
                format!(
                    "{{\"id\":\"{id}\",\"type\":\"reasoning\",\"status\":\"{status}\",\
                     \"summary\":[{part}],\"encrypted_content\":{encrypted}}}"
                )
            }
            Kind::Call => format!(
                "{{\"id\":\"{id}\",\"type\":\"function_call\",\"status\":\"{status}\",\
                 \"call_id\":\"{call}\",\"name\":\"{name}\",\"arguments\":\"{text}\"}}"
            ),
        }
    }
}

/// What stands between the quotes of a JSON string.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    escape(text, &mut out);
    out
}
