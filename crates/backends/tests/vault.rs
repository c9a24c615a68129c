//! The vault over a real SQLite file: it survives a restart, stays within its bounds, and nothing of
//! what it holds can be read beside it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;

use throughline_backends::sqlite::SqliteStore;
use throughline_canonical::{Block, Origin};
use throughline_gateway::thinking::store::{Change, Store};
use throughline_gateway::thinking::vault::store::suite;
use throughline_gateway::thinking::vault::{Record, VaultStore};
use throughline_gateway::thinking::{Kept, Vault, VaultKey, VaultLimits};
use throughline_sealing::Keyring;

const MARKED: &str = "The heron counts eleven lanterns before it believes the river.";

async fn open(folder: &Path) -> Arc<SqliteStore> {
    let store = SqliteStore::open(&folder.join("memory.db")).await;
    Arc::new(store.unwrap())
}

fn vault(store: Arc<SqliteStore>, limits: VaultLimits) -> Vault {
    Vault::new(Arc::new(Keyring::new([5; 32])), store, limits)
}

fn kept(text: &str) -> Kept {
    Kept {
        prefix: None,
        origin: Origin {
            domain: "anthropic".into(),
            backend: "anthropic".into(),
            model: "claude".into(),
            credential: String::new(),
        },
        session: 1,
        blocks: vec![
            Block::Thinking { text: text.into(), signature: Some("EqQBCkYI".into()) },
            Block::text("Eleven."),
        ],
    }
}

/// The files of a folder that hold these words as they are.
fn holding(folder: &Path, words: &str) -> Vec<String> {
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
async fn the_sqlite_vault_keeps_its_promise() {
    let folder = tempfile::tempdir().unwrap();
    suite::keeps_its_promise(&*open(folder.path()).await).await;
}

#[tokio::test]
async fn a_restart_finds_what_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let names = [VaultKey::of_call("one"), VaultKey::of_call("two")];
    let before = vault(open(folder.path()).await, VaultLimits::default());
    before.keep(&names, &kept(MARKED));
    before.flush().await;
    drop(before);
    let after = vault(open(folder.path()).await, VaultLimits::default());
    assert_eq!(after.bytes(), 0);
    for name in names {
        assert_eq!(after.find(&[name]).await, Some(kept(MARKED)));
    }
}

#[tokio::test]
async fn a_marked_sentence_is_nowhere_in_the_data_directory() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let vault = vault(store.clone(), VaultLimits::default());
    let name = VaultKey::of_call("one");
    vault.keep(&[name], &kept(MARKED));
    vault.flush().await;
    assert_eq!(vault.find(&[name]).await, Some(kept(MARKED)));
    assert!(folder.path().join("memory.db-wal").exists());
    assert_eq!(holding(folder.path(), MARKED), Vec::<String>::new());
    assert_eq!(holding(folder.path(), "EqQBCkYI"), Vec::<String>::new());

    // The same turn without a seal is found, so the look above would have seen it.
    let bare = Record {
        names: vec![VaultKey::of_call("bare")],
        sealed: serde_json::to_vec(&kept(MARKED)).unwrap(),
    };
    VaultStore::write(&*store, vec![Arc::new(bare)]).await.unwrap();
    assert_eq!(holding(folder.path(), MARKED), ["memory.db-wal"]);
}

#[tokio::test]
async fn the_bounds_hold_while_both_writers_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let limits = VaultLimits { memory: 0, stored: 1 << 20, records: 150 };
    let vault = vault(store.clone(), limits);
    let names: Vec<VaultKey> =
        (0..400).map(|number| VaultKey::of_call(&number.to_string())).collect();
    for (number, name) in names.iter().enumerate() {
        vault.keep(&[*name], &kept(MARKED));
        if number % 50 == 49 {
            let fact = Change::Fact(number.to_string(), Some("x".into()));
            let (written, ()) = tokio::join!(Store::write(&*store, vec![fact]), vault.flush());
            written.unwrap();
            assert!(!vault.failing());
        }
    }
    for (number, name) in names.iter().enumerate() {
        let found = vault.find(&[*name]).await.is_some();
        assert_eq!(found, number >= 250, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trimming_and_writing_do_not_stop_each_other() {
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
        let record = Record { names: vec![VaultKey([number; 16])], sealed: vec![number; 100] };
        let record = Arc::new(record);
        VaultStore::write(&*store, vec![record]).await.unwrap();
        store.trim(usize::MAX, 1).await.unwrap();
    }
    facts.await.unwrap();
}
