//! The through lane: client and backend speak the same dialect, so the body is edited in place and
//! the reply's bytes are forwarded as they arrive.
//!
//! - [`plan`]: what goes out;
//! - `send`: sending it, once more where thinking was refused;
//! - `passage`: the reply on its way; [`tap`]: reading it beside; [`rename`]: the model's name in it.

mod passage;
pub mod plan;
mod rename;
mod send;
mod tap;

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use throughline_canonical::{Fate, Fault, Origin};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::refusal::error_kind;
use throughline_codec::framing::encoding::{Decoder, Encoding, unpack};
use tokio::sync::OwnedSemaphorePermit;

use self::passage::Encoded;
pub(crate) use self::passage::Through;
use self::plan::{Again, Guard, Plan, Planner};
use self::rename::Names;
use self::tap::{Sent, Tap};
use crate::answer::{Reply, mark};
use crate::asked::content_encoding;
use crate::backend::credential_mark;
use crate::gateway::Gateway;
use crate::headers;
use crate::ledger::milliseconds;
use crate::reply::ReplyBody;
use crate::send::{Back, LONGEST_ERROR, worth_another};
use crate::thinking::memory::{Answer, Question, Target};
use crate::turn::Leg;
use crate::turns::KeptBlock;
use crate::unix_ms;

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
        leg: &Leg<'_>,
        outline: &Outline,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let planned = self.plan(leg, outline, Again::First);
        self.note_plan(leg, &planned);
        match self.send(leg, outline, planned).await {
            Ok((Back::Good(response), planned)) => {
                Ok(Some(self.good(leg, planned, response, place.take())))
            }
            Ok((Back::Refused(error), _)) if !leg.last && worth_another(error.status()) => {
                leg.passed_over(error.status().as_u16());
                Ok(None)
            }
            Ok((Back::Refused(error), planned)) => {
                Ok(Some(self.refused(leg, error, &planned.plan)))
            }
            Err(error) => leg.no_reply(&error).map(|()| None),
        }
    }

    /// What would go to a backend, without sending it.
    pub(crate) fn report_through(&self, leg: &Leg<'_>, outline: &Outline) -> Value {
        let Planned { plan, .. } = self.plan(leg, outline, Again::First);
        let asked = outline.thinking.as_ref().map(|thinking| {
            serde_json::from_slice::<Value>(&leg.read.body[thinking.span.clone()])
                .unwrap_or_default()
        });
        let sent = Outline::read(&plan.body, usize::MAX)
            .ok()
            .and_then(|outline| outline.thinking)
            .and_then(|thinking| serde_json::from_slice(&plan.body[thinking.span]).ok())
            .unwrap_or(Value::Null);
        json!({
            "backend": leg.backend.name,
            "model": plan.model,
            "lane": "through",
            "blocks": plan.blocks.iter().map(KeptBlock::from).collect::<Vec<_>>(),
            "losses": plan.losses,
            "thinking": {"asked": asked, "sent": sent},
        })
    }

    pub(crate) fn plan(&self, leg: &Leg<'_>, outline: &Outline, again: Again) -> Planned {
        let Leg {
            settings,
            read,
            backend,
            ..
        } = *leg;
        let known = settings
            .catalog
            .find(backend.model_for(read.model.as_deref()));
        let target = Target {
            backend: backend.name.as_str().into(),
            domain: backend.domain.as_str().into(),
            credential: credential_mark(&headers::credential(&read.asked, backend)),
            account_bound: known.account_bound,
        };
        let keys: Vec<_> = outline.thinking_blocks().map(|block| block.3).collect();
        let answer = self.memory.ask(&Question {
            lineage: read.lineage,
            target: &target,
            by_active: leg.by_active && again == Again::First,
            // A second look at the same request tells nothing new.
            counts: read.counts && again == Again::First,
            blocks: &keys,
            has_assistant: outline.has_assistant(),
            now: unix_ms(),
            rules: settings.thinking,
        });
        let plan = Planner {
            body: &read.body,
            outline,
            backend,
            model: &known,
            verdicts: &answer.verdicts,
            guard: if self.binds(&backend.name) {
                Guard::Learnt
            } else if known.preserved {
                Guard::Known
            } else {
                Guard::Off
            },
            again,
        }
        .plan();
        Planned {
            plan,
            answer,
            target,
        }
    }

    /// Notes what is about to happen.
    pub(crate) fn note_plan(&self, leg: &Leg<'_>, planned: &Planned) {
        let plan = &planned.plan;
        let mut turn = leg.turn.lock();
        leg.note(
            &mut turn,
            "through",
            leg.backend.dialect.name(),
            planned.answer.session,
        );
        turn.upstream_model.clone_from(&plan.model);
        turn.model = plan
            .asked_model
            .clone()
            .unwrap_or_else(|| plan.model.clone());
        turn.keep_blocks(&plan.blocks);
        turn.losses.clone_from(&plan.losses);
        leg.log_body(&mut turn, &plan.body);
    }

    /// An error of the provider, passed on as it is.
    fn refused(&self, leg: &Leg<'_>, error: Response<Bytes>, plan: &Plan) -> Reply {
        let (head, body) = error.into_parts();
        let status = head.status.as_u16();
        // Its kind, but not its message: that may quote what was sent.
        let kind = content_encoding(&head.headers)
            .and_then(|encoding| unpack(encoding, &body, LONGEST_ERROR).ok())
            .and_then(|text| error_kind(&text));
        let mut reply = Response::new(ReplyBody::whole(body));
        *reply.status_mut() = head.status;
        *reply.headers_mut() = headers::client(&head.headers);
        let id = leg.turn.lock().id.clone();
        mark(reply.headers_mut(), &id, &leg.backend.name, &plan.losses);
        let mut what = format!("the backend refused the request: {status}");
        if let Some(kind) = kind {
            what.push(' ');
            what.push_str(&kind);
        }
        self.failed(leg.turn, leg.read.asked.began, status, &what);
        reply
    }

    /// A reply of the provider, passed on as it arrives.
    fn good(
        &self,
        leg: &Leg<'_>,
        planned: Planned,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Reply {
        let Leg {
            read,
            backend,
            turn,
            ..
        } = *leg;
        let Planned {
            mut plan,
            answer,
            target,
        } = planned;
        // A stream may last for minutes; the request it answers need not.
        plan.body = Bytes::new();
        let (head, upstream) = response.into_parts();
        let first_byte = milliseconds(read.asked.began);
        self.counters.first_byte.observe(first_byte);
        let left_out = plan
            .blocks
            .iter()
            .filter(|block| block.fate == Fate::LeftOut);
        self.counters.filtered.add(left_out.count());
        let id = {
            let mut turn = turn.lock();
            turn.status = head.status.as_u16();
            turn.ms.first_byte = Some(first_byte);
            turn.id.clone()
        };
        self.turns.push(turn.clone());

        let content = head.headers.get(header::CONTENT_TYPE);
        let is = |kind: &[u8]| content.is_some_and(|value| value.as_bytes().starts_with(kind));
        let events = is(b"text/event-stream");
        let encoding = match content_encoding(&head.headers) {
            Some(Encoding::Identity) => Encoded::Plain,
            Some(packed) => Decoder::new(packed, 64 << 20).map_or(Encoded::Unknown, Encoded::Known),
            None => Encoded::Unknown,
        };
        let readable = !matches!(encoding, Encoded::Unknown);
        let asked_model = plan.asked_model.clone().filter(|_| readable);
        let names = asked_model.map(|asked| Names {
            theirs: plan.model.clone(),
            asked,
        });
        let mut reply_headers = headers::client(&head.headers);
        if events || names.is_some() {
            reply_headers.remove(header::CONTENT_LENGTH);
        }
        if names.is_some() {
            reply_headers.remove(header::CONTENT_ENCODING);
        }
        mark(&mut reply_headers, &id, &backend.name, &plan.losses);

        let origin = Arc::new(Origin {
            domain: backend.domain.clone(),
            backend: backend.name.clone(),
            model: plan.model.clone(),
            credential: target.credential.clone(),
        });
        let sent = Sent {
            target,
            plan,
            counts: read.counts,
        };
        let ledger = leg.ledger(self, answer.session, origin);
        let tap = Tap::new(ledger, sent, events);
        let passage = Through::new(Some(tap), events, encoding, names);
        let clocks = leg.clocks();
        let body = ReplyBody::live(
            upstream,
            Box::new(passage),
            &clocks,
            backend.name.clone(),
            permit,
        );
        let mut reply = Response::new(body);
        *reply.status_mut() = head.status;
        *reply.headers_mut() = reply_headers;
        reply
    }
}
