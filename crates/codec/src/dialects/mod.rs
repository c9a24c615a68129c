//! One folder for each wire dialect. Adding one is a folder here and its captures in `corpus/`.
//!
//! A dialect has up to four crossings, each one direction and one file: `client_request` and
//! `client_reply` where clients speak it to us, `upstream_request` and `upstream_reply` where we
//! speak it to providers. All cross to or from the canonical vocabulary, never to another dialect.

use throughline_canonical::{Event, Fault, Lossy, Reply, Request};

pub mod anthropic;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;

/// The dialects clients may speak.
pub static CLIENT: &[&dyn ClientDialect] = &[
    &anthropic::Anthropic,
    &gemini::Gemini,
    &openai_chat::OpenAiChat,
    &openai_responses::OpenAiResponses,
];
/// The dialects we may speak to providers.
pub static UPSTREAM: &[&dyn UpstreamDialect] = &[
    &anthropic::Anthropic,
    &gemini::Gemini,
    &openai_chat::OpenAiChat,
    &openai_responses::OpenAiResponses,
];

/// A dialect clients speak to us.
pub trait ClientDialect: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Reads a request. A fault says which member is wrong.
    fn read_request(&self, asked: &Asked<'_>) -> Result<Lossy<Request>, Fault>;
    /// Writes the reply to a request that was read.
    fn reply_writer(&self, request: &Request, stamp: &Stamp) -> Box<dyn ReplyWriter>;
    /// Writes a fault that comes before a reply: the status, and the body.
    fn write_fault(&self, fault: &Fault) -> (u16, Vec<u8>);
}

/// A dialect we speak to providers.
pub trait UpstreamDialect: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// Writes a request for a target. What has no place there is a loss.
    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing>;
    /// Reads the reply to a request that was written for this target.
    fn reply_reader(&self, target: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader>;
    /// Reads an error that comes in place of a reply.
    fn read_fault(&self, status: u16, body: &[u8]) -> Fault;
}

/// What a client sent.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The path, which names the model in some dialects.
    pub path: &'a str,
    /// What stands behind its `?`.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
}

/// What a reply of ours bears. Neither clock nor dice live in this crate.
#[derive(Clone, Debug)]
pub struct Stamp {
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
    /// Writes a whole reply. One with a fault is for [`ClientDialect::write_fault`].
    fn whole(&self, reply: &Reply) -> Vec<u8>;
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
}
