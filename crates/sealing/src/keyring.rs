//! The keys of a server. The newest key seals, every key opens.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::envelope::{self, push_part};
use crate::secret_key::{ChatKey, KeyCheck};

/// Bytes of a secret.
pub const SECRET: usize = 32;

/// A key for one purpose.
pub(crate) type Key = Zeroizing<[u8; SECRET]>;

/// What a key is for. Each purpose has its own key, so that bytes sealed for one purpose do not open
/// for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Envelopes in a client's opaque fields.
    Envelope,
    /// Records in the vault.
    Vault,
    /// Stored conversations.
    Conversation,
}

impl Purpose {
    /// The HKDF info of the derived key. It must never change: another info gives another key.
    fn info(self) -> &'static [u8] {
        match self {
            Self::Envelope => b"throughline envelope v1",
            Self::Vault => b"throughline vault v1",
            Self::Conversation => b"throughline conversation v1",
        }
    }
}

/// Why a keyring cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringParseError {
    /// There is no key.
    #[error("the keyring is empty")]
    Empty,
    /// The key with this number, counted from one, is not 32 bytes in base64.
    #[error("key {0} of the keyring is not 32 bytes in base64")]
    Malformed(usize),
}

/// The HKDF label of the chat keys of managed projects. It must never change.
const CHAT_LABEL: &[u8] = b"throughline managed chat v1";

/// The HKDF label of made-up salts. It must never change, or unknown names become known.
const SALT_LABEL: &[u8] = b"throughline made-up salt v1";

/// The keys, newest first.
#[derive(Clone)]
pub struct Keyring {
    secrets: Vec<Secret>,
}

/// A secret and what is derived from it. A derivation costs more than sealing a short text, so each
/// one is done once.
#[derive(Clone)]
struct Secret {
    secret: Key,
    id: KeyId,
    envelope: Key,
    vault: Key,
    conversation: Key,
}

impl Secret {
    fn new(secret: Key) -> Self {
        Self {
            id: key_id(&secret),
            envelope: derive(&secret, Purpose::Envelope),
            vault: derive(&secret, Purpose::Vault),
            conversation: derive(&secret, Purpose::Conversation),
            secret,
        }
    }

    /// Each chat has its own key, as in a sealed project, where the client makes it.
    fn chat_key(&self, chat: &str) -> ChatKey {
        let mut info = Vec::new();
        push_part(&mut info, CHAT_LABEL);
        push_part(&mut info, chat.as_bytes());
        ChatKey::from_zeroizing(envelope::derive(self.secret.as_slice(), &info))
    }

    fn key(&self, purpose: Purpose) -> &Key {
        match purpose {
            Purpose::Envelope => &self.envelope,
            Purpose::Vault => &self.vault,
            Purpose::Conversation => &self.conversation,
        }
    }
}

/// Shows the number of keys and nothing of the secrets.
impl std::fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Keyring({} keys)", self.secrets.len())
    }
}

impl Keyring {
    /// A keyring of one key. The secret must come from a secure random source.
    pub fn new(secret: [u8; SECRET]) -> Self {
        Self { secrets: vec![Secret::new(Zeroizing::new(secret))] }
    }

    /// Reads keys in base64, one per line or separated by commas, newest first. Empty lines and
    /// comments after `#` are ignored.
    pub fn read(text: &str) -> Result<Self, KeyringParseError> {
        let keys = text
            .lines()
            .map(|line| line.split_once('#').map_or(line, |(before, _)| before))
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|key| !key.is_empty());
        let mut secrets = Vec::new();
        for (index, key) in keys.enumerate() {
            let malformed = KeyringParseError::Malformed(index + 1);
            let bytes = Zeroizing::new(BASE64_STANDARD.decode(key).map_err(|_| malformed.clone())?);
            let secret: [u8; SECRET] = bytes.as_slice().try_into().map_err(|_| malformed)?;
            secrets.push(Secret::new(Zeroizing::new(secret)));
        }
        if secrets.is_empty() {
            return Err(KeyringParseError::Empty);
        }
        Ok(Self { secrets })
    }

    /// Writes the keys as [`Keyring::read`] reads them.
    pub fn write(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for secret in &self.secrets {
            let key = Zeroizing::new(BASE64_STANDARD.encode(secret.secret.as_slice()));
            text.push_str(&key);
            text.push('\n');
        }
        text
    }

    /// The id of the newest key, which seals.
    pub fn newest_id(&self) -> KeyId {
        self.secrets[0].id
    }

    /// The ids of all keys, newest first.
    pub fn ids(&self) -> impl Iterator<Item = KeyId> {
        self.secrets.iter().map(|secret| secret.id)
    }

    /// Whether it has the key with this id.
    pub fn contains(&self, id: KeyId) -> bool {
        self.secrets.iter().any(|secret| secret.id == id)
    }

    /// The key that seals the fields of a managed chat: from the newest secret.
    pub fn chat_key(&self, chat: &str) -> ChatKey {
        self.secrets[0].chat_key(chat)
    }

    /// The keys that may have sealed fields of a managed chat, newest first.
    pub fn chat_keys(&self, chat: &str) -> impl Iterator<Item = ChatKey> {
        self.secrets.iter().map(move |secret| secret.chat_key(chat))
    }

    /// The key of a managed chat that an envelope names; `None` if its secret is not on the keyring.
    pub fn find_chat_key(&self, chat: &str, key_id: KeyCheck) -> Option<ChatKey> {
        self.chat_keys(chat).find(|key| key.key_check() == key_id)
    }

    /// A salt for a name that no user has: the same at each call, so that a caller cannot find out which
    /// names exist. The oldest secret makes it, because a new one must not change it.
    pub fn made_up_salt(&self, name: &str) -> [u8; 16] {
        let mut info = Vec::new();
        push_part(&mut info, SALT_LABEL);
        push_part(&mut info, name.as_bytes());
        let oldest = &self.secrets[self.secrets.len() - 1];
        let derived = envelope::derive(oldest.secret.as_slice(), &info);
        let mut salt = [0; 16];
        salt.copy_from_slice(&derived[..16]);
        salt
    }

    /// The newest key for a purpose, and its id.
    pub(crate) fn newest(&self, purpose: Purpose) -> (KeyId, &Key) {
        let newest = &self.secrets[0];
        (newest.id, newest.key(purpose))
    }

    /// The key with this id for a purpose.
    pub(crate) fn find(&self, id: KeyId, purpose: Purpose) -> Option<&Key> {
        let secret = self.secrets.iter().find(|secret| secret.id == id)?;
        Some(secret.key(purpose))
    }
}

/// Identifies a key without revealing anything about it.
pub type KeyId = [u8; 4];

fn key_id(secret: &Key) -> KeyId {
    let hash = Sha256::new()
        .chain_update(b"throughline key mark")
        .chain_update(secret.as_slice())
        .finalize();
    [hash[0], hash[1], hash[2], hash[3]]
}

fn derive(secret: &Key, purpose: Purpose) -> Key {
    envelope::derive(secret.as_slice(), purpose.info())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldPath;

    #[test]
    fn written_keys_are_read_back() {
        let ring = Keyring::new([7; SECRET]);
        let text = ring.write();
        assert_eq!(Keyring::read(&text).unwrap().write(), text);
        let two = format!("# the newest\n{}, {}", text.trim(), BASE64_STANDARD.encode([8; 32]));
        assert_eq!(Keyring::read(&two).unwrap().secrets.len(), 2);
        assert_eq!(format!("{ring:?}"), "Keyring(1 keys)");
    }

    #[test]
    fn malformed_key_is_reported_by_its_number() {
        let good = BASE64_STANDARD.encode([8; 32]);
        for (text, error) in [
            ("", KeyringParseError::Empty),
            ("# nothing\n\n", KeyringParseError::Empty),
            ("abc", KeyringParseError::Malformed(1)),
            (&*format!("{good}\n{}", &good[..40]), KeyringParseError::Malformed(2)),
        ] {
            assert_eq!(Keyring::read(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn each_purpose_and_secret_has_its_own_key() {
        let (one, other) = (Keyring::new([1; SECRET]), Keyring::new([2; SECRET]));
        let (id, envelope) = one.newest(Purpose::Envelope);
        assert_ne!(*envelope, *one.newest(Purpose::Vault).1);
        assert_ne!(*envelope, *other.newest(Purpose::Envelope).1);
        assert_ne!(**envelope, [1; SECRET]);
        assert_eq!(one.find(id, Purpose::Envelope), Some(envelope));
        assert_eq!(other.find(id, Purpose::Envelope), None);
        assert_eq!(one.newest_id(), id);
        assert!(one.contains(id) && !other.contains(id));
    }

    #[test]
    fn made_up_salt_differs_by_name_and_survives_a_rotation() {
        let old = Keyring::new([1; SECRET]);
        let salt = old.made_up_salt("ada");
        let new = Keyring::new([2; SECRET]);
        let rotated = Keyring::read(&format!("{}{}", *new.write(), *old.write())).unwrap();
        assert_eq!(rotated.made_up_salt("ada"), salt);
        assert_ne!(old.made_up_salt("bob"), salt);
        assert_ne!(new.made_up_salt("ada"), salt);
    }

    ///
    #[test]
    fn chat_keys_of_older_secrets_still_open_after_a_rotation() {
        let old = Keyring::new([1; SECRET]);
        let path = FieldPath { chat: "chat-1", node: "node-1", field: "content" };
        let envelope = old.chat_key("chat-1").seal(path, &[9; 12], b"secret");
        let new = Keyring::new([2; SECRET]);
        let rotated = Keyring::read(&format!("{}{}", *new.write(), *old.write())).unwrap();
        let id = envelope::key_id(&envelope).unwrap();
        let found = rotated.find_chat_key("chat-1", id).unwrap();
        assert_eq!(found.open(path, &envelope), Ok(b"secret".to_vec()));
        assert_eq!(rotated.chat_key("chat-1"), new.chat_key("chat-1"));
        assert_eq!(rotated.chat_keys("chat-1").count(), 2);
        assert_eq!(new.find_chat_key("chat-1", id), None);
        assert_eq!(rotated.find_chat_key("chat-2", id), None);
        assert_ne!(old.chat_key("chat-1"), old.chat_key("chat-2"));
    }
}
