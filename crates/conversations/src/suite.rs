//! The tests that every conversation store must pass.

use std::time::Duration;

use crate::path_suite::check_paths;
use crate::room_suite::check_rooms;
use crate::store::{
    Branch, BranchFacts, Changed, Commit, Detail, LogPiece, MAX_STORED_NAME, Move, Node, NodeFacts,
    NodeRole, NodeStatus, Outcome, Page, Piece, Project, ProjectFacts, ProjectNode, Reference, Run,
    RunEnd, RunStatus, Store,
};
use crate::user_suite::{check_members, check_users};

/// The message of a failed store operation.
pub(crate) const OK: &str = "the store works";

fn node(id: &str, parent: Option<&str>, created: u64) -> Node {
    Node {
        id: id.to_owned(),
        parent: parent.map(str::to_owned),
        owner: "ada".to_owned(),
        created,
        expires: Some(created + 100),
        open: false,
        names: vec![format!("item_{id}"), "shared".to_owned()],
        sealed: format!("content of {id}").into_bytes(),
        in_project: None,
    }
}

fn reference(id: &str, content: &str) -> Reference {
    Reference {
        id: id.to_owned(),
        owner: "ada".to_owned(),
        head: None,
        created: 5,
        expires: Some(50),
        sealed: content.as_bytes().to_vec(),
        branch: None,
    }
}

pub(crate) fn run(id: &str, reference: Option<&str>) -> Run {
    Run {
        id: id.to_owned(),
        owner: "ada".to_owned(),
        scope: "scope".to_owned(),
        name: None,
        reference: reference.map(str::to_owned),
        instance: "one".to_owned(),
        epoch: 1,
        status: RunStatus::Running,
        created: 7,
        expires: Some(70),
        sealed: b"sealed".to_vec(),
    }
}

fn end(run: &str, epoch: u64) -> RunEnd {
    RunEnd {
        run: run.to_owned(),
        epoch,
        status: RunStatus::Completed,
        expires: Some(90),
        sealed: b"end".to_vec(),
    }
}

fn to(reference: &str, from: Option<&str>, to: &str) -> Option<Move> {
    let (from, to) = (from.map(str::to_owned), Some(to.to_owned()));
    Some(Move { reference: reference.to_owned(), from, to })
}

async fn start(store: &dyn Store, run: Run) -> Outcome {
    store.commit(Commit { start: Some(run), ..Commit::default() }).await.expect(OK)
}

async fn finish(store: &dyn Store, end: RunEnd) -> Outcome {
    store.commit(Commit { end: Some(end), ..Commit::default() }).await.expect(OK)
}

fn piece(first: u64, last: u64) -> Piece {
    let sealed = vec![u8::try_from(first).unwrap_or_default(); 3];
    Piece { first, last, continues: false, sealed }
}

fn log_piece(run: &str, epoch: u64, piece: Piece) -> LogPiece {
    LogPiece { run: run.to_owned(), epoch, piece }
}

pub(crate) async fn path(store: &dyn Store, id: &str, limit: usize) -> Vec<String> {
    let nodes = store.path(id, limit, Detail::Content).await.expect(OK);
    let ids: Vec<String> = nodes.into_iter().map(|node| node.id).collect();
    assert_eq!(store.path_ids(id, limit).await.expect(OK), ids);
    ids
}

/// Checks a conversation store. It must be empty.
///
/// # Panics
/// If the store fails a check.
pub async fn check_store(store: &dyn Store) {
    nodes_form_a_path(store).await;
    for _ in 0..2 {
        store.check_write().await.expect(OK);
    }
    reference_moves_only_from_its_head(store).await;
    log_keeps_its_order(store).await;
    batch_of_many_runs_leaves_out_those_of_others(store).await;
    trim_removes_the_oldest_first(store).await;
    unused_reference_expires(store).await;
    project_keeps_its_nodes(store).await;
    check_paths(store).await;
    branch_names_are_unique(store).await;
    concurrent_changes_do_not_undo_each_other(store).await;
    longest_names_are_found_again(store).await;
    reference_has_one_run_at_a_time(store).await;
    equal_requests_at_once_start_one_run(store).await;
    only_the_newest_epoch_writes(store).await;
    stop_reaches_the_writer(store).await;
    readers_of_a_run_are_recorded(store).await;
    ended_run_expires(store).await;
    check_users(store).await;
    check_rooms(store).await;
    check_members(store).await;
}

async fn nodes_form_a_path(store: &dyn Store) {
    for (id, parent, created) in
        [("a", None, 1), ("b", Some("a"), 2), ("c", Some("b"), 3), ("fork", Some("a"), 4)]
    {
        assert!(store.put(node(id, parent, created), None).await.expect(OK));
    }
    assert_eq!(path(store, "c", 10).await, ["a", "b", "c"]);
    assert_eq!(path(store, "fork", 10).await, ["a", "fork"]);
    assert_eq!(path(store, "c", 2).await, ["b", "c"]);
    assert_eq!(path(store, "unknown", 10).await, [""; 0]);
    let read = store.node("b").await.expect(OK);
    let whole = Node { expires: Some(103), ..node("b", Some("a"), 2) };
    assert_eq!(read, Some(whole), "it expires with its newest descendant");

    // The newest node of the owner with this name, or else that of any owner.
    let others = Node { owner: "bob".to_owned(), ..node("others", None, 9) };
    assert!(store.put(others, None).await.expect(OK));
    let found = |node: Option<Node>| node.map(|node| node.id);
    let named = store.named("ada", "item_b").await.expect(OK);
    assert_eq!(found(named).as_deref(), Some("b"));
    let named = store.named("ada", "shared").await.expect(OK);
    assert_eq!(found(named).as_deref(), Some("fork"));
    let named = store.named("eve", "item_b").await.expect(OK);
    assert_eq!(found(named).as_deref(), Some("b"));
    assert_eq!(store.named("ada", "nothing").await.expect(OK), None);
    assert!(store.remove("others").await.expect(OK));

    // Writing a node again replaces it and its names.
    let again = Node {
        open: true,
        names: vec!["new".to_owned()],
        sealed: vec![0, 255],
        ..node("fork", Some("a"), 4)
    };
    assert!(store.put(again.clone(), None).await.expect(OK));
    assert_eq!(store.node("fork").await.expect(OK), Some(again));
    let named = store.named("ada", "item_fork").await.expect(OK);
    assert_eq!(found(named), None);
    assert!(store.put(node("fork", Some("a"), 4), None).await.expect(OK));

    // A missing node ends the path.
    assert!(store.remove("b").await.expect(OK));
    assert!(!store.remove("b").await.expect(OK));
    assert_eq!(path(store, "c", 10).await, ["c"]);
    assert_eq!(store.named("ada", "item_b").await.expect(OK), None);
}

async fn reference_moves_only_from_its_head(store: &dyn Store) {
    assert_eq!(store.reference("main").await.expect(OK), None);
    store.put_reference(reference("main", "first")).await.expect(OK);
    let put = |id, parent, moves| store.put(node(id, parent, 10), moves);
    assert!(put("m1", None, to("main", None, "m1")).await.expect(OK));
    assert!(!put("m2", None, to("main", None, "m2")).await.expect(OK));
    assert!(!put("m2", None, to("other", None, "m2")).await.expect(OK));
    assert_eq!(store.node("m2").await.expect(OK), None);
    assert!(put("m2", Some("m1"), to("main", Some("m1"), "m2")).await.expect(OK));

    // The content changes and the head does not.
    store.put_reference(reference("main", "second")).await.expect(OK);
    let expected = Reference {
        head: Some("m2".to_owned()),
        expires: Some(110),
        ..reference("main", "second")
    };
    let read = store.reference("main").await.expect(OK);
    assert_eq!(read, Some(expected), "it expires with its newest node");
    assert!(store.remove_reference("main").await.expect(OK));
    assert!(!store.remove_reference("main").await.expect(OK));
    assert_eq!(path(store, "m2", 10).await, ["m1", "m2"]);
}

async fn log_keeps_its_order(store: &dyn Store) {
    assert_eq!(start(store, run("m1", None)).await, Outcome::Written);
    let continues = Piece { continues: true, ..piece(5, 5) };
    let all = [piece(0, 4), continues, piece(6, 20)];
    for pieces in [&all[..2], &all[2..]] {
        let pieces = pieces.iter().map(|piece| log_piece("m1", 1, piece.clone()));
        let written = store.log(pieces.collect()).await.expect(OK);
        assert!(written.iter().all(|written| *written));
    }
    for (after, limit, pieces) in [
        (None, 9, &all[..]),
        (Some(3), 9, &all),
        (Some(4), 9, &all[1..]),
        (Some(6), 9, &all[2..]),
        (Some(20), 9, &[]),
        (Some(u64::MAX), 9, &[]),
        (None, 2, &all[..2]),
        (Some(4), 1, &all[1..2]),
    ] {
        assert_eq!(store.logged("m1", after, limit).await.expect(OK), pieces, "{after:?}");
    }
    for (before, pieces) in [(0, vec![]), (5, vec![0]), (6, vec![0]), (7, vec![0, 2])] {
        let pieces: Vec<Piece> = pieces.into_iter().map(|at: usize| all[at].clone()).collect();
        assert_eq!(store.log_outline("m1", before).await.expect(OK), pieces, "{before}");
    }
    assert_eq!(store.last_logged("m1").await.expect(OK), Some(20));
    assert_eq!(store.last_logged("m2").await.expect(OK), None);
    assert_eq!(store.logged("m2", None, 9).await.expect(OK), []);
    store.remove("m1").await.expect(OK);
    assert_eq!(store.logged("m1", None, 9).await.expect(OK), []);
    assert_eq!(store.run("m1").await.expect(OK), None);
}

/// A batch is larger than one statement, and has several pieces of some runs.
async fn batch_of_many_runs_leaves_out_those_of_others(store: &dyn Store) {
    let ids: Vec<String> = (0..700).map(|number| format!("batch_{number:03}")).collect();
    for id in &ids {
        assert_eq!(start(store, run(id, None)).await, Outcome::Written);
    }
    assert_eq!(finish(store, end(&ids[3], 1)).await, Outcome::Written);
    assert_eq!(store.take_over(&ids[4], 1, "two").await.expect(OK), Some(2));
    let mut pieces: Vec<LogPiece> =
        ids.iter().rev().map(|id| log_piece(id, 1, piece(1, 2))).collect();
    pieces.push(log_piece(&ids[5], 1, piece(3, 3)));
    pieces.push(log_piece("no such run", 1, piece(1, 1)));
    let runs: Vec<String> = pieces.iter().map(|piece| piece.run.clone()).collect();
    let written = store.log(pieces).await.expect(OK);
    let left_out = runs.iter().zip(written).filter(|(_, written)| !written);
    let left_out: Vec<&str> = left_out.map(|(run, _)| run.as_str()).collect();
    assert_eq!(left_out, ["batch_004", "batch_003", "no such run"]);
    for (at, logged) in
        [(0, &[piece(1, 2)][..]), (3, &[]), (4, &[]), (5, &[piece(1, 2), piece(3, 3)])]
    {
        assert_eq!(store.logged(&ids[at], None, 9).await.expect(OK), logged, "{at}");
    }
    assert_eq!(store.log(Vec::new()).await.expect(OK), [false; 0]);
    for id in &ids {
        assert!(store.remove_run(id).await.expect(OK));
        assert_eq!(store.logged(id, None, 9).await.expect(OK), []);
    }
}

async fn unused_reference_expires(store: &dyn Store) {
    let kept = Reference { expires: None, ..reference("kept", "for ever") };
    for made in [reference("empty", "x"), reference("moved", "x"), kept] {
        store.put_reference(made).await.expect(OK);
    }
    for (id, conversation) in [("r1", "moved"), ("r2", "kept")] {
        let put = store.put(node(id, None, 10), to(conversation, None, id)).await;
        assert!(put.expect(OK));
    }
    for (now, gone, left) in [
        (49, 0, ["empty", "moved", "kept"].as_slice()),
        (50, 1, &["moved", "kept"]),
        // It is removed with its node, and so is the node of the one that stays.
        (110, 3, &["kept"]),
    ] {
        assert_eq!(store.trim(now, u64::MAX).await.expect(OK), gone, "{now}");
        for id in ["empty", "moved", "kept"] {
            let found = store.reference(id).await.expect(OK);
            assert_eq!(found.is_some(), left.contains(&id), "{id} at {now}");
        }
    }
}

async fn trim_removes_the_oldest_first(store: &dyn Store) {
    assert_eq!(store.trim(0, u64::MAX).await.expect(OK), 0);
    let left = store.trim(u64::MAX, u64::MAX).await.expect(OK);
    assert_eq!(left, 4, "a, c, fork and m2 have expired");
    for created in 0..10 {
        let kept = Node {
            expires: None,
            sealed: vec![1; 100],
            open: created == 1,
            ..node(&format!("n{created}"), None, created)
        };
        store.put(kept, None).await.expect(OK);
    }
    start(store, run("n3", None)).await;
    let log = Piece { first: 0, last: 0, continues: false, sealed: vec![1; 100] };
    store.log(vec![log_piece("n3", 1, log)]).await.expect(OK);
    assert_eq!(store.trim(u64::MAX, 1100).await.expect(OK), 0);
    assert_eq!(store.trim(u64::MAX, 1000).await.expect(OK), 1);
    assert_eq!(store.node("n0").await.expect(OK), None);
    // An open node stays. A log is removed with its node.
    assert_eq!(store.trim(u64::MAX, 700).await.expect(OK), 2);
    for (id, there) in [("n1", true), ("n2", false), ("n3", false), ("n4", true)] {
        let node = store.node(id).await.expect(OK);
        assert_eq!(node.is_some(), there, "{id}");
    }
}

fn project(id: &str, owner: &str) -> Project {
    Project {
        id: id.to_owned(),
        owner: owner.to_owned(),
        created: 3,
        facts: ProjectFacts { mode: "managed".to_owned(), ..ProjectFacts::default() },
        sealed: b"title".to_vec(),
    }
}

pub(crate) fn project_node(id: &str, parent: Option<&str>) -> Node {
    Node {
        expires: None,
        names: Vec::new(),
        in_project: Some(ProjectNode {
            project: "p1".to_owned(),
            facts: NodeFacts {
                role: NodeRole::Assistant,
                status: NodeStatus::Interrupted,
                provider: Some("anthropic".to_owned()),
                model: Some("claude".to_owned()),
                branch: "b1".to_owned(),
                ..NodeFacts::default()
            },
            has_thinking: true,
            thinking_tokens: Some(12),
            sealed_thinking: Some(vec![1, 2]),
            sealed_signatures: Some(vec![3]),
            sealed_raw: Some(vec![0, 9, 255]),
        }),
        ..node(id, parent, 20)
    }
}

fn branch(id: &str, project: &str, name: &str) -> Reference {
    Reference {
        expires: None,
        branch: Some(Branch {
            project: project.to_owned(),
            name: name.to_owned(),
            facts: BranchFacts { provider: "a".to_owned(), pinned: true, ..BranchFacts::default() },
        }),
        ..reference(id, "")
    }
}

/// What a store returns for a node: everything but the provider's reply.
pub(crate) fn without_raw(mut node: Node) -> Node {
    if let Some(inside) = &mut node.in_project {
        inside.sealed_raw = None;
    }
    node
}

pub(crate) fn page(after: Option<&str>, limit: usize) -> Page {
    Page { after: after.map(str::to_owned), limit }
}

async fn project_ids(store: &dyn Store, owner: &str, deleted: bool, wanted: Page) -> Vec<String> {
    let found = store.projects(owner, deleted, wanted).await.expect(OK);
    found.into_iter().map(|project| project.id).collect()
}

async fn project_keeps_its_nodes(store: &dyn Store) {
    for (id, owner) in [("p1", "ada"), ("p2", "ada"), ("p3", "bob"), ("p4", "ada")] {
        store.put_project(project(id, owner)).await.expect(OK);
    }
    assert_eq!(store.project("p1").await.expect(OK), Some(project("p1", "ada")));
    assert_eq!(store.project("p9").await.expect(OK), None);
    assert_eq!(project_ids(store, "ada", false, page(None, 2)).await, ["p4", "p2"]);
    assert_eq!(project_ids(store, "ada", false, page(Some("p2"), 2)).await, ["p1"]);
    let mut changed = project("p2", "ada");
    changed.facts.deleted = Some(5);
    let change = |from: &Project| store.change_project(from.clone(), changed.clone());
    assert_eq!(change(&project("p2", "ada")).await.expect(OK), Changed::Yes);
    assert_eq!(change(&project("p2", "ada")).await.expect(OK), Changed::Stale);
    let other_content = Project { sealed: b"other".to_vec(), ..changed.clone() };
    assert_eq!(change(&other_content).await.expect(OK), Changed::Stale);
    assert_eq!(change(&project("p9", "ada")).await.expect(OK), Changed::Stale);
    assert_eq!(store.project("p2").await.expect(OK), Some(changed.clone()));
    assert_eq!(project_ids(store, "ada", false, page(None, 9)).await, ["p4", "p1"]);
    assert_eq!(project_ids(store, "ada", true, page(None, 9)).await, ["p2"]);

    let commit = Commit {
        nodes: vec![project_node("k1", None), project_node("k2", Some("k1"))],
        reference: Some(branch("b1", "p1", "main")),
        ..Commit::default()
    };
    assert_eq!(store.commit(commit).await.expect(OK), Outcome::Written);
    // Expiry and limits are for what belongs to no project.
    store.trim(u64::MAX, 0).await.expect(OK);
    let whole = without_raw(project_node("k2", Some("k1")));
    assert_eq!(store.node("k2").await.expect(OK), Some(whole));
    assert_eq!(path(store, "k2", 10).await, ["k1", "k2"]);
    assert_eq!(store.raw("k2").await.expect(OK), Some(vec![0, 9, 255]));
    assert_eq!(store.raw("k9").await.expect(OK), None);
    let nodes = store.project_nodes("p1", page(None, 1)).await.expect(OK);
    assert_eq!(nodes, [without_raw(project_node("k1", None))]);
    let nodes = store.project_nodes("p1", page(Some("k1"), 9)).await.expect(OK);
    assert_eq!(nodes, [without_raw(project_node("k2", Some("k1")))]);
    assert_eq!(store.count_nodes("p1").await.expect(OK), 2);
    assert_eq!(store.count_nodes("p2").await.expect(OK), 0);

    // Writing a node again without its reply keeps the reply.
    let again = without_raw(project_node("k2", Some("k1")));
    assert!(store.put(again, None).await.expect(OK));
    assert_eq!(store.raw("k2").await.expect(OK), Some(vec![0, 9, 255]));
    let first = project_node("k2", None).in_project.unwrap_or_default().facts;
    let facts = NodeFacts { starred: true, ..NodeFacts::default() };
    let change = |id: &'static str, from: &NodeFacts| {
        store.change_node(id, from.clone(), NodeFacts { starred: true, ..NodeFacts::default() })
    };
    assert_eq!(change("k2", &first).await.expect(OK), Changed::Yes);
    assert_eq!(change("k2", &first).await.expect(OK), Changed::Stale);
    assert_eq!(change("k9", &first).await.expect(OK), Changed::Stale);
    let read = store.node("k2").await.expect(OK).and_then(|node| node.in_project);
    let read = read.expect("a node of a project");
    assert_eq!((&read.facts, read.has_thinking), (&facts, true));
    let ids = ["k2", "k9"].map(str::to_owned);
    assert_eq!(store.node_facts(&ids).await.expect(OK), [("k2".to_owned(), facts)]);
    assert_eq!(store.node_facts(&[]).await.expect(OK), []);

    assert_eq!(start(store, run("of_p1", Some("b1"))).await, Outcome::Written);
    assert!(store.remove_project("p1").await.expect(OK));
    assert!(!store.remove_project("p1").await.expect(OK));
    assert_eq!(store.node("k1").await.expect(OK), None);
    assert_eq!(store.raw("k2").await.expect(OK), None);
    assert_eq!(store.reference("b1").await.expect(OK), None);
    assert_eq!(store.run("of_p1").await.expect(OK), None);
    for id in ["p2", "p3", "p4"] {
        assert!(store.remove_project(id).await.expect(OK), "{id}");
    }
}

async fn branch_names_are_unique(store: &dyn Store) {
    let add = |reference: Reference| {
        store.commit(Commit { reference: Some(reference), ..Commit::default() })
    };
    assert_eq!(add(branch("b1", "p1", "main")).await.expect(OK), Outcome::Written);
    assert_eq!(add(branch("b2", "p1", "main")).await.expect(OK), Outcome::NameTaken);
    assert_eq!(add(branch("b2", "p2", "main")).await.expect(OK), Outcome::Written);
    let later = Reference { created: 6, ..branch("b0", "p1", "idea") };
    assert_eq!(add(later.clone()).await.expect(OK), Outcome::Written);
    let found = store.branches("p1").await.expect(OK);
    assert_eq!(found, [branch("b1", "p1", "main"), later]);
    assert_eq!(store.reference("b1").await.expect(OK), Some(branch("b1", "p1", "main")));

    let renamed = |name: &str| Branch {
        project: "p1".to_owned(),
        name: name.to_owned(),
        facts: BranchFacts { hidden: true, ..BranchFacts::default() },
    };
    let first = branch("b0", "p1", "idea").branch.unwrap_or_default();
    for (id, from, to, expected) in [
        ("b0", first.clone(), "main", Changed::NameTaken),
        ("b0", first.clone(), "idea", Changed::Yes),
        // It is not as the caller knew it any more.
        ("b0", first.clone(), "better", Changed::Stale),
        ("b0", renamed("other"), "better", Changed::Stale),
        ("b0", renamed("idea"), "better", Changed::Yes),
        ("b9", first, "lost", Changed::Stale),
    ] {
        let changed = store.change_branch(id, from, renamed(to)).await.expect(OK);
        assert_eq!(changed, expected, "{id} {to}");
    }
    let read = store.reference("b0").await.expect(OK).and_then(|reference| reference.branch);
    assert_eq!(read, Some(renamed("better")));
    for id in ["b0", "b1", "b2"] {
        assert!(store.remove_reference(id).await.expect(OK));
    }
}

/// Several writers each set another flag of one branch at the same time.
async fn concurrent_changes_do_not_undo_each_other(store: &dyn Store) {
    let add = Commit { reference: Some(branch("b1", "p1", "main")), ..Commit::default() };
    assert_eq!(store.commit(add).await.expect(OK), Outcome::Written);
    let set = async |change: fn(&mut BranchFacts)| {
        loop {
            let read = store.reference("b1").await.expect(OK).and_then(|read| read.branch);
            let from = read.expect("a branch");
            let mut to = from.clone();
            change(&mut to.facts);
            if store.change_branch("b1", from, to).await.expect(OK) == Changed::Yes {
                return;
            }
        }
    };
    tokio::join!(
        set(|facts| facts.pinned = true),
        set(|facts| facts.hidden = true),
        set(|facts| facts.starred = true),
        set(|facts| facts.deleted = Some(7)),
    );
    let read = store.reference("b1").await.expect(OK).and_then(|read| read.branch);
    let facts = read.expect("a branch").facts;
    assert!(facts.pinned && facts.hidden && facts.starred, "{facts:?}");
    assert_eq!(facts.deleted, Some(7));
    assert!(store.remove_reference("b1").await.expect(OK));
}

/// The longest names that callers store: of threads and items as [`bounded_name`] writes them, of
/// branches and requests 500 characters.
async fn longest_names_are_found_again(store: &dyn Store) {
    // Text that does not get shorter by compression.
    let mut state = 7_u64;
    let mut name = |length: usize| -> String {
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let letter = u32::try_from(state >> 40).unwrap_or_default() % 40_000;
            char::from_u32(0x2_0000 + letter).expect("a character of four bytes")
        };
        (0..length).map(|_| next()).collect()
    };
    let scope = format!("ag_ui:{}", name(MAX_STORED_NAME / 4));
    let (request, label) = (name(500), name(500));
    let named = Run { scope: scope.clone(), name: Some(request.clone()), ..run("named", None) };
    assert_eq!(start(store, named).await, Outcome::Written);
    let found = store.named_run("ada", &scope, &request).await.expect(OK);
    assert_eq!(found.map(|run| run.id).as_deref(), Some("named"));
    assert_eq!(store.runs("ada", &scope, 9).await.expect(OK).len(), 1);
    let item = name(MAX_STORED_NAME / 4);
    let with_item = Node { names: vec![item.clone()], ..node("with_item", None, 1) };
    assert!(store.put(with_item, None).await.expect(OK));
    let found = store.named("ada", &item).await.expect(OK);
    assert_eq!(found.map(|node| node.id).as_deref(), Some("with_item"));
    let add = Commit { reference: Some(branch("b1", "p1", &label)), ..Commit::default() };
    assert_eq!(store.commit(add).await.expect(OK), Outcome::Written);
    let found = store.branches("p1").await.expect(OK);
    assert_eq!(found, [branch("b1", "p1", &label)]);
    // Ids that no database stores are unknown.
    for odd in ["a\0b", &name(5_000)] {
        assert_eq!(store.run(odd).await.expect(OK), None);
        assert_eq!(store.node(odd).await.expect(OK), None);
        assert_eq!(store.project(odd).await.expect(OK), None);
        assert_eq!(store.named_run("ada", odd, odd).await.expect(OK), None);
    }
    assert!(store.remove_reference("b1").await.expect(OK));
    assert!(store.remove("with_item").await.expect(OK));
    assert!(store.remove_run("named").await.expect(OK));
}

async fn reference_has_one_run_at_a_time(store: &dyn Store) {
    store.put_reference(Reference { expires: None, ..reference("line", "") }).await.expect(OK);
    let first = Commit {
        nodes: vec![node("u1", None, 30)],
        moves: to("line", None, "u1"),
        start: Some(Run { name: Some("key".to_owned()), ..run("r1", Some("line")) }),
        ..Commit::default()
    };
    assert_eq!(store.commit(first.clone()).await.expect(OK), Outcome::Written);
    let busy = Outcome::Busy { run: "r1".to_owned() };
    let second = Commit {
        nodes: vec![node("u2", Some("u1"), 31)],
        moves: to("line", Some("u1"), "u2"),
        start: Some(run("r2", Some("line"))),
        ..Commit::default()
    };
    assert_eq!(store.commit(second.clone()).await.expect(OK), busy);
    assert_eq!(start(store, run("r2", Some("line"))).await, busy);
    assert!(!store.put(node("u2", Some("u1"), 31), second.moves.clone()).await.expect(OK));
    assert_eq!(store.node("u2").await.expect(OK), None);
    // A name is used once in its scope, by each owner.
    let repeated = Run { name: Some("key".to_owned()), ..run("r3", None) };
    let known = Outcome::Repeated { run: "r1".to_owned() };
    assert_eq!(start(store, repeated.clone()).await, known);
    // That counts more than a branch that is busy by then: both requests may arrive at once.
    let named = Run { name: Some("key".to_owned()), ..run("r2", Some("line")) };
    let again = Commit { start: Some(named), ..second.clone() };
    assert_eq!(store.commit(again).await.expect(OK), known);
    for other in [
        Run { owner: "bob".to_owned(), ..repeated.clone() },
        Run { id: "r4".to_owned(), scope: "other".to_owned(), created: 8, ..repeated },
    ] {
        assert_eq!(start(store, other).await, Outcome::Written);
    }
    let named = store.named_run("ada", "scope", "key").await.expect(OK);
    assert_eq!(named.map(|run| run.id).as_deref(), Some("r1"));
    assert_eq!(store.named_run("eve", "scope", "key").await.expect(OK), None);
    assert_eq!(start(store, run("r5", Some("other line"))).await, Outcome::Written);
    let mut lines: Vec<String> = (0..600).map(|number| format!("line {number}")).collect();
    lines.extend(["other line", "line", "none"].map(str::to_owned));
    let active = store.active_runs(&lines).await.expect(OK);
    let mut active: Vec<String> = active.into_iter().map(|run| run.id).collect();
    active.sort();
    assert_eq!(active, ["r1", "r5"]);
    assert_eq!(store.active_runs(&[]).await.expect(OK), []);
    assert!(store.remove_run("r5").await.expect(OK));

    // The run that ends may move its reference.
    let answer = Commit {
        nodes: vec![node("a1", Some("u1"), 32)],
        moves: to("line", Some("u1"), "a1"),
        end: Some(end("r1", 1)),
        ..Commit::default()
    };
    assert_eq!(store.commit(answer.clone()).await.expect(OK), Outcome::Written);
    assert_eq!(store.commit(answer).await.expect(OK), Outcome::Fenced);
    let ended = store.run("r1").await.expect(OK).expect("a run");
    assert_eq!((ended.status, ended.expires), (RunStatus::Completed, Some(90)));
    assert_eq!(ended.sealed, b"end");
    assert_eq!(store.commit(second).await.expect(OK), Outcome::Stale);
    assert_eq!(start(store, run("r2", Some("line"))).await, Outcome::Written);
    let runs = store.runs("ada", "scope", 9).await.expect(OK);
    assert_eq!(runs.into_iter().map(|run| run.id).collect::<Vec<_>>(), ["r2", "r1"]);
    for id in ["r1", "r2", "r3", "r4"] {
        assert!(store.remove_run(id).await.expect(OK), "{id}");
    }
}

/// A client that repeats a request while the first one is being written.
async fn equal_requests_at_once_start_one_run(store: &dyn Store) {
    for round in 0..20 {
        let line = format!("line {round}");
        store.put_reference(reference(&line, "")).await.expect(OK);
        let commit = |id: &str| Commit {
            nodes: vec![node(&format!("{id} said {round}"), None, 30)],
            moves: to(&line, None, &format!("{id} said {round}")),
            start: Some(Run {
                name: Some(format!("key {round}")),
                ..run(&format!("{id} {round}"), Some(&line))
            }),
            ..Commit::default()
        };
        let (one, two, three) = tokio::join!(
            store.commit(commit("a")),
            store.commit(commit("b")),
            store.commit(commit("c"))
        );
        let outcomes = [one, two, three].map(|outcome| outcome.expect(OK));
        let won = outcomes.iter().position(|outcome| *outcome == Outcome::Written);
        let winner = format!("{} {round}", ["a", "b", "c"][won.expect("one is written")]);
        let repeated = Outcome::Repeated { run: winner.clone() };
        let others = outcomes.iter().filter(|outcome| **outcome == repeated).count();
        assert_eq!(others, 2, "{outcomes:?}");
        assert!(store.remove_run(&winner).await.expect(OK));
        assert!(store.remove_reference(&line).await.expect(OK));
        for id in ["a", "b", "c"] {
            store.remove(&format!("{id} said {round}")).await.expect(OK);
        }
    }
}

async fn only_the_newest_epoch_writes(store: &dyn Store) {
    assert_eq!(start(store, run("owned", None)).await, Outcome::Written);
    let write = |epoch, at| store.log(vec![log_piece("owned", epoch, piece(at, at))]);
    assert_eq!(write(1, 1).await.expect(OK), [true]);
    assert_eq!(write(2, 2).await.expect(OK), [false]);

    // An instance that never beat counts as silent.
    let abandoned = async |by: &str, silent| {
        let runs = store.abandoned(by, silent).await.expect(OK);
        runs.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let minute = Duration::from_secs(60);
    assert_eq!(abandoned("two", minute).await, ["owned"]);
    assert_eq!(abandoned("one", minute).await, [""; 0]);
    store.beat("one").await.expect(OK);
    store.beat("one").await.expect(OK);
    assert_eq!(abandoned("two", minute).await, [""; 0]);
    assert_eq!(abandoned("two", Duration::ZERO).await, ["owned"]);

    assert_eq!(store.take_over("owned", 1, "two").await.expect(OK), Some(2));
    assert_eq!(store.take_over("owned", 1, "three").await.expect(OK), None);
    assert_eq!(write(1, 2).await.expect(OK), [false]);
    assert_eq!(finish(store, end("owned", 1)).await, Outcome::Fenced);
    assert_eq!(write(2, 2).await.expect(OK), [true]);
    assert_eq!(finish(store, end("owned", 2)).await, Outcome::Written);
    // A run that has ended gets no more entries.
    assert_eq!(write(2, 3).await.expect(OK), [false]);
    assert_eq!(store.logged("owned", None, 9).await.expect(OK), [piece(1, 1), piece(2, 2)]);
    assert_eq!(store.take_over("owned", 2, "three").await.expect(OK), None);
    assert!(store.remove_run("owned").await.expect(OK));
    assert_eq!(store.logged("owned", None, 9).await.expect(OK), []);
}

async fn stop_reaches_the_writer(store: &dyn Store) {
    assert_eq!(start(store, run("long", None)).await, Outcome::Written);
    assert_eq!(store.asked_stops("one").await.expect(OK), [""; 0]);
    assert!(store.ask_stop("long").await.expect(OK));
    assert!(!store.ask_stop("unknown").await.expect(OK));
    assert_eq!(store.asked_stops("one").await.expect(OK), ["long"]);
    assert_eq!(store.asked_stops("two").await.expect(OK), [""; 0]);
    assert_eq!(finish(store, end("long", 1)).await, Outcome::Written);
    assert_eq!(store.asked_stops("one").await.expect(OK), [""; 0]);
    assert!(!store.ask_stop("long").await.expect(OK));
    assert!(store.remove_run("long").await.expect(OK));
}

async fn readers_of_a_run_are_recorded(store: &dyn Store) {
    assert_eq!(start(store, run("read", None)).await, Outcome::Written);
    assert_eq!(store.last_read("read").await.expect(OK), None);
    for id in ["read", "read", "unknown"] {
        store.record_reader(id).await.expect(OK);
    }
    let age = store.last_read("read").await.expect(OK).expect("a record");
    assert!(age < Duration::from_secs(60), "{age:?}");
    assert_eq!(store.last_read("unknown").await.expect(OK), None);
    assert!(store.remove_run("read").await.expect(OK));
    assert_eq!(store.last_read("read").await.expect(OK), None);
}

async fn ended_run_expires(store: &dyn Store) {
    for id in ["going", "over"] {
        assert_eq!(start(store, run(id, None)).await, Outcome::Written);
        store.log(vec![log_piece(id, 1, piece(1, 3))]).await.expect(OK);
    }
    assert_eq!(finish(store, end("over", 1)).await, Outcome::Written);
    assert_eq!(store.trim(89, u64::MAX).await.expect(OK), 0);
    assert_eq!(store.trim(90, u64::MAX).await.expect(OK), 1);
    assert_eq!(store.run("over").await.expect(OK), None);
    assert_eq!(store.logged("over", None, 9).await.expect(OK), []);
    assert_eq!(store.logged("going", None, 9).await.expect(OK), [piece(1, 3)]);
    assert!(store.remove_run("going").await.expect(OK));
}
