//! One backend tried in one turn: the values that every step of the attempt needs.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;
use throughline_canonical::{Fault, Origin};
use throughline_codec::dialects::Operation;
use throughline_codec::dialects::profile::Profile;
use throughline_codec::dialects::segments::has_dot_segments;

use crate::backend::{Backend, credential_fingerprint};
use crate::catalog::Model;
use crate::cool_down::Failure;
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::{Decision, Plan};
use crate::reply::Clocks;
use crate::reply::model_name::ModelAlias;
use crate::settings::Settings;
use crate::thinking::TargetIdentity;
use crate::turn::error_reply::TurnHeaders;
use crate::turn::ledger::{Ledger, ReplyProgress};
use crate::turn::log::{PassedOver, SharedTurn, Turn};
use crate::turn::request::ParsedRequest;
use crate::upstream::send::error_text;

/// One backend tried in one turn.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) request: &'a ParsedRequest,
    pub(crate) backend: &'a Arc<Backend>,
    pub(crate) turn: &'a SharedTurn,
    /// Whether the request goes here because this is the active backend.
    pub(crate) follows_active_backend: bool,
    /// Whether another backend was chosen first.
    pub(crate) is_fallback: bool,
}

/// A backend that failed in a way in which another one may not fail.
pub(crate) struct FailedAttempt<'a> {
    pub(crate) attempt: Attempt<'a>,
    pub(crate) failure: Failure,
    pub(crate) answer: FailedAnswer,
}

/// What the client gets of a failed backend if no other one answers.
pub(crate) enum FailedAnswer {
    /// Its error, and the plan it answers.
    Error(Box<dyn Plan>, Response<Bytes>),
    /// There was no reply.
    Fault(Fault),
}

impl FailedAttempt<'_> {
    /// Records the failure, after which the next backend is tried.
    pub(crate) fn pass_over(&self) {
        let failure = self.failure;
        tracing::warn!(backend = self.attempt.backend.name, %failure, "trying the next backend");
        self.attempt.record_passed_over(failure.to_string(), false);
    }
}

impl Attempt<'_> {
    /// What is known about the dialect and variant that the backend speaks.
    pub(crate) fn profile(&self) -> &'static Profile {
        self.backend.profile
    }

    /// Rejects a model name that would change the request path, such as `../files`.
    pub(crate) fn check_model(&self) -> Result<(), Fault> {
        let model = self.backend.model_for(self.request.model.as_deref());
        if self.profile().model_in_path && has_dot_segments(model) {
            return Err(Fault::at(
                "model",
                format!(
                    "`{model}` is not a model name: `.` and `..` are not allowed as path segments"
                ),
            ));
        }
        Ok(())
    }

    /// The receiver of the blocks, as the memory identifies it.
    pub(crate) fn target(&self, model: &Model) -> TargetIdentity {
        TargetIdentity {
            backend: self.backend.name.as_str().into(),
            domain: self.backend.domain.as_str().into(),
            credential: credential_fingerprint(&headers::credential(
                &self.request.incoming,
                self.backend,
            )),
            account_bound: model.account_bound,
        }
    }

    /// Records the plan that is about to be sent.
    pub(crate) fn record_plan(&self, plan: &dyn Plan) {
        let Decision { lane, dialect, model, losses, session, .. } = plan.decision();
        self.record_backend();
        let mut turn = self.turn.lock();
        turn.session = *session;
        turn.fallback = None;
        turn.upstream_dialect = dialect.name();
        turn.lane = *lane;
        turn.upstream_model.clone_from(model);
        turn.tariff = self.settings.tariff(&self.backend.name, model);
        turn.model = self.request.model.clone().unwrap_or_else(|| model.clone());
        turn.record_blocks(plan.blocks());
        turn.losses.clone_from(losses);
        self.log_body(&mut turn, plan.body());
    }

    /// Records the backend and the model, which are also known if no plan can be made.
    pub(crate) fn record_backend(&self) {
        let mut turn = self.turn.lock();
        turn.lineage = self.request.lineage.id.text();
        turn.backend.clone_from(&self.backend.name);
        turn.upstream_dialect = self.backend.dialect.name();
        turn.stream = self.request.stream;
        turn.upstream_model = self.backend.model_for(self.request.model.as_deref()).to_owned();
        turn.model = self.request.model.clone().unwrap_or_else(|| turn.upstream_model.clone());
    }

    /// The gateway's own headers on the reply.
    pub(crate) fn turn_headers(&self) -> TurnHeaders {
        TurnHeaders::from(&*self.turn.lock())
    }

    /// The client's name for the model, if it differs from the backend's.
    pub(crate) fn model_alias(
        &self,
        backend_name: &str,
        client_name: Option<String>,
    ) -> Option<ModelAlias> {
        let dialect = self.backend.dialect.passthrough();
        Some(ModelAlias {
            dialect,
            backend_name: backend_name.to_owned(),
            client_name: client_name?,
        })
    }

    /// The origin of the blocks in this reply.
    pub(crate) fn origin(&self, decision: &Decision) -> Arc<Origin> {
        Arc::new(Origin {
            domain: self.backend.domain.clone(),
            backend: self.backend.name.clone(),
            model: decision.model.clone(),
            credential: decision.target.credential.clone(),
        })
    }

    fn logs_contents(&self) -> bool {
        self.settings.full_body && !self.request.incoming.private
    }

    /// Logs and records the outgoing body, and records the client's, if `full_body` is on. Records the shape of the
    /// outgoing body if an operator reads turns.
    pub(crate) fn log_body(&self, turn: &mut Turn, body: &[u8]) {
        if turn.watched || self.logs_contents() {
            turn.record_shape(body, self.request.incoming.private);
        }
        if !self.logs_contents() {
            return;
        }
        let sent = String::from_utf8_lossy(body).into_owned();
        if self.settings.pretty_print {
            // `%` prints without quotes. Quotes would escape the line breaks.
            let body = pretty(&sent);
            tracing::debug!(%body, "Request body");
        } else {
            tracing::debug!(body = sent, "Request body");
        }
        turn.record_sent_body(&sent);
        if !self.request.body.is_empty() {
            turn.record_client_body(&String::from_utf8_lossy(&self.request.body));
        }
    }

    /// A new ledger for the reply.
    pub(crate) fn ledger(&self, gateway: &Gateway, session: u64, origin: Arc<Origin>) -> Ledger {
        Ledger {
            memory: gateway.memory.clone(),
            record: gateway.record(),
            turn: self.turn.clone(),
            span: tracing::Span::current(),
            lineage: self.request.lineage,
            session,
            origin,
            began: self.request.incoming.began,
            memory_limit: self.settings.thinking.memory_limit,
            full_body: self.logs_contents(),
            private: self.request.incoming.private,
            progress: ReplyProgress::default(),
        }
    }

    /// The timeouts of the reply. A whole reply may be silent until its end.
    pub(crate) fn clocks(&self, gateway: &Gateway, streamed: bool) -> Clocks {
        let timeouts = &self.backend.timeouts;
        let silence = |limit| if streamed { limit } else { timeouts.total };
        Clocks {
            keep_alive: silence(self.settings.keep_alive),
            idle: silence(timeouts.idle),
            ends: (self.request.incoming.began + timeouts.total).into(),
            shutdown: gateway.shutdown.watch(),
            shared_writes: gateway.shared_writes(),
        }
    }

    /// Whether an error says that the backend has no counter for tokens. An unknown model is another
    /// matter.
    pub(crate) fn lacks_counter(&self, plan: &dyn Plan, error: &Response<Bytes>) -> bool {
        let unknown_path = matches!(
            error.status(),
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED
        );
        let model = plan.decision().model.as_bytes();
        self.request.operation == Operation::CountTokens
            && unknown_path
            && (model.is_empty() || memchr::memmem::find(&error_text(error), model).is_none())
    }

    /// Records why this backend does not answer.
    pub(crate) fn record_passed_over(&self, reason: String, cooling: bool) {
        let passed_over = PassedOver { backend: self.backend.name.clone(), reason, cooling };
        self.turn.lock().passed_over.push(passed_over);
    }

    /// Records that this backend is not passed over in the end: it is tried, or its answer passes.
    pub(crate) fn take_back(&self) {
        self.turn.lock().passed_over.retain(|passed| passed.backend != self.backend.name);
    }

    /// Records that the backend has answered.
    pub(crate) fn record_answer(&self) {
        if self.is_fallback {
            self.turn.lock().fallback = Some(self.backend.name.clone());
        }
    }
}

fn pretty(text: &str) -> String {
    serde_json::from_str::<Value>(text)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| text.to_owned())
}
