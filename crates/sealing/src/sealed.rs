//! Bytes under a key: version, mark of the key, nonce, then XChaCha20-Poly1305.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305};

use crate::keyring::{Keyring, Purpose};

/// Bytes that are used once. They may be chosen by dice: there are enough of them.
pub type Nonce = [u8; 24];

const VERSION: u8 = 1;
const MARK: usize = 4;
const HEAD: usize = 1 + MARK + 24;

/// Why something does not open. Which of its bytes are wrong is nobody's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It is not of ours, or of a version to come.
    #[error("this is not sealed by us")]
    Foreign,
    /// Its key is not on the keyring.
    #[error("the key this was sealed with is not on the keyring")]
    UnknownKey,
    /// It was altered, or belongs elsewhere.
    #[error("this was altered, or belongs elsewhere")]
    Altered,
}

impl Keyring {
    /// Seals bytes for a purpose. They open only together with the same `place`, which says where
    /// they belong and is not kept.
    pub fn seal(&self, purpose: Purpose, nonce: &Nonce, place: &[u8], bytes: &[u8]) -> Vec<u8> {
        let (mark, key) = self.newest(purpose);
        let mut sealed = Vec::with_capacity(HEAD + bytes.len() + 16);
        sealed.push(VERSION);
        sealed.extend_from_slice(&mark);
        sealed.extend_from_slice(nonce);
        let payload = Payload { msg: bytes, aad: place };
        let cipher = XChaCha20Poly1305::new(key.as_slice().into());
        // Fails only for more bytes than any machine has.
        if let Ok(hidden) = cipher.encrypt(nonce.into(), payload) {
            sealed.extend_from_slice(&hidden);
        }
        sealed
    }

    /// Opens what was sealed for this purpose and place.
    pub fn open(
        &self,
        purpose: Purpose,
        place: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let (head, hidden) = sealed.split_at_checked(HEAD).ok_or(SealError::Foreign)?;
        let (mark, nonce) = head[1..].split_at(MARK);
        if head[0] != VERSION {
            return Err(SealError::Foreign);
        }
        let mark = mark.try_into().map_err(|_| SealError::Foreign)?;
        let nonce: &Nonce = nonce.try_into().map_err(|_| SealError::Foreign)?;
        let key = self.find(mark, purpose).ok_or(SealError::UnknownKey)?;
        let payload = Payload { msg: hidden, aad: place };
        XChaCha20Poly1305::new(key.as_slice().into())
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
    fn older_keys_still_open_and_foreign_ones_do_not() {
        let old = Keyring::new([1; SECRET]);
        let sealed = old.seal(Purpose::Vault, &[9; 24], b"here", b"secret");
        let both =
            Keyring::read(&format!("{}{}", *Keyring::new([2; SECRET]).write(), *old.write()));
        assert_eq!(both.unwrap().open(Purpose::Vault, b"here", &sealed), Ok(b"secret".to_vec()));
        let open = |ring: &Keyring, purpose, place: &[u8]| ring.open(purpose, place, &sealed);
        let other = Keyring::new([2; SECRET]);
        assert_eq!(open(&other, Purpose::Vault, b"here"), Err(SealError::UnknownKey));
        assert_eq!(open(&old, Purpose::Envelope, b"here"), Err(SealError::Altered));
        assert_eq!(open(&old, Purpose::Vault, b"there"), Err(SealError::Altered));
        assert!(!sealed.windows(6).any(|bytes| bytes == b"secret"));
    }

    proptest! {
        #[test]
        fn what_was_sealed_opens_and_no_altered_byte_does(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            place in proptest::collection::vec(any::<u8>(), 0..20),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let ring = Keyring::new([3; SECRET]);
            let mut sealed = ring.seal(Purpose::Envelope, &[5; 24], &place, &bytes);
            prop_assert_eq!(ring.open(Purpose::Envelope, &place, &sealed), Ok(bytes));
            let at = at.index(sealed.len());
            sealed[at] ^= 1 << bit;
            prop_assert!(ring.open(Purpose::Envelope, &place, &sealed).is_err());
            sealed.truncate(at);
            prop_assert!(ring.open(Purpose::Envelope, &place, &sealed).is_err());
        }
    }
}
