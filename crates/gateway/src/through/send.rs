//! Sending a plan: once more, changed, where the backend refused the thinking in it.

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use throughline_canonical::{BlockKey, Fate};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::refusal::classify;
use throughline_codec::dialects::anthropic::rewrite::ThinkingEdit;
use throughline_codec::dialects::{Refusal, RefusalKind};
use throughline_codec::framing::encoding::unpack;

use super::Planned;
use super::plan::{Plan, PlannedBlock};
use crate::again::{Again, Guilty, Refused};
use crate::asked::{Read, content_encoding};
use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::headers;
use crate::send::{Back, LONGEST_ERROR, Parcel};
use crate::turn::Leg;
use crate::unix_ms;
use crate::upstream::SendError;

impl Gateway {
    /// Sends a plan; once more, changed, if the backend refused the thinking in it.
    pub(crate) async fn send(
        &self,
        leg: &Leg<'_>,
        outline: &Outline,
        planned: Planned,
    ) -> Result<(Back, Planned), SendError> {
        let Leg { read, backend, .. } = *leg;
        let back = self.send_patiently(backend, &parcel(read, backend, &planned.plan)).await?;
        let Back::Refused(error) = &back else {
            return Ok((back, planned));
        };
        let Some(again) = self.mend(leg, outline, &planned, error) else {
            return Ok((back, planned));
        };
        let mut second = self.plan(leg, outline, again).await;
        second.answer.session = planned.answer.session;
        if second.plan.body == planned.plan.body {
            return Ok((back, planned));
        }
        tracing::info!(
            backend = backend.name,
            ?again,
            "sending again without the thinking that was refused"
        );
        self.counters.retried.add(1);
        self.note_plan(leg, &second);
        let back = self.send_patiently(backend, &parcel(read, backend, &second.plan)).await?;
        match &back {
            Back::Good(_) => self.learn_left_out(leg, &planned, &second),
            // It is passed on, but what it tells is kept, so that the next request gets further.
            Back::Refused(error) => {
                self.mend(leg, outline, &second, error);
            }
        }
        Ok((back, second))
    }

    /// Learns from a refusal, and says what to do about it; nothing if it is not about thinking, or
    /// if the caller wants it.
    fn mend(
        &self,
        leg: &Leg<'_>,
        outline: &Outline,
        planned: &Planned,
        error: &Response<Bytes>,
    ) -> Option<Again> {
        let encoding = content_encoding(error.headers())?;
        let text = unpack(encoding, error.body(), LONGEST_ERROR).ok()?;
        let Refusal { kind, at } = classify(error.status().as_u16(), &text)?;
        let caller = outline.thinking.as_ref().and_then(|thinking| thinking.binding.as_deref());
        if caller == Some("error") {
            return None;
        }
        let plan = &planned.plan;
        let named = at.and_then(|(message, index)| plan.sent_at(message, index));
        let named = named.map(|at| &plan.blocks[at]);
        if kind == RefusalKind::Bound {
            self.learn_binding(&leg.backend.name);
        }
        let turn = outline.after_last_user_turn();
        let present = |block: &PlannedBlock| block.message >= turn;
        let mut blocks = plan.blocks.iter();
        let refused = Refused {
            kind,
            named: named.map(|block| block.fate),
            tried: blocks.clone().any(|block| block.fate == Fate::Tried),
            old: blocks.clone().any(|block| block.fate == Fate::Sent && !present(block)),
            can_ask: caller.is_none() && !plan.drop_bound,
            // If thinking stayed behind now, or in an earlier round of a loop that began with it. A
            // loop the caller sent without any is the caller's.
            ours: blocks.any(|block| block.fate == Fate::LeftOut || present(block))
                && plan.thinking != ThinkingEdit::Disabled,
        };
        let (again, guilty) = refused.mend()?;
        let guilty: Vec<_> = match guilty {
            Guilty::Tried => plan.keys(Fate::Tried),
            Guilty::Named => named.and_then(|block| block.key).into_iter().collect(),
            Guilty::All => plan.keys(Fate::Sent),
            Guilty::Nobody => Vec::new(),
        };
        self.learn_refused(leg, planned, &guilty);
        Some(again)
    }

    /// The backend does not read these blocks.
    fn learn_refused(&self, leg: &Leg<'_>, planned: &Planned, refused: &[BlockKey]) {
        if leg.read.counts && !refused.is_empty() {
            let session = planned.answer.session;
            self.memory.refused(leg.read.lineage, session, &planned.target, refused, unix_ms());
        }
    }

    /// The backend took the second try: what had to stay behind for it is foreign there.
    fn learn_left_out(&self, leg: &Leg<'_>, first: &Planned, second: &Planned) {
        let left_out: Vec<_> = first
            .plan
            .blocks
            .iter()
            .zip(&second.plan.blocks)
            .filter(|(before, after)| before.in_body && !after.in_body)
            .filter_map(|(before, _)| before.key)
            .collect();
        self.learn_refused(leg, first, &left_out);
    }
}

/// A plan, ready to go.
fn parcel(read: &Read, backend: &Backend, plan: &Plan) -> Parcel {
    let mut headers = headers::upstream(&read.asked.headers, backend, headers::Body::Read);
    headers::patch_betas(&mut headers, &plan.betas_added, plan.betas_without_adaptive);
    let body = outgoing(read, &plan.body, &mut headers);
    Parcel {
        path: read.asked.path.clone(),
        query: read.asked.query.clone(),
        headers,
        body,
        streamed: read.stream,
    }
}

/// The body that goes out: an unedited one as it came, compressed or not.
pub(super) fn outgoing(read: &Read, body: &Bytes, headers: &mut HeaderMap) -> Bytes {
    let unedited = body.as_ptr() == read.body.as_ptr() && body.len() == read.body.len();
    if unedited {
        return read.raw.clone();
    }
    headers.remove(header::CONTENT_ENCODING);
    body.clone()
}
