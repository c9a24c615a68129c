//! Thinking blocks: their identity and origin.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The two kinds of block that providers sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingKind {
    /// Reasoning with a text (which may be empty) and a signature.
    Thinking,
    /// Reasoning encrypted by the provider: one opaque field without a signature.
    #[serde(rename = "redacted_thinking")]
    Redacted,
}

/// The identity of a block: SHA-256 over its kind, its text or data, and its signature.
///
/// The whole content is hashed, so blocks with equal ends and equal length differ. Blocks with
/// empty text differ by their signatures.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey(pub [u8; 32]);

impl BlockKey {
    /// The first bytes in hex, for logs.
    pub fn short(&self) -> String {
        hex(&self.0[..8])
    }
}

impl fmt::Debug for BlockKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "BlockKey({})", self.short())
    }
}

/// Computes a [`BlockKey`] from pieces, in constant memory.
#[derive(Clone)]
pub struct KeyHasher {
    hash: Sha256,
    length: u64,
}

impl KeyHasher {
    /// Starts a key for a block of this kind.
    pub fn new(kind: ThinkingKind) -> Self {
        let mut hash = Sha256::new();
        hash.update(match kind {
            ThinkingKind::Thinking => b"thinking\xff",
            ThinkingKind::Redacted => b"redacted\xff",
        });
        Self { hash, length: 0 }
    }

    /// Adds the next piece of the text or data.
    pub fn push(&mut self, piece: &[u8]) {
        self.length += piece.len() as u64;
        self.hash.update(piece);
    }

    /// Number of bytes added so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The key, given the final signature (empty if none).
    ///
    /// Base64 and base64url spell the same signature, and some clients convert one to the other.
    /// Both give the same key.
    pub fn finish(mut self, signature: &str) -> BlockKey {
        // 0xff never occurs in UTF-8, so no text can imitate this separator.
        self.hash.update([0xff]);
        let signature = signature.trim_end_matches('=');
        if signature.bytes().any(|byte| byte == b'-' || byte == b'_') {
            let standard: Vec<u8> = signature
                .bytes()
                .map(|byte| match byte {
                    b'-' => b'+',
                    b'_' => b'/',
                    other => other,
                })
                .collect();
            self.hash.update(&standard);
        } else {
            self.hash.update(signature);
        }
        BlockKey(self.hash.finalize().into())
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "KeyHasher({} bytes)", self.length)
    }
}

/// A running hash of everything before a block in its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Prefix(pub [u8; 16]);

impl Prefix {
    /// The prefix after one more piece.
    pub fn then(self, piece: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(piece);
        Self::of(hash)
    }

    /// The first sixteen bytes of a finished hash.
    pub fn of(hash: Sha256) -> Self {
        let full: [u8; 32] = hash.finalize().into();
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        Self(half)
    }
}

/// The origin of a block. Only the domain decides who can read the block. The rest is recorded
/// because some models bind blocks more narrowly.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The group of backends that accept each other's signatures.
    pub domain: String,
    /// The backend that answered.
    pub backend: String,
    /// The backend's name of the model.
    pub model: String,
    /// A fingerprint of the credential; empty if none was sent.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub credential: String,
}

/// Formats bytes as lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from(b"0123456789abcdef"[usize::from(half)]);
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 0xf));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: ThinkingKind, text: &str, signature: &str) -> BlockKey {
        let mut hasher = KeyHasher::new(kind);
        hasher.push(text.as_bytes());
        hasher.finish(signature)
    }

    #[test]
    fn pieces_and_the_whole_have_one_key() {
        let mut hasher = KeyHasher::new(ThinkingKind::Thinking);
        for piece in ["Let ", "", "me ", "think"] {
            hasher.push(piece.as_bytes());
        }
        assert_eq!(hasher.length(), 12);
        assert_eq!(hasher.finish("sig"), key(ThinkingKind::Thinking, "Let me think", "sig"));
    }

    /// Covers: C-6
    #[test]
    fn kind_text_and_signature_distinguish_blocks() {
        let names = [
            key(ThinkingKind::Thinking, "a", "s"),
            key(ThinkingKind::Redacted, "a", "s"),
            key(ThinkingKind::Thinking, "b", "s"),
            key(ThinkingKind::Thinking, "a", "t"),
            key(ThinkingKind::Thinking, "as", ""),
            key(ThinkingKind::Thinking, "", "as"),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(names[at + 1..].iter().all(|other| other != one));
        }
    }

    /// Covers: S1-13, S1-14, S1-43
    #[test]
    fn equal_ends_and_length_do_not_collide() {
        let block = |middle: char| {
            let edge = "🧠".repeat(100);
            format!("{edge}{middle}{edge}")
        };
        assert_ne!(
            key(ThinkingKind::Thinking, &block('x'), "s"),
            key(ThinkingKind::Thinking, &block('y'), "s")
        );
        assert_ne!(
            key(ThinkingKind::Thinking, &"🧠".repeat(64), "s"),
            key(ThinkingKind::Thinking, &"🧠".repeat(65), "s")
        );
    }

    #[test]
    fn both_base64_alphabets_give_one_key() {
        assert_eq!(
            key(ThinkingKind::Thinking, "a", "+/+/Zg=="),
            key(ThinkingKind::Thinking, "a", "-_-_Zg")
        );
    }
}
