//! The part of the store suite about paths of projects.

use crate::store::{Commit, Detail, Node, Outcome, Store};
use crate::suite::{OK, page, path, project_node, without_raw};

/// Checks paths: in pages, with forks, and longer than what a store reads at a time.
pub(crate) async fn check_paths(store: &dyn Store) {
    path_is_read_in_pages(store).await;
    path_with_a_fork_at_each_node_is_read(store).await;
    long_path_is_read_whole(store).await;
}

/// The path is long enough for jumps of several lengths, and has a fork.
async fn path_is_read_in_pages(store: &dyn Store) {
    let line =
        |name: &'static str, from: usize| (from..70).map(move |at| format!("{name}_{at:02}"));
    let main: Vec<String> = line("main", 0).collect();
    let fork: Vec<String> = line("main", 0).take(40).chain(line("fork", 40)).collect();
    let links = |path: &[String], from: usize| {
        let parent = |at: usize| at.checked_sub(1).map(|at| path[at].clone());
        let node = |at: usize| project_node(&path[at], parent(at).as_deref());
        (from..70).map(node).collect::<Vec<Node>>()
    };
    let nodes = [links(&main, 0), links(&fork, 40)].concat();
    let commit = Commit { nodes, ..Commit::default() };
    assert_eq!(store.commit(commit).await.expect(OK), Outcome::Written);
    let read = async |head: &str, after: Option<&str>, limit| {
        let nodes = store.path_page(head, page(after, limit), Detail::Content).await.expect(OK);
        nodes.map(|nodes| nodes.into_iter().map(|node| node.id).collect::<Vec<_>>())
    };
    for path in [&main, &fork] {
        for end in [0, 1, 38, 39, 40, 41, 69] {
            let head = path[end].as_str();
            assert_eq!(
                read(head, None, 7).await.as_deref(),
                Some(&path[..7.min(end + 1)]),
                "{head}"
            );
            for (at, after) in path[..=end].iter().enumerate() {
                let expected = &path[at + 1..=end];
                let expected = &expected[..3.min(expected.len())];
                let found = read(head, Some(after), 3).await;
                assert_eq!(found.as_deref(), Some(expected), "{head} after {after}");
            }
        }
    }
    for detail in [Detail::Whole, Detail::Content, Detail::Facts] {
        let expected = |nodes: Vec<Node>| -> Vec<Node> {
            nodes.into_iter().map(|node| without_raw(node).with_detail(detail)).collect()
        };
        let first = store.path_page(&main[1], page(None, 9), detail).await.expect(OK);
        assert_eq!(first, Some(expected(links(&main, 0)[..2].to_vec())));
        let last = store.path(&fork[69], 31, detail).await.expect(OK);
        let nodes = [&links(&main, 0)[39..40], &links(&fork, 40)].concat();
        assert_eq!(last, expected(nodes));
    }
    for (at, head) in fork.iter().enumerate() {
        for limit in [1, 2, 30, 31, 100] {
            let first = (at + 1).saturating_sub(limit);
            assert_eq!(path(store, head, limit).await, fork[first..=at], "{head} {limit}");
        }
    }
    for after in ["fork_40", "main_50", "main_69", "unknown"] {
        assert_eq!(read("main_45", Some(after), 3).await, None, "{after}");
    }
    assert_eq!(read("unknown", None, 3).await.as_deref(), Some(&[][..]));
    // A node that is written again stays where it is.
    assert!(store.put(project_node("main_20", Some("main_19")), None).await.expect(OK));
    assert_eq!(read("main_30", Some("main_20"), 1).await.as_deref(), Some(&main[21..22]));
    // A missing node ends the path.
    for (id, rest) in [("fork_45", &fork[46..]), ("main_20", &fork[46..]), ("fork_60", &fork[61..])]
    {
        assert!(store.remove(id).await.expect(OK), "{id}");
        assert_eq!(path(store, "fork_69", 100).await, rest, "{id}");
    }
    assert_eq!(path(store, "fork_44", 100).await, fork[21..45]);
    for id in main.iter().chain(&fork[40..]) {
        store.remove(id).await.expect(OK);
    }
}

/// Each node of the path has a sibling that was written before it, so each one begins a line.
async fn path_with_a_fork_at_each_node_is_read(store: &dyn Store) {
    let ids: Vec<String> = (0..60).map(|at| format!("zigzag_{at:02}")).collect();
    let mut nodes = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        let parent = at.checked_sub(1).map(|at| ids[at].as_str());
        nodes.push(project_node(&format!("{id}_sibling"), parent));
        nodes.push(project_node(id, parent));
    }
    let commit = Commit { nodes, ..Commit::default() };
    assert_eq!(store.commit(commit).await.expect(OK), Outcome::Written);
    for limit in [1, 2, 59, 60, 100] {
        let first = ids.len().saturating_sub(limit);
        assert_eq!(path(store, "zigzag_59", limit).await, ids[first..], "{limit}");
    }
    let page = store.path_page("zigzag_59", page(Some("zigzag_03"), 2), Detail::Content).await;
    let found: Vec<String> =
        page.expect(OK).unwrap_or_default().into_iter().map(|node| node.id).collect();
    assert_eq!(found, ids[4..6]);
    for id in ids {
        assert!(store.remove(&format!("{id}_sibling")).await.expect(OK), "{id}");
        assert!(store.remove(&id).await.expect(OK), "{id}");
    }
}

/// The path is longer than what a store reads at a time, and has a fork there.
async fn long_path_is_read_whole(store: &dyn Store) {
    let ids: Vec<String> = (0..1_150).map(|at| format!("long_{at:04}")).collect();
    let parent = |at: usize| at.checked_sub(1).map(|at| ids[at].as_str());
    let mut nodes: Vec<Node> =
        ids.iter().enumerate().map(|(at, id)| project_node(id, parent(at))).collect();
    nodes.insert(100, project_node("long_0100_sibling", parent(100)));
    let commit = Commit { nodes, ..Commit::default() };
    assert_eq!(store.commit(commit).await.expect(OK), Outcome::Written);
    for limit in [1_000, 1_001, 1_149, 9_000] {
        let first = ids.len().saturating_sub(limit);
        assert_eq!(path(store, "long_1149", limit).await, ids[first..], "{limit}");
    }
    for id in ids.iter().map(String::as_str).chain(["long_0100_sibling"]) {
        assert!(store.remove(id).await.expect(OK), "{id}");
    }
}
