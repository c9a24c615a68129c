//! Runs the suite of every store on SQLite files.

use throughline_backends::sqlite::{SqliteConversations, SqliteStore};
use throughline_canonical::BlockKey;
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
