//! A request that passes by its marks: sending it, once more where thinking was refused, and its reply.

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};
use throughline_canonical::Fault;
use throughline_codec::dialects::opaque_outline::OpaqueOutline;
use throughline_codec::dialects::{self, Operation, RefusalKind};
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::Auth;
use crate::gateway::Gateway;
use crate::headers;
use crate::history::vault_lookup::question;
use crate::plan::opaque::{OpaquePlan, Without, marks_foreign_calls};
use crate::plan::outlined_retry::outgoing;
use crate::relay::opaque_tap::Listener;
use crate::relay::{Relay, Sent, SignatureForm};
use crate::thinking::memory::Outcome;
use crate::turn::Attempt;
use crate::turn::answer::Reply;
use crate::unix_ms;
use crate::upstream::send::{OutboundRequest, UpstreamAnswer, error_text, worth_another};

impl Gateway {
    /// Asks one backend in the client's own words, by the marks in them. None if another backend
    /// should be asked.
    pub(crate) async fn through_marked(
        &self,
        attempt: &Attempt<'_>,
        places: &OpaqueOutline,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let mut plan = self.mark(attempt, places, Without::Nothing);
        self.note_marked(attempt, &plan);
        let mut answer = self.send_with_retries(attempt.backend, &outbound(attempt, &plan)).await;
        if let Ok(UpstreamAnswer::Error(error)) = &answer
            && let Some(without) = self.learn_refusal(attempt, &plan, error)
        {
            let mut second = self.mark(attempt, places, without);
            if second.body != plan.body {
                tracing::info!(
                    backend = attempt.backend.name,
                    ?without,
                    "sending again without the thinking that was refused"
                );
                self.counters.retried.add(1);
                second.session = plan.session;
                plan = second;
                self.note_marked(attempt, &plan);
                answer = self.send_with_retries(attempt.backend, &outbound(attempt, &plan)).await;
            }
        }
        match answer {
            Ok(UpstreamAnswer::Ok(response)) => {
                Ok(Some(self.good_marked(attempt, plan, response, place.take())))
            }
            Ok(UpstreamAnswer::Error(error)) if !attempt.last && worth_another(error.status()) => {
                attempt.passed_over(error.status().as_u16());
                Ok(None)
            }
            Ok(UpstreamAnswer::Error(error)) => {
                // Its kind, but not its message: that may quote what was sent.
                let fault = attempt
                    .backend
                    .dialect
                    .read_fault(error.status().as_u16(), &error_text(&error));
                let kind = format!("{:?}", fault.kind);
                Ok(Some(self.refused(attempt, error, &plan.losses, Some(kind))))
            }
            Err(error) => attempt.no_reply(&error).map(|()| None),
        }
    }

    /// What would go to a backend, without sending it.
    pub(crate) fn report_marked(&self, attempt: &Attempt<'_>, places: &OpaqueOutline) -> Value {
        let plan = self.mark(attempt, places, Without::Nothing);
        let thinking = attempt.read.request().map(|request| &request.value.thinking).ok();
        json!({
            "backend": attempt.backend.name,
            "model": plan.model,
            "lane": "through",
            "blocks": plan.blocks,
            "losses": plan.losses,
            "thinking": {"asked": thinking, "sent": thinking},
        })
    }

    fn note_marked(&self, attempt: &Attempt<'_>, plan: &OpaquePlan) {
        let mut turn = attempt.turn.lock();
        let dialect = attempt.backend.dialect.name();
        attempt.note(&mut turn, "through", dialect, plan.session);
        turn.upstream_model.clone_from(&plan.model);
        turn.model = plan.asked_model.clone().unwrap_or_else(|| plan.model.clone());
        turn.keep_reports(&plan.blocks);
        turn.losses.clone_from(&plan.losses);
        attempt.log_body(&mut turn, &plan.body);
    }

    /// Learns from a refusal of thinking, and says what to leave out; nothing if it is about something
    /// else, or if no thinking went.
    fn learn_refusal(
        &self,
        attempt: &Attempt<'_>,
        plan: &OpaquePlan,
        error: &Response<Bytes>,
    ) -> Option<Without> {
        let dialect = attempt.backend.dialect;
        let refusal = dialect.refusal(error.status().as_u16(), &error_text(error))?;
        let missing = refusal.kind == RefusalKind::MissingThinking;
        let (without, refused) = match (plan.tried.is_empty(), plan.sent.is_empty()) {
            // What is there may be good.
            _ if missing && marks_foreign_calls(attempt.backend) => (Without::BareCalls, &[][..]),
            (_, false) if missing => (Without::Thinking, &[][..]),
            (false, _) => (Without::Tried, &plan.tried[..]),
            (true, false) => (Without::Thinking, &plan.sent[..]),
            (true, true) => return None,
        };
        if attempt.read.in_conversation && !refused.is_empty() {
            let (lineage, target) = (attempt.read.lineage, &plan.target);
            self.memory.refused(lineage, plan.session, target, refused, unix_ms());
        }
        Some(without)
    }

    /// A reply of the provider, passed on as it arrives.
    fn good_marked(
        &self,
        attempt: &Attempt<'_>,
        plan: OpaquePlan,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Reply {
        let read = attempt.read;
        self.counters.filtered.add(plan.left_out);
        let taken = |key: &_| Outcome { key: *key, tried: true, prefix: None, dropped: None };
        let outcomes: Vec<_> = plan.tried.iter().map(taken).collect();
        if read.in_conversation && !outcomes.is_empty() {
            let (session, target) = (plan.session, &plan.target);
            self.memory.outcome(read.lineage, session, target, &outcomes, unix_ms());
        }
        let origin = attempt.origin(&plan.model, &plan.target);
        let names = attempt.names(&plan.model, plan.asked_model);
        let losses = plan.losses.clone();
        let sent = Sent {
            blocks: plan.blocks,
            losses: plan.losses,
            client: read.asked.dialect,
            question: read.request().map_or_else(|_| String::new(), |said| question(&said.value)),
            scope: read.scope.clone(),
            past: None,
            prefix: None,
            keeps_ids: true,
            separating: self.separating.clone(),
        };
        let in_place = attempt.backend.dialect.passthrough();
        let relay = Relay::new(
            attempt.ledger(self, plan.session, origin),
            SignatureForm::Passed(in_place),
            self.vault.clone(),
            None,
            sent,
            read.in_conversation,
        );
        let aside = in_place.injector();
        self.forward(attempt, response, permit, names, &losses, |events| {
            let target = dialects::Target { model: &plan.model, variant: &attempt.backend.variant };
            // As it comes, whatever was asked for.
            let reader = (read.wanted == Operation::Generate)
                .then(|| attempt.backend.dialect.reply_reader(&target, events));
            Box::new(Listener::new(reader, aside, relay, events))
        })
    }
}

/// A request, ready to go.
fn outbound(attempt: &Attempt<'_>, plan: &OpaquePlan) -> OutboundRequest {
    let (read, backend) = (attempt.read, attempt.backend);
    let mut headers = headers::upstream(&read.asked.headers, backend, headers::Body::Read);
    let body = outgoing(read, &plan.body, &mut headers);
    let (path, renamed) = (&read.asked.path, plan.asked_model.is_some());
    let in_place = backend.dialect.passthrough();
    let query = match backend.auth {
        Auth::Passthrough => read.asked.query.clone(),
        _ => read.asked.query.as_deref().map(headers::without_key),
    };
    OutboundRequest {
        path: in_place.path(path, &plan.model, renamed, &backend.variant),
        query: query.filter(|query| !query.is_empty()),
        headers,
        body,
        streamed: read.stream,
    }
}
