//! The vault: assistant turns as their maker wrote them, for clients that cannot hold all of a
//! turn.
//!
//! A turn is stored under keys that survive in any client: the ids of its tool calls and its text.
//! It is sealed first, so RAM, disk and the queue between them hold only sealed records.
//!
//! - [`store`]: the trait of a durable store;
//! - `recent`: the last used records, in RAM.

mod recent;
pub mod store;

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use throughline_canonical::request::Block;
use throughline_canonical::{Origin, Prefix};
use throughline_sealing::{Keyring, Purpose, SealError};
use tokio::task::AbortHandle;

use self::recent::Recent;
pub use self::store::{Record, VaultStore};
use super::fingerprint::{Fingerprint, TextHash};
use super::health::StoreHealth;
use super::lineage::LineageId;
use super::random;
use super::writer::{Item, Queue};

/// The version of the sealed content; its first byte.
const VERSION: u8 = 1;

/// A key that finds a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VaultKey(pub [u8; 16]);

impl VaultKey {
    /// The key of a turn that made a call with this id.
    pub fn of_call(id: &str) -> Self {
        Self::of(&[b"call", id.as_bytes()])
    }

    /// The key of a turn by its text, in one conversation. Surrounding white space does not count,
    /// because clients trim it.
    pub fn of_text(lineage: LineageId, text: &str) -> Self {
        Self::of(&[b"text", &lineage.0, &TextHash::of(text.trim())])
    }

    /// The key of the turns under this key that one maker wrote. Two makers may give the same
    /// answer; then neither turn may be taken for the other.
    pub fn of_maker(&self, domain: &str) -> Self {
        Self::of(&[b"maker", &self.0, domain.as_bytes()])
    }

    fn of(parts: &[&[u8]]) -> Self {
        Self(Fingerprint::of(parts))
    }
}

/// Whose turns may be found: those of one conversation and one caller's key. No caller gets the
/// turns of another, even if ids or texts are equal.
#[derive(Clone, Debug)]
pub struct Scope {
    conversation: LineageId,
    caller: String,
}

impl Scope {
    /// A conversation, and the fingerprint of its caller's key.
    pub fn new(lineage: LineageId, caller: String) -> Self {
        let VaultKey(conversation) = VaultKey::of(&[b"scope", &lineage.0, caller.as_bytes()]);
        Self { conversation: LineageId(conversation), caller }
    }

    /// The conversation, for [`Scope::resumed`].
    pub fn conversation(&self) -> [u8; 16] {
        self.conversation.0
    }

    /// The same caller's scope of the conversation in which a turn was stored, if it is another one.
    pub fn resumed(&self, kept: &StoredTurn) -> Option<Self> {
        let conversation = LineageId(kept.conversation?);
        let caller = self.caller.clone();
        (conversation != self.conversation).then_some(Self { conversation, caller })
    }

    /// The key of a turn that made a call with this id. It does not depend on the conversation: a
    /// conversation may be resumed under another session, and ids cannot be guessed.
    pub fn call(&self, id: &str) -> VaultKey {
        VaultKey::of_call(&format!("{} {id}", self.caller))
    }

    /// The key of a turn by its text alone.
    pub fn text(&self, text: &str) -> VaultKey {
        VaultKey::of_text(self.conversation, text)
    }

    /// The keys of a turn by its text, the most certain one first: with a fingerprint of all that was
    /// said before it, with one of the question before it, and alone.
    pub fn answer(&self, before: &[u8; 16], question: &[u8; 16], text: &str) -> [VaultKey; 3] {
        let conversation = &self.conversation.0;
        let hash = TextHash::of(text.trim());
        [
            VaultKey::of(&[b"turn_position", conversation, before, &hash]),
            // A model says `Done.` many times.
            VaultKey::of(&[b"answer", conversation, question, &hash]),
            VaultKey::of(&[b"text", conversation, &hash]),
        ]
    }
}

/// An assistant turn as its maker wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredTurn {
    /// Its maker.
    pub origin: Origin,
    /// The session in which it was made.
    #[serde(default)]
    pub session: u64,
    /// The conversation in which it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<[u8; 16]>,
    /// Its blocks in order, with the maker's own signatures.
    pub blocks: Vec<Block>,
    /// The prefix it was made after, if thinking is bound to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
}

impl StoredTurn {
    /// The number of its thinking blocks.
    pub fn thinking_count(&self) -> usize {
        let thinks =
            |block: &&Block| matches!(block, Block::Thinking { .. } | Block::Redacted { .. });
        self.blocks.iter().filter(thinks).count()
    }
}

/// What the vault has under some keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// A turn.
    Found(StoredTurn),
    /// A turn that the keyring cannot open.
    Sealed,
    /// Nothing.
    Nothing,
}

impl Lookup {
    /// The turn, if it can be opened.
    pub fn turn(self) -> Option<StoredTurn> {
        match self {
            Self::Found(turn) => Some(turn),
            Self::Sealed | Self::Nothing => None,
        }
    }
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
    /// The size of the largest record. One that fills the store would evict all others.
    fn max_record(&self) -> usize {
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

/// Never shows stored contents.
impl std::fmt::Debug for Vault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Vault({} bytes in RAM)", self.bytes())
    }
}

/// Records are counted in bytes. Dropped records stay in RAM for a while.
impl Item for Arc<Record> {
    const STORE: &'static str = "vault";
    const MAX_WEIGHT: usize = 64 << 20;

    fn weight(&self) -> usize {
        self.size()
    }
}

/// A record that may hold the wanted turn.
struct Candidate {
    /// The position of its key.
    at: usize,
    record: Arc<Record>,
    is_in_ram: bool,
}

impl Vault {
    /// A vault with a store. Starts its writer, so it must be called inside a Tokio runtime.
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

    /// Stores a turn under these keys. It replaces an earlier turn with the same key. Never waits.
    pub fn store(&self, keys: &[VaultKey], kept: &StoredTurn) {
        if keys.is_empty() {
            return;
        }
        let mut bytes = vec![VERSION];
        if let Err(error) = serde_json::to_writer(&mut bytes, kept) {
            tracing::error!(%error, "cannot serialize a turn for the vault");
            return;
        }
        let sealed =
            self.keyring.seal(Purpose::Vault, &random::nonce(), &associated_data(keys), &bytes);
        let record = Arc::new(Record { keys: keys.to_vec(), sealed });
        if record.size() > self.limits.max_record() {
            tracing::warn!(
                bytes = record.size(),
                max_record = self.limits.max_record(),
                "the turn is too large for the vault and is not stored"
            );
            return;
        }
        self.recent.lock().put(record.clone(), kept.thinking_count());
        self.queue.push(record);
    }

    /// Finds the turn of the first known key, in RAM or in the store.
    pub async fn find(&self, keys: &[VaultKey]) -> Lookup {
        let mut sealed = false;
        for candidate in self.candidates(keys).await {
            match self.open_and_hold(candidate) {
                Lookup::Found(kept) => return Lookup::Found(kept),
                Lookup::Sealed => sealed = true,
                Lookup::Nothing => {}
            }
        }
        if sealed { Lookup::Sealed } else { Lookup::Nothing }
    }

    /// Finds the turn of the first known key, whether it can be opened or not. Also returns the
    /// position of the key.
    pub async fn find_first(&self, keys: &[VaultKey]) -> Option<(usize, Lookup)> {
        self.candidates(keys).await.into_iter().find_map(|candidate| {
            let at = candidate.at;
            match self.open_and_hold(candidate) {
                Lookup::Nothing => None,
                found => Some((at, found)),
            }
        })
    }

    /// The records of keys, in the order of the keys, up to the first one that is in RAM. The store is
    /// asked at most once.
    async fn candidates(&self, keys: &[VaultKey]) -> Vec<Candidate> {
        let in_ram = {
            let mut recent = self.recent.lock();
            keys.iter().enumerate().find_map(|(at, key)| Some((at, recent.get(key)?)))
        };
        let before = in_ram.as_ref().map_or(keys.len(), |(at, _)| *at);
        let unread: Vec<VaultKey> =
            keys[..before].iter().copied().filter(|key| self.store.may_have(key)).collect();
        let stored = match unread.is_empty() {
            true => Vec::new(),
            false => self.store.read_all(&unread).await.unwrap_or_else(|error| {
                let error = &error as &dyn std::error::Error;
                tracing::error!(error, "cannot read the vault");
                Vec::new()
            }),
        };
        let at = |key: &VaultKey| keys.iter().position(|one| one == key);
        let candidate = |(key, record)| {
            Some(Candidate { at: at(&key)?, record: Arc::new(record), is_in_ram: false })
        };
        let mut found: Vec<Candidate> = stored.into_iter().filter_map(candidate).collect();
        found.sort_by_key(|candidate| candidate.at);
        found.extend(in_ram.map(|(at, record)| Candidate { at, record, is_in_ram: true }));
        found
    }

    /// Opens a record. What opens is held in RAM.
    fn open_and_hold(&self, candidate: Candidate) -> Lookup {
        match self.open(&candidate.record) {
            Ok(kept) => {
                if !candidate.is_in_ram {
                    self.recent.lock().put_back(candidate.record, kept.thinking_count());
                }
                Lookup::Found(kept)
            }
            Err(Some(SealError::UnknownKey)) => Lookup::Sealed,
            Err(_) => Lookup::Nothing,
        }
    }

    /// Whether a turn may be stored under this key. `false` is certain.
    pub fn may_have(&self, key: &VaultKey) -> bool {
        self.recent.lock().has(key) || self.store.may_have(key)
    }

    /// Whether the turn of these keys may have more thinking blocks than this. `false` is
    /// certain. Opens no record.
    pub fn may_have_more(&self, keys: &[VaultKey], blocks: usize) -> bool {
        let recent = self.recent.lock();
        match keys.iter().find_map(|key| recent.thinking(key)) {
            Some(stored) => stored > blocks,
            None => keys.iter().any(|key| self.store.may_have(key)),
        }
    }

    /// How many turns were stored so far.
    pub fn pushed(&self) -> u64 {
        self.queue.pushed()
    }

    /// Waits until everything is written or has failed.
    pub async fn flush(&self) {
        self.queue.flush().await;
    }

    /// What is known about the writes.
    pub fn health(&self) -> &StoreHealth {
        self.queue.health()
    }

    /// Why the store cannot be written.
    pub async fn check_store(&self) -> Option<String> {
        self.queue.check(self.store.check_write()).await
    }

    /// Reports what was never written. Call this before the process ends.
    pub fn report_unwritten(&self) {
        self.queue.report_unwritten();
    }

    /// The approximate size in RAM, in bytes.
    pub fn bytes(&self) -> usize {
        self.recent.lock().bytes()
    }

    /// Opens a record. A record that does not open counts as missing: its key is lost, or it was
    /// changed.
    fn open(&self, record: &Record) -> Result<StoredTurn, Option<SealError>> {
        match open_record(&self.keyring, record) {
            Ok(bytes) => match bytes.split_first() {
                Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|_| None),
                _ => Err(None),
            },
            Err(error) => {
                // After a loss of keys this is true for every old record, so do not log it.
                if error != SealError::UnknownKey {
                    tracing::warn!(%error, "cannot open a turn in the vault");
                }
                Err(Some(error))
            }
        }
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        self.writer.abort();
    }
}

/// Opens the bytes of a record.
pub fn open_record(keyring: &Keyring, record: &Record) -> Result<Vec<u8>, SealError> {
    keyring.open(Purpose::Vault, &associated_data(&record.keys), &record.sealed)
}

/// A record is sealed together with its keys, so that no key can be moved to another record.
fn associated_data(keys: &[VaultKey]) -> Vec<u8> {
    keys.iter().flat_map(|name| name.0).collect()
}

#[cfg(test)]
mod tests;
