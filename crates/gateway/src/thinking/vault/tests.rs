//! The vault with an in-memory store.

use serde_json::json;

use super::store::InMemoryVault;
use super::*;

fn keyring(secret: u8) -> Arc<Keyring> {
    Arc::new(Keyring::new([secret; 32]))
}

fn kept(text: &str) -> StoredTurn {
    StoredTurn {
        origin: Origin {
            domain: "gemini".into(),
            backend: "google".into(),
            model: "gemini-3-pro".into(),
            credential: String::new(),
        },
        session: 1,
        conversation: None,
        prefix: None,
        blocks: vec![
            Block::Thinking { text: text.into(), signature: Some("c2ln".into()) },
            Block::Redacted { data: "ZGF0YQ".into() },
            Block::text("An answer."),
            Block::ToolCall {
                id: "call_1".into(),
                name: "weather".into(),
                arguments: "{\"city\": \"Ghent\"".into(),
                signature: Some("b3RoZXI=".into()),
            },
            Block::Opaque { dialect: "gemini".into(), value: json!({"z": 1.5, "a": [null, "é"]}) },
        ],
    }
}

/// Holds nothing in RAM, so that everything is found in the store.
const NO_RAM: VaultLimits = VaultLimits { memory: 0, stored: 1 << 20, records: 100 };

#[tokio::test]
async fn turn_is_found_at_once_by_any_of_its_keys() {
    let vault = Vault::new(keyring(1), Arc::new(InMemoryVault::default()), VaultLimits::default());
    let lineage = LineageId([3; 16]);
    let keys = [VaultKey::of_call("call_1"), VaultKey::of_text(lineage, "An answer.")];
    vault.store(&keys, &kept("hm"));
    for name in keys {
        let unknown = VaultKey::of_call("call_2");
        assert_eq!(vault.find(&[unknown, name]).await, Lookup::Found(kept("hm")));
    }
    assert_eq!(vault.find(&[VaultKey::of_call("call_2")]).await, Lookup::Nothing);
    assert_eq!(vault.find(&[]).await, Lookup::Nothing);
    assert!(vault.bytes() > 0);
    assert!(!format!("{vault:?}").contains("hm"));
}

#[test]
fn text_key_depends_on_the_conversation_and_not_on_white_space_around_it() {
    let (one, other) = (LineageId([1; 16]), LineageId([2; 16]));
    let name = VaultKey::of_text(one, "An answer.");
    assert_eq!(name, VaultKey::of_text(one, "\n An answer. \n"));
    assert_ne!(name, VaultKey::of_text(one, "An  answer."));
    assert_ne!(name, VaultKey::of_text(other, "An answer."));
    assert_ne!(VaultKey::of_call("a"), VaultKey::of_call(" a"));
}

#[tokio::test]
async fn flushed_turn_is_found_by_another_vault_with_the_same_keyring() {
    let store = Arc::new(InMemoryVault::default());
    let name = VaultKey::of_call("call_1");
    let vault = Vault::new(keyring(1), store.clone(), NO_RAM);
    vault.store(&[name], &kept("first"));
    vault.store(&[name], &kept("second"));
    vault.flush().await;
    assert_eq!(vault.health().failure(), None);
    assert_eq!(vault.bytes(), 0);
    assert_eq!(vault.find(&[name]).await, Lookup::Found(kept("second")));
    drop(vault);

    let retry = Vault::new(keyring(1), store.clone(), VaultLimits::default());
    assert_eq!(retry.find(&[name]).await, Lookup::Found(kept("second")));
    assert!(retry.bytes() > 0, "it is now a recent one");
    let foreign = Vault::new(keyring(2), store, VaultLimits::default());
    assert_eq!(foreign.find(&[name]).await, Lookup::Sealed);
}

#[tokio::test]
async fn record_moved_to_another_key_does_not_open() {
    let store = Arc::new(InMemoryVault::default());
    let (mine, yours) = (VaultKey::of_call("mine"), VaultKey::of_call("yours"));
    let vault = Vault::new(keyring(1), store.clone(), NO_RAM);
    vault.store(&[mine], &kept("hm"));
    vault.flush().await;
    let mut record = store.read(mine).await.unwrap().unwrap();
    record.keys = vec![yours];
    store.write(vec![Arc::new(record)]).await.unwrap();
    assert_eq!(vault.find(&[yours]).await, Lookup::Nothing);
    assert_eq!(vault.find(&[yours, mine]).await, Lookup::Found(kept("hm")));
}

#[tokio::test]
async fn store_stays_within_its_limits_and_drops_the_oldest_first() {
    let store = Arc::new(InMemoryVault::default());
    let limits = VaultLimits { records: 3, ..NO_RAM };
    let vault = Vault::new(keyring(1), store, limits);
    let keys: Vec<VaultKey> = (0..5).map(|at| VaultKey::of_call(&at.to_string())).collect();
    for name in &keys {
        vault.store(&[*name], &kept("hm"));
    }
    vault.flush().await;
    for (at, name) in keys.iter().enumerate() {
        assert_eq!(vault.find(&[*name]).await.turn().is_some(), at >= 2, "{at}");
    }
}

#[tokio::test]
async fn turn_that_would_evict_all_others_is_not_stored() {
    let vault = Vault::new(keyring(1), Arc::new(InMemoryVault::default()), NO_RAM);
    let (small, large) = (VaultKey::of_call("small"), VaultKey::of_call("large"));
    vault.store(&[small], &kept("hm"));
    vault.store(&[large], &kept(&"hm".repeat(100_000)));
    vault.flush().await;
    assert_eq!(vault.find(&[small]).await, Lookup::Found(kept("hm")));
    assert_eq!(vault.find(&[large]).await, Lookup::Nothing);
}
