//! The OpenAI Chat Completions dialect, and the many servers with their own extensions of it.
//!
//! - [`variants`]: the differences between servers, one row each;
//! - `client_request` reads a client's request, `client_reply` writes the reply;
//! - `upstream_request` writes a request for a provider, `upstream_reply` reads the reply;
//! - `passthrough`: requests and replies that pass through;
//! - `annotations`, `usage`, `errors`: citations, token counts and errors, both ways;
//! - `detail_meta`: the data that OpenRouter wants back with reasoning;
//! - `custom_tools`, `ids`: custom tools and call ids.

use serde_json::Value;
use throughline_canonical::{
    BlockStart, Delta, Event, Fault, Loss, LossReason, LossSubject, Lossy, Request,
};

use super::passthrough::Passthrough;
use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::profile::Profile;
use crate::dialects::raw_reply::RawShape;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::shared::{names, openai_errors, openai_models};
use crate::dialects::{
    Accepted, ClientDialect, ModelCard, Operation, Outgoing, Refusal, RefusedSetting,
    ReplyIdentity, ReplyReader, ReplyWriter, RequestParts, Session, Target, UpstreamDialect,
};

mod annotations;
mod client_reply;
mod client_request;
mod custom_tools;
mod detail_meta;
mod errors;
mod ids;
mod passthrough;
mod profile;
mod upstream_reply;
mod upstream_request;
mod usage;
pub mod variants;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = names::OPENAI_CHAT;

const PATH: &str = "/v1/chat/completions";

/// The type of a custom call.
const CUSTOM: &str = "custom";

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenAiChat;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH, Operation::Generate)],
    custom_tools: Some(&custom_tools::CALLS),
    members: &[
        (LossSubject::Output, "response_format"),
        (LossSubject::Message, "messages"),
        (LossSubject::MediaFile, "file.file_id"),
        (LossSubject::StoredAudio, "audio.id"),
    ],
    reads_errors_of: &openai_models::DIALECTS,
    ..ClientDefaults::PLAIN
};

impl ClientDialect for OpenAiChat {
    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            // Content is plain text here. Opaque parts of some servers cannot be written into it.
            Event::BlockStarted { block: BlockStart::Opaque { dialect, name }, .. }
                if dialect == NAME && name != CUSTOM =>
            {
                Some(Loss::of_part(LossSubject::named(name), LossReason::NoWord))
            }
            // This dialect carries the quote of a source.
            Event::BlockDelta { delta: Delta::Citation(citation), .. }
                if citation.url.is_some() =>
            {
                None
            }
            event => lost_part(event, NAME),
        }
    }

    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        client_request::read(parts)
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(ChatSession::default())
    }

    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        errors::write(fault)
    }

    fn lists_as(&self, upstream: &str) -> bool {
        openai_models::DIALECTS.contains(&upstream)
    }
}

/// What the reply has to know about a request.
#[derive(Clone, Copy, Debug, Default)]
struct ChatSession {
    /// The client wants token counts in a stream.
    include_usage: bool,
    /// The client uses `functions` and reads `function_call`.
    legacy_functions: bool,
}

impl Session for ChatSession {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, *self, identity))
    }
}

impl UpstreamDialect for OpenAiChat {
    fn name(&self) -> &'static str {
        NAME
    }

    fn profiles(&self) -> &'static [Profile] {
        &profile::PROFILES
    }

    fn with_member(&self, profile: &'static Profile, member: &str) -> &'static Profile {
        profile::with_member(profile, member)
    }

    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
        upstream_request::write(request, target)
    }

    fn raw_shape(&self) -> RawShape {
        RawShape::Chunks
    }

    fn reply_reader(&self, target: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader> {
        Box::new(upstream_reply::Reader::new(target.profile.chat(), streamed))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        openai_errors::read(status, body)
    }

    fn refusal(&self, status: u16, body: &[u8]) -> Option<Refusal> {
        errors::refused_thinking(status, body).map(Refusal::from)
    }

    fn refused_setting(&self, status: u16, body: &[u8]) -> Option<RefusedSetting> {
        errors::refused_setting(status, body)
    }

    fn read_models(&self, answer: &Value) -> Vec<ModelCard> {
        openai_models::read(answer)
    }

    fn passthrough(&self) -> &'static dyn Passthrough {
        &OpenAiChat
    }
}
