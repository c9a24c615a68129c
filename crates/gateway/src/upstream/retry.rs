//! Sends a plan, and sends it once more if the backend refused the thinking in it. This is the only
//! code that learns from a refusal.

use bytes::Bytes;
use http::Response;
use throughline_canonical::{BlockKey, Fault};
use throughline_codec::dialects::{ModelCard, RefusalKind};

use crate::gateway::Gateway;
use crate::plan::{LaneChoice, Plan};
use crate::turn::Attempt;
use crate::unix_ms;
use crate::upstream::SendError;
use crate::upstream::refusal_policy::{RejectedBlocks, RetryPlan};
use crate::upstream::send::{UpstreamAnswer, error_text};

/// The backend's answer, and the plan it answers.
pub(crate) type AnsweredPlan = (Result<UpstreamAnswer, SendError>, Box<dyn Plan>);

impl Gateway {
    /// Sends a plan. If the backend refused the thinking in it, sends a changed plan once.
    pub(crate) async fn send_and_recover(
        &self,
        attempt: &Attempt<'_>,
        lane: &LaneChoice<'_>,
        first: Box<dyn Plan>,
    ) -> Result<AnsweredPlan, Fault> {
        let outbound = first.outbound(attempt);
        attempt.record_plan(&*first);
        let answer = self.send_with_retries(attempt.backend, &outbound).await;
        let Ok(UpstreamAnswer::Error(error)) = &answer else {
            return Ok((answer, first));
        };
        let Some(retry) = self.learn_from_refusal(attempt, &*first, error) else {
            return Ok((answer, first));
        };
        let mut second = self.plan(attempt, lane, retry).await?;
        let changed = second.outbound(attempt);
        if changed == outbound {
            return Ok((answer, first));
        }
        second.decision_mut().session = first.decision().session;
        let backend = &attempt.backend.name;
        tracing::info!(backend, ?retry, "retrying without the refused thinking");
        self.metrics.retried.increment();
        attempt.record_plan(&*second);
        let answer = self.send_with_retries(attempt.backend, &changed).await;
        match &answer {
            // The backend accepted the rest, so it cannot read the dropped blocks.
            Ok(UpstreamAnswer::Ok(_)) if retry == RetryPlan::DropEarlierThinking => {
                let sent = second.sent_keys(RejectedBlocks::All);
                let mut dropped = first.sent_keys(RejectedBlocks::All);
                dropped.retain(|key| !sent.contains(key));
                self.learn_rejected(attempt, &*first, &dropped);
            }
            // The client gets this error. Learn from it, so that the next request succeeds.
            Ok(UpstreamAnswer::Error(error)) => {
                self.learn_from_refusal(attempt, &*second, error);
            }
            _ => {}
        }
        Ok((answer, second))
    }

    /// Learns from a refusal and decides how to retry. `None` if the error has another cause, or if
    /// the caller wants the refusal.
    fn learn_from_refusal(
        &self,
        attempt: &Attempt<'_>,
        plan: &dyn Plan,
        error: &Response<Bytes>,
    ) -> Option<RetryPlan> {
        let (status, text) = (error.status().as_u16(), error_text(error));
        let decision = plan.decision();
        if plan.asks_for_thinking() && decision.dialect.cannot_think(status, &text) {
            let name = decision.model.clone();
            let card = ModelCard { name, thinks: Some(false), ..ModelCard::default() };
            attempt.settings.catalog.learn_at(&attempt.backend.name, &card);
            return Some(RetryPlan::NoThinkingSetting);
        }
        let refusal = decision.dialect.refusal(status, &text)?;
        let (refused, named) = plan.refused(attempt, &refusal)?;
        if refused.kind == RefusalKind::Bound {
            self.learn_binding(&attempt.backend.name);
        }
        let (retry, rejected) = refused.plan_retry()?;
        let rejected = match rejected {
            RejectedBlocks::Named => named.into_iter().collect(),
            RejectedBlocks::None => Vec::new(),
            which => plan.sent_keys(which),
        };
        self.learn_rejected(attempt, plan, &rejected);
        Some(retry)
    }

    /// Remembers that the backend cannot read these blocks.
    fn learn_rejected(&self, attempt: &Attempt<'_>, plan: &dyn Plan, rejected: &[BlockKey]) {
        if attempt.request.in_conversation && !rejected.is_empty() {
            let (lineage, decision) = (attempt.request.lineage, plan.decision());
            self.memory.refused(lineage, decision.session, &decision.target, rejected, unix_ms());
        }
    }
}
