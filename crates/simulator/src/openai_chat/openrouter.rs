//! OpenRouter only: its error body, and the formats of `reasoning_details`.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::RequestId;
use crate::dialect::Dialect;
use crate::fault::Frame;
use crate::openai;
use crate::refusal::Refusal;

/// The chat dialect with OpenRouter's error body.
pub(crate) static DIALECT: Dialect = Dialect { error_body, error_event, ..super::ROW };

/// The format of a model's details.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    /// The type of readable entries.
    pub(crate) kind: &'static str,
    /// The member that holds their text.
    pub(crate) member: &'static str,
    /// Whether readable entries are signed; if not, an encrypted entry follows them.
    pub(crate) signs: bool,
}

const CLAUDE: Format =
    Format { name: "anthropic-claude-v1", kind: "reasoning.text", member: "text", signs: true };

const RESPONSES: Format = Format {
    name: "openai-responses-v1",
    kind: "reasoning.summary",
    member: "summary",
    signs: false,
};

impl Format {
    /// The format of the model's provider; Claude's format if the name is unknown.
    pub(crate) fn of(model: &str) -> Self {
        let model = model.to_lowercase();
        if model.contains("gpt-") || model.starts_with("openai/") { RESPONSES } else { CLAUDE }
    }
}

fn error_body(refusal: &Refusal, _: &RequestId) -> Value {
    json!({ "error": {
        "code": refusal.status.as_u16(),
        "message": refusal.message,
        "metadata": { "raw": refusal.message, "provider_name": "Simulator" },
    } })
}

fn error_event(_: usize) -> Bytes {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let error = json!({ "code": status.as_u16(), "message": openai::status_message(status) });
    let choice = json!({ "index": 0, "delta": {}, "finish_reason": "error" });
    Frame::event(None, &json!({ "error": error, "choices": [choice] })).bytes
}
