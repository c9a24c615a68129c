//! What a client wants to see of a reply.

use serde_json::Value;
use throughline_canonical::{Request, Show};

use super::super::{NAME, ours};

/// What a client wants to see of a reply.
pub(crate) struct Form {
    /// Whether it wants token counts.
    pub(crate) include_usage: bool,
    /// Whether it uses the legacy `functions`.
    pub(crate) legacy: bool,
    /// Whether it wants no reasoning.
    pub(crate) hidden: bool,
    /// The members that carry reasoning as plain text.
    pub(crate) fields: Vec<String>,
}

impl Form {
    pub(crate) fn read(request: &Request) -> Self {
        let extra = request.extra.get(NAME);
        let member = |name: &str| extra.and_then(|extra| extra.get(name));
        let fields = match member(ours::REASONING_FIELDS).and_then(Value::as_array) {
            Some(list) => list
                .iter()
                .filter_map(Value::as_str)
                .filter(|name| matches!(*name, "reasoning" | "reasoning_content"))
                .map(str::to_owned)
                .collect(),
            None => vec!["reasoning".to_owned(), "reasoning_content".to_owned()],
        };
        let options = member(ours::STREAM_OPTIONS);
        let include_usage = options.and_then(|options| options.get("include_usage"));
        Self {
            include_usage: include_usage.and_then(Value::as_bool) == Some(true),
            legacy: member(ours::LEGACY_FUNCTIONS).is_some(),
            hidden: request.thinking.show == Some(Show::Hidden),
            fields,
        }
    }
}
