//! Sending a request across: once more, changed, where the backend refused the thinking in it.

use bytes::Bytes;
use http::Response;
use throughline_canonical::{BlockKey, Fate, Fault};
use throughline_codec::dialects::{ModelCard, Refusal, RefusalKind, anthropic};

use crate::gateway::Gateway;
use crate::history::adapt::Sent;
use crate::history::prefix_guard::place;
use crate::plan::translate::Prepared;
use crate::turn::Attempt;
use crate::unix_ms;
use crate::upstream::SendError;
use crate::upstream::refusal_policy::{Refused, RejectedBlocks, RetryPlan};
use crate::upstream::send::{UpstreamAnswer, error_text};

impl Gateway {
    /// Sends a request; once more, changed, if the backend refused the thinking in it.
    pub(crate) async fn send_and_recover(
        &self,
        attempt: &Attempt<'_>,
        first: Prepared,
    ) -> Result<(Result<UpstreamAnswer, SendError>, Prepared), Fault> {
        let answer = self.deliver(attempt, &first).await;
        let Ok(UpstreamAnswer::Error(error)) = &answer else {
            return Ok((answer, first));
        };
        let retry = match self.learn_that_model_cannot_think(attempt, &first, error) {
            true => RetryPlan::NoThinkingSetting,
            false => match self.learn_from(attempt, &first, error) {
                Some(retry) => retry,
                None => return Ok((answer, first)),
            },
        };
        let second = self.prepare(attempt, retry).await?;
        if second.outgoing == first.outgoing {
            return Ok((answer, first));
        }
        tracing::info!(
            backend = attempt.backend.name,
            ?retry,
            "sending again without what was refused of thinking"
        );
        self.counters.retried.add(1);
        let answer = self.deliver(attempt, &second).await;
        match &answer {
            // What had to stay behind for it is foreign there.
            Ok(UpstreamAnswer::Ok(_)) if retry == RetryPlan::DropEarlierThinking => {
                let went = |key: &BlockKey| second.sent.iter().any(|sent| sent.key == Some(*key));
                let mut left_out = keys(&first.sent, |_| true);
                left_out.retain(|key| !went(key));
                self.learn_rejected(attempt, &first, &left_out);
            }
            // It is passed on, but what it tells is kept, so that the next request gets further.
            Ok(UpstreamAnswer::Error(error)) => {
                self.learn_from(attempt, &second, error);
            }
            _ => {}
        }
        Ok((answer, second))
    }

    /// Whether the model does not think, and was asked to: then it is not asked again.
    fn learn_that_model_cannot_think(
        &self,
        attempt: &Attempt<'_>,
        prepared: &Prepared,
        error: &Response<Bytes>,
    ) -> bool {
        let status = error.status().as_u16();
        let cannot = prepared.dialect.cannot_think(status, &error_text(error));
        if !cannot || !prepared.thinking.is_wanted() {
            return false;
        }
        let card =
            ModelCard { name: prepared.model.clone(), thinks: Some(false), ..ModelCard::default() };
        attempt.settings.catalog.learn_at(&attempt.backend.name, &card);
        true
    }

    /// Learns from a refusal of thinking, and says what to do about it; nothing if it is about
    /// something else.
    fn learn_from(
        &self,
        attempt: &Attempt<'_>,
        prepared: &Prepared,
        error: &Response<Bytes>,
    ) -> Option<RetryPlan> {
        let status = error.status().as_u16();
        let Refusal { kind, at } = prepared.dialect.refusal(status, &error_text(error))?;
        if kind == RefusalKind::Bound {
            self.learn_binding(&attempt.backend.name);
        }
        let named = at.and_then(|at| named(prepared, at));
        let sent = &prepared.sent;
        let refused = Refused {
            kind,
            named: named.map(|sent| match sent.tried {
                true => Fate::Tried,
                false => Fate::Sent,
            }),
            tried: sent.iter().any(|sent| sent.tried),
            old: sent.iter().any(|sent| !sent.tried && sent.message < prepared.open),
            can_ask: prepared.dialect.name() == anthropic::NAME && !prepared.drop_bound,
            // What a client of another dialect cannot say is not its to miss.
            ours: true,
        };
        let (retry, rejected) = refused.plan_retry()?;
        let rejected = match rejected {
            RejectedBlocks::Tried => keys(sent, |sent| sent.tried),
            RejectedBlocks::Named => named.and_then(|sent| sent.key).into_iter().collect(),
            RejectedBlocks::All => keys(sent, |_| true),
            RejectedBlocks::None => Vec::new(),
        };
        self.learn_rejected(attempt, prepared, &rejected);
        Some(retry)
    }

    /// The backend does not read these.
    fn learn_rejected(&self, attempt: &Attempt<'_>, prepared: &Prepared, rejected: &[BlockKey]) {
        if attempt.read.in_conversation && !rejected.is_empty() {
            let (lineage, session) = (attempt.read.lineage, prepared.session);
            self.memory.refused(lineage, session, &prepared.target, rejected, unix_ms());
        }
    }
}

/// The block that stands at a place of the body that went out.
fn named(prepared: &Prepared, at: (usize, usize)) -> Option<Sent> {
    let mut sent = prepared.sent.clone();
    place(&prepared.outgoing.body, &mut sent)?;
    sent.into_iter().find(|sent| sent.place == Some(at))
}

fn keys(sent: &[Sent], wanted: impl Fn(&Sent) -> bool) -> Vec<BlockKey> {
    let wanted = sent.iter().filter(|sent| wanted(sent));
    wanted.filter_map(|sent| sent.key).collect()
}
