//! Runs the suite of every store on a Postgres database.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use throughline_backends::postgres::PostgresStore;
use throughline_gateway::thinking::store::{Change, Store, suite};
use throughline_gateway::thinking::vault::store::suite as vault_suite;
use throughline_testkit::PostgresDatabase;

#[tokio::test]
async fn memory_store_passes_the_suite() {
    let database = PostgresDatabase::new();
    let store = PostgresStore::open(&database.url).await.unwrap();
    suite::check_store(&store).await;
}

#[tokio::test]
async fn two_instances_share_the_memory() {
    let database = PostgresDatabase::new();
    let one = PostgresStore::open(&database.url).await.unwrap();
    let other = PostgresStore::open(&database.url).await.unwrap();
    suite::check_shared_store(&one, &other).await;
}

#[tokio::test]
async fn vault_store_passes_the_suite() {
    let database = PostgresDatabase::new();
    let store = PostgresStore::open(&database.url).await.unwrap();
    vault_suite::check_store(&store).await;
}

#[tokio::test]
async fn migrations_are_applied_once() {
    let database = PostgresDatabase::new();
    let (first, second) =
        tokio::join!(PostgresStore::migrate(&database.url), PostgresStore::migrate(&database.url));
    let mut applied = [first.unwrap().1.applied, second.unwrap().1.applied];
    applied.sort_unstable();
    assert!(applied[0] == 0 && applied[1] > 0, "{applied:?}");
    assert_eq!(PostgresStore::migrate(&database.url).await.unwrap().1.applied, 0);
}

#[tokio::test]
async fn unusual_characters_do_not_stop_the_writer() {
    let database = PostgresDatabase::new();
    let store = PostgresStore::open(&database.url).await.unwrap();
    let value = "ünï'; DROP TABLE fact; --".to_owned();
    let facts = vec![
        Change::Fact("active".into(), Some(value.clone())),
        Change::Fact("zero\0".into(), Some("\0".into())),
    ];
    Store::write(&store, facts).await.unwrap();
    let found = store.facts().await.unwrap();
    assert_eq!(found.get("active"), Some(&value));
    assert_eq!(found.len(), 2);
}

#[tokio::test]
async fn unreachable_database_is_named_without_its_password() {
    let url = "postgres://ada:s3cret@127.0.0.1:1/throughline";
    let error = PostgresStore::open(url).await.unwrap_err();
    let text = format!("{error}: {}", error.cause);
    assert!(text.contains("`throughline` at `127.0.0.1:1`"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn lost_database_fails_fast_and_comes_back() {
    let database = PostgresDatabase::with_own_server();
    let store = PostgresStore::open(&database.url).await.unwrap();
    Store::check_write(&store).await.unwrap();
    database.server.stop();
    let began = Instant::now();
    let error = Store::check_write(&store).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert!(error.to_string().contains("cannot write"), "{error}");
    database.server.restart();
    let began = Instant::now();
    while Store::check_write(&store).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(20), "it comes back");
    }
}

#[tokio::test]
async fn conversation_store_passes_the_suite() {
    let database = PostgresDatabase::new();
    let store = PostgresStore::open(&database.url).await.unwrap();
    throughline_conversations::suite::check_store(&store.conversations()).await;
}
