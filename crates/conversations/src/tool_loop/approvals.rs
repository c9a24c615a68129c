//! Calls that wait for a person, and what people decide about them. A decision may arrive at any
//! instance: the instance that runs the loop finds it in the store.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;
use tokio::sync::mpsc;

use crate::chat_seal::{ChatSeal, Field};
use crate::store::{Reference, Run, Store};

/// How long a decision is kept for the instance that runs the loop, in milliseconds.
const RETENTION: u64 = 60 * 60 * 1_000;

/// How many decisions of a run may wait to be taken.
const MAX_DECISIONS: usize = 1_024;
/// Decisions are sealed as parts of the log, which begins with 1.
const FIELD: Field = Field::Log(0);

/// What a person decides about a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether the call may go on.
    pub approve: bool,
    /// The answer, if the tool asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// The calls of this process that wait.
#[derive(Debug, Default)]
pub struct Approvals {
    runs: Mutex<HashMap<String, RunApprovals>>,
}

#[derive(Debug)]
struct RunApprovals {
    waiting: Vec<String>,
    decisions: mpsc::Sender<(String, Decision)>,
}

/// The result of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    /// The loop gets it.
    Yes,
    /// The run is not of this process.
    NotHere,
    /// The call does not wait.
    NotWaiting,
}

/// The decisions about the calls of one run. The run is registered until this is dropped.
#[derive(Debug)]
pub(crate) struct Decisions {
    approvals: Arc<Approvals>,
    run: String,
    received: mpsc::Receiver<(String, Decision)>,
}

impl Approvals {
    /// Registers a run.
    pub(crate) fn register(self: &Arc<Self>, run: &str) -> Decisions {
        let (decisions, received) = mpsc::channel(MAX_DECISIONS);
        let approvals = RunApprovals { waiting: Vec::new(), decisions };
        self.runs.lock().insert(run.to_owned(), approvals);
        Decisions { approvals: self.clone(), run: run.to_owned(), received }
    }

    /// Decides about a call of a run of this process.
    pub fn decide(&self, run: &str, call: &str, decision: Decision) -> Delivered {
        let mut runs = self.runs.lock();
        let Some(approvals) = runs.get_mut(run) else {
            return Delivered::NotHere;
        };
        let Some(at) = approvals.waiting.iter().position(|waiting| waiting == call) else {
            return Delivered::NotWaiting;
        };
        // The loop takes decisions at once, so a full queue is one that nothing reads any more.
        if approvals.decisions.try_send((call.to_owned(), decision)).is_err() {
            return Delivered::NotWaiting;
        }
        // The first decision counts.
        approvals.waiting.remove(at);
        Delivered::Yes
    }

    /// The calls of a run of this process that wait.
    pub fn waiting(&self, run: &str) -> Option<Vec<String>> {
        self.runs.lock().get(run).map(|approvals| approvals.waiting.clone())
    }
}

impl Decisions {
    /// Lets people decide about these calls.
    pub(crate) fn ask(&self, calls: &[String]) {
        if let Some(approvals) = self.approvals.runs.lock().get_mut(&self.run) {
            approvals.waiting.extend(calls.iter().cloned());
        }
    }

    /// Ends the wait of a call: decisions about it are refused.
    pub(crate) fn withdraw(&self, call: &str) {
        if let Some(approvals) = self.approvals.runs.lock().get_mut(&self.run) {
            approvals.waiting.retain(|waiting| waiting != call);
        }
    }

    /// The calls that wait.
    pub(crate) fn waiting(&self) -> Vec<String> {
        self.approvals.waiting(&self.run).unwrap_or_default()
    }

    /// Waits for the next decision. Nothing is lost if this is cancelled.
    pub(crate) async fn next(&mut self) -> (String, Decision) {
        match self.received.recv().await {
            Some(decided) => decided,
            None => std::future::pending().await,
        }
    }

    /// Looks for decisions that other instances have taken.
    pub(crate) async fn take_stored(
        &self,
        store: &dyn Store,
        seal: &ChatSeal,
    ) -> Result<(), StoreError> {
        for call in self.waiting() {
            let id = reference_id(&self.run, &call);
            let Some(found) = store.reference(&id).await? else { continue };
            let decision = seal.open_json(FIELD, &id, &found.sealed)?;
            store.remove_reference(&id).await?;
            self.approvals.decide(&self.run, &call, decision);
        }
        Ok(())
    }
}

impl Drop for Decisions {
    fn drop(&mut self) {
        self.approvals.runs.lock().remove(&self.run);
    }
}

/// Stores a decision for the instance that runs the loop. Returns false if there is one already.
pub(crate) async fn store_decision(
    store: &dyn Store,
    seal: &ChatSeal,
    run: &Run,
    call: &str,
    decision: &Decision,
) -> Result<bool, StoreError> {
    let id = reference_id(&run.id, call);
    if store.reference(&id).await?.is_some() {
        return Ok(false);
    }
    let reference = Reference {
        sealed: seal.seal_json(FIELD, &id, decision),
        id,
        owner: run.owner.clone(),
        expires: Some(unix_ms() + RETENTION),
        ..Reference::default()
    };
    store.put_reference(reference).await?;
    Ok(true)
}

fn reference_id(run: &str, call: &str) -> String {
    crate::store::bounded_name(&format!("approval:{run}:{call}")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn first_decision_about_a_waiting_call_counts() {
        let approvals = Arc::new(Approvals::default());
        let yes = Decision { approve: true, input: None };
        assert_eq!(approvals.decide("r", "c", yes.clone()), Delivered::NotHere);
        let mut decisions = approvals.register("r");
        assert_eq!(approvals.decide("r", "c", yes.clone()), Delivered::NotWaiting);
        decisions.ask(&["c".to_owned(), "d".to_owned()]);
        assert_eq!(approvals.decide("r", "c", yes.clone()), Delivered::Yes);
        assert_eq!(approvals.decide("r", "c", Decision::default()), Delivered::NotWaiting);
        assert_eq!(decisions.next().await, ("c".to_owned(), yes.clone()));
        decisions.withdraw("d");
        assert_eq!(approvals.decide("r", "d", yes.clone()), Delivered::NotWaiting);
        drop(decisions);
        assert_eq!(approvals.decide("r", "c", yes), Delivered::NotHere);
    }
}
