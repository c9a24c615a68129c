//! Ollama's own dialect: `/api/chat`, and `/api/generate` for single questions. Replies are lines of
//! JSON, arguments of calls are objects, and nothing is signed.
//!
//! - `client_request` and `client_messages`: what a client asks;
//! - `client_reply`: the reply a client gets, in lines or in one piece;
//! - `upstream_request` and `upstream_messages`: what we ask a provider;
//! - `upstream_reply`: a provider's reply, as canonical events;
//! - [`model_card`]: what is told of models, both ways;
//! - `faults`: errors, both ways; `moment`: when a reply was made.
//!
//! A server of this dialect may hand on the text of a model as that wrote it, so its replies are read
//! to the last word and written anew: nothing passes in place.

use serde_json::Value;
use throughline_canonical::{Delta, Effort, EndReason, Event, Fault, Loss, Lossy, Request};

use crate::dialects::shared::key_header::bearer;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::shared::members::remove_own;
use crate::dialects::shared::openai_errors;
use crate::dialects::{
    ClientDialect, ModelCard, Models, Operation, Outgoing, ReplyIdentity, ReplyReader, ReplyWriter,
    RequestParts, Target, UpstreamDialect,
};

mod client_messages;
mod client_reply;
mod client_request;
mod errors;
pub mod model_card;
mod timestamp;
mod upstream_messages;
mod upstream_reply;
mod upstream_request;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = "ollama";

/// The version of the server whose habits are told here. Clients look at it before they use newer ones.
pub const VERSION: &str = "0.13.0";

const PATH_CHAT: &str = "/api/chat";
const PATH_GENERATE: &str = "/api/generate";

/// What clients put behind the name of a model for which no tag was chosen.
const LATEST: &str = ":latest";

/// How much thinking can be asked for.
pub const LEVELS: [Effort; 4] = [Effort::Low, Effort::Medium, Effort::High, Effort::Max];

/// Options that have a word in the vocabulary.
const OPTIONS: &[&str] = &[
    "num_predict",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
];

/// Members of `request.extra["ollama"]` that speak to us, not to a provider.
mod ours {
    /// The client asked a single question, and reads `response`.
    pub(super) const GENERATE: &str = "throughline_generate";
    /// The model, as the client calls it.
    pub(super) const ASKED_MODEL: &str = "throughline_model";
    /// Nothing is asked: the model is to be loaded, or unloaded.
    pub(super) const WAKES: &str = "throughline_wakes";
}

/// What of this dialect's paths tells of models or of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// All models.
    Tags,
    /// One model.
    Show,
    /// The models that are loaded.
    Running,
    /// The server's version.
    Version,
}

impl Page {
    /// The page at a path.
    pub fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/api/tags" => Self::Tags,
            "/api/show" => Self::Show,
            "/api/ps" => Self::Running,
            "/api/version" => Self::Version,
            _ => return None,
        })
    }
}

/// The dialect.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ollama;

impl ClientDialect for Ollama {
    fn name(&self) -> &'static str {
        NAME
    }

    fn operation(&self, path: &str) -> Option<Operation> {
        matches!(path, PATH_CHAT | PATH_GENERATE).then_some(Operation::Generate)
    }

    fn path_for(&self, _: &str) -> String {
        PATH_CHAT.to_owned()
    }

    fn forget_own_members(&self, request: &mut Request) {
        let own = [ours::GENERATE, ours::ASKED_MODEL, ours::WAKES];
        remove_own(request, NAME, &own);
    }

    fn default_thinking(&self) -> bool {
        true
    }

    fn returns_call_ids(&self) -> bool {
        false
    }

    fn immediate_end(&self, request: &Request) -> Option<EndReason> {
        let word = request.extra.get(NAME)?.get(ours::WAKES)?.as_str()?;
        Some(EndReason::Other(word.to_owned()))
    }

    fn stream_type(&self, _: &Request) -> &'static str {
        "application/x-ndjson"
    }

    fn read_request(&self, asked: &RequestParts<'_>) -> Result<Lossy<Request>, Fault> {
        client_request::read(asked)
    }

    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, identity))
    }

    fn write_fault(&self, fault: &Fault, _: &str) -> (u16, Vec<u8>) {
        errors::write(fault)
    }

    fn write_models(&self, models: Models<'_>, _: &str) -> Result<Value, Fault> {
        Ok(model_card::write(models))
    }

    fn loss_of(&self, event: &Event<'_>) -> Option<Loss> {
        match event {
            Event::BlockDelta { delta: Delta::Citation(_), .. } => {
                Some(Loss::of_part("citations", "no_word"))
            }
            event => lost_part(event, NAME),
        }
    }
}

impl UpstreamDialect for Ollama {
    fn name(&self) -> &'static str {
        NAME
    }

    fn write_request(&self, request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
        upstream_request::write(request, target)
    }

    fn reply_reader(&self, _: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader> {
        Box::new(upstream_reply::Reader::new(streamed))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        openai_errors::read(status, body)
    }

    fn cannot_think(&self, status: u16, body: &[u8]) -> bool {
        status == 400 && openai_errors::says_cannot_think(&self.read_fault(status, body).message)
    }

    fn models_path(&self, _: &str) -> String {
        "/api/tags".to_owned()
    }

    fn read_models(&self, answer: &Value) -> Vec<ModelCard> {
        model_card::read(answer)
    }

    fn key_header(&self, key: &str, _: &str) -> (&'static str, String) {
        bearer(key)
    }

    fn has_raw_text(&self, _: &str) -> bool {
        true
    }
}
