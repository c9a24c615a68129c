//! Calls that wait for a person, and what people decide about them. A decision may arrive at any
//! instance: the instance that runs the loop finds it in the store.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use throughline_canonical::Event;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;
use tokio::sync::mpsc;

use crate::chat_seal::{ChatSeal, Field};
use crate::runs::log::Entry;
use crate::store::{Commit, Outcome, Reference, Run, Store};

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
    waiting: Vec<Waiting>,
    decisions: mpsc::Sender<(String, Decision)>,
}

/// A call that waits.
#[derive(Debug)]
struct Waiting {
    call: String,
    /// The number of the entry that asks, as soon as it is in the log.
    question: Option<u64>,
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
        let Some(at) = approvals.waiting.iter().position(|waiting| waiting.call == call) else {
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

    /// Whether a call waits. `None` if its run is not of this process.
    pub fn is_waiting(&self, run: &str, call: &str) -> Option<bool> {
        let runs = self.runs.lock();
        runs.get(run).map(|of| of.waiting.iter().any(|waiting| waiting.call == call))
    }
}

impl Decisions {
    /// Lets people decide about these calls.
    pub(crate) fn ask(&self, calls: &[String]) {
        if let Some(approvals) = self.approvals.runs.lock().get_mut(&self.run) {
            let waiting = |call: &String| Waiting { call: call.clone(), question: None };
            approvals.waiting.extend(calls.iter().map(waiting));
        }
    }

    /// Says which entry of the log asks about these calls.
    pub(crate) fn number(&self, calls: &[String], question: u64) {
        if let Some(approvals) = self.approvals.runs.lock().get_mut(&self.run) {
            for waiting in approvals.waiting.iter_mut().filter(|one| calls.contains(&one.call)) {
                waiting.question = Some(question);
            }
        }
    }

    /// Ends the wait of a call: decisions about it are refused.
    pub(crate) fn withdraw(&self, call: &str) {
        if let Some(approvals) = self.approvals.runs.lock().get_mut(&self.run) {
            approvals.waiting.retain(|waiting| waiting.call != call);
        }
    }

    /// The calls that wait, each with the entry that asks.
    fn questions(&self) -> Vec<(String, u64)> {
        let runs = self.approvals.runs.lock();
        let waiting = runs.get(&self.run).map(|of| of.waiting.as_slice()).unwrap_or_default();
        waiting.iter().filter_map(|one| Some((one.call.clone(), one.question?))).collect()
    }

    /// Waits for the next decision. Nothing is lost if this is cancelled.
    pub(crate) async fn next(&mut self) -> (String, Decision) {
        match self.received.recv().await {
            Some(decided) => decided,
            None => std::future::pending().await,
        }
    }

    /// Looks for decisions that other instances have taken. They stay in the store, so that a later one about
    /// the same question is refused.
    pub(crate) async fn take_stored(
        &self,
        store: &dyn Store,
        seal: &ChatSeal,
    ) -> Result<(), StoreError> {
        for (call, question) in self.questions() {
            let id = reference_id(&self.run, &call, question);
            let Some(found) = store.reference(&id).await? else { continue };
            let decision = seal.open_json(FIELD, &id, &found.sealed)?;
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

/// The number of the entry that asks about a call, if it waits.
pub(crate) fn question_about(entries: &[Entry], call: &str) -> Option<u64> {
    let found = entries.iter().rev().find_map(|entry| match serde_json::from_str(&entry.text) {
        Ok(Event::ApprovalNeeded { calls }) => {
            calls.iter().any(|waiting| waiting.id == call).then_some(Some(entry.number))
        }
        Ok(Event::ToolResult { id, .. }) if id == call => Some(None),
        _ => None,
    });
    found.flatten()
}

/// Stores a decision for the instance that runs the loop. `question` is the number of the entry that asks.
/// Returns false if there is one already: the first one counts.
pub(crate) async fn store_decision(
    store: &dyn Store,
    seal: &ChatSeal,
    run: &Run,
    (call, question): (&str, u64),
    decision: &Decision,
) -> Result<bool, StoreError> {
    let id = reference_id(&run.id, call, question);
    let reference = Reference {
        sealed: seal.seal_json(FIELD, &id, decision),
        id,
        owner: run.owner.clone(),
        expires: Some(unix_ms() + RETENTION),
        ..Reference::default()
    };
    let commit = Commit { reference: Some(reference), ..Commit::default() };
    Ok(store.commit(commit).await? == Outcome::Written)
}

fn reference_id(run: &str, call: &str, question: u64) -> String {
    crate::store::bounded_name(&format!("approval:{run}:{question}:{call}")).into_owned()
}

#[cfg(test)]
mod tests {
    use throughline_canonical::WaitingCall;
    use throughline_sealing::Keyring;

    use super::*;
    use crate::in_memory::InMemory;
    use crate::store::RunStatus;

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

    fn run() -> Run {
        Run {
            id: "r".to_owned(),
            owner: "ada".to_owned(),
            scope: String::new(),
            name: None,
            reference: None,
            instance: "one".to_owned(),
            epoch: 1,
            status: RunStatus::Running,
            created: 0,
            expires: None,
            sealed: Vec::new(),
        }
    }

    /// A tool may ask again about the same call.
    #[tokio::test]
    async fn stored_decision_answers_one_question_and_the_first_one_counts() {
        let (store, keyring) = (InMemory::default(), Arc::new(Keyring::new([7; 32])));
        let (seal, run) = (ChatSeal::managed(&keyring, "p"), run());
        let [yes, no] = [true, false].map(|approve| Decision { approve, input: None });
        let store_it = async |question: u64, decision: &Decision| {
            store_decision(&store, &seal, &run, ("c", question), decision).await.unwrap()
        };
        let approvals = Arc::new(Approvals::default());
        let mut decisions = approvals.register("r");
        let calls = ["c".to_owned()];
        decisions.ask(&calls);
        decisions.number(&calls, 4);
        assert!(store_it(4, &yes).await);
        assert!(!store_it(4, &no).await, "the first one counts");
        decisions.take_stored(&store, &seal).await.unwrap();
        assert_eq!(decisions.next().await, ("c".to_owned(), yes.clone()));
        assert!(!store_it(4, &yes).await, "it was answered");
        decisions.ask(&calls);
        decisions.number(&calls, 7);
        decisions.take_stored(&store, &seal).await.unwrap();
        assert_eq!(approvals.is_waiting("r", "c"), Some(true), "no one has answered this one");
        assert!(store_it(7, &no).await);
        decisions.take_stored(&store, &seal).await.unwrap();
        assert_eq!(decisions.next().await, ("c".to_owned(), no));
    }

    #[test]
    fn newest_question_without_a_result_is_open() {
        let asks = |id: &str| {
            let (id, name, arguments) = (id.to_owned(), "n".to_owned(), String::new());
            let call = WaitingCall { id, name, arguments, message: None, schema: None };
            Event::ApprovalNeeded { calls: vec![call] }
        };
        let (id, name) = ("a".into(), "n".into());
        let result = Event::ToolResult { id, name, content: Vec::new(), is_error: false };
        let log = [asks("a"), asks("b"), asks("a"), result, asks("b")];
        let texts = log.iter().map(|event| serde_json::to_string(event).unwrap());
        let entries: Vec<Entry> =
            (1..).zip(texts).map(|(number, text)| Entry::new(number, text)).collect();
        for (length, a, b) in [(0, None, None), (1, Some(1), None), (3, Some(3), Some(2))] {
            let questions = ["a", "b"].map(|call| question_about(&entries[..length], call));
            assert_eq!(questions, [a, b], "{length}");
        }
        assert_eq!(["a", "b"].map(|call| question_about(&entries, call)), [None, Some(5)]);
    }
}
