//! One exchange, in any dialect: what the request asks of the simulator itself, the scenario's
//! step for it, and the delivery of the reply with its faults.
//!
//! A handler opens an exchange, meets the scenario, judges the request and delivers; what it says
//! and refuses meanwhile is the dialect's.

use std::num::ParseIntError;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};

use crate::dialect::Dialect;
use crate::fault::{self, Fault, Frame};
use crate::refusal::Refusal;
use crate::replay::{self, Kind, Replay};
use crate::scenario::{Scenario, Step};
use crate::signing::{Hash, Signer, hash};
use crate::style::SignatureStyle;
use crate::{Simulator, delivery};

/// In a reply that is no stream, so many bytes are an "event" to the faults.
const JSON_EVENT: usize = 32;

/// A request that is being answered.
pub(crate) struct Exchange<'a> {
    simulator: &'a Simulator,
    dialect: &'static Dialect,
    wishes: Wishes,
    step: Option<Step>,
}

/// What a scenario looks at in a request.
pub(crate) struct Said {
    pub(crate) model: String,
    /// Everything the user's last entries say, tool results included.
    pub(crate) text: String,
}

/// What a reply carries.
pub(crate) enum Content {
    /// A stream of events.
    Events(Vec<Frame>),
    /// A stream of lines.
    Lines(Vec<Frame>),
    /// One document.
    Json(Bytes),
    /// One document that is written while it comes to be, with what ends it on an error fault.
    JsonInParts { parts: Vec<Frame>, error: Bytes },
}

impl<'a> Exchange<'a> {
    /// Reads what the request asks of the simulator itself.
    pub(crate) fn open(
        simulator: &'a Simulator,
        dialect: &'static Dialect,
        headers: &HeaderMap,
    ) -> Result<Self, Refusal> {
        Ok(Self { simulator, dialect, wishes: Wishes::read(headers)?, step: None })
    }

    /// Takes the scenario's step, waits where a fault says so, and refuses where one does.
    pub(crate) async fn meet(&mut self, said: impl FnOnce() -> Said) -> Result<(), Refusal> {
        if let Some(progress) = &self.simulator.scenario {
            let said = said();
            self.step = progress.next(&said.model, &said.text);
        }
        if let Some(step) = &self.step {
            self.wishes.faults.extend(step.faults.iter().cloned());
            self.wishes.style = self.wishes.style.or(step.signature);
        }
        for fault in &self.wishes.faults {
            if let Fault::HeadDelay(time) = fault {
                tokio::time::sleep(*time).await;
            }
        }
        self.refuse_on_demand()
    }

    /// Refuses where a fault says so. `meet` does it too; this is for what has no scenario.
    pub(crate) fn refuse_on_demand(&self) -> Result<(), Refusal> {
        for fault in &self.wishes.faults {
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

    /// The scenario's step, if one fits.
    pub(crate) fn step(&self) -> Option<&Step> {
        self.step.as_ref()
    }

    /// The signature style: the request's, the scenario's or the usual one.
    pub(crate) fn style(&self) -> SignatureStyle {
        let options = &self.simulator.options;
        let scenario = options.scenario.as_ref();
        self.wishes
            .style
            .or_else(|| scenario.and_then(Scenario::signature))
            .unwrap_or(options.signature_style)
    }

    /// Whether a stream has pings, in dialects that know them.
    pub(crate) fn pings(&self) -> bool {
        !self.wishes.faults.contains(&Fault::NoPing)
    }

    /// Asked for by header: a text of so many deltas.
    pub(crate) fn deltas(&self) -> Option<usize> {
        self.wishes.deltas
    }

    /// The name to answer under: the header's, the step's or the one that was asked.
    pub(crate) fn answer_model(&self, asked: &str) -> String {
        let named = self.step().and_then(|step| step.answer_model.as_deref());
        let wished = self.wishes.answer_model.as_deref();
        wished.or(named).unwrap_or(asked).to_owned()
    }

    /// What decides the reply: the simulator's seed, the model and all that was said.
    pub(crate) fn seed(&self, model: &str, conversation: &Hash) -> Hash {
        let seed = self.simulator.options.seed.to_be_bytes();
        hash(&[&seed, model.as_bytes(), conversation])
    }

    /// Answers with a capture where the scenario has one, else with `content`; faults strike here.
    pub(crate) fn deliver(
        &self,
        content: impl FnOnce(&Self) -> Content,
    ) -> Result<Response, Refusal> {
        let replay = self.step().and_then(|step| step.replay.as_ref());
        let (status, content) = match replay {
            Some(replay) => (replay.status, Content::replayed(replay)),
            None => (StatusCode::OK, content(self)),
        };
        let faults = &self.wishes.faults;
        let broken = faults.iter().filter_map(|fault| match fault {
            Fault::Error(event) => Some(*event),
            _ => None,
        });
        // Only the first can strike: the stream ends there.
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
                let status = self.dialect.overloaded.as_u16();
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
        match replay.kind {
            Kind::Events => Self::Events(replay::events(&replay.bytes)),
            Kind::Json => Self::Json(replay.bytes.clone()),
        }
    }
}

fn slices(bytes: &Bytes) -> Vec<Frame> {
    let starts = (0..bytes.len()).step_by(JSON_EVENT);
    let slice = |start: usize| Frame {
        bytes: bytes.slice(start..bytes.len().min(start + JSON_EVENT)),
        tokens: 0,
    };
    starts.map(slice).collect()
}

/// What a request asks of the simulator itself, by header.
struct Wishes {
    faults: Vec<Fault>,
    style: Option<SignatureStyle>,
    deltas: Option<usize>,
    answer_model: Option<String>,
}

impl Wishes {
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
