//! Runs the suite of every store on SQLite files.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};
use throughline_backends::sqlite::{SqliteConversations, SqliteStore};
use throughline_canonical::BlockKey;
use throughline_conversations::store::{
    Detail, NodeStore, Piece, ProjectNode, ProjectStore, RunStore,
};
use throughline_gateway::thinking::store::{BlockStatus, Change, Store, StoredBlock, suite};
use throughline_gateway::thinking::{LineageId, SessionTag};

#[tokio::test]
async fn memory_store_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("memory.db")).await.unwrap();
    suite::check_store(&store).await;
}

#[tokio::test]
async fn reopened_store_has_the_same_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    let store = SqliteStore::open(&path).await.unwrap();
    suite::check_store(&store).await;
    let before = store.load().await.unwrap();
    drop(store);
    let again = SqliteStore::open(&path).await.unwrap();
    assert_eq!(again.load().await.unwrap(), before);
}

#[tokio::test]
async fn file_that_is_not_a_database_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memory.db");
    std::fs::write(&path, "this is no database, it is a text of some length ".repeat(50)).unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(error.to_string().contains("memory.db"), "{error}");
}

#[tokio::test]
async fn unusual_characters_are_stored_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("memory.db")).await.unwrap();
    let value = "ünï'; DROP TABLE fact; --".to_owned();
    store.write(vec![Change::Fact("active".into(), Some(value.clone()))]).await.unwrap();
    assert_eq!(store.load().await.unwrap().facts.get("active"), Some(&value));
}

#[tokio::test]
async fn conversation_store_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("throughline.db");
    let store = SqliteConversations::open(&path).await.unwrap();
    throughline_conversations::suite::check_store(&store).await;
}

/// A file whose tables are those of an earlier version, with a forked project and a stored response.
async fn write_older_file(folder: &Path, file: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sqlite/conversations/migrations");
    let older = folder.join("older");
    std::fs::create_dir(&older).unwrap();
    for entry in std::fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_str().unwrap() < "0009" {
            std::fs::copy(entry.path(), older.join(entry.file_name())).unwrap();
        }
    }
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let mut connection = options.connect().await.unwrap();
    Migrator::new(&*older).await.unwrap().run(&mut connection).await.unwrap();
    for (id, parent, depth) in [
        ("a", "NULL", 0),
        ("b", "'a'", 1),
        ("c", "'b'", 2),
        ("d", "'b'", 2),
        ("e", "'d'", 3),
        ("f", "'c'", 3),
    ] {
        let row = format!(
            "INSERT INTO node (id, parent, owner, created, open, size, sealed, project, facts, depth)
             VALUES ('{id}', {parent}, 'ada', 1, 0, 1, x'07', 'p', '{{}}', {depth})"
        );
        connection.execute(AssertSqlSafe(row)).await.unwrap();
    }
    let response = "INSERT INTO node (id, owner, created, expires, open, size, sealed)
        VALUES ('r', 'ada', 1, 9, 0, 100, x'08')";
    for statement in [
        response,
        "INSERT INTO node_name (node, name) VALUES ('r', 'item')",
        "INSERT INTO raw_response (node, raw_response) VALUES ('c', x'09')",
        "INSERT INTO run (id, owner, scope, instance, epoch, status, created, sealed)
            VALUES ('r', 'ada', 'response', 'one', 1, 'running', 1, x'')",
        "INSERT INTO log (run, first, last, sealed) VALUES ('r', 1, 2, x'0a')",
    ] {
        connection.execute(statement).await.unwrap();
    }
    connection.close().await.unwrap();
}

/// Covers: S0-58
#[tokio::test]
async fn older_file_keeps_its_content_and_its_paths() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("throughline.db");
    write_older_file(folder.path(), &file).await;
    let store = SqliteConversations::open(&file).await.unwrap();
    assert_eq!(store.applied(), 4);
    for (head, ids) in [("f", "abcf"), ("e", "abde"), ("c", "abc"), ("a", "a")] {
        let path = store.path(head, 9, Detail::Whole).await.unwrap();
        let found: String = path.iter().map(|node| node.id.as_str()).collect();
        assert_eq!(found, ids);
        assert!(path.iter().all(|node| node.sealed == [7] && node.owner == "ada"), "{path:?}");
        let inside: Vec<_> = path.iter().filter_map(|node| node.in_project.as_ref()).collect();
        assert_eq!(inside.len(), path.len());
        let has_none = |of: &&ProjectNode| {
            !of.has_thinking && of.thinking_tokens.is_none() && of.sealed_thinking.is_none()
        };
        assert!(inside.iter().all(has_none), "{inside:?}");
    }
    let again = SqliteConversations::open(&file).await.unwrap();
    assert_eq!(again.applied(), 0, "migrations run once");
    assert_eq!(store.raw("c").await.unwrap(), Some(vec![9]));
    assert_eq!(store.named("ada", "item").await.unwrap().unwrap().id, "r");
    let piece = Piece { first: 1, last: 2, continues: false, sealed: vec![10] };
    assert_eq!(store.log_outline("r", 9).await.unwrap(), [piece]);
    // The bytes of stored responses are still counted, and a response is removed with its log.
    assert_eq!(store.trim(1, 101).await.unwrap(), 0);
    assert_eq!(store.trim(1, 99).await.unwrap(), 1);
    assert_eq!(store.logged("r", None, 9).await.unwrap(), []);
    assert_eq!(store.named("ada", "item").await.unwrap(), None);
    assert_eq!(store.count_nodes("p").await.unwrap(), 6);
}

#[tokio::test]
async fn last_change_of_each_row_in_a_batch_counts() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("memory.db")).await.unwrap();
    let (lineage, tag) = (LineageId([1; 16]), SessionTag([2; 16]));
    let (old, new) = (BlockKey([1; 32]), BlockKey([2; 32]));
    let status = BlockStatus { session: 1, confirmed: false, registered: 5, gone: false };
    let before = vec![Change::BlockStatus(lineage, old, status), Change::Lineage(lineage, tag, 1)];
    store.write(before).await.unwrap();
    let block = |key| StoredBlock {
        key,
        origin: None,
        cut: false,
        prefix: None,
        dropped: None,
        accepted: vec![],
        refused: vec![],
    };
    store
        .write(vec![
            Change::BlockStatus(lineage, new, BlockStatus { session: 2, ..status }),
            Change::ForgetLineage(lineage),
            Change::Lineage(lineage, tag, 2),
            Change::Lineage(lineage, tag, 3),
            Change::BlockStatus(lineage, new, BlockStatus { session: 3, ..status }),
            Change::ForgetBlock(new),
            Change::Block(block(new)),
            Change::Block(block(old)),
            Change::ForgetBlock(old),
        ])
        .await
        .unwrap();
    let found = store.load().await.unwrap();
    assert_eq!(found.lineages, [(lineage, tag, 3)]);
    assert_eq!(found.statuses, [(lineage, new, BlockStatus { session: 3, ..status })]);
    assert_eq!(found.blocks, [block(new)]);
}

#[tokio::test]
async fn batch_may_have_more_rows_than_one_statement() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("memory.db")).await.unwrap();
    let facts = |value: Option<&str>| {
        let fact = |number: usize| Change::Fact(number.to_string(), value.map(ToOwned::to_owned));
        (0..2500).map(fact).collect()
    };
    store.write(facts(Some("x"))).await.unwrap();
    assert_eq!(store.load().await.unwrap().facts.len(), 2500);
    store.write(facts(None)).await.unwrap();
    assert_eq!(store.load().await.unwrap().facts.len(), 0);
}
