//! OpenAI's Responses API: a conversation is a list of items, and so is a reply.
//!
//! - `client_request` reads a client's request, `client_reply` writes the reply;
//! - `upstream_request` writes a request for a provider, `upstream_reply` reads the reply;
//! - `passthrough`: requests and replies that pass through;
//! - `annotations`, `errors`: citations and errors, both ways;
//! - `custom_tools`: tools with free-text input;
//! - [`state`]: requests that refer to stored responses.
//!
//! Readers and writers are stateless: the conversation store resolves stored responses before a
//! request is written.

mod annotations;
mod client_reply;
mod client_request;
mod custom_tools;
mod errors;
mod native;
mod passthrough;
mod profile;
pub mod state;
#[cfg(test)]
mod tests;
mod upstream_reply;
mod upstream_request;

use serde_json::{Map, Value};
use throughline_canonical::{Fault, LossSubject, Lossy, Request};

use super::passthrough::{Passthrough, ReplyRepair};
use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::native_turn::NativeForm;
use crate::dialects::profile::Profile;
use crate::dialects::raw_reply::RawShape;
use crate::dialects::shared::members::{keep_only, read_count};
use crate::dialects::shared::{names, openai_errors, openai_models, refused_setting};
use crate::dialects::{
    Accepted, ClientDialect, ModelCard, Operation, Outgoing, Refusal, RefusedSetting,
    ReplyIdentity, ReplyReader, ReplyWriter, RequestParts, Session, Target, UpstreamDialect,
};

/// The default of how closely a model looks at an image. The dialect requires a value.
const AUTO_DETAIL: &str = "auto";

/// The dialect's name.
pub const NAME: &str = names::OPENAI_RESPONSES;

const PATH: &str = "/v1/responses";
const PATH_COUNT: &str = "/v1/responses/input_tokens";
/// Members that a request for a token count may have.
const COUNTED: &[&str] = &[
    "model",
    "input",
    "instructions",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "truncation",
];

/// The `include` value that makes the provider return encrypted reasoning.
const ENCRYPTED: &str = "reasoning.encrypted_content";

/// Prefix of the phase of an assistant message, which is stored as the signature of its text.
const PHASE: &str = "phase=";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiResponses;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    // It belongs to the item; its summary is for people.
    signature_binds_text: false,
    wants_signed_thinking: true,
    paths: &[(PATH, Operation::Generate), (PATH_COUNT, Operation::CountTokens)],
    custom_tools: Some(&custom_tools::CALLS),
    repairs_replies: true,
    members: &[
        (LossSubject::Logprobs, "top_logprobs"),
        (LossSubject::Output, "text.format"),
        (LossSubject::Message, "input"),
        (LossSubject::MediaFile, "file_id"),
    ],
    missing_state: Some(("previous_response_id", errors::MISSING_RESPONSE)),
    reads_errors_of: &openai_models::DIALECTS,
    ..ClientDefaults::PLAIN
};

impl ClientDialect for OpenAiResponses {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        let (request, members) = client_request::read(parts)?;
        Ok(Accepted::new(request, members))
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(RepeatedMembers::default())
    }

    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        errors::write(fault)
    }

    fn lists_as(&self, upstream: &str) -> bool {
        openai_models::DIALECTS.contains(&upstream)
    }

    fn write_count(&self, tokens: u64) -> Vec<u8> {
        format!("{{\"object\":\"response.input_tokens\",\"input_tokens\":{tokens}}}").into_bytes()
    }
}

/// Members of a request that its response repeats, without a canonical form of their own.
#[derive(Clone, Debug, Default)]
struct RepeatedMembers(Map<String, Value>);

impl RepeatedMembers {
    /// The end user has two names, and the canonical request has one field for both.
    const USER: [&str; 2] = ["user", "safety_identifier"];

    fn of(body: &Map<String, Value>) -> Self {
        let named = Self::USER.iter().filter_map(|name| body.get_key_value(*name));
        Self(named.map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

impl Session for RepeatedMembers {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, self, identity))
    }

    fn repair(
        &self,
        request: &Request,
        identity: &ReplyIdentity,
        first: &[u8],
    ) -> Option<Box<dyn ReplyRepair>> {
        let sloppy = passthrough::repair::is_sloppy(first);
        sloppy.then(|| passthrough::repair::Repairer::new(request, self, identity).into())
    }
}

impl UpstreamDialect for OpenAiResponses {
    fn name(&self) -> &'static str {
        NAME
    }

    fn profiles(&self) -> &'static [Profile] {
        &profile::PROFILES
    }

    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
        upstream_request::write(request, target)
    }

    fn raw_shape(&self) -> RawShape {
        RawShape::EventsAndResponse
    }

    fn native_form(&self) -> Option<&'static dyn NativeForm> {
        Some(&native::Items)
    }

    fn reply_reader(&self, target: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader> {
        Box::new(upstream_reply::Reader::new(target.model, streamed))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        errors::read(status, body)
    }

    fn refusal(&self, status: u16, body: &[u8]) -> Option<Refusal> {
        errors::refused_reasoning(status, body).map(Refusal::from)
    }

    fn has_lost_reply(&self, status: u16, body: &[u8]) -> bool {
        errors::has_lost_reply(status, body)
    }

    fn refused_setting(&self, status: u16, body: &[u8]) -> Option<RefusedSetting> {
        let message = errors::read(status, body).message;
        refused_setting::in_openai_text(&openai_errors::parameter(body), &message)
            .or_else(|| refused_setting::in_ollama_text(&message))
            .filter(|_| status == 400 || status == 422)
    }

    fn read_models(&self, answer: &Value) -> Vec<ModelCard> {
        openai_models::read(answer)
    }

    fn write_count(&self, request: &Request, target: &Target<'_>) -> Option<Lossy<Outgoing>> {
        let mut written = upstream_request::write(request, target);
        let outgoing = &mut written.value;
        PATH_COUNT.clone_into(&mut outgoing.path);
        outgoing.body = keep_only(&outgoing.body, COUNTED);
        Some(written)
    }

    fn read_count(&self, body: &[u8]) -> Option<u64> {
        read_count(body, "input_tokens")
    }

    fn passthrough(&self) -> &'static dyn Passthrough {
        &OpenAiResponses
    }
}
