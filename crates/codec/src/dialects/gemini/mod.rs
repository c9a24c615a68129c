//! The Gemini dialect (`generateContent`).
//!
//! - `client_request` reads a client's request, `client_reply` writes the reply: streamed as events or
//!   as one growing list, or whole;
//! - `upstream_request` writes a request for a provider, `upstream_reply` reads the reply;
//! - `passthrough`: requests and replies that pass through;
//! - `grounding`, `errors`: citations and errors, both ways;
//! - [`address`]: the model and the method in the path;
//! - `names`: members in either spelling;
//! - [`model_card`]: the model list.

use serde_json::Value;
use throughline_canonical::{Event, Fault, Loss, LossSubject, Lossy, Request};

use super::passthrough::Passthrough;
use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::native_turn::NativeForm;
use crate::dialects::profile::{Profile, Server};
use crate::dialects::raw_reply::RawShape;
use crate::dialects::shared::arguments::or_empty_object;
use crate::dialects::shared::losses::lost_part;
pub(crate) use crate::dialects::shared::losses::{adapt, omit};
use crate::dialects::shared::members::read_count;
use crate::dialects::shared::names::GEMINI;
use crate::dialects::shared::{refusal, refused_setting};
use crate::dialects::{
    Accepted, ClientDialect, ModelCard, Models, Operation, Outgoing, Refusal, RefusedSetting,
    ReplyIdentity, ReplyReader, ReplyWriter, RequestParts, Session, Target, UpstreamDialect,
};
use crate::json::{Kind, escape, validate};
use address::Method;
use client_reply::Framing;

pub mod address;
pub mod client_reply;
pub mod client_request;
pub mod errors;
mod grounding;
pub mod model_card;
pub mod names;
mod native;
mod passthrough;
mod profile;
pub mod upstream_reply;
pub mod upstream_request;

#[cfg(test)]
mod tests;

/// The finish reason of a refusal without details.
const REFUSED: &str = "SAFETY";

/// Finish reasons that name the category of a refusal.
const REFUSALS: [&str; 7] = [
    "RECITATION",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_RECITATION",
];

/// The dialect's name, also of what only it has a word for.
pub const NAME: &str = GEMINI;

/// The longest tool name.
const MAX_TOOL_NAME: usize = 64;

/// The signature for a call whose real signature is unknown. Newer models reject the first call of
/// a step without a signature. Clients that lost a signature send this too.
pub const SKIP_SIGNATURE: &str = "skip_thought_signature_validator";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gemini;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    // Some clients drop them.
    returns_call_ids: false,
    wants_signed_calls: true,
    members: &[
        (LossSubject::N, "generationConfig.candidateCount"),
        (LossSubject::Logprobs, "generationConfig.responseLogprobs"),
        (LossSubject::Modalities, "generationConfig.responseModalities"),
        (LossSubject::Output, "generationConfig.responseSchema"),
        (LossSubject::Stop, "generationConfig.stopSequences"),
        (LossSubject::MediaFile, "fileData.fileUri"),
        (LossSubject::CachedContent, "cachedContent"),
    ],
    reads_errors_of: &[NAME],
    ..ClientDefaults::PLAIN
};

impl ClientDialect for Gemini {
    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::EndExplained(details) if client_reply::category(details).is_some() => None,
            event => lost_part(event, NAME),
        }
    }

    fn operation(&self, path: &str) -> Option<Operation> {
        match address::read(path).ok()?.1 {
            address::Method::Count => Some(Operation::CountTokens),
            address::Method::Generate | address::Method::Stream => Some(Operation::Generate),
        }
    }

    fn path_for(&self, model: &str) -> String {
        address::write(model, Method::Generate, Variant::default())
    }

    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        client_request::read(parts)
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(Framing::Events)
    }

    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        errors::write(fault)
    }

    fn write_models(&self, models: Models<'_>, query: &str) -> Result<Value, Fault> {
        model_card::write(models, query)
    }

    fn write_count(&self, tokens: u64) -> Vec<u8> {
        format!("{{\"totalTokens\":{tokens}}}").into_bytes()
    }
}

impl Session for Framing {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, *self, identity))
    }

    fn stream_type(&self) -> &'static str {
        match self {
            Framing::Events => "text/event-stream",
            Framing::List { .. } => "application/json; charset=UTF-8",
        }
    }
}

impl UpstreamDialect for Gemini {
    fn name(&self) -> &'static str {
        NAME
    }

    fn profiles(&self) -> &'static [Profile] {
        &profile::PROFILES
    }

    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
        let method = if request.stream { Method::Stream } else { Method::Generate };
        upstream_request::write(request, target, method)
    }

    fn raw_shape(&self) -> RawShape {
        RawShape::StreamAndLast
    }

    fn native_form(&self) -> Option<&'static dyn NativeForm> {
        Some(&native::Parts)
    }

    fn reply_reader(&self, target: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader> {
        Box::new(upstream_reply::Reader::new(streamed, target.profile.gemini().cumulative))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        errors::read(status, body)
    }

    fn refusal(&self, status: u16, body: &[u8]) -> Option<Refusal> {
        let message = errors::read(status, body).message;
        refusal::in_gemini_text(&message).filter(|_| status == 400).map(Refusal::from)
    }

    fn refused_setting(&self, status: u16, body: &[u8]) -> Option<RefusedSetting> {
        let message = errors::read(status, body).message;
        refused_setting::in_gemini_text(&message).filter(|_| status == 400)
    }

    fn list_query(&self) -> Option<&'static str> {
        Some("pageSize=1000")
    }

    fn read_models(&self, answer: &Value) -> Vec<ModelCard> {
        model_card::read(answer)
    }

    fn write_count(&self, request: &Request, target: &Target<'_>) -> Option<Lossy<Outgoing>> {
        Some(upstream_request::write(request, target, Method::Count))
    }

    fn read_count(&self, body: &[u8]) -> Option<u64> {
        read_count(body, "totalTokens")
    }

    fn passthrough(&self) -> &'static dyn Passthrough {
        &Gemini
    }
}

/// A server of Gemini's models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// Vertex, which has other paths.
    pub vertex: bool,
    /// The provider repeats the answer in every chunk.
    pub cumulative: bool,
}

impl Profile {
    fn gemini(&self) -> Variant {
        match self.server {
            Server::Gemini(variant) => variant,
            _ => Variant::default(),
        }
    }
}

/// Appends a JSON string.
pub(crate) fn quote_into(text: &str, out: &mut String) {
    out.push('"');
    escape(text, out);
    out.push('"');
}

/// Writes arguments as an object on one line. Returns false if they are not an object; then they
/// are wrapped as `{"arguments": "..."}`.
pub(crate) fn arguments_into(arguments: &str, out: &mut String) -> bool {
    let trimmed = or_empty_object(arguments).trim();
    if validate(trimmed.as_bytes(), ARGUMENTS_DEPTH) != Ok(Kind::Object) {
        out.push_str("{\"arguments\":");
        quote_into(arguments, out);
        out.push('}');
        return false;
    }
    // Line ends in JSON are white space, but would end the event.
    let mut rest = trimmed;
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest.as_bytes()) {
        out.push_str(&rest[..at]);
        out.push(' ');
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    true
}

/// Readers reject arguments with deeper nesting.
const ARGUMENTS_DEPTH: usize = 100;

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn arguments_become_an_object_on_one_line() {
        for (arguments, written, whole) in [
            ("", "{}", true),
            (" {} ", "{}", true),
            ("{\"a\":\r\n1.50}", "{\"a\":  1.50}", true),
            ("{\"a\"", "{\"arguments\":\"{\\\"a\\\"\"}", false),
            ("[]", "{\"arguments\":\"[]\"}", false),
            ("{}{}", "{\"arguments\":\"{}{}\"}", false),
        ] {
            let mut json = String::new();
            assert_eq!(arguments_into(arguments, &mut json), whole);
            assert_eq!(json, written);
        }
        let deep = "{\"a\":".repeat(200) + "1" + &"}".repeat(200);
        assert!(!arguments_into(&deep, &mut String::new()));
    }
}
