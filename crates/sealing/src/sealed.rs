//! Sealed bytes of the server's own: version, key id, nonce, then XChaCha20-Poly1305 ciphertext.
//! Many values are sealed under one key here, so the nonce has 24 bytes. Fields of chats use
//! [`crate::envelope`].

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use crate::keyring::{KeyId, Keyring, Purpose};

/// A nonce, used once. It may be random: at 24 bytes, collisions do not happen in practice.
pub type Nonce = [u8; 24];

const VERSION: u8 = 1;
const KEY_ID: usize = 4;
const HEAD: usize = 1 + KEY_ID + 24;

/// Why sealed bytes do not open. It does not say which bytes are wrong, so that it helps no attacker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not sealed by this program, or by a newer version.
    #[error("not sealed by throughline, or by a newer version")]
    Foreign,
    /// The key is not on the keyring.
    #[error("the key that sealed this is not on the keyring")]
    UnknownKey,
    /// Changed, or sealed for another purpose or context.
    #[error("changed after sealing, or sealed for another context")]
    Altered,
}

/// The id of the key that sealed these bytes. `None` if they are not sealed by this version.
pub fn key_id(sealed: &[u8]) -> Option<KeyId> {
    let (&version, rest) = sealed.split_first()?;
    let id = rest.first_chunk::<KEY_ID>()?;
    (version == VERSION).then_some(*id)
}

impl Keyring {
    /// Seals bytes for a purpose. They open only with the same `context`, which says where they
    /// belong. The context is authenticated and not stored.
    pub fn seal(&self, purpose: Purpose, nonce: &Nonce, context: &[u8], bytes: &[u8]) -> Vec<u8> {
        let (key_id, key) = self.newest(purpose);
        let mut sealed = Vec::with_capacity(HEAD + bytes.len() + 16);
        sealed.push(VERSION);
        sealed.extend_from_slice(&key_id);
        sealed.extend_from_slice(nonce);
        let payload = Payload { msg: bytes, aad: context };
        let cipher = XChaCha20Poly1305::new((&**key).into());
        // Fails only for more bytes than fit into memory.
        if let Ok(ciphertext) = cipher.encrypt(nonce.into(), payload) {
            sealed.extend_from_slice(&ciphertext);
        }
        sealed
    }

    /// Opens bytes that were sealed for this purpose and context.
    pub fn open(
        &self,
        purpose: Purpose,
        context: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let (head, ciphertext) = sealed.split_at_checked(HEAD).ok_or(SealError::Foreign)?;
        let key_id = key_id(head).ok_or(SealError::Foreign)?;
        let (_, nonce) = head.split_at(1 + KEY_ID);
        let nonce: &Nonce = nonce.try_into().map_err(|_| SealError::Foreign)?;
        let key = self.find(key_id, purpose).ok_or(SealError::UnknownKey)?;
        let payload = Payload { msg: ciphertext, aad: context };
        XChaCha20Poly1305::new((&**key).into())
            .decrypt(nonce.into(), payload)
            .map_err(|_| SealError::Altered)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::keyring::SECRET;

    #[test]
    fn older_keys_open_and_other_keys_do_not() {
        let old = Keyring::new([1; SECRET]);
        let sealed = old.seal(Purpose::Vault, &[9; 24], b"here", b"secret");
        let both =
            Keyring::read(&format!("{}{}", *Keyring::new([2; SECRET]).write(), *old.write()));
        assert_eq!(both.unwrap().open(Purpose::Vault, b"here", &sealed), Ok(b"secret".to_vec()));
        let open = |ring: &Keyring, purpose, context: &[u8]| ring.open(purpose, context, &sealed);
        let other = Keyring::new([2; SECRET]);
        assert_eq!(open(&other, Purpose::Vault, b"here"), Err(SealError::UnknownKey));
        assert_eq!(open(&old, Purpose::Envelope, b"here"), Err(SealError::Altered));
        assert_eq!(open(&old, Purpose::Vault, b"there"), Err(SealError::Altered));
        assert_eq!(key_id(&sealed), Some(old.newest_id()));
        assert_eq!(key_id(&[2, 1, 1, 1, 1]), None);
        assert!(!sealed.windows(6).any(|bytes| bytes == b"secret"));
    }

    proptest! {
        #[test]
        fn sealed_bytes_open_and_changed_bytes_do_not(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            context in proptest::collection::vec(any::<u8>(), 0..20),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let ring = Keyring::new([3; SECRET]);
            let mut sealed = ring.seal(Purpose::Envelope, &[5; 24], &context, &bytes);
            prop_assert_eq!(ring.open(Purpose::Envelope, &context, &sealed), Ok(bytes));
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert!(ring.open(Purpose::Envelope, &context, &sealed).is_err());
            sealed.truncate(at);
            prop_assert!(ring.open(Purpose::Envelope, &context, &sealed).is_err());
        }
    }
}
