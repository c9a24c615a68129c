//! What the server stores to check a user's proof: a salted hash of the auth key.
//!
//! A fast hash is enough. The auth key is 32 bytes that cannot be guessed by themselves; who has the
//! record can only guess passphrases, and each guess costs a run of Argon2id before the hash. The same
//! holds for the wrapped master key, which is stored beside it.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::secret_key::AuthKey;

/// Bytes of the salt.
pub const AUTH_SALT: usize = 16;
/// Bytes of a record.
pub const AUTH_RECORD: usize = 1 + AUTH_SALT + HASH;

const VERSION: u8 = 1;
const HASH: usize = 32;
const LABEL: &[u8] = b"throughline auth record v1";

/// A salted hash of an auth key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthRecord {
    salt: [u8; AUTH_SALT],
    hash: [u8; HASH],
}

impl AuthRecord {
    /// The record of a key. The salt must be random, so that equal keys do not show.
    pub fn new(key: &AuthKey, salt: [u8; AUTH_SALT]) -> Self {
        Self { salt, hash: hash(key, &salt) }
    }

    /// Whether this is the key, in constant time.
    pub fn verify(&self, key: &AuthKey) -> bool {
        hash(key, &self.salt).ct_eq(&self.hash).into()
    }

    /// Writes the record: version, salt, hash.
    pub fn write(&self) -> [u8; AUTH_RECORD] {
        let mut bytes = [0; AUTH_RECORD];
        bytes[0] = VERSION;
        bytes[1..=AUTH_SALT].copy_from_slice(&self.salt);
        bytes[1 + AUTH_SALT..].copy_from_slice(&self.hash);
        bytes
    }

    /// Reads a record; `None` if it is damaged or of a newer version.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (&version, rest) = bytes.split_first()?;
        let (salt, hash) = rest.split_first_chunk()?;
        let hash = hash.try_into().ok()?;
        (version == VERSION).then_some(Self { salt: *salt, hash })
    }
}

fn hash(key: &AuthKey, salt: &[u8; AUTH_SALT]) -> [u8; HASH] {
    let hash = Sha256::new().chain_update(LABEL).chain_update(salt).chain_update(key.expose());
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_accepts_its_key_only() {
        let key = AuthKey::new([1; 32]);
        let record = AuthRecord::new(&key, [5; AUTH_SALT]);
        assert!(record.verify(&key));
        assert!(!record.verify(&AuthKey::new([2; 32])));
        assert_ne!(record.hash, AuthRecord::new(&key, [6; AUTH_SALT]).hash);
        assert!(!record.write().windows(32).any(|bytes| bytes == key.expose()));
    }

    #[test]
    fn written_record_is_read_back_and_damaged_bytes_are_not() {
        let record = AuthRecord::new(&AuthKey::new([1; 32]), [5; AUTH_SALT]);
        let bytes = record.write();
        assert_eq!(AuthRecord::read(&bytes), Some(record));
        for length in 0..bytes.len() {
            assert_eq!(AuthRecord::read(&bytes[..length]), None, "{length}");
        }
        assert_eq!(AuthRecord::read(&[&bytes[..], b"x"].concat()), None);
        let mut newer = bytes;
        newer[0] = 2;
        assert_eq!(AuthRecord::read(&newer), None);
    }
}
