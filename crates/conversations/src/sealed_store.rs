//! Seals what goes into a store and opens what comes out. A sealed value is bound to its id and
//! kind.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;
use throughline_sealing::{Keyring, Purpose};

use crate::store::Store;

/// A store with a keyring.
#[derive(Clone, Debug)]
pub struct SealedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    keyring: Arc<Keyring>,
}

/// The kind of a sealed value, so that no value can replace one of another kind.
#[derive(Clone, Copy, Debug)]
pub enum SealedKind {
    /// The content of a node.
    Node,
    /// The content of a reference.
    Reference,
    /// A piece of a log, by the number of its first entry.
    Log(u64),
}

impl SealedStore {
    /// A sealed store.
    pub fn new(store: Arc<dyn Store>, keyring: Arc<Keyring>) -> Self {
        Self { store, keyring }
    }

    /// Seals the value of an id.
    pub fn seal(&self, kind: SealedKind, id: &str, what: &impl Serialize) -> Vec<u8> {
        let bytes = serde_json::to_vec(what).unwrap_or_default();
        let associated_data = associated_data(kind, id);
        self.keyring.seal(Purpose::Conversation, &random::nonce(), &associated_data, &bytes)
    }

    /// Opens the value of an id.
    pub fn open<T: DeserializeOwned>(
        &self,
        kind: SealedKind,
        id: &str,
        sealed: &[u8],
    ) -> Result<T, StoreError> {
        let failed = |cause: Box<dyn std::error::Error + Send + Sync>| StoreError {
            what: format!("cannot read the stored value of `{id}`"),
            cause,
        };
        let bytes = self
            .keyring
            .open(Purpose::Conversation, &associated_data(kind, id), sealed)
            .map_err(|cause| failed(cause.into()))?;
        serde_json::from_slice(&bytes).map_err(|cause| failed(cause.into()))
    }
}

fn associated_data(kind: SealedKind, id: &str) -> Vec<u8> {
    match kind {
        SealedKind::Node => format!("node {id}"),
        SealedKind::Reference => format!("reference {id}"),
        SealedKind::Log(first) => format!("log {first} {id}"),
    }
    .into_bytes()
}
