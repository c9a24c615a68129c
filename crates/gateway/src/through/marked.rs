//! A request that passes by its marks: sending it, once more where thinking was refused, and its reply.

use bytes::Bytes;
use http::Response;
use hyper::body::Incoming;
use serde_json::{Value, json};
use throughline_canonical::Fault;
use throughline_codec::dialects::opaque_outline::OpaqueOutline;
use throughline_codec::dialects::{self, Operation, RefusalKind};
use tokio::sync::OwnedSemaphorePermit;

use super::listen::Listener;
use super::marks::{Marked, Without, marks_foreign_calls};
use super::send::outgoing;
use crate::across::lost::question;
use crate::across::relay::{Marks, Relay, Sent};
use crate::answer::Reply;
use crate::backend::Auth;
use crate::gateway::Gateway;
use crate::headers;
use crate::send::{Back, Parcel, error_text, worth_another};
use crate::thinking::memory::Outcome;
use crate::turn::Leg;
use crate::unix_ms;

impl Gateway {
    /// Asks one backend in the client's own words, by the marks in them. None if another backend
    /// should be asked.
    pub(crate) async fn through_marked(
        &self,
        leg: &Leg<'_>,
        places: &OpaqueOutline,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let mut marked = self.mark(leg, places, Without::Nothing);
        self.note_marked(leg, &marked);
        let mut back = self.send_patiently(leg.backend, &parcel(leg, &marked)).await;
        if let Ok(Back::Refused(error)) = &back
            && let Some(without) = self.learn_refusal(leg, &marked, error)
        {
            let mut second = self.mark(leg, places, without);
            if second.body != marked.body {
                tracing::info!(
                    backend = leg.backend.name,
                    ?without,
                    "sending again without the thinking that was refused"
                );
                self.counters.retried.add(1);
                second.session = marked.session;
                marked = second;
                self.note_marked(leg, &marked);
                back = self.send_patiently(leg.backend, &parcel(leg, &marked)).await;
            }
        }
        match back {
            Ok(Back::Good(response)) => {
                Ok(Some(self.good_marked(leg, marked, response, place.take())))
            }
            Ok(Back::Refused(error)) if !leg.last && worth_another(error.status()) => {
                leg.passed_over(error.status().as_u16());
                Ok(None)
            }
            Ok(Back::Refused(error)) => {
                // Its kind, but not its message: that may quote what was sent.
                let fault =
                    leg.backend.dialect.read_fault(error.status().as_u16(), &error_text(&error));
                let kind = format!("{:?}", fault.kind);
                Ok(Some(self.refused(leg, error, &marked.losses, Some(kind))))
            }
            Err(error) => leg.no_reply(&error).map(|()| None),
        }
    }

    /// What would go to a backend, without sending it.
    pub(crate) fn report_marked(&self, leg: &Leg<'_>, places: &OpaqueOutline) -> Value {
        let marked = self.mark(leg, places, Without::Nothing);
        let thinking = leg.read.request().map(|request| &request.value.thinking).ok();
        json!({
            "backend": leg.backend.name,
            "model": marked.model,
            "lane": "through",
            "blocks": marked.blocks,
            "losses": marked.losses,
            "thinking": {"asked": thinking, "sent": thinking},
        })
    }

    fn note_marked(&self, leg: &Leg<'_>, marked: &Marked) {
        let mut turn = leg.turn.lock();
        let dialect = leg.backend.dialect.name();
        leg.note(&mut turn, "through", dialect, marked.session);
        turn.upstream_model.clone_from(&marked.model);
        turn.model = marked.asked_model.clone().unwrap_or_else(|| marked.model.clone());
        turn.keep_reports(&marked.blocks);
        turn.losses.clone_from(&marked.losses);
        leg.log_body(&mut turn, &marked.body);
    }

    /// Learns from a refusal of thinking, and says what to leave out; nothing if it is about something
    /// else, or if no thinking went.
    fn learn_refusal(
        &self,
        leg: &Leg<'_>,
        marked: &Marked,
        error: &Response<Bytes>,
    ) -> Option<Without> {
        let dialect = leg.backend.dialect;
        let refusal = dialect.refusal(error.status().as_u16(), &error_text(error))?;
        let missing = refusal.kind == RefusalKind::MissingThinking;
        let (without, refused) = match (marked.tried.is_empty(), marked.sent.is_empty()) {
            // What is there may be good.
            _ if missing && marks_foreign_calls(leg.backend) => (Without::BareCalls, &[][..]),
            (_, false) if missing => (Without::Thinking, &[][..]),
            (false, _) => (Without::Tried, &marked.tried[..]),
            (true, false) => (Without::Thinking, &marked.sent[..]),
            (true, true) => return None,
        };
        if leg.read.counts && !refused.is_empty() {
            let (lineage, target) = (leg.read.lineage, &marked.target);
            self.memory.refused(lineage, marked.session, target, refused, unix_ms());
        }
        Some(without)
    }

    /// A reply of the provider, passed on as it arrives.
    fn good_marked(
        &self,
        leg: &Leg<'_>,
        marked: Marked,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Reply {
        let read = leg.read;
        self.counters.filtered.add(marked.left_out);
        let taken = |key: &_| Outcome { key: *key, tried: true, stands_under: None, dropped: None };
        let outcomes: Vec<_> = marked.tried.iter().map(taken).collect();
        if read.counts && !outcomes.is_empty() {
            let (session, target) = (marked.session, &marked.target);
            self.memory.outcome(read.lineage, session, target, &outcomes, unix_ms());
        }
        let origin = leg.origin(&marked.model, &marked.target);
        let names = leg.names(&marked.model, marked.asked_model);
        let losses = marked.losses.clone();
        let sent = Sent {
            blocks: marked.blocks,
            losses: marked.losses,
            client: read.asked.dialect,
            question: read.request().map_or_else(|_| String::new(), |said| question(&said.value)),
            scope: read.scope.clone(),
            past: None,
            prefix: None,
            keeps_ids: true,
            separating: self.separating.clone(),
        };
        let in_place = leg.backend.dialect.passthrough();
        let relay = Relay::new(
            leg.ledger(self, marked.session, origin),
            Marks::Passed(in_place),
            self.vault.clone(),
            None,
            sent,
            read.counts,
        );
        let aside = in_place.injector();
        self.forward(leg, response, permit, names, &losses, |events| {
            let target = dialects::Target { model: &marked.model, variant: &leg.backend.variant };
            // As it comes, whatever was asked for.
            let reader = (read.wanted == Operation::Generate)
                .then(|| leg.backend.dialect.reply_reader(&target, events));
            Box::new(Listener::new(reader, aside, relay, events))
        })
    }
}

/// A request, ready to go.
fn parcel(leg: &Leg<'_>, marked: &Marked) -> Parcel {
    let (read, backend) = (leg.read, leg.backend);
    let mut headers = headers::upstream(&read.asked.headers, backend, headers::Body::Read);
    let body = outgoing(read, &marked.body, &mut headers);
    let (path, renamed) = (&read.asked.path, marked.asked_model.is_some());
    let in_place = backend.dialect.passthrough();
    let query = match backend.auth {
        Auth::Passthrough => read.asked.query.clone(),
        _ => read.asked.query.as_deref().map(headers::without_key),
    };
    Parcel {
        path: in_place.path(path, &marked.model, renamed, &backend.variant),
        query: query.filter(|query| !query.is_empty()),
        headers,
        body,
        streamed: read.stream,
    }
}
