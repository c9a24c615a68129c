//! Does what the machine decides: asks the model, notes and makes calls, asks people, and gives the
//! events of all rounds as one stream for the log of the run.
//!
//! The stream is polled again only after the events before are in the log. So what is emitted is
//! noted before the next step happens.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, Stream, StreamExt};
use serde_json::{Map, Value, json};
use throughline_canonical::{Block, EndReason, Event, NativeTurn, Origin, RoundFacts, WaitingCall};
use throughline_gateway::reply::events::TurnEvent;
use throughline_gateway::shutdown;
use throughline_gateway::turn::turn_reply::{FinishedReply, UnreadReply};
use throughline_tools::{CallOutcome, InputAnswer, OfferedTool, PendingInput, ToolOutput, ToolSet};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::Instrument;

use super::approvals::{Approvals, Decision, Decisions, question_about};
use super::joined_rounds::JoinedRounds;
use super::machine::{Call, CallKind, Effect, Input, Limits, ToolLoop};
use crate::rooms::hooks::{Gate, Verdict};
use crate::runs::Written;
use crate::runs::canonical::{CanonicalRun, FinishedRound, fault_of};

/// How often decisions of other instances are looked for.
const DECISION_POLL: Duration = Duration::from_millis(500);
/// The result of a call that could not be noted.
const NOT_NOTED: &str = "the server could not note this call; it was not run";

/// The result of a call that a hook wants to change.
const CANNOT_REPLACE: &str =
    "a hook wanted to replace this call, which is not possible; it was not run";

/// The model of a tool loop.
pub(crate) trait Model: Send + Sync {
    /// Asks for the next round, after the rounds before.
    fn ask<'a>(
        &'a self,
        joined: &'a JoinedRounds,
    ) -> BoxFuture<'a, Result<UnreadReply, Box<FinishedReply>>>;
    /// The maker of the round that has just ended, and what its blocks lack of the maker's own form.
    fn round_facts(&self, blocks: &[Block]) -> (Option<Origin>, Option<NativeTurn>);
    /// Whether the client runs a tool with this name.
    fn is_clients(&self, tool: &str) -> bool;
    /// Waits until the loop has to end because the server stops.
    fn stopping(&self) -> BoxFuture<'_, ()>;
}

/// What a loop works with.
pub(crate) struct Setup<'a> {
    pub(crate) model: &'a dyn Model,
    /// The tools that the server runs.
    pub(crate) tools: &'a ToolSet,
    pub(crate) run: &'a CanonicalRun,
    pub(crate) limits: Limits,
    pub(crate) approvals: &'a Arc<Approvals>,
    /// Asked before a call of a member of a room is made.
    pub(crate) gate: Option<Arc<dyn Gate>>,
}

/// The way into the log.
struct Outlet(mpsc::Sender<(Vec<TurnEvent>, oneshot::Sender<()>)>);

impl Outlet {
    /// Emits events. Returns when they are in the log.
    async fn emit(&self, events: Vec<TurnEvent>) {
        let (noted, done) = oneshot::channel();
        if events.is_empty() || self.0.send((events, noted)).await.is_err() {
            return;
        }
        let _ = done.await;
    }
}

/// The events of all rounds.
pub(crate) fn events(setup: Setup<'_>) -> impl Stream<Item = Vec<TurnEvent>> {
    let (outlet, emitted) = mpsc::channel(1);
    let work: Pin<Box<dyn Future<Output = ()> + Send + '_>> =
        Box::pin(async move { Driver::new(setup, Outlet(outlet)).run().await });
    let state = (work.fuse(), emitted, None::<oneshot::Sender<()>>);
    futures_util::stream::unfold(state, |(mut work, mut emitted, before)| async move {
        if let Some(before) = before {
            // The driver may be gone.
            let _ = before.send(());
        }
        loop {
            tokio::select! {
                biased;
                next = emitted.recv() => {
                    return next.map(|(events, noted)| (events, (work, emitted, Some(noted))));
                }
                () = &mut work => {}
            }
        }
    })
}

/// Why a hook of the room does not allow a call.
async fn refused(
    gate: Option<Arc<dyn Gate>>,
    id: &str,
    tool: &OfferedTool,
    arguments: &Map<String, Value>,
) -> Option<String> {
    let call = json!({"id": id, "name": tool.name, "arguments": arguments});
    match gate?.on_tool_call(call).await {
        Verdict::Continue => None,
        Verdict::Refuse(why) => {
            Some(format!("a hook refused this call, and it was not run: {why}"))
        }
        Verdict::Replace(_) => Some(CANNOT_REPLACE.to_owned()),
    }
}

type Returned = (String, CallOutcome);

struct Driver<'a> {
    setup: Setup<'a>,
    outlet: Outlet,
    machine: ToolLoop,
    joined: JoinedRounds,
    effects: VecDeque<Effect>,
    running: FuturesUnordered<BoxFuture<'static, Returned>>,
    decisions: Decisions,
    /// When the calls that wait for a person expire.
    expiries: Vec<(String, Instant)>,
    /// What tools have questions.
    questions: HashMap<String, PendingInput>,
    /// What people have answered.
    answers: HashMap<String, Value>,
    /// When the loop ends. A reply without tools of ours has no limit here.
    deadline: Option<Instant>,
}

impl<'a> Driver<'a> {
    fn new(setup: Setup<'a>, outlet: Outlet) -> Self {
        let limits = setup.limits;
        let has_tools = !setup.tools.tools.is_empty();
        Self {
            outlet,
            machine: ToolLoop::new(limits),
            joined: JoinedRounds::default(),
            effects: VecDeque::new(),
            running: FuturesUnordered::new(),
            decisions: setup.approvals.register(&setup.run.live.id),
            expiries: Vec::new(),
            questions: HashMap::new(),
            answers: HashMap::new(),
            deadline: has_tools.then(|| Instant::now() + limits.time),
            setup,
        }
    }

    async fn run(mut self) {
        self.apply(Input::Begin);
        loop {
            while let Some(effect) = self.effects.pop_front() {
                if let Effect::End { reason } = effect {
                    let end = self.joined.end(reason);
                    return self.emit(end).await;
                }
                self.perform(effect).await;
            }
            let model = self.setup.model;
            let input = tokio::select! {
                biased;
                // The model ends by itself then, but tools and people do not.
                () = model.stopping() => {
                    self.emit(vec![Event::Fault(shutdown::fault())]).await;
                    let end = self.joined.end(EndReason::Cut);
                    return self.emit(end).await;
                }
                input = self.wait() => input,
            };
            if let Some(input) = input {
                self.apply(input);
            }
        }
    }

    fn apply(&mut self, input: Input) {
        self.effects.extend(self.machine.apply(input));
    }

    async fn emit(&mut self, events: Vec<Event<'static>>) {
        self.outlet.emit(events.into_iter().map(TurnEvent::Event).collect()).await;
    }

    /// Emits events of the loop itself.
    async fn record(&mut self, events: Vec<Event<'static>>) {
        events.iter().for_each(|event| self.joined.record(event));
        self.emit(events).await;
    }

    async fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AskModel => {
                let round = match self.deadline {
                    Some(deadline) => timeout_at(deadline, self.round()).await.ok(),
                    None => Some(self.round().await),
                };
                match round {
                    Some((reason, calls)) => self.end_round(reason, calls).await,
                    None => self.apply(Input::TimeUp),
                }
            }
            Effect::Start { id } => {
                let mut ids = vec![id];
                while let Some(Effect::Start { .. }) = self.effects.front() {
                    if let Some(Effect::Start { id }) = self.effects.pop_front() {
                        ids.push(id);
                    }
                }
                self.start(ids).await;
            }
            Effect::Continue { id, accept } => self.go_on(id, accept),
            Effect::Refuse { id, why } => self.result(&id, ToolOutput::error(why)).await,
            Effect::AskPerson { ids } => self.ask_person(&ids).await,
            Effect::End { .. } => {}
        }
    }

    /// Waits for what happens next.
    async fn wait(&mut self) -> Option<Input> {
        let never = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365);
        let expiry = self.expiries.iter().map(|(_, at)| *at).min();
        let is_shared = self.setup.run.runs.sealed_store.store.is_shared();
        let polls = is_shared && !self.expiries.is_empty();
        tokio::select! {
            Some((id, outcome)) = self.running.next() => self.returned(id, outcome).await,
            (id, decision) = self.decisions.next() => Some(self.decided(id, decision)),
            () = sleep_until(expiry.unwrap_or(never)) => {
                let now = Instant::now();
                let at = self.expiries.iter().position(|(_, at)| *at <= now)?;
                let (id, _) = self.expiries.remove(at);
                self.decisions.withdraw(&id);
                Some(Input::Expired { id })
            }
            () = sleep_until(self.deadline.unwrap_or(never)) => Some(Input::TimeUp),
            () = tokio::time::sleep(DECISION_POLL), if polls => {
                if let Some(seal) = &self.setup.run.live.seal {
                    let store = &*self.setup.run.runs.sealed_store.store;
                    // The store records and logs a failure.
                    let _ = self.decisions.take_stored(store, seal).await;
                }
                None
            }
        }
    }

    /// Reads one round of the model. Returns why it ended, and its calls.
    async fn round(&mut self) -> (EndReason, Vec<Call>) {
        self.joined.begin_round();
        let reply = match self.setup.model.ask(&self.joined).await {
            Ok(reply) => reply,
            Err(finished) => {
                self.emit(vec![Event::Fault(fault_of(*finished))]).await;
                return (EndReason::Failed, Vec::new());
            }
        };
        let (head, mut events) = reply.into_events();
        let span = head.span();
        let mut ended = None;
        // The provider may say more after the last event. The turn is recorded when it is done.
        while let Some(batch) = events.next().instrument(span.clone()).await {
            let mut shown = Vec::with_capacity(batch.len());
            for event in batch {
                match event {
                    TurnEvent::Event(Event::Ended { reason }) => ended = ended.or(Some(reason)),
                    TurnEvent::Event(event) if ended.is_none() => {
                        shown.extend(self.joined.take(event).map(TurnEvent::Event));
                    }
                    TurnEvent::Silence(silence) => shown.push(TurnEvent::Silence(silence)),
                    TurnEvent::Event(_) => {}
                }
            }
            self.outlet.emit(shown).await;
        }
        let calls = self.joined.round().iter().filter_map(|block| self.classify(block)).collect();
        (ended.unwrap_or(EndReason::Cut), calls)
    }

    /// Who runs a call.
    fn classify(&self, block: &Block) -> Option<Call> {
        let Block::ToolCall { id, name, arguments, .. } = block else {
            return None;
        };
        let kind = match self.setup.tools.find(name) {
            Some(tool) => match read_arguments(arguments) {
                Err(why) => CallKind::Wrong(why),
                Ok(_) if tool.needs_approval => CallKind::NeedsApproval,
                Ok(_) => CallKind::Free,
            },
            None if self.setup.tools.tools.is_empty() || self.setup.model.is_clients(name) => {
                CallKind::Clients
            }
            None => CallKind::Wrong(format!("there is no tool `{name}`")),
        };
        Some(Call { id: id.clone(), kind })
    }

    async fn end_round(&mut self, reason: EndReason, calls: Vec<Call>) {
        let own = calls.iter().filter(|call| call.kind != CallKind::Clients);
        let own: Vec<String> = own.map(|call| call.id.clone()).collect();
        let effects = self.machine.apply(Input::RoundEnded { reason: reason.clone(), calls });
        let ends_as_is = matches!(&*effects, [Effect::End { reason: ended }] if *ended == reason);
        self.effects.extend(effects);
        if own.is_empty() || ends_as_is {
            return;
        }
        let (origin, native) = self.setup.model.round_facts(self.joined.round());
        let facts = RoundFacts { calls: own, origin, native, usage: self.joined.usage() };
        let start = self.joined.start();
        self.joined.rounds.push(FinishedRound { start, facts: facts.clone() });
        self.record(vec![Event::RoundEnded(Box::new(facts))]).await;
    }

    /// Notes calls, and makes them.
    async fn start(&mut self, ids: Vec<String>) {
        let noted = ids.iter().map(|id| Event::ToolStarted { id: id.clone().into() }).collect();
        self.record(noted).await;
        let run = self.setup.run;
        // A call whose note is lost could be made a second time.
        match run.runs.store_entries(&run.live).await {
            Written::Yes => {}
            Written::Failed | Written::Fenced => {
                for id in ids {
                    self.result(&id, ToolOutput::error(NOT_NOTED)).await;
                    self.apply(Input::Returned { id });
                }
                return;
            }
        }
        for id in ids {
            let Some((tool, arguments)) = self.call(&id) else { continue };
            tracing::debug!(run = run.live.id, server = tool.server.config.name, "calling a tool");
            let gate = self.setup.gate.clone();
            let called = async move {
                let outcome = match refused(gate, &id, &tool, &arguments).await {
                    Some(why) => CallOutcome::Done(ToolOutput::error(why)),
                    None => tool.server.call(&tool.tool, arguments).await,
                };
                (id, outcome)
            };
            self.running.push(called.boxed());
        }
    }

    /// Goes on with a call whose tool has questions.
    fn go_on(&mut self, id: String, accept: bool) {
        let (Some((tool, arguments)), Some(questions)) =
            (self.call(&id), self.questions.remove(&id))
        else {
            return;
        };
        let answer = InputAnswer { accept, content: self.answers.remove(&id) };
        let called = async move {
            let outcome =
                tool.server.call_with_input(&tool.tool, arguments, &questions, &answer).await;
            (id, outcome)
        };
        self.running.push(called.boxed());
    }

    /// The tool and the arguments of a call.
    fn call(&self, id: &str) -> Option<(OfferedTool, Map<String, Value>)> {
        let (name, arguments) = self.block(id)?;
        Some((self.setup.tools.find(name)?.clone(), read_arguments(arguments).ok()?))
    }

    /// The name and the arguments of a call of this round.
    fn block(&self, id: &str) -> Option<(&str, &str)> {
        self.joined.round().iter().find_map(|block| match block {
            Block::ToolCall { id: own, name, arguments, .. } if own == id => {
                Some((name.as_str(), arguments.as_str()))
            }
            _ => None,
        })
    }

    async fn returned(&mut self, id: String, outcome: CallOutcome) -> Option<Input> {
        match outcome {
            CallOutcome::Done(output) => {
                let output = output.cut(self.setup.limits.result);
                self.result(&id, output).await;
                Some(Input::Returned { id })
            }
            CallOutcome::InputRequired(questions) => {
                self.questions.insert(id.clone(), *questions);
                Some(Input::InputNeeded { id })
            }
        }
    }

    /// Records the result of a call.
    async fn result(&mut self, id: &str, output: ToolOutput) {
        let name = self.block(id).map(|(name, _)| name.to_owned()).unwrap_or_default();
        let ToolOutput { content, is_error } = output;
        let id = id.to_owned().into();
        self.record(vec![Event::ToolResult { id, name: name.into(), content, is_error }]).await;
    }

    async fn ask_person(&mut self, ids: &[String]) {
        let until = Instant::now() + self.setup.limits.approval;
        self.expiries.extend(ids.iter().map(|id| (id.clone(), until)));
        let waiting = |id: &String| {
            let (name, arguments) = self.block(id)?;
            let questions = self.questions.get(id);
            Some(WaitingCall {
                id: id.clone(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                message: questions.map(|questions| questions.message.clone()),
                schema: questions.and_then(|questions| questions.schema.clone()),
            })
        };
        let calls = ids.iter().filter_map(waiting).collect();
        // A reader of the event may decide at once.
        self.decisions.ask(ids);
        self.record(vec![Event::ApprovalNeeded { calls }]).await;
        let entries = self.setup.run.live.entries();
        if let Some(question) = ids.first().and_then(|id| question_about(&entries, id)) {
            self.decisions.number(ids, question);
        }
    }

    fn decided(&mut self, id: String, decision: Decision) -> Input {
        self.expiries.retain(|(waiting, _)| *waiting != id);
        if let Some(input) = decision.input {
            self.answers.insert(id.clone(), input);
        }
        Input::Decided { id, approve: decision.approve }
    }
}

/// Reads the arguments of a call.
fn read_arguments(arguments: &str) -> Result<Map<String, Value>, String> {
    match arguments.trim() {
        "" => Ok(Map::new()),
        text => serde_json::from_str(text)
            .map_err(|error| format!("the arguments are not a JSON object: {error}")),
    }
}
