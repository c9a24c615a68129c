//! The through lane: client and backend speak the same dialect, so the body is edited in place and
//! the reply's bytes are forwarded as they arrive.
//!
//! Of one dialect the shape of a conversation is known to the last block:
//! - [`plan`]: what goes out;
//! - `send`: sending it, once more where thinking was refused;
//! - `tap`: reading the reply beside.
//!
//! Of the others it is known where thinking and its marks stand:
//! - `marks`: what goes out; `marked`: sending it, and once more;
//! - `listen`: reading the reply beside.
//!
//! Both share the reply's way: `passage`, and `rename` for the model's name in it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use throughline_canonical::{Fate, Fault, Loss, Origin};
use throughline_codec::dialects::anthropic::outline::{BlockKind, Outline};
use throughline_codec::dialects::anthropic::refusal::error_kind;
use throughline_codec::framing::encoding::{Decoder, Encoding};
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::headers;
use crate::plan::outlined::{Plan, Planner};
use crate::relay::block_tap::{BlockTap, Sent};
use crate::reply::ReplyBody;
use crate::reply::model_name::ModelAlias;
pub(crate) use crate::reply::passthrough::Through;
use crate::reply::passthrough::{Encoded, Shape, Tap};
use crate::thinking::memory::{Answer, Question, Target};
use crate::turn::Attempt;
use crate::turn::answer::{Reply, mark};
use crate::turn::ledger::milliseconds;
use crate::turn::log::KeptBlock;
use crate::turn::request::content_encoding;
use crate::unix_ms;
use crate::upstream::refusal_policy::RetryPlan;
use crate::upstream::send::{UpstreamAnswer, error_text, worth_another};

/// A plan for one backend, with the memory's answer it was made from.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) answer: Answer,
    pub(crate) target: Target,
}

impl Gateway {
    /// Asks one backend in the client's own words. None if another backend should be asked.
    pub(crate) async fn through(
        &self,
        attempt: &Attempt<'_>,
        outline: &Outline,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let planned = self.plan(attempt, outline, RetryPlan::First).await;
        self.note_plan(attempt, &planned);
        match self.send(attempt, outline, planned).await {
            Ok((UpstreamAnswer::Ok(response), planned)) => {
                Ok(Some(self.good(attempt, planned, response, place.take())))
            }
            Ok((UpstreamAnswer::Error(error), _))
                if !attempt.last && worth_another(error.status()) =>
            {
                attempt.passed_over(error.status().as_u16());
                Ok(None)
            }
            Ok((UpstreamAnswer::Error(error), planned)) => {
                // Its kind, but not its message: that may quote what was sent.
                let kind = error_kind(&error_text(&error));
                Ok(Some(self.refused(attempt, error, &planned.plan.losses, kind)))
            }
            Err(error) => attempt.no_reply(&error).map(|()| None),
        }
    }

    /// What would go to a backend, without sending it.
    pub(crate) async fn report_through(&self, attempt: &Attempt<'_>, outline: &Outline) -> Value {
        let Planned { plan, .. } = self.plan(attempt, outline, RetryPlan::First).await;
        let asked = outline.thinking.as_ref().map(|thinking| {
            serde_json::from_slice::<Value>(&attempt.read.body[thinking.span.clone()])
                .unwrap_or_default()
        });
        let sent = Outline::read(&plan.body, usize::MAX)
            .ok()
            .and_then(|outline| outline.thinking)
            .and_then(|thinking| serde_json::from_slice(&plan.body[thinking.span]).ok())
            .unwrap_or(Value::Null);
        json!({
            "backend": attempt.backend.name,
            "model": plan.model,
            "lane": "through",
            "blocks": plan.blocks.iter().map(KeptBlock::from).collect::<Vec<_>>(),
            "losses": plan.losses,
            "thinking": {"asked": asked, "sent": sent},
        })
    }

    pub(crate) async fn plan(
        &self,
        attempt: &Attempt<'_>,
        outline: &Outline,
        retry: RetryPlan,
    ) -> Planned {
        let made_elsewhere = self.made_elsewhere(attempt, outline).await;
        let Attempt { settings, read, backend, .. } = *attempt;
        let known =
            settings.catalog.find_at(&backend.name, backend.model_for(read.model.as_deref()));
        let target = attempt.target(&known);
        let sealed: Vec<_> = outline
            .thinking_blocks()
            .map(|(message, index, ..)| {
                self.unseal(&read.body, &outline.messages[message].blocks()[index])
            })
            .collect();
        let keys: Vec<_> = outline
            .thinking_blocks()
            .zip(&sealed)
            .map(|(block, sealed)| sealed.as_ref().map(|sealed| sealed.key).or(block.3))
            .collect();
        let mut answer = self.memory.ask(&Question {
            lineage: read.lineage,
            target: &target,
            follows_active_backend: attempt.follows_active_backend && retry == RetryPlan::First,
            // A second look at the same request tells nothing new.
            in_conversation: read.in_conversation && retry == RetryPlan::First,
            blocks: &keys,
            has_assistant: outline.has_assistant(),
            now: unix_ms(),
            rules: settings.thinking,
        });
        let mut natives = Vec::new();
        for (sealed, verdict) in sealed.into_iter().zip(&mut answer.verdicts) {
            if let Some(sealed) = sealed {
                let (judged, native) = sealed.judge(verdict, &target);
                *verdict = judged;
                natives.extend(native);
            }
        }
        let plan = Planner {
            body: &read.body,
            outline,
            backend,
            model: &known,
            verdicts: &answer.verdicts,
            natives: &natives,
            made_elsewhere,
            guard: self.guard(backend, &known),
            retry,
        }
        .plan();
        Planned { plan, answer, target }
    }

    /// Whether the open tool loop was begun by a backend whose thinking, if there was any, this one
    /// cannot have.
    async fn made_elsewhere(&self, attempt: &Attempt<'_>, outline: &Outline) -> bool {
        let Some(call) = outline.open_tool_loop() else {
            return false;
        };
        let body = &attempt.read.body;
        let names: Vec<_> = outline.messages[call]
            .blocks()
            .iter()
            .filter(|block| block.kind == BlockKind::ToolUse)
            .filter_map(|block| {
                let call: Value = serde_json::from_slice(body.get(block.span.clone())?).ok()?;
                Some(attempt.read.scope.call(call.get("id")?.as_str()?))
            })
            .collect();
        let kept = self.vault.find(&names).await;
        kept.is_some_and(|kept| kept.origin.domain != attempt.backend.domain)
    }

    /// Notes what is about to happen.
    pub(crate) fn note_plan(&self, attempt: &Attempt<'_>, planned: &Planned) {
        let plan = &planned.plan;
        let mut turn = attempt.turn.lock();
        attempt.note(&mut turn, "through", attempt.backend.dialect.name(), planned.answer.session);
        turn.upstream_model.clone_from(&plan.model);
        turn.model = plan.asked_model.clone().unwrap_or_else(|| plan.model.clone());
        turn.keep_blocks(&plan.blocks);
        turn.losses.clone_from(&plan.losses);
        attempt.log_body(&mut turn, &plan.body);
    }

    /// An error of the provider, passed on as it is.
    pub(crate) fn refused(
        &self,
        attempt: &Attempt<'_>,
        error: Response<Bytes>,
        losses: &[Loss],
        kind: Option<String>,
    ) -> Reply {
        let (head, body) = error.into_parts();
        let status = head.status.as_u16();
        let mut reply = Response::new(ReplyBody::whole(body));
        *reply.status_mut() = head.status;
        *reply.headers_mut() = headers::client(&head.headers, &attempt.backend.auth);
        let id = attempt.turn.lock().id.clone();
        mark(reply.headers_mut(), &id, &attempt.backend.name, losses);
        let mut what = format!("the backend refused the request: {status}");
        if let Some(kind) = kind {
            what.push(' ');
            what.push_str(&kind);
        }
        self.failed(attempt.turn, attempt.read.asked.began, status, &what);
        reply
    }

    /// A reply of the provider, passed on as it arrives.
    fn good(
        &self,
        attempt: &Attempt<'_>,
        planned: Planned,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Reply {
        let Planned { mut plan, answer, target } = planned;
        // A stream may last for minutes; the request it answers need not.
        plan.body = Bytes::new();
        let left_out = plan.blocks.iter().filter(|block| block.fate == Fate::LeftOut);
        self.counters.filtered.add(left_out.count());
        let ledger = attempt.ledger(self, answer.session, attempt.origin(&plan.model, &target));
        let names = attempt.names(&plan.model, plan.asked_model.clone());
        let losses = plan.losses.clone();
        let sent = Sent { target, plan, in_conversation: attempt.read.in_conversation };
        self.forward(attempt, response, permit, names, &losses, |events| {
            Box::new(BlockTap::new(ledger, sent, events))
        })
    }

    /// Passes a reply on as it arrives, with a tap on it, which is told whether it is a stream of
    /// events.
    pub(crate) fn forward(
        &self,
        attempt: &Attempt<'_>,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
        names: Option<ModelAlias>,
        losses: &[Loss],
        tap: impl FnOnce(bool) -> Box<dyn Tap>,
    ) -> Reply {
        let (head, upstream) = response.into_parts();
        let first_byte = milliseconds(attempt.read.asked.began);
        self.counters.first_byte.observe(first_byte);
        let id = {
            let mut turn = attempt.turn.lock();
            turn.status = head.status.as_u16();
            turn.ms.first_byte = Some(first_byte);
            turn.id.clone()
        };
        self.turns.push(attempt.turn.clone());

        let content = head.headers.get(header::CONTENT_TYPE);
        let is = |kind: &[u8]| content.is_some_and(|value| value.as_bytes().starts_with(kind));
        let events = is(b"text/event-stream");
        let shape = match events {
            true => Shape::Events,
            false if is(b"application/json") => Shape::Json,
            false => Shape::Other,
        };
        let encoding = match content_encoding(&head.headers) {
            Some(Encoding::Identity) => Encoded::Plain,
            Some(packed) => Decoder::new(packed, 64 << 20).map_or(Encoded::Unknown, Encoded::Known),
            None => Encoded::Unknown,
        };
        let readable = !matches!(encoding, Encoded::Unknown);
        let names = names.filter(|_| readable);
        let mut reply_headers = headers::client(&head.headers, &attempt.backend.auth);
        if events || names.is_some() {
            reply_headers.remove(header::CONTENT_LENGTH);
        }
        if names.is_some() {
            reply_headers.remove(header::CONTENT_ENCODING);
        }
        let backend = &attempt.backend.name;
        mark(&mut reply_headers, &id, backend, losses);

        let transform = Through::new(Some(tap(events)), shape, encoding, names);
        let body = ReplyBody::live(
            upstream,
            Box::new(transform),
            &attempt.clocks(),
            backend.clone(),
            permit,
        );
        let mut reply = Response::new(body);
        *reply.status_mut() = head.status;
        *reply.headers_mut() = reply_headers;
        reply
    }
}

impl Attempt<'_> {
    /// The names of a model the client calls otherwise.
    pub(crate) fn names(&self, theirs: &str, asked: Option<String>) -> Option<ModelAlias> {
        Some(ModelAlias {
            dialect: self.backend.dialect.passthrough(),
            theirs: theirs.to_owned(),
            asked: asked?,
        })
    }

    /// Who makes the reply.
    pub(crate) fn origin(&self, model: &str, target: &Target) -> Arc<Origin> {
        Arc::new(Origin {
            domain: self.backend.domain.clone(),
            backend: self.backend.name.clone(),
            model: model.to_owned(),
            credential: target.credential.clone(),
        })
    }
}
