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

use bytes::Bytes;
use http::Response;
use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::Accepted;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

pub(crate) use self::attempt::Attempt;
use self::attempt::{FailedAnswer, FailedAttempt};
use self::error_reply::{Reply, TurnHeaders, turn_error};
use self::log::{SharedTurn, TurnEnd, TurnError};
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

/// What came of one backend.
enum Tried<'a> {
    Answered(TurnReply),
    /// It failed, so the next one is tried.
    Failed(FailedAttempt<'a>),
    /// It is a fallback that cannot take the request.
    Unplanned(Fault),
}

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
        let (began, dialect, private) = (incoming.began, incoming.dialect, incoming.private);
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
        let error = if private { error.without_contents() } else { error };
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
        let new_attempt = |backend| {
            let is_fallback = !Arc::ptr_eq(backend, &chosen.first);
            let follows_active_backend = chosen.follows_active_backend && !is_fallback;
            let request = &request;
            Attempt { settings, request, backend, turn, follows_active_backend, is_fallback }
        };
        if let Some(reason) = chosen.first.off() {
            new_attempt(&chosen.first).record_passed_over(format!("off: {reason}"), false);
        }
        let attempts = allowed_fallbacks(&chosen.chain).into_iter().map(new_attempt).collect();
        let (ready, cooling) = self.without_cooling(attempts);
        let mut permit = Some(permit);
        let (mut failed, mut unplanned) = (None::<FailedAttempt<'_>>, None);
        for (at, attempt) in ready.iter().chain(&cooling).enumerate() {
            if at >= ready.len() && failed.is_some() {
                break;
            }
            match self.try_backend(attempt, &mut permit).await? {
                Tried::Answered(reply) => return Ok(reply),
                Tried::Failed(attempt) => {
                    if at + 1 < ready.len() {
                        attempt.pass_over();
                    }
                    failed = Some(attempt);
                }
                Tried::Unplanned(fault) => unplanned = Some(fault),
            }
        }
        match (failed, unplanned) {
            (Some(failed), _) => self.failed_reply(failed),
            (None, Some(fault)) => Err(fault),
            (None, None) => Err(Fault::new(FaultKind::Internal, "no backend is left to try")),
        }
    }

    /// The attempts of a chain without the backends that cool down, and those that do. The latter are
    /// asked only if no other backend can take the request. If all of them cool down, all are tried.
    fn without_cooling<'a>(
        &self,
        attempts: Vec<Attempt<'a>>,
    ) -> (Vec<Attempt<'a>>, Vec<Attempt<'a>>) {
        let now = Instant::now();
        let failure = |attempt: &Attempt<'_>| {
            let backend = attempt.backend;
            let model = backend.model_for(attempt.request.model.as_deref());
            self.failing.cooling(&backend.name, model, now)
        };
        if attempts.len() == 1 || attempts.iter().all(|attempt| failure(attempt).is_some()) {
            return (attempts, Vec::new());
        }
        attempts.into_iter().partition(|attempt| {
            let Some(failure) = failure(attempt) else {
                return true;
            };
            let backend = &attempt.backend.name;
            tracing::info!(backend, %failure, "not trying a backend that cools down");
            attempt.record_passed_over(failure.to_string(), true);
            false
        })
    }

    /// Tries one backend: plan, send, relay.
    async fn try_backend<'a>(
        &self,
        attempt: &Attempt<'a>,
        permit: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Tried<'a>, Fault> {
        let planned = match attempt.check_model() {
            Ok(()) => {
                let lane = self.lane(attempt).await;
                self.plan(attempt, &lane, RetryPlan::First).await.map(|plan| (lane, plan))
            }
            Err(fault) => Err(fault),
        };
        let (lane, plan) = match planned {
            Ok(planned) => planned,
            // The backend that was chosen may still be able to take the request.
            Err(fault) if attempt.is_fallback => {
                let (backend, cause) = (&attempt.backend.name, &fault.message);
                tracing::warn!(backend, %cause, "the fallback cannot take the request");
                attempt.record_passed_over(format!("cannot take the request: {cause}"), false);
                return Ok(Tried::Unplanned(fault));
            }
            Err(fault) => {
                attempt.record_backend();
                return Err(fault);
            }
        };
        attempt.take_back();
        if let Some(reply) = plan.reply_without_backend(self, attempt) {
            return Ok(Tried::Answered(reply.into()));
        }
        let (backend, began) = (attempt.backend, Instant::now());
        let model = backend.model_for(attempt.request.model.as_deref());
        self.failing.probe(&backend.name, model, began);
        let (answer, plan) = self.send_and_recover(attempt, &lane, plan).await?;
        self.record_failing(backend, model, &answer, began.elapsed());
        if answer.is_ok() {
            attempt.record_answer();
        }
        let (failure, answer) = match answer {
            Ok(UpstreamAnswer::Ok(response)) => {
                let reply = plan.reply(self, attempt, response, permit.take()).await?;
                return Ok(Tried::Answered(reply));
            }
            Ok(UpstreamAnswer::Error(error)) if is_retryable(error.status()) => {
                (Failure::Status(error.status()), FailedAnswer::Error(plan, error))
            }
            Ok(UpstreamAnswer::Error(error)) => {
                return Ok(Tried::Answered(self.passed_error(attempt, &*plan, error)));
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                tracing::warn!(backend = backend.name, error = cause, "the backend did not reply");
                let failure = error.failure().ok_or_else(|| error.fault())?;
                (failure, FailedAnswer::Fault(error.fault()))
            }
        };
        Ok(Tried::Failed(FailedAttempt { attempt: *attempt, failure, answer }))
    }

    /// The reply to the client if no backend answers after this one.
    fn failed_reply(&self, failed: FailedAttempt<'_>) -> Result<TurnReply, Fault> {
        let attempt = &failed.attempt;
        attempt.take_back();
        match failed.answer {
            FailedAnswer::Error(plan, error) => Ok(self.passed_error(attempt, &*plan, error)),
            FailedAnswer::Fault(fault) => Err(fault),
        }
    }

    /// A backend's error as a reply to the client.
    fn passed_error(
        &self,
        attempt: &Attempt<'_>,
        plan: &dyn Plan,
        error: Response<Bytes>,
    ) -> TurnReply {
        match attempt.lacks_counter(plan, &error) {
            true => self.estimated_count_reply(attempt, plan).into(),
            false => plan.error_reply(self, attempt, error),
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
