//! Sending a request across: once more, changed, where the backend refused the thinking in it.

use bytes::Bytes;
use http::Response;
use throughline_canonical::{BlockKey, Fate, Fault};
use throughline_codec::dialects::{ModelCard, Refusal, RefusalKind, anthropic};

use super::fit::Sent;
use super::guard::place;
use super::prepare::Prepared;
use crate::again::{Again, Guilty, Refused};
use crate::gateway::Gateway;
use crate::send::{Back, error_text};
use crate::turn::Leg;
use crate::unix_ms;
use crate::upstream::SendError;

impl Gateway {
    /// Sends a request; once more, changed, if the backend refused the thinking in it.
    pub(super) async fn deliver_patiently(
        &self,
        leg: &Leg<'_>,
        first: Prepared,
    ) -> Result<(Result<Back, SendError>, Prepared), Fault> {
        let back = self.deliver(leg, &first).await;
        let Ok(Back::Refused(error)) = &back else {
            return Ok((back, first));
        };
        let again = match self.learns_not_to_ask(leg, &first, error) {
            true => Again::AsItIs,
            false => match self.learn_from(leg, &first, error) {
                Some(again) => again,
                None => return Ok((back, first)),
            },
        };
        let second = self.prepare(leg, again).await?;
        if second.outgoing == first.outgoing {
            return Ok((back, first));
        }
        tracing::info!(
            backend = leg.backend.name,
            ?again,
            "sending again without what was refused of thinking"
        );
        self.counters.retried.add(1);
        let back = self.deliver(leg, &second).await;
        match &back {
            // What had to stay behind for it is foreign there.
            Ok(Back::Good(_)) if again == Again::WithoutOld => {
                let went = |key: &BlockKey| second.sent.iter().any(|sent| sent.key == Some(*key));
                let mut left_out = keys(&first.sent, |_| true);
                left_out.retain(|key| !went(key));
                self.learn_guilty(leg, &first, &left_out);
            }
            // It is passed on, but what it tells is kept, so that the next request gets further.
            Ok(Back::Refused(error)) => {
                self.learn_from(leg, &second, error);
            }
            _ => {}
        }
        Ok((back, second))
    }

    /// Whether the model does not think, and was asked to: then it is not asked again.
    fn learns_not_to_ask(
        &self,
        leg: &Leg<'_>,
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
        leg.settings.catalog.learn_at(&leg.backend.name, &card);
        true
    }

    /// Learns from a refusal of thinking, and says what to do about it; nothing if it is about
    /// something else.
    fn learn_from(
        &self,
        leg: &Leg<'_>,
        prepared: &Prepared,
        error: &Response<Bytes>,
    ) -> Option<Again> {
        let status = error.status().as_u16();
        let Refusal { kind, at } = prepared.dialect.refusal(status, &error_text(error))?;
        if kind == RefusalKind::Bound {
            self.learn_binding(&leg.backend.name);
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
        let (again, guilty) = refused.mend()?;
        let guilty = match guilty {
            Guilty::Tried => keys(sent, |sent| sent.tried),
            Guilty::Named => named.and_then(|sent| sent.key).into_iter().collect(),
            Guilty::All => keys(sent, |_| true),
            Guilty::Nobody => Vec::new(),
        };
        self.learn_guilty(leg, prepared, &guilty);
        Some(again)
    }

    /// The backend does not read these.
    fn learn_guilty(&self, leg: &Leg<'_>, prepared: &Prepared, guilty: &[BlockKey]) {
        if leg.read.counts && !guilty.is_empty() {
            let (lineage, session) = (leg.read.lineage, prepared.session);
            self.memory.refused(lineage, session, &prepared.target, guilty, unix_ms());
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
