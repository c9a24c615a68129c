//! The keys of a server: the newest seals, all of them open.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hkdf::Hkdf;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// How many bytes a secret has.
pub const SECRET: usize = 32;

/// A key for one purpose.
pub(crate) type Key = Zeroizing<[u8; SECRET]>;

/// What a key is for. Each purpose has its own, so that what was made for one opens for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// What rides in a client's opaque field.
    Envelope,
    /// What lies in the vault.
    Vault,
    /// What is kept of conversations.
    Conversation,
}

impl Purpose {
    /// The words a key is derived with. They are for ever: another word is another key.
    fn words(self) -> &'static [u8] {
        match self {
            Self::Envelope => b"throughline envelope v1",
            Self::Vault => b"throughline vault v1",
            Self::Conversation => b"throughline conversation v1",
        }
    }
}

/// Why a keyring cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    /// There is no key in it.
    #[error("the keyring is empty")]
    Empty,
    /// A key is no key.
    #[error("key {0} of the keyring is not 32 bytes in base64")]
    Malformed(usize),
}

/// The keys, the newest first.
#[derive(Clone)]
pub struct Keyring {
    secrets: Vec<Key>,
}

/// Nothing of a secret is ever shown.
impl std::fmt::Debug for Keyring {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Keyring({} keys)", self.secrets.len())
    }
}

impl Keyring {
    /// A keyring of one key, made of bytes nobody can guess.
    pub fn new(secret: [u8; SECRET]) -> Self {
        Self { secrets: vec![Zeroizing::new(secret)] }
    }

    /// Reads keys in base64, one a line or separated by commas, the newest first. Empty lines and what
    /// stands behind a `#` mean nothing.
    pub fn read(text: &str) -> Result<Self, KeyringError> {
        let words = text
            .lines()
            .map(|line| line.split_once('#').map_or(line, |(before, _)| before))
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|word| !word.is_empty());
        let mut secrets = Vec::new();
        for (place, word) in words.enumerate() {
            let malformed = KeyringError::Malformed(place + 1);
            let bytes =
                Zeroizing::new(BASE64_STANDARD.decode(word).map_err(|_| malformed.clone())?);
            let secret: [u8; SECRET] = bytes.as_slice().try_into().map_err(|_| malformed)?;
            secrets.push(Zeroizing::new(secret));
        }
        if secrets.is_empty() {
            return Err(KeyringError::Empty);
        }
        Ok(Self { secrets })
    }

    /// Writes the keys as [`Keyring::read`] reads them.
    pub fn write(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        for secret in &self.secrets {
            let word = Zeroizing::new(BASE64_STANDARD.encode(secret.as_slice()));
            text.push_str(&word);
            text.push('\n');
        }
        text
    }

    /// The newest key for a purpose, and its mark.
    pub(crate) fn newest(&self, purpose: Purpose) -> (Mark, Key) {
        let secret = &self.secrets[0];
        (mark(secret), derive(secret, purpose))
    }

    /// The key of this mark for a purpose.
    pub(crate) fn find(&self, wanted: Mark, purpose: Purpose) -> Option<Key> {
        let secret = self.secrets.iter().find(|secret| mark(secret) == wanted)?;
        Some(derive(secret, purpose))
    }
}

/// What tells keys apart without telling anything of them.
pub(crate) type Mark = [u8; 4];

fn mark(secret: &Key) -> Mark {
    let hash = Sha256::new()
        .chain_update(b"throughline key mark")
        .chain_update(secret.as_slice())
        .finalize();
    [hash[0], hash[1], hash[2], hash[3]]
}

fn derive(secret: &Key, purpose: Purpose) -> Key {
    let mut key = Zeroizing::new([0; SECRET]);
    // Fails only for keys longer than 255 hashes.
    let _ =
        Hkdf::<Sha256>::new(None, secret.as_slice()).expand(purpose.words(), key.as_mut_slice());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let ring = Keyring::new([7; SECRET]);
        let text = ring.write();
        assert_eq!(Keyring::read(&text).unwrap().write(), text);
        let two = format!("# the newest\n{}, {}", text.trim(), BASE64_STANDARD.encode([8; 32]));
        assert_eq!(Keyring::read(&two).unwrap().secrets.len(), 2);
        assert_eq!(format!("{ring:?}"), "Keyring(1 keys)");
    }

    #[test]
    fn what_is_no_key_is_told_by_its_number() {
        let good = BASE64_STANDARD.encode([8; 32]);
        for (text, error) in [
            ("", KeyringError::Empty),
            ("# nothing\n\n", KeyringError::Empty),
            ("abc", KeyringError::Malformed(1)),
            (&*format!("{good}\n{}", &good[..40]), KeyringError::Malformed(2)),
        ] {
            assert_eq!(Keyring::read(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn each_purpose_and_each_secret_has_its_own_key() {
        let (one, other) = (Keyring::new([1; SECRET]), Keyring::new([2; SECRET]));
        let (mark, envelope) = one.newest(Purpose::Envelope);
        assert_ne!(*envelope, *one.newest(Purpose::Vault).1);
        assert_ne!(*envelope, *other.newest(Purpose::Envelope).1);
        assert_ne!(*envelope, [1; SECRET]);
        assert_eq!(one.find(mark, Purpose::Envelope), Some(envelope));
        assert_eq!(other.find(mark, Purpose::Envelope), None);
    }
}
