//! The Anthropic Messages dialect.
//!
//! - `client_request` reads a client's request;
//! - [`client_stream`] writes a reply for a client, [`client_reply`] its errors and keep-alives;
//! - `upstream_request` writes a request for a provider, `messages` its conversation;
//! - [`upstream_reply`] reads a provider's reply, `errors` its errors;
//! - [`refusal`] recognises errors about thinking;
//! - [`model_card`] is the model list;
//! - [`threads`] reads requests that continue a stored conversation.
//!
//! Passthrough, where client and provider both speak this dialect:
//!
//! - [`outline`] finds the parts of a request;
//! - [`settings`] reads its settings;
//! - [`rewrite`] edits it;
//! - [`prefix`] hashes the conversation before a thinking block.

use serde_json::Value;
use throughline_canonical::{
    Amount, Delta, Effort, Event, Fault, Loss, LossReason, LossSubject, Lossy, Request,
};

use super::passthrough::Passthrough;
use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::native_turn::NativeForm;
use crate::dialects::profile::Profile;
use crate::dialects::raw_reply::RawShape;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::shared::members::{keep_only, read_count};
use crate::dialects::shared::names;
use crate::dialects::{
    Accepted, ClientDialect, ModelCard, Models, Operation, Outgoing, Refusal, RefusedSetting,
    ReplyIdentity, ReplyReader, ReplyWriter, RequestParts, Session, Target, UpstreamDialect,
};
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};

pub mod client_reply;
mod client_request;
pub mod client_stream;
mod errors;
pub mod model_card;
mod native;
mod passthrough;
mod profile;
pub mod threads;
pub mod upstream_reply;
mod upstream_request;

pub use errors::refusal;
pub use passthrough::{outline, prefix, rewrite, settings};

/// The header that enables preliminary features.
pub const BETA_HEADER: &str = "anthropic-beta";
/// Enables interleaved thinking on older models with manual thinking.
pub const BETA_INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// Lets a request choose what happens to thinking that is bound to another conversation.
pub const BETA_BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";
/// The API version that accepts sampling settings. Later versions reject them.
pub const VERSION_WITH_SAMPLING: &str = "2023-06-01";

/// The dialect's name.
pub const NAME: &str = names::ANTHROPIC;

const PATH: &str = "/v1/messages";
/// The longest tool name.
const MAX_TOOL_NAME: usize = 128;
const PATH_COUNT: &str = "/v1/messages/count_tokens";
/// Members that a request for a token count may have.
const COUNTED: &[&str] =
    &["model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"];

/// The effort levels of this dialect.
const EFFORTS: [Effort; 5] =
    [Effort::Low, Effort::Medium, Effort::High, Effort::XHigh, Effort::Max];

/// The dialect, by way of canonical values.
#[derive(Clone, Copy, Debug)]
pub struct Anthropic;

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH, Operation::Generate), (PATH_COUNT, Operation::CountTokens)],
    members: &[
        (LossSubject::Output, "output_config.format"),
        (LossSubject::Stop, "stop_sequences"),
        (LossSubject::Message, "messages"),
        (LossSubject::MediaFile, "file_id"),
    ],
    reads_errors_of: &[NAME],
    ..ClientDefaults::PLAIN
};

impl ClientDialect for Anthropic {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        client_request::read(parts).map(|read| Accepted::new(read, *self))
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(*self)
    }

    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            // Citations of this dialect have members that only the provider can fill: positions in
            // its input and encrypted data.
            Event::BlockDelta { delta: Delta::Citation(citation), .. }
                if citation.written_by(NAME).is_none() =>
            {
                Some(Loss::of_part(LossSubject::Citations, LossReason::ForeignDialect))
            }
            Event::EndExplained(details) if client_stream::category(details).is_some() => None,
            event => lost_part(event, NAME),
        }
    }

    fn write_fault(&self, fault: &Fault, id: &str) -> (u16, Vec<u8>) {
        client_reply::error(fault, id)
    }

    fn write_models(&self, models: Models<'_>, query: &str) -> Result<Value, Fault> {
        model_card::write(models, query)
    }
}

impl Session for Anthropic {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_stream::StreamWriter::new(identity.model(request), identity))
    }
}

impl UpstreamDialect for Anthropic {
    fn name(&self) -> &'static str {
        NAME
    }

    fn profiles(&self) -> &'static [Profile] {
        &profile::PROFILES
    }

    fn drop_bound(&self, request: &mut Request) {
        upstream_request::drop_bound(request);
    }

    fn interleave(&self, request: &Request, outgoing: &mut Outgoing) {
        interleave(request, outgoing);
    }

    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
        upstream_request::write(request, target)
    }

    fn raw_shape(&self) -> RawShape {
        RawShape::NamedEvents
    }

    fn native_form(&self) -> Option<&'static dyn NativeForm> {
        Some(&native::Blocks)
    }

    fn reply_reader(&self, _: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader> {
        Box::new(match streamed {
            true => upstream_reply::ReplyReader::events(MAX_EVENT_BYTES).complete(),
            false => upstream_reply::ReplyReader::whole(MAX_REPLY_BYTES).complete(),
        })
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        errors::read_fault(status, body)
    }

    fn refusal(&self, status: u16, body: &[u8]) -> Option<Refusal> {
        refusal::classify(status, body)
    }

    fn refused_setting(&self, status: u16, body: &[u8]) -> Option<RefusedSetting> {
        refusal::classify_setting(status, body)
    }

    fn list_query(&self) -> Option<&'static str> {
        Some("limit=1000")
    }

    fn read_models(&self, answer: &Value) -> Vec<ModelCard> {
        model_card::read(answer)
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
        &Anthropic
    }
}

/// Asks for thinking between tool calls only, for models that cannot switch thinking off.
pub fn think_between_tools(request: &mut Request) {
    upstream_request::think_between_tools(request);
}

/// Enables thinking between tool calls for models with a thinking budget.
fn interleave(request: &Request, outgoing: &mut Outgoing) {
    if !matches!(request.thinking.amount, Some(Amount::Budget { .. })) {
        return;
    }
    let mut headers = outgoing.headers.iter_mut();
    match headers.find(|(name, _)| *name == BETA_HEADER) {
        Some((_, betas)) => {
            betas.push(',');
            betas.push_str(BETA_INTERLEAVED);
        }
        None => outgoing.headers.push((BETA_HEADER, BETA_INTERLEAVED.to_owned())),
    }
}

/// Records a loss unless it is there already.
fn record(losses: &mut Vec<Loss>, loss: Loss) {
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

#[cfg(test)]
mod tests;
