//! Chat keys shared with another user: sealed to an X25519 public key, with a key pair that is used
//! once.

use sha2::{Digest, Sha256};
use x25519_dalek::{PublicKey as Point, SharedSecret, StaticSecret};
use zeroize::Zeroizing;

use crate::envelope::{self, Binding, Envelope, EnvelopeNonce, OpenError, Suite, push_part};
use crate::keyring::SECRET;
use crate::secret_key::{ChatKey, KeyCheck, PrivateKey};
use crate::wrapping::read_key;

/// Says what is sealed. Changing it makes all shared keys unreadable.
const LABEL: &str = "throughline shared key v1";
const FINGERPRINT_LABEL: &[u8] = b"throughline public key v1";
const POINT: usize = 32;

/// The public half of a user's X25519 key pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey([u8; POINT]);

/// The public key is one of the few with which every private key agrees on the same secret. No
/// honest user has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the public key is not usable")]
pub struct WeakPublicKey;

impl PublicKey {
    /// The key with these bytes.
    pub fn new(bytes: [u8; POINT]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; POINT] {
        &self.0
    }

    /// Identifies the key: the first 16 bytes of a hash. Two people who compare it know that the
    /// server gave them each other's keys.
    pub fn fingerprint(&self) -> KeyCheck {
        let mut bytes = Vec::new();
        push_part(&mut bytes, FINGERPRINT_LABEL);
        push_part(&mut bytes, &self.0);
        KeyCheck::first_bytes(&Sha256::digest(&bytes).into())
    }
}

impl PrivateKey {
    /// The public half of the key pair.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(*Point::from(&self.secret()).as_bytes())
    }

    fn secret(&self) -> StaticSecret {
        StaticSecret::from(*self.expose())
    }

    /// The secret that both sides compute; none if the public key is weak.
    fn agree(&self, with: &PublicKey) -> Option<SharedSecret> {
        let shared = self.secret().diffie_hellman(&Point::from(with.0));
        shared.was_contributory().then_some(shared)
    }
}

/// Seals the key of a chat to a user's public key. `ephemeral` is a key pair that is used for this
/// call only: 32 new random bytes.
pub fn share_key(
    key: &ChatKey,
    chat: &str,
    recipient: &PublicKey,
    ephemeral: &PrivateKey,
    nonce: &EnvelopeNonce,
) -> Result<Vec<u8>, WeakPublicKey> {
    let shared = ephemeral.agree(recipient).ok_or(WeakPublicKey)?;
    let public = ephemeral.public_key();
    let parts = [public.0.as_slice(), recipient.0.as_slice(), chat.as_bytes()];
    let id = recipient.fingerprint();
    let secret = secret_bytes(&shared);
    Ok(envelope::seal(binding(&parts), &secret, id, nonce, &public.0, key.expose()))
}

/// Opens the key of a chat that was shared with the owner of this private key.
pub fn open_shared_key(
    shared: &[u8],
    chat: &str,
    recipient: &PrivateKey,
) -> Result<ChatKey, OpenError> {
    let envelope = Envelope::read(shared, Suite::PublicKey)?;
    let own = recipient.public_key();
    envelope.check_key(own.fingerprint())?;
    let (public, ciphertext) =
        envelope.rest.split_first_chunk::<POINT>().ok_or(OpenError::Truncated)?;
    let agreed = recipient.agree(&PublicKey(*public)).ok_or(OpenError::Altered)?;
    let parts = [public.as_slice(), own.0.as_slice(), chat.as_bytes()];
    read_key(envelope.open(binding(&parts), &secret_bytes(&agreed), ciphertext)?)
}

fn binding<'a>(parts: &'a [&'a [u8]]) -> Binding<'a> {
    Binding { suite: Suite::PublicKey, label: LABEL, parts }
}

fn secret_bytes(shared: &SharedSecret) -> Zeroizing<[u8; SECRET]> {
    Zeroizing::new(*shared.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: EnvelopeNonce = [4; 12];

    fn shared() -> (ChatKey, PrivateKey, Vec<u8>) {
        let (chat, recipient) = (ChatKey::new([1; SECRET]), PrivateKey::new([2; SECRET]));
        let ephemeral = PrivateKey::new([3; SECRET]);
        let shared = share_key(&chat, "chat-1", &recipient.public_key(), &ephemeral, &NONCE);
        (chat, recipient, shared.unwrap())
    }

    #[test]
    fn shared_key_opens_with_the_private_key_of_its_recipient() {
        let (chat, recipient, shared) = shared();
        assert_eq!(shared.len(), 112);
        assert_eq!(open_shared_key(&shared, "chat-1", &recipient), Ok(chat));
        assert_eq!(open_shared_key(&shared, "chat-2", &recipient), Err(OpenError::Altered));
        let other = PrivateKey::new([9; SECRET]);
        let error = OpenError::WrongKey(recipient.public_key().fingerprint());
        assert_eq!(open_shared_key(&shared, "chat-1", &other), Err(error));
        assert_eq!(envelope::key_id(&shared), Ok(recipient.public_key().fingerprint()));
    }

    #[test]
    fn changed_or_truncated_shared_key_does_not_open() {
        let (_, recipient, shared) = shared();
        for at in 0..shared.len() {
            for bit in 0..8 {
                // X25519 ignores the highest bit of a public key, but we authenticate all bytes.
                let mut changed = shared.clone();
                changed[at] ^= 1 << bit;
                assert!(open_shared_key(&changed, "chat-1", &recipient).is_err(), "{at}: {bit}");
            }
            let error = open_shared_key(&shared[..at], "chat-1", &recipient).unwrap_err();
            let expected = if at < 80 { OpenError::Truncated } else { OpenError::Altered };
            assert_eq!(error, expected, "{at}");
        }
        let key = ChatKey::new([1; SECRET]);
        let path = crate::FieldPath { chat: "chat-1", node: "", field: "" };
        assert_eq!(key.open(path, &shared), Err(OpenError::UnknownSuite(2)));
    }

    #[test]
    fn weak_public_key_is_refused() {
        let (chat, recipient, mut shared) = shared();
        let mut one = [0; POINT];
        one[0] = 1;
        for weak in [[0; POINT], one] {
            let ephemeral = PrivateKey::new([3; SECRET]);
            let result = share_key(&chat, "chat-1", &PublicKey(weak), &ephemeral, &NONCE);
            assert_eq!(result, Err(WeakPublicKey));
            shared[envelope::HEAD..envelope::HEAD + POINT].copy_from_slice(&weak);
            let opened = open_shared_key(&shared, "chat-1", &recipient);
            assert_eq!(opened, Err(OpenError::Altered));
        }
    }
}
