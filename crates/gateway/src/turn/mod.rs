//! The path of a turn: from the client's bytes to the provider's, and the lane it takes.
//!
//! ParsedRequest [`Gateway::turn`] first; everything else here is one of its steps.

pub mod answer;
pub mod ledger;
pub mod log;
mod other;
pub mod request;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use throughline_canonical::{Fault, FaultKind, Origin};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::opaque_outline::OpaqueOutline;
use throughline_codec::dialects::segments::has_dot_segments;
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::{Auth, Backend, credential_fingerprint};
use crate::catalog::{Form, Model};
use crate::gateway::{Gateway, may_have_key};
use crate::headers;
use crate::plan::translated_reply::spoken;
use crate::reply::Clocks;
use crate::settings::Settings;
use crate::thinking::Target;
use crate::turn::answer::{Reply, Unanswered, pretty, tell};
use crate::turn::ledger::{Ledger, Seen};
use crate::turn::log::{SharedTurn, Turn};
use crate::turn::request::{IncomingRequest, ParsedRequest, read};
use crate::upstream::SendError;

/// One backend, asked in one turn.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) read: &'a ParsedRequest,
    pub(crate) backend: &'a Arc<Backend>,
    pub(crate) turn: &'a SharedTurn,
    /// Whether this is the active backend, asked because it is.
    pub(crate) follows_active_backend: bool,
    /// Whether no other backend is left to ask.
    pub(crate) last: bool,
}

/// The way of a request.
enum Lane<'a> {
    /// In place, by the outline of the one dialect that has blocks.
    Through(&'a Outline),
    /// In place, by where marks stand.
    OpaquePlan(&'a OpaqueOutline),
    /// By way of the canonical words.
    Across,
}

impl Gateway {
    /// One turn: from the client's bytes to the provider's.
    pub async fn turn(
        &self,
        asked: IncomingRequest,
        body: Bytes,
        place: OwnedSemaphorePermit,
    ) -> Reply {
        let settings = self.settings();
        let (began, dialect) = (asked.began, asked.dialect);
        let turn = self.begin(&asked);
        let _unanswered = Unanswered::new(self, &turn, began);
        match self.go(&settings, asked, body, &turn, place).await {
            Ok(reply) => reply,
            Err(fault) => {
                let (id, backend) = {
                    let turn = turn.lock();
                    (turn.id.clone(), turn.backend.clone())
                };
                let reply = tell(dialect, &fault, &id, &backend);
                self.failed(&turn, began, reply.status().as_u16(), &fault.message);
                reply
            }
        }
    }

    async fn go(
        &self,
        settings: &Arc<Settings>,
        asked: IncomingRequest,
        body: Bytes,
        turn: &SharedTurn,
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, Fault> {
        let read = read(settings, asked, body)?;
        let (pin, model) = (read.pin.as_deref(), read.model.as_deref());
        let chosen = settings.routes.choose(settings, pin, model, &self.active())?;
        let chain = allowed_fallbacks(&chosen.chain);
        let mut place = Some(place);
        for (at, backend) in chain.iter().enumerate() {
            let attempt = Attempt {
                settings,
                read: &read,
                backend,
                turn,
                follows_active_backend: chosen.follows_active_backend && at == 0,
                last: at + 1 == chain.len(),
            };
            attempt.check_model()?;
            let reply = match self.lane(&attempt).await {
                Lane::Through(outline) => self.through(&attempt, outline, &mut place).await?,
                Lane::OpaquePlan(places) => {
                    self.through_marked(&attempt, places, &mut place).await?
                }
                Lane::Across => self.across(&attempt, &mut place).await?,
            };
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
        Err(Fault::new(FaultKind::Internal, "no backend could be asked"))
    }

    /// What would go to a backend, without sending it.
    pub async fn report(&self, asked: IncomingRequest, body: Bytes) -> Result<Value, Fault> {
        let settings = self.settings();
        let mut read = read(&settings, asked, body)?;
        read.in_conversation = false;
        let active = self.active();
        let (pin, model) = (read.pin.as_deref(), read.model.as_deref());
        let chosen = settings.routes.choose(&settings, pin, model, &active)?;
        let attempt = Attempt {
            settings: &settings,
            read: &read,
            backend: &chosen.chain[0],
            turn: &SharedTurn::default(),
            follows_active_backend: chosen.follows_active_backend || pin == Some(&*active),
            last: true,
        };
        attempt.check_model()?;
        match self.lane(&attempt).await {
            Lane::Through(outline) => Ok(self.report_through(&attempt, outline).await),
            Lane::OpaquePlan(places) => Ok(self.report_marked(&attempt, places)),
            Lane::Across => self.report_across(&attempt).await,
        }
    }

    /// The way a request takes.
    async fn lane<'a>(&self, attempt: &Attempt<'a>) -> Lane<'a> {
        let read = attempt.read;
        let alike = read.asked.dialect.name() == attempt.backend.dialect.name();
        if !alike || read.asked.reply_id.is_some() {
            return Lane::Across;
        }
        match (&read.outline, &read.places) {
            (Some(outline), _) => Lane::Through(outline),
            (None, Some(places)) if self.passes(attempt).await => Lane::OpaquePlan(places),
            _ => Lane::Across,
        }
    }

    /// Whether nothing of the request or its reply needs more than a look beside.
    async fn passes(&self, attempt: &Attempt<'_>) -> bool {
        let (read, backend) = (attempt.read, attempt.backend);
        let raw = backend.dialect.has_raw_text(&backend.variant)
            && backend.raw_text.family.as_deref() != Some("none");
        // What cannot be understood to the last word can still pass.
        let Ok(request) = read.request() else {
            return !raw;
        };
        let request = &request.value;
        let model = backend.model_for(read.model.as_deref());
        let known = attempt.settings.catalog.find_at(&backend.name, model);
        let (spoken, _) = spoken(backend, request, &known);
        let renamed = read.model.as_deref() != Some(model);
        let events = read.asked.dialect.stream_type(request);
        // In a stream that is no stream of events, the model's name is found by reading all of it.
        let named_late = read.stream && renamed && !events.starts_with("text/event-stream");
        // A client spells its settings for the model it named; for another one, or one that does not
        // think, they are made to fit.
        let thinks = known.thinking != Some(Form::None) || !request.thinking.is_wanted();
        let refitted = (renamed || !thinks) && !request.thinking.is_unset();
        !raw && !named_late
            && !refitted
            && spoken.name() == backend.dialect.name()
            && !self.needs_restore(attempt, request).await
    }
}

impl Attempt<'_> {
    /// Refuses a name that would lead to another path than that of a model.
    fn check_model(&self) -> Result<(), Fault> {
        let model = self.backend.model_for(self.read.model.as_deref());
        if self.backend.dialect.names_model_in_path() && has_dot_segments(model) {
            return Err(Fault::invalid(format!(
                "model: `{model}` is no name for a model: `.` and `..` cannot be parts of one"
            )));
        }
        Ok(())
    }

    /// Where it goes, for the memory.
    pub(crate) fn target(&self, model: &Model) -> Target {
        Target {
            backend: self.backend.name.as_str().into(),
            domain: self.backend.domain.as_str().into(),
            credential: credential_fingerprint(&headers::credential(
                &self.read.asked,
                self.backend,
            )),
            account_bound: model.account_bound,
        }
    }

    /// What the reply bears: the turn's id, unless whoever keeps it has given another.
    pub(crate) fn reply_id<'a>(&'a self, turn: &'a str) -> &'a str {
        self.read.asked.reply_id.as_deref().unwrap_or(turn)
    }

    /// Notes where the turn goes.
    pub(crate) fn note(
        &self,
        turn: &mut Turn,
        lane: &'static str,
        dialect: &'static str,
        session: u64,
    ) {
        turn.lineage = self.read.lineage.id.text();
        turn.session = session;
        turn.backend.clone_from(&self.backend.name);
        turn.upstream_dialect = dialect;
        turn.lane = lane;
        turn.stream = self.read.stream;
    }

    /// Logs and keeps the body that goes out, where contents may be kept.
    pub(crate) fn log_body(&self, turn: &mut Turn, body: &[u8]) {
        if !self.settings.full_body {
            return;
        }
        let sent = String::from_utf8_lossy(body).into_owned();
        if self.settings.pretty_print {
            // Without quotes, which would put it back on one line.
            let body = pretty(&sent);
            tracing::debug!(turn = turn.id, %body, "Request body");
        } else {
            tracing::debug!(turn = turn.id, body = sent, "Request body");
        }
        turn.keep_sent(&sent);
    }

    /// What will be noted of the reply.
    pub(crate) fn ledger(&self, gateway: &Gateway, session: u64, origin: Arc<Origin>) -> Ledger {
        Ledger {
            memory: gateway.memory.clone(),
            counters: gateway.counters.clone(),
            turns: gateway.turns.clone(),
            turn: self.turn.clone(),
            lineage: self.read.lineage,
            session,
            origin,
            began: self.read.asked.began,
            memory_limit: self.settings.thinking.memory_limit,
            full_body: self.settings.full_body,
            seen: Seen::default(),
        }
    }

    /// How long the reply may be silent, and how long it may take.
    pub(crate) fn clocks(&self) -> Clocks {
        let timeouts = &self.backend.timeouts;
        Clocks {
            keep_alive: self.settings.keep_alive,
            idle: timeouts.idle,
            ends: (self.read.asked.began + timeouts.total).into(),
        }
    }

    /// Another backend is asked in this one's place.
    pub(crate) fn passed_over(&self, status: u16) {
        let backend = &self.backend.name;
        tracing::warn!(backend, status, "trying the next backend");
    }

    /// The backend gave no reply; the client is told so if no other is left to ask.
    pub(crate) fn no_reply(&self, error: &SendError) -> Result<(), Fault> {
        let cause = error as &dyn std::error::Error;
        tracing::warn!(backend = self.backend.name, error = cause, "no reply");
        if self.last { Err(error.fault()) } else { Ok(()) }
    }
}

/// The backends of a chain, without those that would get a caller's key that goes elsewhere: only
/// the operator can say that they may.
pub(crate) fn allowed_fallbacks(chain: &[Arc<Backend>]) -> Vec<&Arc<Backend>> {
    let key_site = chain
        .iter()
        .find(|backend| backend.auth == Auth::Passthrough)
        .map(|backend| backend.site());
    let may = |backend: &&Arc<Backend>| {
        let may = key_site.as_ref().is_none_or(|site| may_have_key(backend, site));
        if !may {
            tracing::warn!(
                backend = backend.name,
                "not used as a fallback: it would get the caller's key, see `share_caller_key`"
            );
        }
        may
    };
    chain.iter().filter(may).collect()
}
