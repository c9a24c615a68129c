//! Runs the suite of every store on SQLite files.

use throughline_backends::sqlite::{SqliteConversations, SqliteStore};
use throughline_gateway::thinking::store::{Change, Store, suite};

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
