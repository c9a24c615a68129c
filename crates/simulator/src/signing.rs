//! Signatures over thinking: how they are made and opened, and how their kinds differ.
//!
//! A signature is the base64 of a payload with everything the verifier needs, because the simulator
//! stores no conversations. Each dialect has its own kinds and prefixes, and its own refusals of a
//! bad signature.

use base64::Engine as _;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD, URL_SAFE};
use sha2::{Digest, Sha256};

/// A SHA-256 digest.
pub(crate) type Hash = [u8; 32];

/// These three bytes are `++//` in base64: a carrier that mangles the standard
/// alphabet breaks on every signature instead of on one in thousands.
const MAGIC: [u8; 3] = [0xfb, 0xef, 0xff];
const VERSION: u8 = 1;
/// The first bytes of a Fernet token, `gAAAAABp` in base64url, then `--__` for the same reason.
const TOKEN: [u8; 9] = [0x80, 0, 0, 0, 0, 0x69, 0xfb, 0xef, 0xff];
const HEAD: usize = TOKEN.len() + 1 + 1 + 1 + 8 + 32 + 32 + 1;
const MAC: usize = 32;

/// Hashes a list of parts so that no two different lists share an input.
pub(crate) fn hash(parts: &[&[u8]]) -> Hash {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// HMAC-SHA256 (RFC 2104).
pub(crate) fn hmac(key: &[u8], message: &[u8]) -> Hash {
    const BLOCK: usize = 64;
    let mut padded = [0u8; BLOCK];
    if key.len() > BLOCK {
        let digest: Hash = Sha256::digest(key).into();
        padded[..digest.len()].copy_from_slice(&digest);
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let inner =
        Sha256::new().chain_update(padded.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

/// The kind of block a payload belongs to. A signature of one kind is not valid for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignatureKind {
    /// A signature next to readable or omitted text.
    Thinking = 1,
    /// The whole of a redacted block.
    Redacted = 2,
    /// Gemini's `thoughtSignature` on a part.
    Thought = 3,
    /// `encrypted_content` of a reasoning item in Responses.
    Encrypted = 4,
    /// Signatures of OpenAI chat variants, on details, blocks and calls.
    Detail = 5,
    /// The signature of Anthropic's summary of earlier turns.
    Summary = 6,
    /// `encrypted_content` of a compaction in Responses.
    Compaction = 7,
}

impl SignatureKind {
    /// The alphabet and the first bytes, by which a client can recognise the provider.
    fn look(self) -> (&'static GeneralPurpose, &'static [u8]) {
        match self {
            Self::Encrypted | Self::Compaction => (&URL_SAFE, &TOKEN),
            Self::Thinking | Self::Redacted | Self::Thought | Self::Detail | Self::Summary => {
                (&STANDARD, &MAGIC)
            }
        }
    }
}

/// What a signature protects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    /// The family of the model that thought.
    pub(crate) family: &'a str,
    /// The text as the client sees it; empty when it is omitted or redacted.
    pub(crate) shown: &'a str,
    /// The reasoning itself, sealed into the payload.
    pub(crate) hidden: &'a str,
    /// Hash of everything that came before the block.
    pub(crate) prefix: Hash,
    /// Makes the signatures of two blocks with equal text differ.
    pub(crate) nonce: u64,
    /// The number of thinking blocks before it in the same reply, where that counts.
    pub(crate) ordinal: u8,
}

/// A signature that this identity made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) family: String,
    pub(crate) shown: Hash,
    pub(crate) prefix: Hash,
    pub(crate) ordinal: u8,
    pub(crate) hidden: String,
}

/// Makes and opens the signatures of one identity.
pub(crate) struct Signer {
    key: Hash,
}

impl Signer {
    /// The key depends on the name only, so two processes with one identity accept each other's
    /// blocks, as two hosts of one provider do.
    pub(crate) fn new(identity: &str) -> Self {
        Self { key: hash(&[b"throughline simulator", identity.as_bytes()]) }
    }

    /// Signs a block.
    pub(crate) fn sign(&self, kind: SignatureKind, claim: &Claim<'_>) -> String {
        let family = &claim.family.as_bytes()[..claim.family.len().min(255)];
        let nonce = claim.nonce.to_be_bytes();
        let (alphabet, magic) = kind.look();
        let mut payload = Vec::with_capacity(HEAD + family.len() + claim.hidden.len() + MAC);
        payload.extend_from_slice(magic);
        payload.push(VERSION);
        payload.push(kind as u8);
        payload.push(claim.ordinal);
        payload.extend_from_slice(&nonce);
        payload.extend_from_slice(&hash(&[claim.shown.as_bytes()]));
        payload.extend_from_slice(&claim.prefix);
        payload.push(family.len() as u8);
        payload.extend_from_slice(family);
        payload.extend(self.mask(&nonce, claim.hidden.as_bytes()));
        let mac = hmac(&self.key, &payload);
        payload.extend_from_slice(&mac);
        alphabet.encode(payload)
    }

    /// Opens a signature. Returns `None` if it is malformed, altered or from another identity.
    pub(crate) fn open(&self, kind: SignatureKind, signature: &str) -> Option<Opened> {
        let (alphabet, magic) = kind.look();
        let payload = alphabet.decode(signature).ok()?;
        let signed = payload.len().checked_sub(MAC)?;
        let (signed, mac) = payload.split_at_checked(signed)?;
        if hmac(&self.key, signed) != mac {
            return None;
        }
        let rest = signed.strip_prefix(magic)?;
        let (&[version, made_as, ordinal], rest) = rest.split_first_chunk()?;
        if version != VERSION || made_as != kind as u8 {
            return None;
        }
        let (nonce, rest) = rest.split_first_chunk::<8>()?;
        let (&shown, rest) = rest.split_first_chunk::<32>()?;
        let (&prefix, rest) = rest.split_first_chunk::<32>()?;
        let (&length, rest) = rest.split_first()?;
        let (family, hidden) = rest.split_at_checked(usize::from(length))?;
        let family = String::from_utf8(family.to_vec()).ok()?;
        let hidden = String::from_utf8(self.mask(nonce, hidden)).ok()?;
        Some(Opened { family, shown, prefix, ordinal, hidden })
    }

    /// Seals a text, or opens a sealed one.
    fn mask(&self, nonce: &[u8; 8], text: &[u8]) -> Vec<u8> {
        let masked = text.chunks(32).enumerate().flat_map(|(index, block)| {
            let counter = (index as u64).to_be_bytes();
            let stream = hmac(&self.key, &[&b"seal"[..], nonce, &counter].concat());
            block.iter().zip(stream).map(|(byte, mask)| byte ^ mask).collect::<Vec<_>>()
        });
        masked.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn claim(shown: &str) -> Claim<'_> {
        Claim {
            family: "opus-5-5",
            shown,
            hidden: "a longer line of reasoning than one mask block holds",
            prefix: [7; 32],
            nonce: 42,
            ordinal: 2,
        }
    }

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        assert_eq!(
            hex(&hmac(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&hmac(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(&hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn signature_opens_for_its_own_identity_only() {
        let signature = Signer::new("one").sign(SignatureKind::Thinking, &claim("text"));
        let opened = Signer::new("one").open(SignatureKind::Thinking, &signature).unwrap();
        assert_eq!(opened.family, "opus-5-5");
        assert_eq!((opened.prefix, opened.ordinal), ([7; 32], 2));
        assert_eq!(opened.shown, hash(&[b"text"]));
        assert_eq!(Signer::new("two").open(SignatureKind::Thinking, &signature), None);
        assert_eq!(Signer::new("one").open(SignatureKind::Redacted, &signature), None);
    }

    #[test]
    fn signature_uses_the_whole_alphabet_and_padding() {
        let signature = Signer::new("one").sign(SignatureKind::Thinking, &claim("text"));
        assert!(signature.starts_with("++//"));
        assert_eq!(signature.len() % 4, 0);
        assert!(!signature.contains("reasoning"));
    }

    #[test]
    fn signature_has_its_dialects_prefix_and_opens_as_its_own_kind_only() {
        let kinds = [
            (SignatureKind::Thinking, "++//"),
            (SignatureKind::Redacted, "++//"),
            (SignatureKind::Thought, "++//"),
            (SignatureKind::Encrypted, "gAAAAABp--__"),
            (SignatureKind::Detail, "++//"),
        ];
        let signer = Signer::new("one");
        for (made, start) in kinds {
            let blob = signer.sign(made, &claim("text"));
            assert!(blob.starts_with(start), "{made:?}: {blob}");
            for (opened, _) in kinds {
                let own = signer.open(opened, &blob).is_some();
                assert_eq!(own, made == opened, "{made:?} as {opened:?}");
                assert_eq!(Signer::new("two").open(opened, &blob), None);
            }
        }
    }

    #[test]
    fn any_changed_character_invalidates_the_signature() {
        let signer = Signer::new("one");
        let signature = signer.sign(SignatureKind::Thinking, &claim("text"));
        for position in 0..signature.len() {
            let mut changed = signature.clone().into_bytes();
            changed[position] = if changed[position] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(signer.open(SignatureKind::Thinking, &changed), None, "{position}");
        }
        assert_eq!(signer.open(SignatureKind::Thinking, ""), None);
        assert_eq!(signer.open(SignatureKind::Thinking, &signature[4..]), None);
    }
}
