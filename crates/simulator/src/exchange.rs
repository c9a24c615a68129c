//! One exchange, in any dialect: the control headers of the request, the scenario's step for it,
//! and the delivery of the reply with its faults.
//!
//! A handler opens an exchange, applies the scenario, validates the request and delivers the reply.
//! The dialect decides what the reply says and what is refused.

use std::cell::Cell;
use std::num::ParseIntError;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use crate::dialect::Dialect;
use crate::fault::{self, Fault, Frame};
use crate::prompt_cache::{CacheUse, Caching, PromptPart};
use crate::refusal::Refusal;
use crate::replay::{self, Replay, ReplayFormat};
use crate::scenario::{Scenario, Step};
use crate::script::Piece;
use crate::signing::{Hash, Signer, hash};
use crate::style::SignatureStyle;
use crate::{Simulator, delivery};

/// In a reply that is not a stream, faults count each slice of this size as one event.
const JSON_EVENT_BYTES: usize = 32;

/// A request that is being answered.
pub(crate) struct Exchange<'a> {
    simulator: &'a Simulator,
    dialect: &'static Dialect,
    controls: ControlHeaders,
    step: Option<Step>,
    /// What the step says to this conversation.
    scripted_pieces: Option<Vec<Piece>>,
    /// The credentials of the request. Each has a prompt cache of its own.
    account: Hash,
    cache_use: Cell<Option<CacheUse>>,
}

/// The parts of a request that a scenario's `when` is compared with.
pub(crate) struct ScenarioInput {
    pub(crate) model: String,
    /// All text of the user's last entries, tool results included.
    pub(crate) text: String,
    /// Everything the model reads: the texts and the JSON of all entries, stored ones included.
    pub(crate) conversation: String,
}

/// The body of a reply.
pub(crate) enum Content {
    /// A stream of events.
    Events(Vec<Frame>),
    /// A stream of lines.
    Lines(Vec<Frame>),
    /// One document.
    Json(Bytes),
    /// One document that is sent piece by piece, and the bytes that end it on an error fault.
    JsonInParts { parts: Vec<Frame>, error: Bytes },
}

impl<'a> Exchange<'a> {
    /// Reads the control headers.
    pub(crate) fn open(
        simulator: &'a Simulator,
        dialect: &'static Dialect,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        Ok(Self {
            simulator,
            dialect,
            controls: ControlHeaders::read(headers)?,
            step: None,
            scripted_pieces: None,
            account: account(headers),
            cache_use: Cell::new(None),
        })
    }

    /// Takes the scenario's step, waits for a head delay, and refuses if a fault asks for a status.
    pub(crate) async fn apply_scenario(
        &mut self,
        input: impl FnOnce() -> ScenarioInput,
    ) -> Result<(), Refusal> {
        if let Some(progress) = &self.simulator.scenario {
            let input = input();
            self.step = progress.next(&input.model, &input.text);
            let pieces = self.step.as_ref().map(|step| step.pieces(&input.conversation));
            self.scripted_pieces = pieces.flatten();
        }
        if let Some(step) = &self.step {
            self.controls.faults.extend(step.faults.iter().cloned());
            self.controls.style = self.controls.style.or(step.signature);
        }
        for fault in &self.controls.faults {
            if let Fault::HeadDelay(time) = fault {
                tokio::time::sleep(*time).await;
            }
        }
        self.refuse_on_demand()
    }

    /// Refuses if a fault asks for a status. `apply_scenario` includes this check; call it directly
    /// only for endpoints without a scenario.
    pub(crate) fn refuse_on_demand(&self) -> Result<(), Refusal> {
        for fault in &self.controls.faults {
            if let Fault::Status { code, retry_after } = fault {
                return Err(Refusal::on_demand(self.dialect, *code, *retry_after));
            }
        }
        Ok(())
    }

    pub(crate) fn simulator(&self) -> &'a Simulator {
        self.simulator
    }

    pub(crate) fn signer(&self) -> &'a Signer {
        &self.simulator.signer
    }

    /// The scenario's step for this request, if one fits.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.step.as_ref()
    }

    /// The scenario's reply to this request, if there is one.
    pub(crate) fn scripted_pieces(&self) -> Option<&[Piece]> {
        self.scripted_pieces.as_deref()
    }

    /// The signature style: from the request, else the scenario, else the options.
    pub(crate) fn style(&self) -> SignatureStyle {
        let options = &self.simulator.options;
        let scenario = options.scenario.as_ref();
        self.controls
            .style
            .or_else(|| scenario.and_then(Scenario::signature))
            .unwrap_or(options.signature_style)
    }

    /// Sets the signature style of a server that has only one.
    pub(crate) fn set_style(&mut self, style: SignatureStyle) {
        self.controls.style = Some(style);
    }

    /// Whether a stream has pings, in dialects that have them.
    pub(crate) fn pings(&self) -> bool {
        !self.controls.faults.contains(&Fault::NoPing)
    }

    /// The number of text deltas that the header asks for.
    pub(crate) fn deltas(&self) -> Option<usize> {
        self.controls.deltas
    }

    /// The model name in the reply: from the header, else the step, else the request.
    pub(crate) fn answer_model(&self, requested: &str) -> String {
        let from_step = self.step().and_then(|step| step.answer_model.as_deref());
        let from_header = self.controls.answer_model.as_deref();
        from_header.or(from_step).unwrap_or(requested).to_owned()
    }

    /// The seed of the reply: it depends on the simulator's seed, the model and the conversation.
    pub(crate) fn seed(&self, model: &str, conversation: &Hash) -> Hash {
        let seed = self.simulator.options.seed.to_be_bytes();
        hash(&[&seed, model.as_bytes(), conversation])
    }

    /// Serves a prompt from the cache. `key` separates the caches of one account further.
    pub(crate) fn cached(
        &self,
        model: &str,
        key: &str,
        parts: &[PromptPart],
        caching: Caching,
    ) -> CacheUse {
        let name = self.dialect.name.as_bytes();
        let scope = hash(&[name, &self.account, model.as_bytes(), key.as_bytes()]);
        let used = self.simulator.prompt_cache.serve(&scope, parts, caching);
        self.cache_use.set(Some(used));
        used
    }

    /// Answers with the scenario's capture, or else with `content`, and applies the faults.
    pub(crate) fn deliver(
        &self,
        content: impl FnOnce(&Self) -> Content,
    ) -> Result<Response, Refusal> {
        let mut response = self.write(content)?;
        if let Some(used) = self.cache_use.get() {
            response.extensions_mut().insert(used);
        }
        Ok(response)
    }

    fn write(&self, content: impl FnOnce(&Self) -> Content) -> Result<Response, Refusal> {
        let replay = self.step().and_then(|step| step.replay.as_ref());
        let (status, content) = match replay {
            Some(replay) => (replay.status, Content::replayed(replay)),
            None => (StatusCode::OK, content(self)),
        };
        let faults = &self.controls.faults;
        let broken = faults.iter().filter_map(|fault| match fault {
            Fault::Error(event) => Some(*event),
            _ => None,
        });
        // Only the first one matters: the stream ends there.
        let broken = broken.min();
        let (content_type, frames, error) = match content {
            Content::Events(frames) => {
                let error = (self.dialect.error_event)(broken.unwrap_or_default());
                ("text/event-stream; charset=utf-8", frames, error)
            }
            Content::Lines(frames) => {
                let error = (self.dialect.error_event)(broken.unwrap_or_default());
                ("application/x-ndjson", frames, error)
            }
            Content::JsonInParts { parts, error } => ("application/json", parts, error),
            Content::Json(_) if broken.is_some() => {
                let status = self.dialect.overloaded_status.as_u16();
                return Err(Refusal::on_demand(self.dialect, status, None));
            }
            Content::Json(bytes) if faults.is_empty() => {
                let headers = [(header::CONTENT_TYPE, "application/json")];
                return Ok((status, headers, bytes).into_response());
            }
            Content::Json(bytes) => ("application/json", slices(&bytes), Bytes::new()),
        };
        let steps = fault::steps(frames, faults, &error);
        let body = delivery::body(steps, self.simulator.options.tokens_per_second);
        let headers = [(header::CONTENT_TYPE, content_type), (header::CACHE_CONTROL, "no-cache")];
        Ok((status, headers, body).into_response())
    }
}

impl Content {
    fn replayed(replay: &Replay) -> Self {
        match replay.format {
            ReplayFormat::Events => Self::Events(replay::events(&replay.bytes)),
            ReplayFormat::Json => Self::Json(replay.bytes.clone()),
        }
    }
}

/// The headers that name an account.
const CREDENTIALS: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

fn account(headers: &HeaderMap) -> Hash {
    let value = |name: &str| headers.get(name).map_or(&b""[..], |value| value.as_bytes());
    hash(&CREDENTIALS.map(value))
}

fn slices(bytes: &Bytes) -> Vec<Frame> {
    let starts = (0..bytes.len()).step_by(JSON_EVENT_BYTES);
    let slice = |start: usize| Frame {
        bytes: bytes.slice(start..bytes.len().min(start + JSON_EVENT_BYTES)),
        tokens: 0,
    };
    starts.map(slice).collect()
}

/// The `x-simulator-*` headers of a request.
struct ControlHeaders {
    faults: Vec<Fault>,
    style: Option<SignatureStyle>,
    deltas: Option<usize>,
    answer_model: Option<String>,
}

impl ControlHeaders {
    fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let wrong = |name: &str, error: &dyn std::fmt::Display| {
            Refusal::invalid(format!("{name}: {error}"))
        };
        let mut faults = Vec::new();
        for value in headers.get_all("x-simulator-fault") {
            let value = String::from_utf8_lossy(value.as_bytes());
            faults.extend(fault::read(&value).map_err(|error| wrong("x-simulator-fault", &error))?);
        }
        let style = text("x-simulator-signature").map(str::parse).transpose();
        let deltas = text("x-simulator-deltas").map(|count| count.trim().parse()).transpose();
        Ok(Self {
            faults,
            style: style.map_err(|error| wrong("x-simulator-signature", &error))?,
            deltas: deltas.map_err(|error: ParseIntError| wrong("x-simulator-deltas", &error))?,
            answer_model: text("x-simulator-model").map(str::to_owned),
        })
    }
}
