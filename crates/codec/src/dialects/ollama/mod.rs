//! Ollama's own dialect: `/api/chat`, and `/api/generate` for single prompts. Replies are lines of JSON,
//! the arguments of calls are objects, and nothing is signed.
//!
//! - `client_request` reads a client's request, `client_reply` writes the reply;
//! - `upstream_request` writes a request for a provider, `upstream_reply` reads the reply;
//! - [`model_card`], `errors`: the model list and errors, both ways.
//!
//! Servers of this dialect may send raw model output, which must be parsed. So replies are always
//! translated and never pass through.

use serde_json::Value;
use throughline_canonical::{
    Delta, Effort, EndReason, Event, Fault, Loss, LossReason, LossSubject, Lossy, Request,
};

use crate::dialects::client_defaults::ClientDefaults;
use crate::dialects::profile::Profile;
use crate::dialects::raw_reply::RawShape;
use crate::dialects::shared::losses::lost_part;
use crate::dialects::shared::{openai_errors, refused_setting};
use crate::dialects::{
    Accepted, ClientDialect, ModelCard, Models, Operation, Outgoing, RefusedSetting, ReplyIdentity,
    ReplyReader, ReplyWriter, RequestParts, Session, Target, UpstreamDialect,
};

mod client_reply;
mod client_request;
mod errors;
pub mod model_card;
mod profile;
mod upstream_reply;
mod upstream_request;

#[cfg(test)]
mod tests;

/// The dialect's name.
pub const NAME: &str = "ollama";

/// The version of the server that this dialect imitates. Clients check it before they use newer
/// features.
pub const VERSION: &str = "0.13.0";

const PATH_CHAT: &str = "/api/chat";
const PATH_GENERATE: &str = "/api/generate";

/// The default tag that clients append to model names.
const LATEST: &str = ":latest";

/// The effort levels of this dialect.
pub const LEVELS: [Effort; 4] = [Effort::Low, Effort::Medium, Effort::High, Effort::Max];

/// Options that the canonical request has a field for.
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

/// Paths of this dialect about models or the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// All models.
    Tags,
    /// One model.
    Show,
    /// The models that are loaded.
    Running,
    /// The version of the server.
    Version,
}

impl Endpoint {
    /// The endpoint at a path.
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

static DEFAULTS: ClientDefaults = ClientDefaults {
    name: NAME,
    paths: &[(PATH_CHAT, Operation::Generate), (PATH_GENERATE, Operation::Generate)],
    thinks: true,
    returns_call_ids: false,
    members: &[(LossSubject::Output, "format"), (LossSubject::Stop, "options.stop")],
    reads_errors_of: &[NAME],
    ..ClientDefaults::PLAIN
};

impl ClientDialect for Ollama {
    fn defaults(&self) -> &'static ClientDefaults {
        &DEFAULTS
    }

    fn read_request(&self, parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
        client_request::read(parts)
    }

    fn session(&self) -> Box<dyn Session> {
        Box::new(OllamaSession::default())
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
                Some(Loss::of_part(LossSubject::Citations, LossReason::NoWord))
            }
            event => lost_part(event, NAME),
        }
    }
}

/// What the reply has to know about a request.
#[derive(Debug, Default)]
struct OllamaSession {
    /// The request came to `/api/generate`; the client reads `response`.
    generates: bool,
    /// The client's name of the model, if it has the default tag.
    tagged_model: Option<String>,
    /// The end of the reply to a request that only loads or unloads the model.
    end: Option<&'static str>,
}

impl Session for OllamaSession {
    fn reply_writer(&self, request: &Request, identity: &ReplyIdentity) -> Box<dyn ReplyWriter> {
        Box::new(client_reply::Writer::new(request, self, identity))
    }

    fn stream_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn immediate_end(&self) -> Option<EndReason> {
        self.end.map(|word| EndReason::Other(word.to_owned()))
    }
}

impl UpstreamDialect for Ollama {
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
        RawShape::Lines
    }

    fn reply_reader(&self, _: &Target<'_>, streamed: bool) -> Box<dyn ReplyReader> {
        Box::new(upstream_reply::Reader::new(streamed))
    }

    fn read_fault(&self, status: u16, body: &[u8]) -> Fault {
        openai_errors::read(status, body)
    }

    fn refused_setting(&self, status: u16, body: &[u8]) -> Option<RefusedSetting> {
        let message = self.read_fault(status, body).message;
        refused_setting::in_ollama_text(&message).filter(|_| status == 400)
    }

    fn read_models(&self, answer: &Value) -> Vec<ModelCard> {
        model_card::read(answer)
    }
}
