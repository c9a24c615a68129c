//! Decides what a tool loop does next. A pure machine: inputs in, effects out; it has no clock, no
//! tools and no model.
//!
//! A round is one answer of the model. If it has calls that the server runs, they run, at most
//! [`Limits::parallel`] at once, and then the model is asked again. A call of a tool that needs an
//! approval waits for it. Calls of the client's own tools end the loop, after the server's calls.

use std::time::Duration;

use throughline_canonical::EndReason;

/// The limits of a tool loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How often the model is asked.
    pub rounds: u32,
    /// How long the whole loop may take. Waiting for people counts.
    pub time: Duration,
    /// How many calls run at once.
    pub parallel: usize,
    /// The largest result of a call, in bytes.
    pub result: usize,
    /// How long a call waits for a person.
    pub approval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rounds: 16,
            time: Duration::from_secs(30 * 60),
            parallel: 8,
            result: 256 << 10,
            approval: Duration::from_secs(10 * 60),
        }
    }
}

/// A call of a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The id.
    pub id: String,
    /// Who runs it.
    pub kind: CallKind,
}

/// Who runs a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// The server, at once.
    Free,
    /// The server, after an approval.
    NeedsApproval,
    /// No one: it has a mistake, and its result says so.
    Wrong(String),
    /// The client.
    Clients,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The loop begins.
    Begin,
    /// The model has finished a round.
    RoundEnded {
        /// Why.
        reason: EndReason,
        /// Its calls, in order.
        calls: Vec<Call>,
    },
    /// A person has decided about a call that waits.
    Decided {
        /// The call.
        id: String,
        /// Whether it may go on.
        approve: bool,
    },
    /// No person has decided in time about a call that waits.
    Expired {
        /// The call.
        id: String,
    },
    /// A call that runs needs an answer of a person.
    InputNeeded {
        /// The call.
        id: String,
    },
    /// A call has its result.
    Returned {
        /// The call.
        id: String,
    },
    /// The time of the loop is up.
    TimeUp,
}

/// What has to be done. Effects are performed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the model for the next round.
    AskModel,
    /// Note that a call begins, and make it.
    Start {
        /// The call.
        id: String,
    },
    /// Go on with a call that needed an answer.
    Continue {
        /// The call.
        id: String,
        /// Whether the person agreed.
        accept: bool,
    },
    /// Record a result without making the call.
    Refuse {
        /// The call.
        id: String,
        /// Why, for the model.
        why: String,
    },
    /// Ask a person about these calls.
    AskPerson {
        /// The calls.
        ids: Vec<String>,
    },
    /// End the loop. What has no result by then gets one that says so.
    End {
        /// Why.
        reason: EndReason,
    },
}

/// The words for a call that a person refused.
pub const DENIED: &str = "the user denied this call; it was not run";
/// The words for a call about which no person decided.
pub const EXPIRED: &str = "this call was not approved in time; it was not run";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It may run.
    Queued,
    /// It waits for an approval.
    Waiting,
    Running,
    /// It runs, and waits for an answer of a person.
    Asking,
    Done,
}

/// A tool loop.
#[derive(Clone, Debug)]
pub struct ToolLoop {
    limits: Limits,
    /// How many rounds the model has finished.
    rounds: u32,
    /// The server's calls of this round.
    calls: Vec<(String, State)>,
    /// Whether this round also has calls for the client.
    has_clients_calls: bool,
    has_ended: bool,
}

impl ToolLoop {
    /// A loop that has not begun.
    pub fn new(limits: Limits) -> Self {
        Self { limits, rounds: 0, calls: Vec::new(), has_clients_calls: false, has_ended: false }
    }

    /// Takes what has happened, and returns what has to be done.
    pub fn apply(&mut self, input: Input) -> Vec<Effect> {
        if self.has_ended {
            return Vec::new();
        }
        match input {
            Input::Begin => vec![Effect::AskModel],
            Input::RoundEnded { reason, calls } => self.end_round(reason, calls),
            Input::Decided { id, approve: true } => self.approve(id),
            Input::Decided { id, approve: false } => self.refuse(id, DENIED),
            Input::Expired { id } => self.refuse(id, EXPIRED),
            Input::InputNeeded { id } => match self.change(&id, State::Running, State::Asking) {
                true => vec![Effect::AskPerson { ids: vec![id] }],
                false => Vec::new(),
            },
            Input::Returned { id } => match self.change(&id, State::Running, State::Done) {
                true => self.go_on(),
                false => Vec::new(),
            },
            Input::TimeUp => self.end(EndReason::timeout()),
        }
    }

    /// The number of rounds that the model has finished.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    fn end(&mut self, reason: EndReason) -> Vec<Effect> {
        self.has_ended = true;
        vec![Effect::End { reason }]
    }

    fn end_round(&mut self, reason: EndReason, calls: Vec<Call>) -> Vec<Effect> {
        if self.calls.iter().any(|(_, state)| *state != State::Done) {
            // The model was not asked.
            return Vec::new();
        }
        self.rounds += 1;
        self.has_clients_calls = calls.iter().any(|call| call.kind == CallKind::Clients);
        let has_own = calls.iter().any(|call| call.kind != CallKind::Clients);
        // A reply that ended early may have cut its last call.
        let is_whole =
            matches!(reason, EndReason::ToolCalls | EndReason::Stop | EndReason::Other(_))
                && !reason.is_cancelled();
        if !has_own || !is_whole {
            return self.end(reason);
        }
        if self.rounds >= self.limits.rounds {
            return self.end(EndReason::max_rounds());
        }
        self.calls.clear();
        let (mut effects, mut waiting) = (Vec::new(), Vec::new());
        for Call { id, kind } in calls {
            let state = match kind {
                CallKind::Clients => continue,
                CallKind::Free => State::Queued,
                CallKind::NeedsApproval => {
                    waiting.push(id.clone());
                    State::Waiting
                }
                CallKind::Wrong(why) => {
                    effects.push(Effect::Refuse { id: id.clone(), why });
                    State::Done
                }
            };
            self.calls.push((id, state));
        }
        if !waiting.is_empty() {
            effects.push(Effect::AskPerson { ids: waiting });
        }
        effects.extend(self.go_on());
        effects
    }

    fn approve(&mut self, id: String) -> Vec<Effect> {
        if self.change(&id, State::Asking, State::Running) {
            return vec![Effect::Continue { id, accept: true }];
        }
        match self.change(&id, State::Waiting, State::Queued) {
            true => self.go_on(),
            false => Vec::new(),
        }
    }

    fn refuse(&mut self, id: String, why: &str) -> Vec<Effect> {
        if self.change(&id, State::Asking, State::Running) {
            return vec![Effect::Continue { id, accept: false }];
        }
        if !self.change(&id, State::Waiting, State::Done) {
            return Vec::new();
        }
        let mut effects = vec![Effect::Refuse { id, why: why.to_owned() }];
        effects.extend(self.go_on());
        effects
    }

    /// Starts calls that may run, or asks the model if all have their results.
    fn go_on(&mut self) -> Vec<Effect> {
        let runs = |state: &State| matches!(state, State::Running | State::Asking);
        let running = self.calls.iter().filter(|(_, state)| runs(state)).count();
        let free = self.limits.parallel.max(1).saturating_sub(running);
        let queued = self.calls.iter_mut().filter(|(_, state)| *state == State::Queued);
        let mut effects = Vec::new();
        for (id, state) in queued.take(free) {
            *state = State::Running;
            effects.push(Effect::Start { id: id.clone() });
        }
        if self.calls.iter().all(|(_, state)| *state == State::Done) {
            match self.has_clients_calls {
                true => effects.extend(self.end(EndReason::ToolCalls)),
                false => effects.push(Effect::AskModel),
            }
        }
        effects
    }

    /// Changes the state of a call, if it is `from`.
    fn change(&mut self, id: &str, from: State, to: State) -> bool {
        let call = self.calls.iter_mut().find(|(own, state)| own == id && *state == from);
        match call {
            Some((_, state)) => {
                *state = to;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        rounds: 3,
        time: Duration::from_secs(1),
        parallel: 2,
        result: 100,
        approval: Duration::from_secs(1),
    };

    fn call(id: &str, kind: CallKind) -> Call {
        Call { id: id.to_owned(), kind }
    }

    fn round(calls: &[(&str, CallKind)]) -> Input {
        let calls = calls.iter().map(|(id, kind)| call(id, kind.clone())).collect();
        Input::RoundEnded { reason: EndReason::ToolCalls, calls }
    }

    fn returned(id: &str) -> Input {
        Input::Returned { id: id.to_owned() }
    }

    fn decided(id: &str, approve: bool) -> Input {
        Input::Decided { id: id.to_owned(), approve }
    }

    fn start(id: &str) -> Effect {
        Effect::Start { id: id.to_owned() }
    }

    fn refuse(id: &str, why: &str) -> Effect {
        Effect::Refuse { id: id.to_owned(), why: why.to_owned() }
    }

    fn ask(ids: &[&str]) -> Effect {
        Effect::AskPerson { ids: ids.iter().map(|id| (*id).to_owned()).collect() }
    }

    fn end(reason: EndReason) -> Effect {
        Effect::End { reason }
    }

    /// Applies inputs in order, and compares the effects of each.
    fn check(steps: Vec<(Input, Vec<Effect>)>) {
        let mut tool_loop = ToolLoop::new(LIMITS);
        assert_eq!(tool_loop.apply(Input::Begin), [Effect::AskModel]);
        for (input, expected) in steps {
            let shown = format!("{input:?}");
            assert_eq!(tool_loop.apply(input), expected, "{shown}");
        }
    }

    #[test]
    fn answer_without_calls_ends_the_loop() {
        for reason in [EndReason::Stop, EndReason::Length, EndReason::Refusal, EndReason::Cut] {
            let ended = Input::RoundEnded { reason: reason.clone(), calls: Vec::new() };
            check(vec![(ended, vec![end(reason)]), (Input::TimeUp, vec![])]);
        }
    }

    #[test]
    fn calls_run_in_parallel_up_to_the_limit_and_then_the_model_is_asked() {
        let free = |id| (id, CallKind::Free);
        check(vec![
            (round(&[free("a"), free("b"), free("c")]), vec![start("a"), start("b")]),
            (returned("b"), vec![start("c")]),
            (returned("b"), vec![]),
            (returned("a"), vec![]),
            (returned("c"), vec![Effect::AskModel]),
            (round(&[]), vec![end(EndReason::ToolCalls)]),
        ]);
    }

    #[test]
    fn call_that_needs_an_approval_runs_only_after_it() {
        let waits = |id| (id, CallKind::NeedsApproval);
        check(vec![
            (
                round(&[waits("a"), ("b", CallKind::Free), waits("c")]),
                vec![ask(&["a", "c"]), start("b")],
            ),
            (decided("b", true), vec![]),
            (decided("a", true), vec![start("a")]),
            (returned("b"), vec![]),
            (decided("c", false), vec![refuse("c", DENIED)]),
            (decided("c", true), vec![]),
            (returned("a"), vec![Effect::AskModel]),
        ]);
        let expired = Input::Expired { id: "a".to_owned() };
        check(vec![
            (round(&[waits("a")]), vec![ask(&["a"])]),
            (expired, vec![refuse("a", EXPIRED), Effect::AskModel]),
        ]);
    }

    #[test]
    fn tool_that_asks_goes_on_with_the_answer() {
        let needs = Input::InputNeeded { id: "a".to_owned() };
        let goes_on = |accept| Effect::Continue { id: "a".to_owned(), accept };
        check(vec![
            (round(&[("a", CallKind::Free)]), vec![start("a")]),
            (needs.clone(), vec![ask(&["a"])]),
            (returned("a"), vec![]),
            (decided("a", true), vec![goes_on(true)]),
            (needs, vec![ask(&["a"])]),
            (decided("a", false), vec![goes_on(false)]),
            (returned("a"), vec![Effect::AskModel]),
        ]);
    }

    #[test]
    fn wrong_call_is_answered_without_running() {
        let wrong = CallKind::Wrong("no such tool".to_owned());
        let expected = vec![refuse("a", "no such tool"), Effect::AskModel];
        check(vec![(round(&[("a", wrong)]), expected)]);
    }

    #[test]
    fn clients_calls_end_the_loop_after_the_servers() {
        check(vec![
            (round(&[("a", CallKind::Clients), ("b", CallKind::Free)]), vec![start("b")]),
            (returned("b"), vec![end(EndReason::ToolCalls)]),
        ]);
        check(vec![(round(&[("a", CallKind::Clients)]), vec![end(EndReason::ToolCalls)])]);
    }

    #[test]
    fn calls_of_the_last_round_do_not_run() {
        let again = || round(&[("a", CallKind::Free)]);
        let next = || (returned("a"), vec![Effect::AskModel]);
        check(vec![
            (again(), vec![start("a")]),
            next(),
            (again(), vec![start("a")]),
            next(),
            (again(), vec![end(EndReason::max_rounds())]),
        ]);
    }

    #[test]
    fn calls_of_a_cut_reply_do_not_run() {
        for reason in [EndReason::Length, EndReason::Cut, EndReason::Failed, EndReason::cancelled()]
        {
            let calls = vec![call("a", CallKind::Free)];
            let cut = Input::RoundEnded { reason: reason.clone(), calls };
            check(vec![(cut, vec![end(reason)])]);
        }
    }

    #[test]
    fn time_ends_the_loop_in_every_state() {
        check(vec![(Input::TimeUp, vec![end(EndReason::timeout())])]);
        check(vec![
            (round(&[("a", CallKind::NeedsApproval)]), vec![ask(&["a"])]),
            (Input::TimeUp, vec![end(EndReason::timeout())]),
            (decided("a", true), vec![]),
        ]);
    }

    fn any_kind() -> impl Strategy<Value = CallKind> {
        prop_oneof![
            Just(CallKind::Free),
            Just(CallKind::NeedsApproval),
            Just(CallKind::Wrong("w".to_owned())),
            Just(CallKind::Clients),
        ]
    }

    /// What a driver may do next: which of its options, and with which values.
    fn any_step() -> impl Strategy<Value = (u8, u8, bool, Vec<CallKind>)> {
        (any::<u8>(), any::<u8>(), any::<bool>(), prop::collection::vec(any_kind(), 0..4))
    }

    proptest! {
        /// Whatever happens in whichever order: a call starts at most once, only if it may; the model is
        /// asked only when every call of the round has its result; and there is one end.
        #[test]
        fn loop_keeps_its_promises(steps in prop::collection::vec(any_step(), 1..60)) {
            let mut tool_loop = ToolLoop::new(LIMITS);
            let mut pending = tool_loop.apply(Input::Begin);
            // The state of each call: false while it has no result.
            let mut kinds: HashMap<String, CallKind> = HashMap::new();
            let mut approved: HashMap<String, bool> = HashMap::new();
            let (mut running, mut asking, mut finished) = (Vec::new(), Vec::new(), Vec::new());
            let mut started = Vec::new();
            let (mut asked, mut ends, mut number) = (0, 0, 0);
            let mut model_waits = false;
            for (option, which, flag, new) in steps {
                for effect in std::mem::take(&mut pending) {
                    prop_assert_eq!(ends, 0, "an effect after the end");
                    match effect {
                        Effect::AskModel => {
                            let own = kinds.iter().filter(|(_, kind)| **kind != CallKind::Clients);
                            for (id, _) in own {
                                prop_assert!(finished.contains(id), "{} has no result", id);
                            }
                            kinds.clear();
                            asked += 1;
                            model_waits = true;
                        }
                        Effect::Start { id } => {
                            prop_assert!(!started.contains(&id), "{} starts twice", id);
                            let may = match &kinds[&id] {
                                CallKind::Free => true,
                                CallKind::NeedsApproval => approved.get(&id) == Some(&true),
                                CallKind::Wrong(_) | CallKind::Clients => false,
                            };
                            prop_assert!(may, "{} may not run", id);
                            started.push(id.clone());
                            running.push(id);
                        }
                        Effect::Continue { id, .. } => running.push(id),
                        Effect::Refuse { id, .. } => {
                            prop_assert!(!started.contains(&id) && !finished.contains(&id));
                            finished.push(id);
                        }
                        Effect::AskPerson { ids } => asking.extend(ids),
                        Effect::End { .. } => ends += 1,
                    }
                    prop_assert!(running.len() <= LIMITS.parallel);
                }
                prop_assert!(asked <= LIMITS.rounds);
                pending = match option % 8 {
                    0 | 1 if model_waits => {
                        model_waits = false;
                        let calls: Vec<Call> = new.into_iter().map(|kind| {
                            number += 1;
                            Call { id: format!("c{number}"), kind }
                        }).collect();
                        kinds = calls.iter().map(|call| (call.id.clone(), call.kind.clone())).collect();
                        tool_loop.apply(Input::RoundEnded { reason: EndReason::ToolCalls, calls })
                    }
                    2 | 3 if !running.is_empty() => {
                        let id = running.remove(usize::from(which) % running.len());
                        finished.push(id.clone());
                        tool_loop.apply(Input::Returned { id })
                    }
                    4 if !running.is_empty() => {
                        let id = running.remove(usize::from(which) % running.len());
                        tool_loop.apply(Input::InputNeeded { id })
                    }
                    5 | 6 if !asking.is_empty() => {
                        let id = asking.remove(usize::from(which) % asking.len());
                        approved.insert(id.clone(), flag);
                        tool_loop.apply(Input::Decided { id, approve: flag })
                    }
                    // A stale or foreign input changes nothing.
                    7 if which == 0 => tool_loop.apply(Input::TimeUp),
                    _ => {
                        let id = format!("x{which}");
                        let nothing = tool_loop.apply(Input::Decided { id, approve: flag });
                        prop_assert_eq!(nothing, Vec::new());
                        Vec::new()
                    }
                };
            }
            prop_assert!(ends <= 1);
        }
    }
}
