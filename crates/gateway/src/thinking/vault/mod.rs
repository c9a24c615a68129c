//! The vault: assistant turns as their maker wrote them, for clients that lose what they cannot hold.
//!
//! A turn is kept under what survives in any client: the ids of its tool calls and its text. It is
//! sealed before it goes anywhere; RAM, disk and the queue between them hold sealed records only.
//!
//! - [`store`]: what a durable store of the vault must do;
//! - `recent`: what was used last, in RAM.

mod recent;
pub mod store;

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use throughline_canonical::request::Block;
use throughline_canonical::{Origin, Prefix};
use throughline_sealing::{Keyring, Purpose, SealError};
use tokio::task::AbortHandle;

use self::recent::Recent;
pub use self::store::{Record, VaultStore};
use super::lineage::LineageId;
use super::random;
use super::writer::{Item, Queue};

/// The shape of what is sealed; its first byte.
const VERSION: u8 = 1;

/// A name a turn can be found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VaultKey(pub [u8; 16]);

impl VaultKey {
    /// The name of a turn that called a tool under this id.
    pub fn of_call(id: &str) -> Self {
        Self::digest(&[b"call\xff", id.as_bytes()])
    }

    /// The name of a turn by its text, in one conversation. White space around the text does not
    /// count, since clients trim.
    pub fn of_text(lineage: LineageId, text: &str) -> Self {
        Self::digest(&[b"text\xff", &lineage.0, text.trim().as_bytes()])
    }

    /// The name of a turn by its text and what it answers: a model says `Done.` many times.
    pub fn of_answer(lineage: LineageId, question: &str, text: &str) -> Self {
        let question = Sha256::digest(question.trim());
        Self::digest(&[b"answer\xff", &lineage.0, &question, text.trim().as_bytes()])
    }

    fn digest(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part);
        }
        let hash = hash.finalize();
        let mut half = [0; 16];
        half.copy_from_slice(&hash[..16]);
        Self(half)
    }
}

/// Whose turns are looked for: those of one conversation, led by whoever presents one key. None gets
/// what another caller left here, whatever ids or words they have in common.
#[derive(Clone, Debug)]
pub struct Scope {
    conversation: LineageId,
    caller: String,
}

impl Scope {
    /// A conversation, and a mark of its caller's key.
    pub fn new(lineage: LineageId, caller: String) -> Self {
        let VaultKey(conversation) =
            VaultKey::digest(&[b"scope\xff", &lineage.0, caller.as_bytes()]);
        Self { conversation: LineageId(conversation), caller }
    }

    /// The name of a turn that called a tool under this id. Conversations are resumed under other
    /// marks, and ids are unguessable, so these do not name the conversation.
    pub fn call(&self, id: &str) -> VaultKey {
        VaultKey::of_call(&format!("{} {id}", self.caller))
    }

    /// The names of a turn by its text: after what it answers, and alone.
    pub fn answer(&self, question: &str, text: &str) -> [VaultKey; 2] {
        [
            VaultKey::of_answer(self.conversation, question, text),
            VaultKey::of_text(self.conversation, text),
        ]
    }
}

/// An assistant turn as its maker wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Who made it.
    pub origin: Origin,
    /// The session of its conversation that it was made in.
    #[serde(default)]
    pub session: u64,
    /// Its blocks in order, with their maker's own signatures.
    pub blocks: Vec<Block>,
    /// What it was made under, where thinking is bound to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
}

/// How much the vault may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VaultLimits {
    /// Bytes in RAM.
    pub memory: usize,
    /// Bytes in the store.
    pub stored: usize,
    /// Records in the store.
    pub records: usize,
}

impl Default for VaultLimits {
    fn default() -> Self {
        Self { memory: 32 << 20, stored: 256 << 20, records: 200_000 }
    }
}

impl VaultLimits {
    /// The largest record that is kept. One that fills the store would push out all others.
    fn largest(&self) -> usize {
        self.stored / 8
    }
}

/// The vault.
pub struct Vault {
    keyring: Arc<Keyring>,
    store: Arc<dyn VaultStore>,
    limits: VaultLimits,
    recent: Mutex<Recent>,
    queue: Queue<Arc<Record>>,
    writer: AbortHandle,
}

/// Nothing of what is kept is ever shown.
impl std::fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Vault({} bytes in RAM)", self.bytes())
    }
}

/// Records are counted in bytes. Where they are given up, they are still in RAM for a while.
impl Item for Arc<Record> {
    const OF: &'static str = "vault";
    const MOST: usize = 64 << 20;

    fn weight(&self) -> usize {
        self.size()
    }
}

impl Vault {
    /// A vault over a store. It starts its writer, so there has to be a runtime.
    pub fn new(keyring: Arc<Keyring>, store: Arc<dyn VaultStore>, limits: VaultLimits) -> Self {
        let queue = Queue::default();
        let written = store.clone();
        let writing = queue.clone().write_with(move |records| {
            let store = written.clone();
            async move {
                store.write(records).await?;
                store.trim(limits.stored, limits.records).await
            }
        });
        Self {
            keyring,
            store,
            limits,
            recent: Mutex::new(Recent::new(limits.memory)),
            queue,
            writer: tokio::spawn(writing).abort_handle(),
        }
    }

    /// Keeps a turn under these names; where one of them has a turn already, the new one counts.
    /// Never waits.
    pub fn keep(&self, names: &[VaultKey], kept: &Kept) {
        if names.is_empty() {
            return;
        }
        let mut bytes = vec![VERSION];
        if let Err(error) = serde_json::to_writer(&mut bytes, kept) {
            tracing::error!(%error, "a turn cannot be written into the vault");
            return;
        }
        let sealed = self.keyring.seal(Purpose::Vault, &random::nonce(), &place(names), &bytes);
        let record = Arc::new(Record { names: names.to_vec(), sealed });
        if record.size() > self.limits.largest() {
            tracing::warn!(
                bytes = record.size(),
                largest = self.limits.largest(),
                "a turn is too large for the vault and was not kept"
            );
            return;
        }
        self.recent.lock().put(record.clone());
        self.queue.push(record);
    }

    /// Finds the turn of the first name that is known: recent ones in RAM, older ones in the store.
    pub async fn find(&self, names: &[VaultKey]) -> Option<Kept> {
        for name in names {
            let recent = self.recent.lock().get(name);
            if let Some(kept) = recent.and_then(|record| self.open(&record)) {
                return Some(kept);
            }
            let stored = match self.store.read(*name).await {
                Ok(stored) => stored.map(Arc::new),
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the vault cannot be read"
                    );
                    return None;
                }
            };
            if let Some(record) = stored
                && let Some(kept) = self.open(&record)
            {
                self.recent.lock().put_back(record);
                return Some(kept);
            }
        }
        None
    }

    /// Waits until everything kept so far is written.
    pub async fn flush(&self) {
        self.queue.flush().await;
    }

    /// Whether the last write failed.
    pub fn failing(&self) -> bool {
        self.queue.failing()
    }

    /// Bytes in RAM, roughly.
    pub fn bytes(&self) -> usize {
        self.recent.lock().bytes()
    }

    /// What does not open is as if it had never been kept: the key is gone, or somebody was there.
    fn open(&self, record: &Record) -> Option<Kept> {
        let place = place(&record.names);
        match self.keyring.open(Purpose::Vault, &place, &record.sealed) {
            Ok(bytes) => {
                let (&VERSION, json) = bytes.split_first()? else {
                    return None;
                };
                serde_json::from_slice(json).ok()
            }
            // After a loss of keys that is every old record, and no news.
            Err(SealError::UnknownKey) => None,
            Err(error) => {
                tracing::warn!(%error, "a turn in the vault does not open");
                None
            }
        }
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// A record is sealed together with all its names, so that none can be moved to another record.
fn place(names: &[VaultKey]) -> Vec<u8> {
    names.iter().flat_map(|name| name.0).collect()
}

#[cfg(test)]
mod tests;
