//! The vault on a SQLite file: it survives a restart, stays within its limits, and leaves no readable
//! content on disk.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use throughline_backends::sqlite::SqliteStore;
use throughline_canonical::{Block, Origin};
use throughline_gateway::thinking::store::{Change, Store};
use throughline_gateway::thinking::vault::store::suite;
use throughline_gateway::thinking::vault::{Record, VaultStore};
use throughline_gateway::thinking::{Lookup, StoredTurn, Vault, VaultKey, VaultLimits};
use throughline_sealing::Keyring;

const SENTENCE: &str = "The heron counts eleven lanterns before it believes the river.";

async fn open(folder: &Path) -> Arc<SqliteStore> {
    let store = SqliteStore::open(&folder.join("memory.db")).await;
    Arc::new(store.unwrap())
}

fn vault(store: Arc<SqliteStore>, limits: VaultLimits) -> Vault {
    Vault::new(Arc::new(Keyring::new([5; 32])), store, limits)
}

fn kept(text: &str) -> StoredTurn {
    StoredTurn {
        prefix: None,
        origin: Origin {
            domain: "anthropic".into(),
            backend: "anthropic".into(),
            model: "claude".into(),
            credential: String::new(),
        },
        session: 1,
        conversation: None,
        blocks: vec![
            Block::Thinking { text: text.into(), signature: Some("EqQBCkYI".into()) },
            Block::text("Eleven."),
        ],
    }
}

/// The files of a folder that contain these words unencrypted.
fn files_with(folder: &Path, words: &str) -> Vec<String> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let bytes = std::fs::read(path).unwrap();
            bytes.windows(words.len()).any(|window| window == words.as_bytes())
        })
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

#[tokio::test]
async fn vault_store_passes_the_suite() {
    let folder = tempfile::tempdir().unwrap();
    suite::check_store(&*open(folder.path()).await).await;
}

#[tokio::test]
async fn stored_turn_is_found_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let names = [VaultKey::of_call("one"), VaultKey::of_call("two")];
    let before = vault(open(folder.path()).await, VaultLimits::default());
    before.store(&names, &kept(SENTENCE));
    before.flush().await;
    drop(before);
    let after = vault(open(folder.path()).await, VaultLimits::default());
    assert_eq!(after.bytes(), 0);
    for name in names {
        assert_eq!(after.find(&[name]).await, Lookup::Found(kept(SENTENCE)));
    }
}

#[tokio::test]
async fn content_is_not_readable_in_the_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let vault = vault(store.clone(), VaultLimits::default());
    let name = VaultKey::of_call("one");
    vault.store(&[name], &kept(SENTENCE));
    vault.flush().await;
    assert_eq!(vault.find(&[name]).await, Lookup::Found(kept(SENTENCE)));
    assert!(folder.path().join("memory.db-wal").exists());
    assert_eq!(files_with(folder.path(), SENTENCE), Vec::<String>::new());
    assert_eq!(files_with(folder.path(), "EqQBCkYI"), Vec::<String>::new());

    // The same turn is found if it is not sealed, so the search above works.
    let bare = Record {
        keys: vec![VaultKey::of_call("bare")],
        sealed: serde_json::to_vec(&kept(SENTENCE)).unwrap(),
    };
    VaultStore::write(&*store, vec![Arc::new(bare)]).await.unwrap();
    assert_eq!(files_with(folder.path(), SENTENCE), ["memory.db-wal"]);
}

#[tokio::test]
async fn limits_hold_while_two_writers_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let limits = VaultLimits { memory: 0, stored: 1 << 20, records: 150 };
    let vault = vault(store.clone(), limits);
    let names: Vec<VaultKey> =
        (0..400).map(|number| VaultKey::of_call(&number.to_string())).collect();
    for (number, name) in names.iter().enumerate() {
        vault.store(&[*name], &kept(SENTENCE));
        if number % 50 == 49 {
            let fact = Change::Fact(number.to_string(), Some("x".into()));
            let (written, ()) = tokio::join!(Store::write(&*store, vec![fact]), vault.flush());
            written.unwrap();
            assert_eq!(vault.health().failure(), None);
        }
    }
    for (number, name) in names.iter().enumerate() {
        let found = vault.find(&[*name]).await.turn().is_some();
        assert_eq!(found, number >= 250, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trimming_and_writing_do_not_block_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let writer = store.clone();
    let facts = tokio::spawn(async move {
        for number in 0..300 {
            let fact = Change::Fact(number.to_string(), Some("x".into()));
            Store::write(&*writer, vec![fact]).await.unwrap();
        }
    });
    for number in 0u8..150 {
        let record = Record { keys: vec![VaultKey([number; 16])], sealed: vec![number; 100] };
        let record = Arc::new(record);
        VaultStore::write(&*store, vec![record]).await.unwrap();
        store.trim(usize::MAX, 1).await.unwrap();
    }
    facts.await.unwrap();
}

#[tokio::test]
async fn names_are_known_without_a_query() {
    let folder = tempfile::tempdir().unwrap();
    let key = |number: u8| VaultKey([number; 16]);
    let record = |number: u8| Arc::new(Record { keys: vec![key(number)], sealed: vec![number] });
    let store = open(folder.path()).await;
    assert!(!store.may_have(&key(1)));
    // The second record takes the name of the first.
    let records = vec![record(1), record(1), record(2)];
    VaultStore::write(&*store, records).await.unwrap();
    store.trim(usize::MAX, 2).await.unwrap();
    assert!(store.read(key(1)).await.unwrap().is_some());
    drop(store);
    let store = open(folder.path()).await;
    assert!(store.may_have(&key(1)) && store.may_have(&key(2)) && !store.may_have(&key(3)));
    // Names of removed records are forgotten once they are many.
    VaultStore::write(&*store, (3..200).map(record).collect()).await.unwrap();
    store.trim(usize::MAX, 10).await.unwrap();
    assert!(!store.may_have(&key(1)) && store.may_have(&key(199)));
}
