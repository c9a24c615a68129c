//! The data that OpenRouter wants back with a piece of reasoning, packed into one signature.
//!
//! A piece of `reasoning_details` has a signature, a format and an id, and all must come back. The
//! canonical block has one signature. So a piece with more than a signature stores its members
//! there as a small JSON object. Plain signatures are base64 and never start with a brace.

use serde_json::{Map, Value};

/// The format of a piece that has none.
const USUAL_FORMAT: &str = "anthropic-claude-v1";

/// The members of a piece, without its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DetailMeta {
    /// The signature, or the data if it is encrypted.
    pub(super) signature: String,
    /// The format; may be empty.
    pub(super) format: String,
    /// The id; may be empty.
    pub(super) id: String,
    /// Whether it is a summary.
    pub(super) summary: bool,
}

impl DetailMeta {
    /// Packs all members into one signature; `None` if all are empty.
    pub(super) fn pack(&self) -> Option<String> {
        let usual = self.format.is_empty() || self.format == USUAL_FORMAT;
        if usual && self.id.is_empty() && !self.summary {
            return (!self.signature.is_empty()).then(|| self.signature.clone());
        }
        let mut members = Map::new();
        if self.summary {
            members.insert("type".to_owned(), "reasoning.summary".into());
        }
        for (name, value) in
            [("signature", &self.signature), ("format", &self.format), ("id", &self.id)]
        {
            if !value.is_empty() {
                members.insert(name.to_owned(), value.as_str().into());
            }
        }
        Some(Value::Object(members).to_string())
    }

    /// Reads a packed or a plain signature.
    pub(super) fn unpack(signature: &str) -> Self {
        let packed = signature
            .starts_with('{')
            .then(|| serde_json::from_str::<Map<String, Value>>(signature).ok())
            .flatten();
        let Some(members) = packed else {
            return Self { signature: signature.to_owned(), ..Self::default() };
        };
        let text = |name: &str| {
            let value = members.get(name).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        Self {
            signature: text("signature"),
            format: text("format"),
            id: text("id"),
            summary: text("type") == "reasoning.summary",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_signature_unpacks_unchanged() {
        for format in ["", "openai-responses-v1", "unknown"] {
            for id in ["", "rs_1"] {
                for summary in [false, true] {
                    for signature in ["", "EqQB+/=="] {
                        let mark = DetailMeta {
                            signature: signature.to_owned(),
                            format: format.to_owned(),
                            id: id.to_owned(),
                            summary,
                        };
                        let packed = mark.pack().unwrap_or_default();
                        assert_eq!(DetailMeta::unpack(&packed), mark, "{packed}");
                    }
                }
            }
        }
        let plain = DetailMeta {
            signature: "EqQB".to_owned(),
            format: USUAL_FORMAT.to_owned(),
            ..DetailMeta::default()
        };
        assert_eq!(plain.pack().as_deref(), Some("EqQB"));
    }
}
