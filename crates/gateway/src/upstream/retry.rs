//! Sends a plan, and sends a changed one if the backend refused it. [`RetryPlan::may_follow`] says which
//! change may follow which; refused settings are adapted up to three times. This is the only code
//! that learns from a refusal.

use bytes::Bytes;
use http::Response;
use throughline_canonical::{BlockKey, Fault};
use throughline_codec::dialects::RefusalKind;

use crate::gateway::Gateway;
use crate::history::compaction::compaction_keys;
use crate::plan::{LaneChoice, Plan};
use crate::turn::Attempt;
use crate::unix_ms;
use crate::upstream::SendError;
use crate::upstream::refusal_policy::{RejectedBlocks, RetryPlan};
use crate::upstream::send::{UpstreamAnswer, error_text};

/// How often the settings of one request are adapted to what its model refuses.
const MAX_ADAPTED: usize = 3;

/// The backend's answer, and the plan it answers.
pub(crate) type AnsweredPlan = (Result<UpstreamAnswer, SendError>, Box<dyn Plan>);

impl Gateway {
    /// Sends a plan. If the backend refused a part of the history, sends a changed plan. If it
    /// refused the thinking setting, sends one that is adapted to what the refusal says. That may
    /// show another limit of the model, but only a few.
    pub(crate) async fn send_and_recover(
        &self,
        attempt: &Attempt<'_>,
        lane: &LaneChoice<'_>,
        first: Box<dyn Plan>,
    ) -> Result<AnsweredPlan, Fault> {
        let summaries_as_text = LaneChoice::Translate { summaries_as_text: true };
        let mut lane = lane;
        let mut plan = first;
        let mut outbound = plan.outbound(attempt);
        attempt.record_plan(&*plan);
        let mut answer = self.send_with_retries(attempt, &outbound).await;
        let (mut adapted, mut dropping) = (0, RetryPlan::First);
        while let Ok(UpstreamAnswer::Error(error)) = &answer {
            // Even if the client gets this error, learn from it, so that the next request succeeds.
            let retry = match self.learn_from_refusal(attempt, &*plan, error) {
                Some(RetryPlan::AdaptSettings) if adapted < MAX_ADAPTED => {
                    adapted += 1;
                    match dropping {
                        RetryPlan::First => RetryPlan::AdaptSettings,
                        earlier => earlier,
                    }
                }
                Some(retry) if retry.may_follow(dropping) => {
                    dropping = retry;
                    retry
                }
                _ => break,
            };
            if retry == RetryPlan::SummaryAsText {
                // Later changes keep the summaries as text.
                lane = &summaries_as_text;
            }
            let mut next = self.plan(attempt, lane, retry).await?;
            let changed = next.outbound(attempt);
            if changed == outbound {
                break;
            }
            next.decision_mut().session = plan.decision().session;
            let backend = &attempt.backend.name;
            tracing::info!(backend, ?retry, "sending the request again, changed after a refusal");
            self.metrics.retried.increment();
            attempt.record_plan(&*next);
            answer = self.send_with_retries(attempt, &changed).await;
            // The backend accepted the rest, so it cannot read the dropped blocks.
            if retry == RetryPlan::DropEarlierThinking
                && matches!(answer, Ok(UpstreamAnswer::Ok(_)))
            {
                let sent = next.sent_keys(RejectedBlocks::All);
                let mut dropped = plan.sent_keys(RejectedBlocks::All);
                dropped.retain(|key| !sent.contains(key));
                self.learn_rejected(attempt, &*plan, &dropped);
            }
            (plan, outbound) = (next, changed);
        }
        Ok((answer, plan))
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
        if plan.continues_stored_reply() && decision.dialect.has_lost_reply(status, &text) {
            return Some(RetryPlan::WholeHistory);
        }
        if plan.sets_thinking()
            && let Some(refused) = decision.dialect.refused_setting(status, &text)
        {
            self.learn_refused_setting(attempt, &decision.model, &refused);
            return Some(RetryPlan::AdaptSettings);
        }
        let refusal = decision.dialect.refusal(status, &text)?;
        if refusal.kind == RefusalKind::Compaction {
            self.learn_rejected(attempt, plan, &compaction_keys(attempt));
            return Some(RetryPlan::SummaryAsText);
        }
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
