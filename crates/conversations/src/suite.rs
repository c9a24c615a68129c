//! The tests that every conversation store must pass.

use crate::store::{Move, Node, Piece, Reference, Store};

/// The message of a failed store operation.
const OK: &str = "the store works";

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
    }
}

async fn path(store: &dyn Store, id: &str, limit: usize) -> Vec<String> {
    let nodes = store.path(id, limit).await.expect(OK);
    nodes.into_iter().map(|node| node.id).collect()
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
    trim_removes_the_oldest_first(store).await;
    unused_reference_expires(store).await;
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
    assert_eq!(path(store, "nobody", 10).await, [""; 0]);
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
    assert_eq!(store.node("fork").await.expect(OK), Some(again.clone()));
    assert_eq!(store.open_nodes().await.expect(OK), [again]);
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
    let to = |reference: &str, from: Option<&str>| {
        Some(Move { reference: reference.to_owned(), from: from.map(str::to_owned) })
    };
    let put = |id, parent, moves| store.put(node(id, parent, 10), moves);
    assert!(put("m1", None, to("main", None)).await.expect(OK));
    assert!(!put("m2", None, to("main", None)).await.expect(OK));
    assert!(!put("m2", None, to("other", None)).await.expect(OK));
    assert_eq!(store.node("m2").await.expect(OK), None);
    assert!(put("m2", Some("m1"), to("main", Some("m1"))).await.expect(OK));

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
    let piece = |first: u64, last: u64| Piece {
        first,
        last,
        sealed: vec![u8::try_from(first).unwrap_or_default(); 3],
    };
    for piece in [piece(0, 4), piece(5, 5), piece(6, 20)] {
        store.log("m1", piece).await.expect(OK);
    }
    let all = [piece(0, 4), piece(5, 5), piece(6, 20)];
    assert_eq!(store.logged("m1", None).await.expect(OK), all);
    assert_eq!(store.logged("m1", Some(3)).await.expect(OK), all);
    assert_eq!(store.logged("m1", Some(4)).await.expect(OK), all[1..]);
    assert_eq!(store.logged("m1", Some(20)).await.expect(OK), []);
    assert_eq!(store.logged("m2", None).await.expect(OK), []);
    store.remove("m1").await.expect(OK);
    assert_eq!(store.logged("m1", None).await.expect(OK), []);
}

async fn unused_reference_expires(store: &dyn Store) {
    let kept = Reference { expires: None, ..reference("kept", "for ever") };
    for made in [reference("empty", "x"), reference("moved", "x"), kept] {
        store.put_reference(made).await.expect(OK);
    }
    for (id, conversation) in [("r1", "moved"), ("r2", "kept")] {
        let moves = Move { reference: conversation.to_owned(), from: None };
        let put = store.put(node(id, None, 10), Some(moves)).await;
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
    let log = Piece { first: 0, last: 0, sealed: vec![1; 100] };
    store.log("n3", log).await.expect(OK);
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
