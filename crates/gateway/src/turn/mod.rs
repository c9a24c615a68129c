//! The path of a turn: from the client's bytes to the provider, and back.
//!
//! Read [`Gateway::turn`] first; everything else is one of its steps.

mod admission;
mod attempt;
pub mod error_reply;
pub mod ledger;
pub mod log;
mod other;
mod record;
pub mod request;
pub mod span;
pub mod turn_reply;

use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::Accepted;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

pub(crate) use self::attempt::Attempt;
use self::error_reply::{Reply, TurnHeaders, turn_error};
use self::log::{PassedOver, SharedTurn, TurnEnd, TurnError};
use self::record::Unanswered;
use self::request::{IncomingRequest, RequestContent, read_request};
use self::turn_reply::{FinishedReply, TurnReply, UnreadReply};
use crate::backend::{Auth, Backend};
use crate::cool_down::Failure;
use crate::gateway::{Gateway, may_receive_key};
use crate::plan::preview::Preview;
use crate::plan::{Plan, report};
use crate::settings::Settings;
use crate::shutdown;
use crate::upstream::refusal_policy::RetryPlan;
use crate::upstream::send::{UpstreamAnswer, is_retryable};

impl Gateway {
    /// One turn: from the client's bytes to a reply in the client's dialect.
    pub async fn turn(
        &self,
        incoming: IncomingRequest,
        content: impl Into<RequestContent>,
        permit: OwnedSemaphorePermit,
    ) -> Reply {
        let turn = self.begin(&incoming);
        let span = turn.lock().span();
        let run = self.run(&turn, incoming, content.into(), permit);
        async { run.await.encode().await }.instrument(span).await
    }

    /// One turn whose reply the caller reads as canonical events, or a finished reply if there is no
    /// model's answer.
    pub async fn turn_events(
        &self,
        incoming: IncomingRequest,
        accepted: Accepted,
        permit: OwnedSemaphorePermit,
    ) -> Result<UnreadReply, Box<FinishedReply>> {
        let turn = self.begin(&incoming);
        let span = turn.lock().span();
        let run = self.run(&turn, incoming, accepted.into(), permit);
        async { run.await.into_unread() }.instrument(span).await
    }

    async fn run(
        &self,
        turn: &SharedTurn,
        incoming: IncomingRequest,
        content: RequestContent,
        permit: OwnedSemaphorePermit,
    ) -> TurnReply {
        let settings = self.settings();
        let (began, dialect) = (incoming.began, incoming.dialect);
        let _unanswered = Unanswered::new(self, turn, began);
        let (fault, end) = tokio::select! {
            biased;
            tried = self.try_backends(&settings, incoming, content, turn, permit) => match tried {
                Ok(reply) => return reply,
                Err(fault) => (fault, TurnEnd::Failed),
            },
            () = self.shutdown.begun() => (shutdown::fault(), TurnEnd::Stopped),
        };
        let reply = turn_error(dialect, &fault, &TurnHeaders::from(&*turn.lock()));
        let error = TurnError::of_gateway(&fault);
        self.record_early_end(turn, began, reply.status().as_u16(), end, Some(error));
        TurnReply::failed(reply, fault)
    }

    /// Reads the request, chooses a route and tries the backends in order.
    async fn try_backends(
        &self,
        settings: &Arc<Settings>,
        incoming: IncomingRequest,
        content: RequestContent,
        turn: &SharedTurn,
        permit: OwnedSemaphorePermit,
    ) -> Result<TurnReply, Fault> {
        let request = read_request(settings, incoming, content)?;
        self.ask_others(&request).await;
        let (pin, model) = (request.pin.as_deref(), request.model.as_deref());
        let chosen = settings.routes.choose(settings, pin, model, &self.active())?;
        let chain = self.without_cooling(allowed_fallbacks(&chosen.chain), model, turn);
        let mut permit = Some(permit);
        for (at, backend) in chain.iter().enumerate() {
            let is_fallback = !Arc::ptr_eq(backend, &chosen.chain[0]);
            let attempt = Attempt {
                settings,
                request: &request,
                backend,
                turn,
                follows_active_backend: chosen.follows_active_backend && !is_fallback,
                is_fallback,
                last: at + 1 == chain.len(),
            };
            if let Some(reply) = self.try_backend(&attempt, &mut permit).await? {
                return Ok(reply);
            }
        }
        Err(Fault::new(FaultKind::Internal, "no backend is left to try"))
    }

    /// The backends of a chain, without those that cool down. If all of them do, all are tried.
    fn without_cooling<'a>(
        &self,
        chain: Vec<&'a Arc<Backend>>,
        model: Option<&str>,
        turn: &SharedTurn,
    ) -> Vec<&'a Arc<Backend>> {
        let now = Instant::now();
        let cooling =
            |backend: &Backend| self.failing.cooling(&backend.name, backend.model_for(model), now);
        if chain.len() == 1 || chain.iter().all(|backend| cooling(backend).is_some()) {
            return chain;
        }
        let is_tried = |backend: &&Arc<Backend>| {
            let Some(failure) = cooling(backend) else {
                return true;
            };
            let name = &backend.name;
            tracing::info!(backend = name, %failure, "not trying a backend that cools down");
            turn.lock().passed_over.push(PassedOver {
                backend: name.clone(),
                reason: failure.to_string(),
                cooling: true,
            });
            false
        };
        chain.into_iter().filter(is_tried).collect()
    }

    /// Tries one backend: plan, send, relay. Returns `None` if the next backend should be tried.
    async fn try_backend(
        &self,
        attempt: &Attempt<'_>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<TurnReply>, Fault> {
        attempt.check_model()?;
        let lane = self.lane(attempt).await;
        let plan = self.plan(attempt, &lane, RetryPlan::First).await?;
        if let Some(reply) = plan.reply_without_backend(self, attempt) {
            return Ok(Some(reply.into()));
        }
        let (backend, began) = (attempt.backend, Instant::now());
        let model = backend.model_for(attempt.request.model.as_deref());
        self.failing.probe(&backend.name, model, began);
        let (answer, plan) = self.send_and_recover(attempt, &lane, plan).await?;
        self.record_failing(backend, model, &answer, began.elapsed());
        if answer.is_ok() {
            attempt.record_answer();
        }
        match answer {
            Ok(UpstreamAnswer::Ok(response)) => {
                plan.reply(self, attempt, response, permit.take()).await.map(Some)
            }
            Ok(UpstreamAnswer::Error(error)) if !attempt.last && is_retryable(error.status()) => {
                attempt.pass_over(Failure::Status(error.status()));
                Ok(None)
            }
            Ok(UpstreamAnswer::Error(error)) if attempt.lacks_counter(&*plan, &error) => {
                Ok(Some(self.estimated_count_reply(attempt, &*plan).into()))
            }
            Ok(UpstreamAnswer::Error(error)) => Ok(Some(plan.error_reply(self, attempt, error))),
            Err(error) => attempt.handle_no_reply(&error).map(|()| None),
        }
    }

    /// Plans a request and reports the plan without sending it.
    pub async fn report(
        &self,
        incoming: IncomingRequest,
        content: impl Into<RequestContent>,
    ) -> Result<Value, Fault> {
        self.plan_unsent(incoming, content.into(), report).await
    }

    /// Plans a request and returns what would be sent, without sending it.
    pub async fn preview(
        &self,
        incoming: IncomingRequest,
        accepted: Accepted,
    ) -> Result<Preview, Fault> {
        self.plan_unsent(incoming, accepted.into(), Preview::new).await?
    }

    /// Plans a request that is not sent. Nothing is remembered about it.
    async fn plan_unsent<T>(
        &self,
        incoming: IncomingRequest,
        content: RequestContent,
        describe: impl FnOnce(&dyn Plan, &Attempt<'_>) -> T,
    ) -> Result<T, Fault> {
        let settings = self.settings();
        let mut request = read_request(&settings, incoming, content)?;
        request.in_conversation = false;
        self.ask_others(&request).await;
        let active = self.active();
        let (pin, model) = (request.pin.as_deref(), request.model.as_deref());
        let chosen = settings.routes.choose(&settings, pin, model, &active)?;
        let attempt = Attempt {
            settings: &settings,
            request: &request,
            backend: &chosen.chain[0],
            turn: &SharedTurn::default(),
            follows_active_backend: chosen.follows_active_backend || pin == Some(&*active),
            is_fallback: false,
            last: true,
        };
        attempt.check_model()?;
        let lane = self.lane(&attempt).await;
        let plan = self.plan(&attempt, &lane, RetryPlan::First).await?;
        Ok(describe(&*plan, &attempt))
    }
}

/// The backends of a chain, without those that would receive a caller's key meant for another site.
/// Only the operator can allow that, with `share_caller_key`.
pub(crate) fn allowed_fallbacks(chain: &[Arc<Backend>]) -> Vec<&Arc<Backend>> {
    let key_site = chain
        .iter()
        .find(|backend| backend.auth == Auth::Passthrough)
        .map(|backend| backend.site());
    let may = |backend: &&Arc<Backend>| {
        let may = key_site.as_ref().is_none_or(|site| may_receive_key(backend, site));
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
