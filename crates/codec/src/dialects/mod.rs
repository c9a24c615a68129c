//! One folder for each wire dialect. Adding one is a folder here and its captures in `corpus/`.
//!
//! A dialect has up to four crossings, each one direction and one file: `client_request` and
//! `client_reply` where clients speak it to us, `upstream_request` and `upstream_reply` where we
//! speak it to providers. All cross to or from the canonical vocabulary, never to another dialect.
//! Where client and provider speak the same, nothing crosses: `outline` says where things stand in a
//! request (its shape is in [`places`]), `aside` what of ours may stand in a reply ([`mod@in_place`]).

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};
use throughline_canonical::{
    BlockStart, Delta, EndDetails, EndReason, Event, Fault, Loss, Lossy, Reply, Request,
};

use self::custom_tools::CustomToolFormat;
use self::passthrough::Passthrough;
use self::profile::Profile;

pub mod ag_ui;
pub mod anthropic;
pub mod custom_tools;
mod error_codes;
pub mod events;
mod extensions;
mod frontend_settings;
pub mod gemini;
mod losses;
mod model_card;
pub mod ndjson;
pub mod ollama;
pub mod opaque_outline;
mod openai_annotations;
pub mod openai_chat;
mod openai_models;
pub mod openai_responses;
pub mod passthrough;
pub mod profile;
mod refusal;
pub mod segments;
pub mod ui_stream;

pub use model_card::ModelCard;
pub use refusal::{Refusal, RefusalKind};

/// What is shown in place of reasoning its maker encrypted, where a dialect has nothing but text for
/// it. Display only: it is never sent on.
const NOTICE: &str = "[Some reasoning was hidden for safety reasons]";

/// What stands between two pieces of reasoning that share a place.
const BREAK: &str = "\n\n";

/// The longest name of a tool that OpenAI takes.
const OPENAI_LONGEST_NAME: usize = 64;

/// The dialects clients may speak.
pub static CLIENT: &[&dyn ClientDialect] = &[
    &ag_ui::AgUi,
    &anthropic::Anthropic,
    &events::Events,
    &gemini::Gemini,
    &ndjson::NdJson,
    &ollama::Ollama,
    &openai_chat::OpenAiChat,
    &openai_responses::OpenAiResponses,
    &ui_stream::UiStream,
];
/// The dialects we may speak to providers.
pub static UPSTREAM: &[&dyn UpstreamDialect] = &[
    &anthropic::Anthropic,
    &gemini::Gemini,
    &ollama::Ollama,
    &openai_chat::OpenAiChat,
    &openai_responses::OpenAiResponses,
];

/// The dialect clients speak of this name.
pub fn client(name: &str) -> Option<&'static dyn ClientDialect> {
    CLIENT.iter().copied().find(|dialect| dialect.name() == name)
}

/// The dialect we speak to providers of this name.
pub fn upstream(name: &str) -> Option<&'static dyn UpstreamDialect> {
    UPSTREAM.iter().copied().find(|dialect| dialect.name() == name)
}

/// How requests and replies of this dialect pass in place; `None` where no provider speaks it.
pub fn passthrough(name: &str) -> Option<&'static dyn Passthrough> {
    upstream(name).map(UpstreamDialect::passthrough)
}

/// How the places of requests in this dialect are spelled, also of one that no provider speaks.
pub fn spelling(name: &str) -> &'static dyn Passthrough {
    passthrough(name).unwrap_or(&passthrough::NoPassthrough)
}

/// The operation that a request path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Generate an answer.
    Generate,
    /// Count the tokens of the request.
    CountTokens,
}

/// Models to be told of.
#[derive(Clone, Copy, Debug)]
pub enum Models<'a> {
    /// One.
    One(&'a ModelCard),
    /// All.
    All(&'a [ModelCard]),
}

/// A dialect clients speak to us.
pub trait ClientDialect: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The operation that a path of this dialect names; `None` if the path is unknown.
    fn operation(&self, path: &str) -> Option<Operation>;
    /// The path that asks for an answer, of this model where the path names it.
    fn path_for(&self, model: &str) -> String;
    /// Takes out of a request what speaks to us and not to a provider.
    fn forget_own_members(&self, _: &mut Request) {}
    /// Whether its clients want the first call of a reply signed, and mend it themselves if it is not.
    fn wants_signed_calls(&self) -> bool {
        false
    }
    /// How it writes tools that take free text, if it has any.
    fn free_text(&self) -> Option<&'static CustomToolFormat> {
        None
    }
    /// Whether its clients want a model to think that can, when they say nothing of it.
    fn default_thinking(&self) -> bool {
        false
    }
    /// Whether its clients are shown what a model thinks anyway, when they say nothing of it.
    fn default_show(&self) -> bool {
        false
    }
    /// Whether its clients send the ids of calls back.
    fn returns_call_ids(&self) -> bool {
        true
    }
    /// Why a reply ends at once, where a request asks the model nothing.
    fn immediate_end(&self, _: &Request) -> Option<EndReason> {
        None
    }
    /// What a streamed reply is, as a header says it.
    fn stream_type(&self, _: &Request) -> &'static str {
        "text/event-stream; charset=utf-8"
    }
    /// Headers a streamed reply has besides those every reply has.
    fn stream_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    /// Reads a request. A fault says which member is wrong.
    fn read_request(&self, asked: &RequestParts<'_>) -> Result<Lossy<Request>, Fault>;
    /// Writes the reply to a request that was read.
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter>;
    /// Writes a fault that comes before a reply: the status, and the body. `id` is the request's.
    fn write_fault(&self, fault: &Fault, id: &str) -> (u16, Vec<u8>);
    /// What the body of such a fault is, as a header says it.
    fn fault_type(&self) -> &'static str {
        "application/json"
    }
    /// Whether a provider of this dialect lists its models as clients of this one read it.
    fn lists_as(&self, upstream: &str) -> bool {
        self.name() == upstream
    }
    /// Writes one model, or the list of all, or the part of it that a query asks for; dialects without a
    /// word for it say it as OpenAI does.
    fn write_models(&self, models: Models<'_>, _query: &str) -> Result<Value, Fault> {
        Ok(openai_models::write(models))
    }
    /// Writes how many tokens a request has.
    fn write_count(&self, tokens: u64) -> Vec<u8> {
        format!("{{\"input_tokens\":{tokens}}}").into_bytes()
    }
    /// What of an event the writer of replies leaves out.
    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        lost_part(event, self.name())
    }
}

impl fmt::Debug for dyn ClientDialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A dialect we speak to providers.
pub trait UpstreamDialect: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What the gateway has to know about a variant of it.
    fn profile(&self, variant: &str) -> &'static Profile;
    /// Writes a request for a target. What has no place there is a loss.
    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing>;
    /// Reads the reply to a request that was written for this target.
    fn reply_reader(&self, target: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader>;
    /// Reads an error that comes in place of a reply.
    fn read_fault(&self, status: u16, body: &[u8]) -> Fault;
    /// What an error says of the thinking in a request; none if it is about something else. The same
    /// request with less of it may pass.
    fn refusal(&self, _status: u16, _body: &[u8]) -> Option<Refusal> {
        None
    }
    /// Whether an error says that the model does not think, and was asked to.
    fn cannot_think(&self, _status: u16, _body: &[u8]) -> bool {
        false
    }
    /// The header that carries a key.
    fn key_header(&self, key: &str, variant: &str) -> (&'static str, String);
    /// Writes a request for a count of tokens; `None` where providers do not count.
    fn write_count(&self, _: &Request, _: &Target<'_>) -> Option<Lossy<Outgoing>> {
        None
    }
    /// Reads a count of tokens.
    fn read_count(&self, _: &[u8]) -> Option<u64> {
        None
    }
    /// Whether the path names the model, and not the body.
    fn names_model_in_path(&self) -> bool {
        false
    }
    /// The path where providers list their models.
    fn models_path(&self, variant: &str) -> String;
    /// What such a request asks for, so that nothing is left for a second page.
    fn list_query(&self) -> Option<&'static str> {
        None
    }
    /// Headers such a request needs.
    fn list_headers(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
    /// Reads such a list, or one model out of it.
    fn read_models(&self, answer: &Value) -> Vec<ModelCard>;
    /// How requests and replies pass where the client speaks it too; by default none does.
    fn passthrough(&self) -> &'static dyn Passthrough {
        &passthrough::NoPassthrough
    }
    /// Whether its models sign calls, and refuse them without. Readers tell such a signature directly
    /// behind the start of its call.
    fn signs_calls(&self, _variant: &str) -> bool {
        false
    }
    /// How long the name of a tool may be that the provider would refuse; none for one it takes.
    fn max_tool_name(&self, _variant: &str, _name: &str) -> Option<usize> {
        None
    }
    /// The tags between which thoughts stand in the text of a reply, where they were asked to be shown.
    fn thinking_tags(&self, _variant: &str) -> Option<&'static str> {
        None
    }
    /// Whether the text of a reply may be what the model wrote, with reasoning and calls inside.
    fn has_raw_text(&self, _variant: &str) -> bool {
        false
    }
}

impl fmt::Debug for dyn UpstreamDialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What of an event most writers leave out: what has a word in another dialect alone.
fn lost_part(event: &Event<'_>, own: &str) -> Option<Loss> {
    match event {
        Event::BlockStarted { block: BlockStart::Opaque { dialect, name }, .. }
            if dialect != own =>
        {
            Some(Loss::of_part(name, "foreign_dialect"))
        }
        Event::BlockDelta { delta: Delta::Citation(citation), .. }
            if citation.written_by(own).is_none() =>
        {
            match (&citation.url, &citation.quote) {
                (None, _) => Some(Loss::of_part("citations", "foreign_dialect")),
                (Some(_), Some(_)) => Some(Loss::of_part("citations.quote", "no_word")),
                (Some(_), None) => None,
            }
        }
        Event::EndExplained(EndDetails { category: Some(_), .. }) => {
            Some(Loss::of_part("stop_details.category", "no_word"))
        }
        _ => None,
    }
}

/// Tells what went wrong with a reply, which is its end, unless that was told.
fn fail_once(ended: &mut bool, fault: Fault, out: &mut dyn FnMut(Event<'_>)) {
    if std::mem::replace(ended, true) {
        return;
    }
    out(Event::Fault(fault));
    out(Event::Ended { reason: EndReason::Failed });
}

/// Whether a reply that ended for this reason may have ended in the middle of a call.
fn may_cut_a_call(reason: &EndReason) -> bool {
    matches!(reason, EndReason::Length | EndReason::Refusal | EndReason::StopSequence)
}

/// How most providers take a key.
fn bearer(key: &str) -> (&'static str, String) {
    ("authorization", format!("Bearer {key}"))
}

/// Takes members of a dialect out of a request.
fn forget(request: &mut Request, dialect: &str, members: &[&str]) {
    if let Some(extra) = request.extra.get_mut(dialect) {
        extra.retain(|name, _| !members.contains(&name.as_str()));
        if extra.is_empty() {
            request.extra.remove(dialect);
        }
    }
}

/// A body with these members of another, in its order.
fn only_members(body: &[u8], wanted: &[&str]) -> Vec<u8> {
    let mut members: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
    members.retain(|name, _| wanted.contains(&name.as_str()));
    Value::Object(members).to_string().into_bytes()
}

/// A number in a body.
fn read_member(body: &[u8], name: &str) -> Option<u64> {
    let value: Value = serde_json::from_slice(body).ok()?;
    value.get(name)?.as_u64()
}

/// What a client sent.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'a> {
    /// The path, which names the model in some dialects.
    pub path: &'a str,
    /// What stands behind its `?`.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// What a reply of ours bears. Neither clock nor dice live in this crate.
#[derive(Clone, Debug)]
pub struct ReplyIdentity {
    /// Letters and digits no other reply has.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
}

/// Writes a reply, event by event.
pub trait ReplyWriter: Send {
    /// Writes the next event of a streamed reply.
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>);
    /// Writes a sign of life that no client mistakes for part of the reply; nothing, where there is
    /// none.
    fn keep_alive(&mut self, out: &mut Vec<u8>);
    /// Writes a sign of life after nothing was said for so long, which some dialects tell.
    fn wait(&mut self, _silent: Duration, out: &mut Vec<u8>) {
        self.keep_alive(out);
    }
    /// Writes a whole reply. One with a fault is for [`ClientDialect::write_fault`].
    fn whole(&self, reply: &Reply) -> Vec<u8>;
}

/// Whether the name of a tool has only letters, digits, `_` and `-`, and not too many.
fn is_plain_name(name: &str, longest: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=longest).contains(&name.len()) && name.bytes().all(plain)
}

/// Where a request goes.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The model, as the provider calls it.
    pub model: &'a str,
    /// Which of the dialect's variants the provider speaks; empty for the dialect itself.
    pub variant: &'a str,
}

/// A request that is ready to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The path behind the provider's base address.
    pub path: String,
    /// What stands behind its `?`; empty for nothing.
    pub query: String,
    /// Headers this request needs besides those every request has.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Reads a reply, in whatever pieces it arrives.
pub trait ReplyReader: Send {
    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8], out: &mut dyn FnMut(Event<'_>));
    /// The bytes have ended. Tells the end, if that was not told.
    fn finish(&mut self, out: &mut dyn FnMut(Event<'_>));
    /// Whether the thinking it told is the provider's summary of it; `None` where the wire does not
    /// say.
    fn summarizes(&self) -> Option<bool> {
        None
    }
    /// Whether the reply had reasoning in a field of its own, although its text may be a model's raw text.
    fn separates_reasoning(&self) -> bool {
        false
    }
    /// Losses found while reading.
    fn losses(&self) -> &[Loss] {
        &[]
    }
}
