//! One folder per wire dialect.
//!
//! A dialect has up to four crossings, each in a file of that name: `client_request` and `client_reply`
//! where clients speak it to us, `upstream_request` and `upstream_reply` where we speak it to providers.
//! Each crossing translates to or from the canonical vocabulary, never to another dialect. Where client
//! and provider speak the same dialect, nothing is translated: `passthrough` finds the few spans that
//! change in a request and the few bytes of ours that may enter a reply (see [`mod@passthrough`] and
//! [`opaque_outline`]).
//!
//! Folders do not import from each other. Readers and writers that several dialects need are in
//! `shared`. To add a dialect: add its folder, its row in [`CLIENT`] or [`UPSTREAM`], and its captures in
//! `corpus/`.

use std::fmt;
use std::time::Duration;

use serde_json::Value;
use throughline_canonical::{
    BlockReport, EndReason, Event, Fault, Loss, Lossy, Out, Reply, Request,
};

use self::client_defaults::ClientDefaults;
use self::native_turn::NativeForm;
use self::passthrough::{Passthrough, ReplyRepair};
use self::profile::Profile;
use self::raw_reply::RawShape;
use self::shared::{losses, openai_models};

pub mod ag_ui;
pub mod anthropic;
pub mod blocks;
pub mod cache_breakpoints;
pub mod client_defaults;
pub mod client_headers;
pub mod compaction;
pub mod content_blocks;
pub mod events;
pub mod gemini;
pub mod model_paths;
pub mod native_turn;
pub mod ndjson;
pub mod ollama;
pub mod opaque_outline;
pub mod openai_chat;
pub mod openai_responses;
pub mod passthrough;
pub mod profile;
pub mod raw_reply;
pub mod request_shape;
pub mod resumable;
pub(crate) mod shared;
pub mod stored;
pub mod ui_stream;

/// A signature that says "made elsewhere". Providers that sign tool calls accept it in place of their own.
pub use gemini::SKIP_SIGNATURE;
pub use shared::fault_status::status as fault_status;
pub use shared::model_card::{Abilities, ModelCard, ModelDetailsFormat};
pub use shared::refusal::{Refusal, RefusalKind};
pub use shared::refused_setting::RefusedSetting;
pub use shared::reply_end::fault_of_end;
pub use shared::{arguments, custom_tools, segments, timestamp};

/// The dialects that clients may speak.
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

/// The dialects that we may speak to providers.
pub static UPSTREAM: &[&dyn UpstreamDialect] = &[
    &anthropic::Anthropic,
    &gemini::Gemini,
    &ollama::Ollama,
    &openai_chat::OpenAiChat,
    &openai_responses::OpenAiResponses,
];

/// Finds a client dialect by its name.
pub fn client(name: &str) -> Option<&'static dyn ClientDialect> {
    CLIENT.iter().copied().find(|dialect| dialect.name() == name)
}

/// Finds an upstream dialect by its name.
pub fn upstream(name: &str) -> Option<&'static dyn UpstreamDialect> {
    UPSTREAM.iter().copied().find(|dialect| dialect.name() == name)
}

/// The passthrough of a dialect; `None` if no provider speaks it.
pub fn passthrough(name: &str) -> Option<&'static dyn Passthrough> {
    upstream(name).map(UpstreamDialect::passthrough)
}

/// The passthrough that spells block paths of this dialect, also if no provider speaks it.
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

/// The models that an answer lists.
#[derive(Clone, Copy, Debug)]
pub enum Models<'a> {
    /// One model.
    One(&'a ModelCard),
    /// All models.
    All(&'a [ModelCard]),
}

/// A dialect that clients speak to us.
pub trait ClientDialect: Sync {
    /// What the gateway has to know about it.
    fn defaults(&self) -> &'static ClientDefaults;
    /// The name in paths of the corpus, in configuration and in reports.
    fn name(&self) -> &'static str {
        self.defaults().name
    }
    /// The operation that a path of this dialect names; `None` if the path is unknown.
    fn operation(&self, path: &str) -> Option<Operation> {
        let mut paths = self.defaults().paths.iter();
        paths.find(|(known, _)| *known == path).map(|(_, operation)| *operation)
    }
    /// The path for [`Operation::Generate`]; it names the model in some dialects.
    fn path_for(&self, _model: &str) -> String {
        self.defaults().paths.first().map(|(path, _)| (*path).to_owned()).unwrap_or_default()
    }
    /// Reads a request. A fault names the wrong member.
    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault>;
    /// The session of a request that this dialect has not read, such as a canonical one.
    fn session(&self) -> Box<dyn Session>;
    /// Writes a fault that replaces a reply: the status and the body. `id` is the id of the request.
    fn write_fault(&self, fault: &Fault, id: &str) -> (u16, Vec<u8>);
    /// Whether clients of this dialect can read the model list of this upstream dialect as it is.
    fn lists_as(&self, upstream: &str) -> bool {
        self.name() == upstream
    }
    /// Writes one model, the list of models, or the page of it that the query asks for. Dialects without
    /// a model list use OpenAI's form.
    fn write_models(&self, models: Models<'_>, _query: &str) -> Result<Value, Fault> {
        Ok(openai_models::write(models))
    }
    /// Writes the answer to [`Operation::CountTokens`].
    fn write_count(&self, tokens: u64) -> Vec<u8> {
        format!("{{\"input_tokens\":{tokens}}}").into_bytes()
    }
    /// The loss, if the reply writer cannot express this event.
    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        losses::lost_part(event, self.name())
    }
}

impl fmt::Debug for dyn ClientDialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A dialect that we speak to providers.
pub trait UpstreamDialect: Sync {
    /// The name in paths of the corpus, in configuration and in reports.
    fn name(&self) -> &'static str;
    /// What the gateway has to know about its variants. The first one is the default.
    fn profiles(&self) -> &'static [Profile];
    /// The profile of the variant with this name; the default if there is none.
    fn profile(&self, variant: &str) -> &'static Profile {
        let profiles = self.profiles();
        profiles.iter().find(|profile| profile.name == variant).unwrap_or(&profiles[0])
    }
    /// The profile of the same server with this member for reasoning, if only its name differs.
    fn with_member(&self, profile: &'static Profile, _member: &str) -> &'static Profile {
        profile
    }
    /// Writes a request for a target. Parts that the target cannot express are losses.
    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing>;
    /// Asks the provider to drop thinking that is bound to another conversation instead of failing.
    fn drop_bound(&self, _: &mut Request) {}
    /// Enables thinking between tool calls for models with a thinking budget.
    fn interleave(&self, _: &Request, _: &mut Outgoing) {}
    /// The shape in which stored conversations keep replies as they were captured.
    fn raw_shape(&self) -> RawShape;
    /// How the parts of a turn go back to their maker as it wrote them; `None` if blocks have all of
    /// them.
    fn native_form(&self) -> Option<&'static dyn NativeForm> {
        None
    }
    /// Returns a reader for the reply of this target.
    fn reply_reader(&self, target: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader>;
    /// Reads an error that arrives instead of a reply.
    fn read_fault(&self, status: u16, body: &[u8]) -> Fault;
    /// Recognises an error that rejects thinking in the request; `None` for other errors. The request may
    /// succeed with less thinking in it.
    fn refusal(&self, _status: u16, _body: &[u8]) -> Option<Refusal> {
        None
    }
    /// Recognises an error that says that the provider does not have the reply any more from which the
    /// request continues.
    fn has_lost_reply(&self, _status: u16, _body: &[u8]) -> bool {
        false
    }
    /// Recognises an error that rejects the thinking setting of the request; `None` for other errors.
    fn refused_setting(&self, _status: u16, _body: &[u8]) -> Option<RefusedSetting> {
        None
    }
    /// Writes a request that counts tokens; `None` if providers of this dialect cannot count.
    fn write_count(&self, _: &Request, _: &Target<'_>) -> Option<Lossy<Outgoing>> {
        None
    }
    /// Reads the answer to such a request.
    fn read_count(&self, _: &[u8]) -> Option<u64> {
        None
    }
    /// The query that gets the whole list in one page.
    fn list_query(&self) -> Option<&'static str> {
        None
    }
    /// Reads a model list, or a single model.
    fn read_models(&self, answer: &Value) -> Vec<ModelCard>;
    /// How requests and replies pass unchanged between client and provider of this dialect.
    fn passthrough(&self) -> &'static dyn Passthrough {
        &passthrough::NoPassthrough
    }
}

impl fmt::Debug for dyn UpstreamDialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The parts of a client's HTTP request that a dialect reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestParts<'a> {
    /// The path, which names the model in some dialects.
    pub path: &'a str,
    /// The query without the `?`.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// How deep the body may nest. `None` if that was checked before.
    pub max_depth: Option<usize>,
}

/// A request that a client dialect has read.
#[derive(Debug)]
pub struct Accepted {
    /// The request. Its `extra` has only members that are meant for a provider.
    pub request: Request,
    /// The losses found while reading.
    pub losses: Vec<Loss>,
    /// Thinking of the conversation that is not in the request.
    pub left_out: Vec<BlockReport>,
    /// What only the reply has to know about the request.
    pub session: Box<dyn Session>,
}

impl Accepted {
    /// Combines a request with its session.
    pub fn new(read: Lossy<Request>, session: impl Session + 'static) -> Self {
        Self {
            request: read.value,
            losses: read.losses,
            left_out: Vec::new(),
            session: Box::new(session),
        }
    }

    /// Returns a writer for the reply.
    pub fn reply_writer(&self, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        self.session.reply_writer(&self.request, identity)
    }
}

/// What a client dialect knows about a request and only its reply needs. It is private to the
/// dialect, so it has no canonical form.
pub trait Session: fmt::Debug + Send + Sync {
    /// Returns a writer for the reply to the request of this session.
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter>;
    /// The `content-type` of a streamed reply.
    fn stream_type(&self) -> &'static str {
        "text/event-stream; charset=utf-8"
    }
    /// Completes the reply of a server of this dialect that leaves out what its clients require.
    /// `first` is the data of the first event, or a whole reply. `None` if nothing is missing.
    fn repair(
        &self,
        _request: &Request,
        _identity: &ReplyIdentity,
        _first: &[u8],
    ) -> Option<Box<dyn ReplyRepair>> {
        None
    }
    /// The client's id of the run that the request starts, in dialects where clients name runs.
    fn run_name(&self) -> Option<&str> {
        None
    }
    /// The end of the reply to a request that asks the model nothing; `None` for all other requests.
    fn immediate_end(&self) -> Option<EndReason> {
        None
    }
}

/// The parts of a reply that the caller supplies, because this crate has neither clock, randomness
/// nor configuration.
#[derive(Clone, Debug)]
pub struct ReplyIdentity {
    /// A unique id of letters and digits.
    pub id: String,
    /// Unix time in seconds.
    pub created: u64,
    /// Reads the clock, in the same unit. Some dialects also write when a reply ended.
    pub now: fn() -> u64,
    /// The model that the reply names if the request names none.
    pub model: String,
    /// The members that carry reasoning as plain text, in dialects that have several.
    pub reasoning_fields: Vec<String>,
}

impl ReplyIdentity {
    /// An identity with the default members for reasoning. Its clock stands still.
    pub fn new(id: impl Into<String>, created: u64) -> Self {
        Self {
            id: id.into(),
            created,
            now: || 0,
            model: String::new(),
            reasoning_fields: ["reasoning", "reasoning_content"].map(str::to_owned).to_vec(),
        }
    }

    /// The model that the reply to this request names.
    fn model<'a>(&'a self, request: &'a Request) -> &'a str {
        if request.model.is_empty() { &self.model } else { &request.model }
    }
}

/// Writes a reply, event by event.
pub trait ReplyWriter: Send {
    /// Writes the next event of a streamed reply.
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>);
    /// Writes a keep-alive that clients ignore; nothing if the dialect has none.
    fn keep_alive(&mut self, out: &mut Vec<u8>);
    /// Writes a keep-alive after a silence of this length, which some dialects report.
    fn wait(&mut self, _silent: Duration, out: &mut Vec<u8>) {
        self.keep_alive(out);
    }
    /// Writes what comes before the first event, in dialects that can. The first event writes it too.
    fn begin(&mut self, _out: &mut Vec<u8>) {}
    /// Writes that a silence, which [`ReplyWriter::wait`] has reported, is over. The next event says it
    /// too.
    fn settle(&mut self, _out: &mut Vec<u8>) {}
    /// Says the number of the next event, for dialects whose replies have numbers. Without this, they
    /// count what they write.
    fn number(&mut self, _number: u64) {}
    /// Takes an event that the client does not want to see, but which the end of the reply reports.
    fn omit(&mut self, _event: &Event<'_>) {}
    /// Writes a whole reply. Use [`ClientDialect::write_fault`] for one with a fault.
    fn whole(&self, reply: &Reply) -> Vec<u8>;
}

/// The model and provider that a request goes to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The provider's name of the model.
    pub model: &'a str,
    /// The variant of the dialect that the provider speaks.
    pub profile: &'static Profile,
}

/// A request that is ready to send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The path, relative to the provider's base address.
    pub path: String,
    /// The query without the `?`; may be empty.
    pub query: String,
    /// Headers that only this request needs.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Reads a reply in pieces of any size.
pub trait ReplyReader: Send {
    /// Reads the next bytes.
    fn push(&mut self, bytes: &[u8], out: Out<'_>);
    /// Ends the input. Emits [`Event::Ended`] if the reply has not emitted it.
    fn finish(&mut self, out: Out<'_>);
    /// Whether the thinking is a summary made by the provider; `None` if the wire does not say.
    fn summarizes(&self) -> Option<bool> {
        None
    }
    /// Whether the reply had reasoning in its own field, although its text may be raw model output.
    fn separates_reasoning(&self) -> bool {
        false
    }
    /// Whether the provider says that it stores the reply.
    fn is_stored(&self) -> bool {
        false
    }
    /// The member that held the reasoning, if servers differ in its name. `None` if the reply had
    /// none, or several.
    fn reasoning_member(&self) -> Option<&'static str> {
        None
    }
}
