//! The envelope of stored fields and wrapped keys: magic, version, suite, key id, nonce, then
//! AES-256-GCM ciphertext. `docs/sealing.md` specifies every byte. What is sealed, and where it
//! belongs, is decided in `field`, `wrapping` and `sharing`.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes256Gcm, Tag};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::keyring::SECRET;
use crate::secret_key::{KEY_CHECK, KeyCheck};

/// A nonce, used once with one key. It may be random: each field of each node has its own key, so
/// few nonces are ever used with one.
pub type EnvelopeNonce = [u8; NONCE];

/// The first bytes. The older format of [`crate::sealed`] starts with the byte 1, so readers can
/// distinguish both.
pub const MAGIC: [u8; 2] = *b"TL";

const VERSION: u8 = 1;
const NONCE: usize = 12;
const TAG: usize = 16;
/// Magic, version, suite and key id: the part of the head that is authenticated as it is. The nonce
/// is authenticated by the cipher itself.
const BOUND: usize = MAGIC.len() + 2 + KEY_CHECK;
/// All bytes before the ciphertext, or before the public key of a shared key.
pub(crate) const HEAD: usize = BOUND + NONCE;

/// How the key of the cipher is found. The number is the suite byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    /// From a secret key. The key id is its key check.
    SecretKey = 1,
    /// From an X25519 key agreement. The key id is the fingerprint of the recipient's public key.
    PublicKey = 2,
}

/// Why an envelope does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It does not begin with the magic bytes.
    #[error("not an envelope: the magic bytes are missing")]
    Foreign,
    /// It ends before the smallest envelope does. An end within the ciphertext is `Altered`: the
    /// envelope does not say how long it is, so only the tag can show it.
    #[error("the envelope is incomplete")]
    Truncated,
    /// A newer version of the format.
    #[error("unknown version {0} of the envelope")]
    UnknownVersion(u8),
    /// A newer suite, or one for another use.
    #[error("unknown suite {0} of the envelope")]
    UnknownSuite(u8),
    /// Another key sealed it. The value is the key id that the envelope names.
    #[error("sealed under another key, with the check `{0}`")]
    WrongKey(KeyCheck),
    /// The right key, but it was changed, or it belongs to another chat, node, field, purpose or
    /// name. The cipher cannot tell these apart: where an envelope belongs is not stored in it, only
    /// authenticated, so a moved envelope fails exactly as a changed one does.
    #[error("changed after sealing, or moved here from elsewhere")]
    Altered,
}

/// What an envelope is bound to: its label says what it is, its parts where it belongs.
#[derive(Clone, Copy)]
pub(crate) struct Binding<'a> {
    pub(crate) suite: Suite,
    pub(crate) label: &'a str,
    pub(crate) parts: &'a [&'a [u8]],
}

/// Whether bytes begin as an envelope does. All other bytes are in the older format, or foreign.
pub fn is_envelope(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// The key id that an envelope names: the check of the key that opens it, or the fingerprint of the
/// public key that it was shared with.
pub fn key_id(envelope: &[u8]) -> Result<KeyCheck, OpenError> {
    let suite = Envelope::suite(envelope)?;
    Ok(Envelope::read(envelope, suite)?.key_id)
}

/// The key id, from the first bytes of an envelope.
pub fn head_key_id(head: &[u8]) -> Option<KeyCheck> {
    Envelope::suite(head).ok()?;
    let key_id = head.get(BOUND - KEY_CHECK..BOUND)?;
    Some(KeyCheck::new(key_id.try_into().ok()?))
}

/// An envelope as its parts.
#[derive(Clone, Copy)]
pub(crate) struct Envelope<'a> {
    bound: &'a [u8],
    pub(crate) key_id: KeyCheck,
    nonce: &'a EnvelopeNonce,
    /// Everything after the head.
    pub(crate) rest: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the head of an envelope of this suite.
    pub(crate) fn read(bytes: &'a [u8], suite: Suite) -> Result<Self, OpenError> {
        let found = Self::suite(bytes)?;
        if found != suite {
            return Err(OpenError::UnknownSuite(found as u8));
        }
        let (head, rest) = bytes.split_at_checked(HEAD).ok_or(OpenError::Truncated)?;
        if rest.len() < TAG {
            return Err(OpenError::Truncated);
        }
        let (bound, nonce) = head.split_at(BOUND);
        let (_, key_id) = bound.split_at(BOUND - KEY_CHECK);
        Ok(Self {
            bound,
            key_id: KeyCheck::new(key_id.try_into().map_err(|_| OpenError::Truncated)?),
            nonce: nonce.try_into().map_err(|_| OpenError::Truncated)?,
            rest,
        })
    }

    /// Checks magic and version before the length: a newer version may have another one.
    fn suite(bytes: &[u8]) -> Result<Suite, OpenError> {
        let magic = &bytes[..bytes.len().min(MAGIC.len())];
        if !MAGIC.starts_with(magic) {
            return Err(OpenError::Foreign);
        }
        match bytes.get(MAGIC.len()) {
            None => return Err(OpenError::Truncated),
            Some(&VERSION) => {}
            Some(&other) => return Err(OpenError::UnknownVersion(other)),
        }
        match bytes.get(MAGIC.len() + 1) {
            None => Err(OpenError::Truncated),
            Some(1) => Ok(Suite::SecretKey),
            Some(2) => Ok(Suite::PublicKey),
            Some(&other) => Err(OpenError::UnknownSuite(other)),
        }
    }

    /// Checks that the key with this id sealed it.
    pub(crate) fn check_key(&self, key_id: KeyCheck) -> Result<(), OpenError> {
        if self.key_id == key_id { Ok(()) } else { Err(OpenError::WrongKey(self.key_id)) }
    }

    /// Opens a ciphertext, which is `rest` or its end.
    pub(crate) fn open(
        &self,
        binding: Binding<'_>,
        secret: &[u8; SECRET],
        ciphertext: &[u8],
    ) -> Result<Vec<u8>, OpenError> {
        let (ciphertext, tag) = ciphertext.split_last_chunk::<TAG>().ok_or(OpenError::Truncated)?;
        let mut bytes = ciphertext.to_vec();
        cipher(secret, binding)
            .decrypt_inout_detached(
                self.nonce.into(),
                &associated_data(self.bound, binding),
                bytes.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .map_err(|_| OpenError::Altered)?;
        Ok(bytes)
    }
}

/// Seals bytes. `public` is stored unsealed between head and ciphertext.
pub(crate) fn seal(
    binding: Binding<'_>,
    secret: &[u8; SECRET],
    key_id: KeyCheck,
    nonce: &EnvelopeNonce,
    public: &[u8],
    bytes: &[u8],
) -> Vec<u8> {
    let mut envelope = Vec::with_capacity(HEAD + public.len() + bytes.len() + TAG);
    envelope.extend_from_slice(&MAGIC);
    envelope.extend_from_slice(&[VERSION, binding.suite as u8]);
    envelope.extend_from_slice(key_id.as_bytes());
    let data = associated_data(&envelope, binding);
    envelope.extend_from_slice(nonce);
    envelope.extend_from_slice(public);
    let start = envelope.len();
    envelope.extend_from_slice(bytes);
    let tag = cipher(secret, binding).encrypt_inout_detached(
        nonce.into(),
        &data,
        envelope[start..].as_mut().into(),
    );
    match tag {
        Ok(tag) => envelope.extend_from_slice(&tag),
        // Fails only for more than 64 GB. What is left must not be plaintext.
        Err(_) => envelope.truncate(start),
    }
    envelope
}

fn cipher(secret: &[u8; SECRET], binding: Binding<'_>) -> Aes256Gcm {
    let mut info = Vec::new();
    push_part(&mut info, binding.label.as_bytes());
    for part in binding.parts {
        push_part(&mut info, part);
    }
    Aes256Gcm::new((&*derive(secret, &info)).into())
}

/// The authenticated part of the head, then all parts.
fn associated_data(bound: &[u8], binding: Binding<'_>) -> Vec<u8> {
    let mut data = bound.to_vec();
    for part in binding.parts {
        push_part(&mut data, part);
    }
    data
}

/// Writes a part after its length, so that no two lists of parts give the same bytes.
pub(crate) fn push_part(bytes: &mut Vec<u8>, part: &[u8]) {
    // Parts are ids and names; none is ever as long as 4 GB.
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(part);
}

/// HKDF-SHA256 without salt.
pub(crate) fn derive(secret: &[u8], info: &[u8]) -> Zeroizing<[u8; SECRET]> {
    let mut key = Zeroizing::new([0; SECRET]);
    // Fails only for keys longer than 255 hashes; ours is one hash long.
    let _ = Hkdf::<Sha256>::new(None, secret).expand(info, key.as_mut_slice());
    key
}
