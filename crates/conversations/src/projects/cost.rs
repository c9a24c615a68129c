//! What answers cost, and whether they kept to their budget for thinking.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use throughline_canonical::{Cost, Origin, Usage};
use throughline_gateway::settings::Settings;
use throughline_gateway::thinking::store::StoreError;
use utoipa::ToSchema;

use super::answer::{Answer, RunContent};
use super::problem::Problem;
use super::{Caller, Projects};
use crate::runs::canonical::Driven;
use crate::store::{CostSum, RunCost};

/// What answers have cost.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CostView {
    /// The sum of what is known. `null` if no price is known.
    pub total: Option<f64>,
    /// The currency: `USD`.
    pub currency: &'static str,
    /// The part of each member of a room, by the id of its channel.
    pub channels: BTreeMap<String, Option<f64>>,
    /// How many answers there are.
    pub answers: u64,
    /// How many of them have tokens without a known price, or no token counts. The total lacks these.
    pub unpriced_answers: u64,
    /// How many tokens have no known price.
    pub unpriced_tokens: u64,
}

impl From<Vec<CostSum>> for CostView {
    fn from(sums: Vec<CostSum>) -> Self {
        let mut all = CostSum::default();
        for sum in &sums {
            all.cost = all.cost.plus(sum.cost);
            all.answers += sum.answers;
            all.unpriced_answers += sum.unpriced_answers;
        }
        let of_channel = |sum: &CostSum| Some((sum.channel.clone()?, dollars(sum)));
        Self {
            total: dollars(&all),
            currency: "USD",
            channels: sums.iter().filter_map(of_channel).collect(),
            answers: all.answers,
            unpriced_answers: all.unpriced_answers,
            unpriced_tokens: all.cost.unpriced_tokens,
        }
    }
}

/// The sum in dollars, unless nothing of it is known.
fn dollars(sum: &CostSum) -> Option<f64> {
    let is_unknown = sum.cost.picodollars == 0 && sum.unpriced_answers > 0;
    sum.cost.dollars().filter(|_| !is_unknown)
}

/// What the reply to one request of an answer used, and who made it.
struct RoundUsage<'a> {
    origin: Option<&'a Origin>,
    usage: Usage,
}

/// What an answer has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spent {
    /// The cost. `None` if the provider has reported no tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<Cost>,
    /// How many tokens of thinking were above the budgets of its requests.
    pub(super) over_budget: u64,
}

impl Spent {
    /// Adds up requests. Each has its own price, because the length of its input counts, and its own budget.
    fn new(settings: &Settings, run: &RunContent, rounds: &[RoundUsage<'_>]) -> Self {
        let mut spent = Self::default();
        for RoundUsage { origin, usage } in rounds {
            let made = origin.map(|origin| (&*origin.backend, &*origin.model));
            let (backend, model) = made.unwrap_or((&run.provider, &run.model));
            if let Some(cost) = settings.tariff(backend, model).cost(usage) {
                spent.cost = Some(spent.cost.unwrap_or_default().plus(cost));
            }
            if let Some((thinking, budget)) = usage.thinking.zip(run.thinking_budget) {
                spent.over_budget += thinking.saturating_sub(budget);
            }
        }
        spent
    }
}

impl Answer {
    /// What the answer has spent until now.
    pub(super) fn spent(&self, driven: &Driven) -> Spent {
        let maker = self.sent.lock().maker.clone();
        let finished = driven.rounds.iter().map(|round| RoundUsage {
            origin: round.facts.origin.as_ref(),
            usage: round.facts.usage,
        });
        let mut rounds: Vec<RoundUsage<'_>> = finished.collect();
        let before = rounds.iter().fold(Usage::default(), |sum, round| sum.plus(round.usage));
        let logged = rounds.iter().rev().find_map(|round| round.origin);
        rounds.push(RoundUsage {
            origin: maker.as_ref().map(|maker| &maker.origin).or(logged),
            usage: driven.reply.usage.minus(before),
        });
        Spent::new(&self.projects.gateway.settings(), &self.content, &rounds)
    }

    /// The cost of the run, for the store. `None` if no model has answered.
    pub(super) fn run_cost(&self, driven: &Driven) -> Option<RunCost> {
        let cost = self.spent(driven).cost;
        if cost.is_none() && driven.reply.content.is_empty() {
            return None;
        }
        let room = self.content.room.as_ref();
        Some(RunCost {
            run: self.id.clone(),
            project: self.content.project.clone(),
            room: room.map(|room| room.room.clone()),
            channel: room.map(|room| room.channel.clone()),
            cost,
        })
    }
}

impl Projects {
    /// What all answers of a project have cost.
    pub async fn cost(&self, caller: &Caller, id: &str) -> Result<CostView, Problem> {
        let project = self.own_project(caller, id).await?;
        Ok(self.cost_of(&project.id, None).await?)
    }

    /// What the answers of a project have cost, or those in one of its rooms.
    pub(crate) async fn cost_of(
        &self,
        project: &str,
        room: Option<&str>,
    ) -> Result<CostView, StoreError> {
        Ok(self.sealed_store.store.costs(project, room).await?.into())
    }
}
