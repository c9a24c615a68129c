//! Measures a store, and a plain insert of the same bytes right after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use throughline_conversations::runs::log::{Entry, LiveRun};
use throughline_conversations::runs::{Appended, Runs};
use throughline_conversations::sealed_store::SealedStore;
use throughline_conversations::store::{
    Branch, BranchFacts, Commit, Detail, Move, Node, NodeFacts, NodeRole, Outcome, Page, Project,
    ProjectNode, Reference, Run, RunStatus, Store,
};
use throughline_sealing::Keyring;
use tokio::task::JoinSet;

use crate::plain::Plain;
use crate::{is_postgres, open};

/// Of these rounds the best one counts: another program may use the same cores.
const ROUNDS: usize = 5;
/// Runs that write at the same time.
const RUNS: usize = 500;
/// Events of each of these runs in one round.
const EVENTS: u64 = 20;
/// Appends of one round.
const APPENDS: usize = 200;
/// Nodes of a page, and of a long walk.
const PAGE: usize = 100;
const WALK: usize = 10_000;
/// Sealed bytes of a node.
const NODE_BYTES: usize = 600;
/// Nodes of one commit while a branch is filled.
const BATCH: usize = 500;
/// Everything fits.
const LIMIT: u64 = 1 << 40;

const PROJECT: &str = "project_bench";
const BRANCH: &str = "branch_bench";
const OWNER: &str = "bench";

/// A store under measurement.
struct Subject {
    name: &'static str,
    store: Arc<dyn Store>,
    plain: Plain,
    /// The path of the branch, oldest first.
    path: Vec<String>,
    /// Runs that were made so far.
    runs: usize,
}

/// `measure SIZE... STORE...`
pub(crate) async fn run(words: &[&str]) {
    let sizes: Vec<usize> = words.iter().map_while(|word| word.parse().ok()).collect();
    for store in &words[sizes.len()..] {
        let mut subject = Subject::open(store).await;
        subject.measure_log().await;
        for size in sizes.iter().copied() {
            subject.grow(size).await;
            subject.measure_page("page of the newest 100 nodes", size, Which::Newest).await;
            subject.measure_page("page of the oldest 100 nodes", size, Which::Oldest).await;
            if size >= WALK {
                subject.measure_page("walk of 10,000 nodes", size, Which::Walk).await;
            }
            subject.measure_appends(size).await;
        }
    }
}

/// What is read of a branch.
#[derive(Clone, Copy)]
enum Which {
    Newest,
    Oldest,
    Walk,
}

impl Subject {
    async fn open(address: &str) -> Self {
        let store = open(address).await;
        let project =
            Project { id: PROJECT.to_owned(), owner: OWNER.to_owned(), ..Project::default() };
        store.put_project(project).await.unwrap();
        let branch = Branch {
            project: PROJECT.to_owned(),
            name: "main".to_owned(),
            facts: BranchFacts::default(),
        };
        let reference = Reference {
            id: BRANCH.to_owned(),
            owner: OWNER.to_owned(),
            branch: Some(branch),
            ..Reference::default()
        };
        let commit = Commit { reference: Some(reference), ..Commit::default() };
        assert_eq!(store.commit(commit).await.unwrap(), Outcome::Written);
        let name = if is_postgres(address) { "Postgres" } else { "SQLite" };
        Self { name, store, plain: Plain::open(address).await, path: Vec::new(), runs: 0 }
    }

    fn print(&self, figure: &str, nodes: usize, time: Duration, plain: Duration) {
        println!("{}\t{figure}\t{nodes}\t{}\t{}", self.name, time.as_nanos(), plain.as_nanos());
    }

    /// The cost of an event while many runs write: sealed, stored, and shown to readers.
    async fn measure_log(&mut self) {
        let (mut best, mut plain) = (Duration::MAX, Duration::MAX);
        for _ in 0..ROUNDS {
            let sealed_store =
                SealedStore::new(self.store.clone(), Arc::new(Keyring::new([7; 32])), LIMIT);
            let runs = Arc::new(Runs::new(Arc::new(sealed_store)));
            let mut guards = Vec::with_capacity(RUNS);
            for _ in 0..RUNS {
                guards.push(runs.register(self.start_run(&runs.instance).await));
            }
            let began = Instant::now();
            let mut tasks = JoinSet::new();
            for guard in &guards {
                tasks.spawn(write_events(runs.clone(), guard.run.clone()));
            }
            tasks.join_all().await;
            best = best.min(began.elapsed());
            let mut rows = Vec::new();
            for guard in &guards {
                let pieces = self.store.logged(&guard.run.id, None, usize::MAX).await.unwrap();
                rows.extend(pieces.into_iter().map(|piece| piece.sealed));
            }
            let began = Instant::now();
            for batch in rows.chunks(RUNS) {
                self.plain.insert(batch).await;
            }
            plain = plain.min(began.elapsed());
        }
        let events = RUNS as u32 * EVENTS as u32;
        self.print("event of a run, 500 runs at once", 0, best / events, plain / events);
    }

    async fn start_run(&mut self, instance: &str) -> Arc<LiveRun> {
        self.runs += 1;
        let id = format!("run_{:08}", self.runs);
        let run = Run {
            id: id.clone(),
            owner: OWNER.to_owned(),
            scope: "bench".to_owned(),
            name: None,
            reference: None,
            instance: instance.to_owned(),
            epoch: 1,
            status: RunStatus::Running,
            created: 0,
            expires: None,
            sealed: vec![7; 200],
        };
        let commit = Commit { start: Some(run), ..Commit::default() };
        assert_eq!(self.store.commit(commit).await.unwrap(), Outcome::Written);
        Arc::new(LiveRun::new(id, 1))
    }

    /// Adds nodes until the branch has this many.
    async fn grow(&mut self, size: usize) {
        while self.path.len() < size {
            self.append(BATCH.min(size - self.path.len())).await;
        }
    }

    /// Adds nodes to the branch in one commit.
    async fn append(&mut self, count: usize) {
        let from = self.path.last().cloned();
        let mut nodes = Vec::with_capacity(count);
        for _ in 0..count {
            let node = node(self.path.len(), self.path.last().cloned());
            self.path.push(node.id.clone());
            nodes.push(node);
        }
        let to = self.path.last().cloned();
        let moves = Some(Move { reference: BRANCH.to_owned(), from, to });
        let commit = Commit { nodes, moves, ..Commit::default() };
        assert_eq!(self.store.commit(commit).await.unwrap(), Outcome::Written);
    }

    /// The cost of a node that is added to the branch in a commit of its own.
    async fn measure_appends(&mut self, size: usize) {
        let (mut best, mut plain) = (Duration::MAX, Duration::MAX);
        let rows = [vec![7; NODE_BYTES]];
        for _ in 0..ROUNDS {
            let began = Instant::now();
            for _ in 0..APPENDS {
                self.append(1).await;
            }
            best = best.min(began.elapsed());
            let began = Instant::now();
            for _ in 0..APPENDS {
                self.plain.insert(&rows).await;
            }
            plain = plain.min(began.elapsed());
        }
        self.print("append of a node", size, best / APPENDS as u32, plain / APPENDS as u32);
    }

    /// The cost of reading nodes of the branch, beside an insert of as many.
    async fn measure_page(&mut self, figure: &str, size: usize, which: Which) {
        let (mut best, mut plain) = (Duration::MAX, Duration::MAX);
        let head = self.path.last().unwrap().clone();
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let nodes = match which {
                Which::Newest => self.store.path(&head, PAGE, Detail::Content).await.unwrap(),
                Which::Oldest => {
                    let page = Page { after: None, limit: PAGE };
                    self.store.path_page(&head, page, Detail::Content).await.unwrap().unwrap()
                }
                Which::Walk => self.store.path(&head, WALK, Detail::Content).await.unwrap(),
            };
            best = best.min(began.elapsed());
            let (newest, oldest) = (nodes.last().unwrap(), nodes.first().unwrap());
            match which {
                Which::Newest | Which::Walk => assert_eq!(newest.id, head),
                Which::Oldest => assert_eq!(oldest.id, self.path[0]),
            }
            let rows: Vec<Vec<u8>> = nodes.into_iter().map(|node| node.sealed).collect();
            assert_eq!(rows.len(), if matches!(which, Which::Walk) { WALK } else { PAGE });
            let began = Instant::now();
            self.plain.insert(&rows).await;
            plain = plain.min(began.elapsed());
        }
        self.print(figure, size, best, plain);
    }
}

async fn write_events(runs: Arc<Runs>, run: Arc<LiveRun>) {
    for number in 1..=EVENTS {
        let text = r#"{"type":"block_delta","index":0,"delta":{"text":"and so it follows that "}}"#;
        let entry = Entry::new(number, text);
        assert_eq!(runs.append(&run, vec![entry]).await, Appended::Yes);
    }
}

fn node(number: usize, parent: Option<String>) -> Node {
    let role = if number.is_multiple_of(2) { NodeRole::User } else { NodeRole::Assistant };
    let facts = NodeFacts {
        role,
        provider: Some("upstream".to_owned()),
        model: Some("bench".to_owned()),
        branch: BRANCH.to_owned(),
        ..NodeFacts::default()
    };
    let in_project = ProjectNode { project: PROJECT.to_owned(), facts, ..ProjectNode::default() };
    Node {
        id: format!("node_{number:016x}"),
        parent,
        owner: OWNER.to_owned(),
        created: number as u64,
        sealed: vec![7; NODE_BYTES],
        in_project: Some(in_project),
        ..Node::default()
    }
}
