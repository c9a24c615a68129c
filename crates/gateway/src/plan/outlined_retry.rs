//! Sending a plan: once more, changed, where the backend refused the thinking in it.

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use throughline_canonical::{BlockKey, Fate};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::refusal::classify;
use throughline_codec::dialects::anthropic::rewrite::ThinkingEdit;
use throughline_codec::dialects::{Refusal, RefusalKind};
use throughline_codec::framing::encoding::unpack;

use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::outlined::{Plan, PlannedBlock};
use crate::plan::passthrough::Planned;
use crate::turn::Attempt;
use crate::turn::request::{ParsedRequest, content_encoding};
use crate::unix_ms;
use crate::upstream::SendError;
use crate::upstream::refusal_policy::{Refused, RejectedBlocks, RetryPlan};
use crate::upstream::send::{MAX_ERROR_BYTES, OutboundRequest, UpstreamAnswer};

impl Gateway {
    /// Sends a plan; once more, changed, if the backend refused the thinking in it.
    pub(crate) async fn send(
        &self,
        attempt: &Attempt<'_>,
        outline: &Outline,
        planned: Planned,
    ) -> Result<(UpstreamAnswer, Planned), SendError> {
        let Attempt { read, backend, .. } = *attempt;
        let answer =
            self.send_with_retries(backend, &outbound(read, backend, &planned.plan)).await?;
        let UpstreamAnswer::Error(error) = &answer else {
            return Ok((answer, planned));
        };
        let Some(retry) = self.learn_from_refusal(attempt, outline, &planned, error) else {
            return Ok((answer, planned));
        };
        let mut second = self.plan(attempt, outline, retry).await;
        second.answer.session = planned.answer.session;
        if second.plan.body == planned.plan.body {
            return Ok((answer, planned));
        }
        tracing::info!(
            backend = backend.name,
            ?retry,
            "sending again without the thinking that was refused"
        );
        self.counters.retried.add(1);
        self.note_plan(attempt, &second);
        let answer =
            self.send_with_retries(backend, &outbound(read, backend, &second.plan)).await?;
        match &answer {
            UpstreamAnswer::Ok(_) => self.learn_left_out(attempt, &planned, &second),
            // It is passed on, but what it tells is kept, so that the next request gets further.
            UpstreamAnswer::Error(error) => {
                self.learn_from_refusal(attempt, outline, &second, error);
            }
        }
        Ok((answer, second))
    }

    /// Learns from a refusal, and says what to do about it; nothing if it is not about thinking, or
    /// if the caller wants it.
    fn learn_from_refusal(
        &self,
        attempt: &Attempt<'_>,
        outline: &Outline,
        planned: &Planned,
        error: &Response<Bytes>,
    ) -> Option<RetryPlan> {
        let encoding = content_encoding(error.headers())?;
        let text = unpack(encoding, error.body(), MAX_ERROR_BYTES).ok()?;
        let Refusal { kind, at } = classify(error.status().as_u16(), &text)?;
        let caller = outline.thinking.as_ref().and_then(|thinking| thinking.binding.as_deref());
        if caller == Some("error") {
            return None;
        }
        let plan = &planned.plan;
        let named = at.and_then(|(message, index)| plan.sent_at(message, index));
        let named = named.map(|at| &plan.blocks[at]);
        if kind == RefusalKind::Bound {
            self.learn_binding(&attempt.backend.name);
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
        let (retry, rejected) = refused.plan_retry()?;
        let rejected: Vec<_> = match rejected {
            RejectedBlocks::Tried => plan.keys(Fate::Tried),
            RejectedBlocks::Named => named.and_then(|block| block.key).into_iter().collect(),
            RejectedBlocks::All => plan.keys(Fate::Sent),
            RejectedBlocks::None => Vec::new(),
        };
        self.learn_refused(attempt, planned, &rejected);
        Some(retry)
    }

    /// The backend does not read these blocks.
    fn learn_refused(&self, attempt: &Attempt<'_>, planned: &Planned, refused: &[BlockKey]) {
        if attempt.read.in_conversation && !refused.is_empty() {
            let session = planned.answer.session;
            self.memory.refused(attempt.read.lineage, session, &planned.target, refused, unix_ms());
        }
    }

    /// The backend took the second try: what had to stay behind for it is foreign there.
    fn learn_left_out(&self, attempt: &Attempt<'_>, first: &Planned, second: &Planned) {
        let left_out: Vec<_> = first
            .plan
            .blocks
            .iter()
            .zip(&second.plan.blocks)
            .filter(|(before, after)| before.in_body && !after.in_body)
            .filter_map(|(before, _)| before.key)
            .collect();
        self.learn_refused(attempt, first, &left_out);
    }
}

/// A plan, ready to go.
fn outbound(read: &ParsedRequest, backend: &Backend, plan: &Plan) -> OutboundRequest {
    let mut headers = headers::upstream(&read.asked.headers, backend, headers::Body::Read);
    headers::patch_betas(&mut headers, &plan.betas_added, plan.betas_without_adaptive);
    let body = outgoing(read, &plan.body, &mut headers);
    OutboundRequest {
        path: read.asked.path.clone(),
        query: read.asked.query.clone(),
        headers,
        body,
        streamed: read.stream,
    }
}

/// The body that goes out: an unedited one as it came, compressed or not.
pub(crate) fn outgoing(read: &ParsedRequest, body: &Bytes, headers: &mut HeaderMap) -> Bytes {
    let unedited = body.as_ptr() == read.body.as_ptr() && body.len() == read.body.len();
    if unedited {
        return read.raw.clone();
    }
    headers.remove(header::CONTENT_ENCODING);
    body.clone()
}
