//! An answer: drives the run of a turn, and stores its node when the run ends.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use throughline_canonical::{Block, NativePart, NativeTurn, Request, Usage};
use throughline_codec::dialects::stored::Stored;
use throughline_gateway::IncomingRequest;
use throughline_gateway::reply::raw::RawCapture;
use throughline_gateway::thinking::store::{StoreError, StoreFuture};
use throughline_gateway::unix_ms;
use throughline_tools::ToolSet;
use tokio::sync::{OnceCell, OwnedSemaphorePermit};

use super::budget::{Window, fixed_tokens};
use super::content::NodeContent;
use super::context::{Context, PastNode, Target, assemble};
use super::history::{RAW_VERSION, RawEnvelope, seal_raw};
use super::problem::Problem;
use super::project::project_content;
use super::room_turn::RoomRun;
use super::rounds::{Rounds, Sent};
use super::turn::is_project;
use super::{Caller, PreviousResponse, Projects};
use crate::bus::chat_stream::ChatStream;
use crate::chat_seal::{ChatSeal, Field};
use crate::rooms::hooks::{Gate, Verdict};
use crate::runs::abandoned::CloseRun;
use crate::runs::canonical::{CanonicalRun, Driven, FinishedRound, StoreEnd};
use crate::runs::event_log::has_content;
use crate::runs::log::LiveRun;
use crate::runs::server_died;
use crate::sealed_store::{SealedKind, expires};
use crate::store::{
    BranchFacts, Commit, Move, Node, NodeFacts, NodeRole, NodeStatus, Outcome, Project,
    ProjectNode, Run, RunEnd, RunStatus,
};
use crate::tool_loop::driver::{self, Setup};

/// The id of a node that is not stored yet, in previews.
const NEW_NODE: &str = "new";

/// What a run of a project knows about itself. It is sealed as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RunContent {
    pub(super) project: String,
    /// The id of the branch.
    pub(super) branch: String,
    pub(super) branch_name: String,
    /// The node that the answer becomes.
    pub(super) node: String,
    /// The node that the answer follows.
    pub(super) parent: String,
    /// The newest node of the branch, if the answer replaces it.
    pub(super) replaces: Option<String>,
    pub(super) provider: String,
    pub(super) model: String,
    pub(super) usage: Option<Usage>,
    /// What is known about an answer in a room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) room: Option<RoomRun>,
}

/// An answer that is being written.
pub(super) struct Answer {
    pub(super) projects: Arc<Projects>,
    pub(super) seal: Arc<ChatSeal>,
    owner: String,
    pub(super) id: String,
    epoch: u64,
    pub(super) content: RunContent,
    /// How long the log is kept after the end.
    retention: Duration,
    /// The tools that the server runs.
    pub(super) tools: ToolSet,
    pub(super) sent: Mutex<Sent>,
    /// Asked before the answer is shown in a room.
    pub(super) gate: Option<Arc<dyn Gate>>,
    /// What it decided.
    pub(super) verdict: OnceCell<Verdict>,
}

impl Answer {
    pub(super) fn new(
        projects: Arc<Projects>,
        seal: Arc<ChatSeal>,
        run: &Run,
        content: RunContent,
        retention: Duration,
    ) -> Self {
        Self {
            projects,
            seal,
            owner: run.owner.clone(),
            id: run.id.clone(),
            epoch: run.epoch,
            content,
            retention,
            tools: ToolSet::default(),
            sent: Mutex::default(),
            gate: None,
            verdict: OnceCell::new(),
        }
    }

    /// The same answer with tools that the server runs.
    pub(super) fn with_tools(self, tools: ToolSet) -> Self {
        Self { tools, ..self }
    }

    /// The same answer with what is asked before a room shows it.
    pub(super) fn with_gate(self, gate: Option<Arc<dyn Gate>>) -> Self {
        Self { gate, ..self }
    }

    /// Runs the answer in a task of its own. It goes on if the client disconnects.
    pub(super) fn spawn(self, caller: Caller, request: Request, permit: OwnedSemaphorePermit) {
        let run = self.canonical_run();
        // From now on readers find the run in this process.
        let guard = self.projects.runs.register(run.live.clone());
        tokio::spawn(async move {
            let _guard = guard;
            let work = async {
                let rounds = Rounds::new(&self, caller, request, permit);
                let events = driver::events(Setup {
                    model: &rounds,
                    tools: &self.tools,
                    run: &run,
                    limits: self.projects.settings().tool_limits,
                    approvals: &self.projects.approvals,
                    gate: self.gate.clone(),
                });
                let drive = run.drive_events(events, &self);
                tokio::pin!(drive);
                tokio::select! {
                    _ = &mut drive => return,
                    // The key may not be used any more.
                    () = self.seal.revoked() => run.live.stop(),
                }
                drive.await;
            };
            run.guard(work, &self).await;
        });
    }

    fn canonical_run(&self) -> CanonicalRun {
        let mut live = LiveRun::new(&*self.id, self.epoch).with_seal(self.seal.clone());
        if self.projects.runs.bus.health().is_shared() {
            let room = self.content.room.as_ref().map(|room| &*room.room);
            let stream = ChatStream::new(&self.id, &self.content.project, room, &self.seal);
            let holds_text = self.gate.as_ref().is_some_and(|gate| gate.decides_about_answers());
            live = live.with_chat_stream(stream.holding_text(holds_text));
        }
        CanonicalRun {
            runs: self.projects.runs.clone(),
            live: Arc::new(live),
            pacing: self.projects.settings().pacing,
            needs_content: true,
        }
    }

    /// The node of the answer. `None` if nothing arrived.
    pub(super) fn node(&self, driven: &Driven, project: &Project) -> Option<Node> {
        let Driven { reply, cut_blocks, status, rounds } = driven;
        if !has_content(&reply.content) {
            return None;
        }
        let (seal, id) = (&self.seal, &self.content.node);
        let maker = self.sent.lock().maker.clone();
        // After a crash, only the log knows who made the finished rounds.
        let logged = || rounds.iter().rev().find_map(|round| round.facts.origin.clone());
        let origin = maker.map(|maker| maker.origin).or_else(logged);
        let content = NodeContent {
            blocks: reply.content.clone(),
            native: self.native(driven),
            origin,
            estimated_input: self.sent.lock().estimated,
            reason: reply.reason.clone(),
            fault: reply.fault.clone(),
            losses: reply.losses.clone(),
            cut_blocks: cut_blocks.clone(),
            chain: self.content.room.as_ref().map_or(0, |room| room.chain),
            ..NodeContent::default()
        };
        let thinking = content.thinking_text();
        let signatures = content.signatures();
        let sealed_signatures = (!signatures.is_empty())
            .then(|| seal.seal_json(Field::ThinkingSignature, id, &signatures));
        Some(Node {
            id: id.clone(),
            parent: Some(self.content.parent.clone()),
            owner: self.owner.clone(),
            created: unix_ms(),
            sealed: content.seal(seal, id),
            in_project: Some(ProjectNode {
                project: project.id.clone(),
                facts: NodeFacts {
                    role: NodeRole::Assistant,
                    status: node_status(*status),
                    provider: Some(self.content.provider.clone()),
                    model: Some(self.content.model.clone()),
                    branch: self.content.branch.clone(),
                    channel: self.content.room.as_ref().map(|room| room.channel.clone()),
                    usage: Some(reply.usage),
                    response_id: self.response_id(driven),
                    ..NodeFacts::default()
                },
                has_thinking: content.has_thinking(),
                thinking_tokens: reply.usage.thinking,
                sealed_thinking: thinking
                    .map(|text| seal.seal(Field::ThinkingContent, id, text.as_bytes())),
                sealed_signatures,
                sealed_raw: self.sealed_raw(),
            }),
            ..Node::default()
        })
    }

    /// What the blocks lack of the provider's own form. Only complete rounds go back in it.
    fn native(&self, driven: &Driven) -> Option<NativeTurn> {
        let content = &driven.reply.content;
        let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
        let start = content.iter().rposition(is_result).map_or(0, |at| at + 1);
        let last = content.get(start..).filter(|blocks| !blocks.is_empty());
        let last = last
            .filter(|_| driven.status == RunStatus::Completed)
            .and_then(|blocks| self.sent.lock().native(blocks));
        join_native(&driven.rounds, last.map(|native| (start, native)))
    }

    /// The provider's id of the reply, if the provider stores it.
    fn response_id(&self, driven: &Driven) -> Option<String> {
        let sent = self.sent.lock();
        let dialect = sent.maker.as_ref()?.dialect;
        let is_stored = sent.is_stored
            && driven.status == RunStatus::Completed
            && dialect.profile("").has_response_ids;
        let id = &driven.reply.id;
        (is_stored && !id.is_empty()).then(|| id.clone())
    }

    /// The provider's replies as they were captured: one, or a list with one for each round.
    fn sealed_raw(&self) -> Option<Vec<u8>> {
        if !self.projects.settings().raw {
            return None;
        }
        let sent = self.sent.lock();
        let dialect = sent.maker.as_ref()?.dialect;
        let payload = match &*sent.raws {
            [] => return None,
            [only] => only.payload(),
            rounds => {
                let rounds: Vec<String> = rounds.iter().map(RawCapture::payload).collect();
                format!("[{}]", rounds.join(","))
            }
        };
        let payload = serde_json::value::RawValue::from_string(payload).ok()?;
        let envelope = RawEnvelope {
            provider: &self.content.provider,
            dialect: dialect.name(),
            captured_at: unix_ms(),
            version: RAW_VERSION,
            rounds: (sent.raws.len() > 1).then_some(sent.raws.len()),
            payload: &payload,
        };
        seal_raw(&self.seal, &self.content.node, &envelope)
    }

    /// The end of the run.
    pub(super) fn run_end(&self, driven: &Driven) -> RunEnd {
        let content = RunContent { usage: Some(driven.reply.usage), ..self.content.clone() };
        RunEnd {
            run: self.id.clone(),
            epoch: self.epoch,
            status: driven.status,
            expires: Some(expires(unix_ms(), self.retention)),
            sealed: self.projects.sealed_store.seal(SealedKind::Run, &self.id, &content),
        }
    }

    async fn commit_end(&self, driven: &Driven) -> Result<Outcome, StoreError> {
        if let Some(room) = &self.content.room {
            return self.commit_end_in_room(driven, room).await;
        }
        let store = &self.projects.sealed_store.store;
        let end = self.run_end(driven);
        let mut commit = Commit { end: Some(end), ..Commit::default() };
        // A project that was purged meanwhile gets no node.
        let project = store.project(&self.content.project).await?;
        if let Some(node) = project.and_then(|project| self.node(driven, &project)) {
            let from = self.content.replaces.clone().unwrap_or_else(|| self.content.parent.clone());
            commit.moves = Some(Move {
                reference: self.content.branch.clone(),
                from: Some(from),
                to: Some(node.id.clone()),
            });
            commit.nodes = vec![node];
        }
        store.commit(commit).await
    }
}

impl StoreEnd for Answer {
    fn store_end<'a>(&'a self, driven: &'a Driven) -> StoreFuture<'a, Outcome> {
        Box::pin(self.commit_end(driven))
    }
}

impl Projects {
    /// A request to the gateway in the name of a caller.
    pub(super) fn incoming(
        &self,
        caller: &Caller,
        provider: &str,
        seal: &ChatSeal,
    ) -> IncomingRequest {
        IncomingRequest {
            method: Method::POST,
            dialect: &Stored,
            path: String::new(),
            query: None,
            headers: caller.headers.clone(),
            pin: Some(provider.to_owned()),
            private: seal.is_clients(),
            began: Instant::now(),
        }
    }

    /// The request for the next answer on a branch, and the fate of each node. The messages of the
    /// context are in the request.
    ///
    /// `more` are the newest nodes, which are not stored yet.
    pub(super) async fn assemble(
        &self,
        seal: &ChatSeal,
        run: &RunContent,
        mut request: Request,
        more: Vec<PastNode>,
    ) -> Result<(Request, Context), Problem> {
        let project = self.sealed_store.store.project(&run.project).await?;
        let project = project.ok_or_else(|| Problem::not_found("project", &run.project))?;
        let mut past = self.past(seal, &run.parent).await?;
        past.extend(more);
        let settings = self.gateway.settings();
        // Another server would ignore the id, and answer from the newest message alone.
        let backend = settings.backends.iter().find(|backend| backend.name == run.provider);
        request.provider_state.store &=
            backend.is_some_and(|backend| self.gateway.keeps_responses(backend));
        if request.provider_state.store {
            request.provider_state.previous = self.stored_reply(&past, run);
        }
        let own = run.room.as_ref().and_then(|room| room.system.clone());
        let system = match own {
            Some(system) => Some(system),
            None => project_content(seal, &project)?.system,
        };
        request.system = system.into_iter().collect();
        let known = settings.catalog.find_at(&run.provider, &run.model);
        let limit = request.max_tokens.or(known.max_output);
        let fixed = fixed_tokens(&request);
        let target = Target {
            provider: &run.provider,
            model: &run.model,
            window: known.context.map(|context| Window::new(context, limit, fixed)),
            fixed,
            member: run.room.as_ref().map(|room| &*room.channel),
        };
        let mut context = assemble(past, &target, &self.gateway.envelopes);
        request.messages = std::mem::take(&mut context.messages);
        request.model.clone_from(&run.model);
        request.stream = true;
        request.thread = Some(run.branch.clone());
        Ok((request, context))
    }
}

impl Projects {
    /// Whether providers are asked to store replies if a request does not say.
    pub(super) fn stores_replies(&self) -> bool {
        self.settings().previous_response != PreviousResponse::Off
    }

    /// The provider's id of the newest answer, if the next request can continue from it.
    fn stored_reply(&self, past: &[PastNode], run: &RunContent) -> Option<String> {
        let newest = past.iter().rfind(|node| node.facts.role == NodeRole::Assistant)?;
        let (provider, model) = (run.provider.clone(), run.model.clone());
        let lock = BranchFacts { provider, model, ..BranchFacts::default() };
        let continues = self.continues_from(&newest.facts, &run.branch, &lock);
        newest.facts.response_id.clone().filter(|_| continues)
    }

    /// Whether a branch continues from an answer that its provider has stored.
    pub(super) fn continues_from(
        &self,
        answer: &NodeFacts,
        branch: &str,
        lock: &BranchFacts,
    ) -> bool {
        let same_model = (answer.provider.as_deref(), answer.model.as_deref())
            == (Some(&*lock.provider), Some(&*lock.model));
        let forks = self.settings().previous_response == PreviousResponse::Fork;
        same_model && (forks || answer.branch == branch)
    }
}

impl CloseRun for Projects {
    fn handles(&self, scope: &str) -> bool {
        is_project(scope)
    }

    fn close(
        self: Arc<Self>,
        run: Run,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
        async move {
            let Ok(content) = self.run_content(&run) else {
                self.sealed_store.store.remove_run(&run.id).await?;
                return Ok(());
            };
            let project = self.sealed_store.store.project(&content.project).await?;
            let seal = project.and_then(|project| self.managed_seal(&project));
            let Some(seal) = seal else {
                return self.end_without_key(&run).await;
            };
            let retention = self.settings().retention;
            let answer = Answer::new(self, seal, &run, content, retention);
            answer.canonical_run().close_left(server_died(), &answer).await.map(drop)
        }
        .boxed()
    }
}

/// What a user says, as a node that is not stored yet.
pub(super) fn new_node(blocks: Vec<Block>) -> PastNode {
    PastNode {
        id: NEW_NODE.to_owned(),
        facts: NodeFacts::default(),
        content: NodeContent { blocks, ..NodeContent::default() },
    }
}

/// The native parts of several rounds, at the positions of their blocks in the whole answer. `last` is
/// the round after which no tool ran, with the position of its first block.
pub(super) fn join_native(
    rounds: &[FinishedRound],
    last: Option<(usize, NativeTurn)>,
) -> Option<NativeTurn> {
    let finished =
        rounds.iter().filter_map(|round| Some((round.start, round.facts.native.clone()?)));
    let mut joined: Option<NativeTurn> = None;
    for (start, native) in finished.chain(last) {
        let parts = native.parts.into_iter();
        let parts = parts.map(|part| NativePart { first: part.first + start, ..part });
        match &mut joined {
            Some(joined) if joined.dialect == native.dialect => joined.parts.extend(parts),
            Some(_) => {}
            None => joined = Some(NativeTurn { dialect: native.dialect, parts: parts.collect() }),
        }
    }
    joined
}

fn node_status(status: RunStatus) -> NodeStatus {
    match status {
        RunStatus::Running | RunStatus::Completed => NodeStatus::Complete,
        RunStatus::Cancelled | RunStatus::Interrupted => NodeStatus::Interrupted,
        RunStatus::Error => NodeStatus::Error,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use throughline_codec::pacing::Pacing;
    use throughline_sealing::Keyring;

    use super::super::history::Order;
    use super::super::project::FIRST_BRANCH;
    use super::super::turn::scope;
    use super::super::{ProjectMode, ProjectSettings};
    use super::*;
    use crate::in_memory::InMemory;
    use crate::runs::Runs;
    use crate::runs::canonical::tests::panicking;
    use crate::sealed_store::SealedStore;
    use crate::store::{Branch, NodeStore, Page, ProjectFacts, ProjectStore, Reference, RunStore};
    use crate::test_gateway::gateway;

    const PROJECT: &str = "project_1";
    const BRANCH: &str = "branch_1";

    /// A project with a question, whose answer is being written.
    async fn begin(store: &Arc<InMemory>, caller: &Caller) -> Answer {
        let keyring = Arc::new(Keyring::new([7; 32]));
        let sealed_store = Arc::new(SealedStore::new(store.clone(), keyring.clone(), 1 << 20));
        let runs = Arc::new(Runs::new(sealed_store.clone()));
        let settings = ProjectSettings { pacing: Pacing::IMMEDIATE, ..ProjectSettings::default() };
        let projects = Projects::new(gateway(keyring.clone()), runs, Arc::default(), settings);
        let seal = Arc::new(ChatSeal::managed(&keyring, PROJECT));
        let owner = caller.owner.clone();
        let mode = ProjectMode::Managed.as_str().to_owned();
        let facts = ProjectFacts { mode, ..ProjectFacts::default() };
        let project =
            Project { id: PROJECT.to_owned(), owner: owner.clone(), facts, ..Project::default() };
        store.put_project(project).await.unwrap();
        let facts =
            NodeFacts { role: NodeRole::User, branch: BRANCH.to_owned(), ..NodeFacts::default() };
        let project = PROJECT.to_owned();
        let question = NodeContent { blocks: vec![Block::text("Hello?")], ..Default::default() };
        let question = Node {
            id: "question".to_owned(),
            owner: owner.clone(),
            sealed: question.seal(&seal, "question"),
            in_project: Some(ProjectNode { project, facts, ..ProjectNode::default() }),
            ..Node::default()
        };
        let branch = Branch {
            project: PROJECT.to_owned(),
            name: FIRST_BRANCH.to_owned(),
            facts: BranchFacts::default(),
        };
        let branch = Reference {
            id: BRANCH.to_owned(),
            owner: owner.clone(),
            head: Some(question.id.clone()),
            branch: Some(branch),
            ..Reference::default()
        };
        let content = RunContent {
            project: PROJECT.to_owned(),
            branch: BRANCH.to_owned(),
            node: "answer".to_owned(),
            parent: question.id.clone(),
            ..RunContent::default()
        };
        let id = "run_1".to_owned();
        let run = Run {
            owner,
            scope: scope(PROJECT),
            name: None,
            reference: Some(BRANCH.to_owned()),
            instance: "one".to_owned(),
            epoch: 1,
            status: RunStatus::Running,
            created: 0,
            expires: None,
            sealed: sealed_store.seal(SealedKind::Run, &id, &content),
            id,
        };
        let made = Commit { nodes: vec![question], reference: Some(branch), ..Commit::default() };
        assert_eq!(store.commit(made).await.unwrap(), Outcome::Written);
        let started = Commit { start: Some(run.clone()), ..Commit::default() };
        assert_eq!(store.commit(started).await.unwrap(), Outcome::Written);
        Answer::new(Arc::new(projects), seal, &run, content, Duration::from_secs(60))
    }

    #[tokio::test]
    async fn panic_ends_the_run_as_an_error_with_its_partial_node() {
        let (store, caller) = (Arc::new(InMemory::default()), Caller::new("ada", HeaderMap::new()));
        let answer = begin(&store, &caller).await;
        let run = answer.canonical_run();
        let guard = answer.projects.runs.register(run.live.clone());
        let work = async {
            run.drive_events(panicking(), &answer).await;
        };
        run.guard(work, &answer).await;
        drop(guard);
        let projects = &answer.projects;
        let ended = projects.run(&caller, "run_1").await.unwrap();
        assert_eq!((ended.status, ended.node_id.as_deref()), (RunStatus::Error, Some("answer")));
        let page = Page { after: None, limit: 9 };
        let history = projects.history(&caller, PROJECT, FIRST_BRANCH, Order::Ascending, page);
        let nodes = history.await.unwrap().nodes;
        let shown: Vec<_> =
            nodes.iter().map(|node| (&*node.id, node.status, node.content.as_deref())).collect();
        let question = ("question", NodeStatus::Complete, Some("Hello?"));
        assert_eq!(shown, [question, ("answer", NodeStatus::Error, Some("Hi"))]);
        let error = nodes[1].error.as_ref().unwrap();
        assert_eq!(error["kind"], "internal", "{error}");
        assert_eq!(store.active_runs(&[BRANCH.to_owned()]).await.unwrap(), []);
    }

    /// The path is long enough for several threads.
    #[tokio::test]
    async fn long_path_is_opened_in_order() {
        let (store, caller) = (Arc::new(InMemory::default()), Caller::new("ada", HeaderMap::new()));
        let answer = begin(&store, &caller).await;
        let mut expected = vec![("question".to_owned(), "Hello?".to_owned())];
        let mut nodes = Vec::new();
        for number in 0..1_203 {
            let (id, text) = (format!("node_{number}"), format!("text {number}"));
            let content = NodeContent { blocks: vec![Block::text(&*text)], ..Default::default() };
            let parent = expected.last().map(|(id, _)| id.clone());
            let sealed = content.seal(&answer.seal, &id);
            nodes.push(Node { id: id.clone(), parent, sealed, ..Node::default() });
            expected.push((id, text));
        }
        store.commit(Commit { nodes, ..Commit::default() }).await.unwrap();
        let past = answer.projects.past(&answer.seal, "node_1202").await.unwrap();
        let found: Vec<(String, String)> =
            past.into_iter().map(|node| (node.id, node.content.text())).collect();
        assert_eq!(found, expected);
        // A node that was moved here cannot be opened, and nothing is left out in silence.
        let moved = store.node("node_7").await.unwrap().unwrap();
        let moved =
            Node { id: "node_900".to_owned(), parent: Some("node_899".to_owned()), ..moved };
        store.put(moved, None).await.unwrap();
        assert!(answer.projects.past(&answer.seal, "node_1202").await.is_err());
    }
}
