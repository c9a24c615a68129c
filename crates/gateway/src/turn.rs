//! The path of a turn on the through lane: the client and the backend speak the same dialect.
//!
//! Read [`Gateway::turn`] first; everything else here is one of its steps.

use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::anthropic::outline::Outline;
use tokio::sync::OwnedSemaphorePermit;

use crate::answer::{Reply, Unanswered, tell};
use crate::asked::{Asked, Read, read};
use crate::backend::{Auth, Backend, credential_mark};
use crate::catalog;
use crate::gateway::{Gateway, may_have_key};
use crate::headers;
use crate::plan::{Again, Guard, Plan, Planner};
use crate::send::{Back, worth_another};
use crate::settings::Settings;
use crate::thinking::memory::{Answer, Question, Target};
use crate::turns::{KeptBlock, SharedTurn};
use crate::unix_ms;

/// A plan for one backend, with the memory's answer it was made from.
pub(crate) struct Planned {
    pub(crate) plan: Plan,
    pub(crate) answer: Answer,
    pub(crate) target: Target,
}

/// One backend, asked in one turn.
#[derive(Clone, Copy)]
pub(crate) struct Leg<'a> {
    pub(crate) settings: &'a Arc<Settings>,
    pub(crate) read: &'a Read,
    pub(crate) backend: &'a Arc<Backend>,
    pub(crate) turn: &'a SharedTurn,
}

impl Gateway {
    /// One turn: from the client's bytes to the provider's.
    pub async fn turn(&self, asked: Asked, body: Bytes, place: OwnedSemaphorePermit) -> Reply {
        let settings = self.settings();
        let began = asked.began;
        let turn = self.begin(&asked);
        let _unanswered = Unanswered::new(self, &turn, began);
        match self.go(&settings, asked, body, &turn, place).await {
            Ok(reply) => reply,
            Err(fault) => {
                let (id, backend) = {
                    let turn = turn.lock();
                    (turn.id.clone(), turn.backend.clone())
                };
                let reply = tell(&fault, &id, &backend);
                self.failed(&turn, began, reply.status().as_u16(), &fault.message);
                reply
            }
        }
    }

    async fn go(
        &self,
        settings: &Arc<Settings>,
        asked: Asked,
        body: Bytes,
        turn: &SharedTurn,
        place: OwnedSemaphorePermit,
    ) -> Result<Reply, Fault> {
        let read = read(settings, asked, body)?;
        let model = read.outline.model.as_ref().map(|model| model.name.as_str());
        let chosen =
            settings
                .routes
                .choose(settings, read.asked.pin.as_deref(), model, &self.active())?;

        let chain = without_strangers(&chosen.chain);
        for (at, backend) in chain.iter().enumerate() {
            let by_active = chosen.by_active && at == 0;
            let planned = self.plan(settings, &read, backend, by_active, Again::First);
            let leg = Leg {
                settings,
                read: &read,
                backend,
                turn,
            };
            self.note(&leg, &planned);
            let last = at + 1 == chain.len();
            match self.send(&leg, planned).await {
                Ok((Back::Good(response), planned)) => {
                    return Ok(self.good(&leg, planned, response, place));
                }
                Ok((Back::Refused(error), planned)) => {
                    if last || !worth_another(error.status()) {
                        return Ok(self.refused(&leg, error, &planned.plan));
                    }
                    let status = error.status().as_u16();
                    tracing::warn!(backend = backend.name, status, "trying the next backend");
                }
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(backend = backend.name, error = cause, "no reply");
                    if last {
                        return Err(error.fault());
                    }
                }
            }
        }
        Err(Fault::new(FaultKind::Internal, "no backend could be asked"))
    }

    /// What would go to a backend, without sending it.
    pub fn report(&self, asked: Asked, body: Bytes) -> Result<serde_json::Value, Fault> {
        let settings = self.settings();
        let mut read = read(&settings, asked, body)?;
        read.counts = false;
        let model = read.outline.model.as_ref().map(|model| model.name.as_str());
        let active = self.active();
        let pin = read.asked.pin.as_deref();
        let chosen = settings.routes.choose(&settings, pin, model, &active)?;
        let backend = &chosen.chain[0];
        let by_active = chosen.by_active || pin == Some(&*active);
        let Planned { plan, .. } = self.plan(&settings, &read, backend, by_active, Again::First);
        let asked = read.outline.thinking.as_ref().map(|thinking| {
            serde_json::from_slice::<serde_json::Value>(&read.body[thinking.span.clone()])
                .unwrap_or_default()
        });
        let sent = Outline::read(&plan.body, usize::MAX)
            .ok()
            .and_then(|outline| outline.thinking)
            .and_then(|thinking| serde_json::from_slice(&plan.body[thinking.span]).ok())
            .unwrap_or(serde_json::Value::Null);
        Ok(serde_json::json!({
            "backend": backend.name,
            "model": plan.model,
            "lane": "through",
            "blocks": plan.blocks.iter().map(KeptBlock::from).collect::<Vec<_>>(),
            "losses": plan.losses,
            "thinking": {"asked": asked, "sent": sent},
        }))
    }

    pub(crate) fn plan(
        &self,
        settings: &Settings,
        read: &Read,
        backend: &Arc<Backend>,
        by_active: bool,
        again: Again,
    ) -> Planned {
        let asked_model = read.outline.model.as_ref().map(|model| model.name.as_str());
        let known = catalog::find(backend.model_for(asked_model));
        let target = Target {
            backend: backend.name.as_str().into(),
            domain: backend.domain.as_str().into(),
            credential: credential_mark(&headers::credential(&read.asked.headers, backend)),
            account_bound: known.account_bound,
        };
        let keys: Vec<_> = read
            .outline
            .thinking_blocks()
            .map(|block| block.3)
            .collect();
        let answer = self.memory.ask(&Question {
            lineage: read.lineage,
            target: &target,
            by_active,
            // A second look at the same request tells nothing new.
            counts: read.counts && again == Again::First,
            blocks: &keys,
            has_assistant: read.outline.has_assistant(),
            now: unix_ms(),
            rules: settings.thinking,
        });
        let plan = Planner {
            body: &read.body,
            outline: &read.outline,
            backend,
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
}

/// The backends of a chain, without those that would get a caller's key that goes elsewhere: only
/// the operator can say that they may.
fn without_strangers(chain: &[Arc<Backend>]) -> Vec<&Arc<Backend>> {
    let key_site = chain
        .iter()
        .find(|backend| backend.auth == Auth::Passthrough)
        .map(|backend| backend.site());
    let may = |backend: &&Arc<Backend>| {
        let may = key_site
            .as_ref()
            .is_none_or(|site| may_have_key(backend, site));
        if !may {
            tracing::warn!(
                backend = backend.name,
                "not used as a fallback: it would get the caller's key, see `share_caller_key`"
            );
        }
        may
    };
    chain.iter().filter(may).collect()
}
