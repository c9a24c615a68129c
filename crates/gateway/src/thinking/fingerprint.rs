//! Fingerprints of texts: the ids of conversations and the keys of stored turns.
//!
//! They cover much of the history of every request, so they must be fast. They only find things. What
//! proves something uses SHA-256 or an authenticated cipher: hashes of blocks, prefixes, envelopes.
//!
//! A [`Fingerprint`] is BLAKE3: two conversations that have the same one cannot be made. A
//! [`TextHash`] is XXH3, which is many times faster for the short texts of a conversation and does not
//! resist an attacker. So it is only a part of fingerprints of one caller's conversation.

use twox_hash::XxHash3_128;

/// A fingerprint of parts, in order.
#[derive(Debug, Default)]
pub(crate) struct Fingerprint(blake3::Hasher);

impl Fingerprint {
    /// The fingerprint of these parts.
    pub(crate) fn of(parts: &[&[u8]]) -> [u8; 16] {
        let mut fingerprint = Self::default();
        parts.iter().for_each(|part| fingerprint.add(part));
        fingerprint.finish()
    }

    /// Adds a part with its length, so that the border between two parts counts.
    pub(crate) fn add(&mut self, part: impl AsRef<[u8]>) {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
    }

    pub(crate) fn finish(&self) -> [u8; 16] {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        half
    }
}

/// A hash of a text.
#[derive(Default)]
pub(crate) struct TextHash(XxHash3_128);

impl TextHash {
    /// The hash of a whole text.
    pub(crate) fn of(text: &str) -> [u8; 16] {
        XxHash3_128::oneshot(text.as_bytes()).to_le_bytes()
    }

    /// Adds words. Their borders do not count.
    pub(crate) fn join(&mut self, words: &str) {
        self.0.write(words.as_bytes());
    }

    pub(crate) fn finish(&self) -> [u8; 16] {
        self.0.finish_128().to_le_bytes()
    }
}

impl std::fmt::Debug for TextHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("TextHash").field(&self.finish()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_depends_on_the_borders_of_parts() {
        assert_ne!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"a", b"bc"]));
        assert_ne!(Fingerprint::of(&[b"abc"]), Fingerprint::of(&[b"abc", b""]));
        assert_eq!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"ab", b"c"]));
    }

    #[test]
    fn text_hash_depends_on_the_text_alone() {
        let long = "word ".repeat(1_000);
        for text in ["", "abc", &long] {
            let mut joined = TextHash::default();
            let (begin, end) = text.split_at(text.len() / 3);
            [begin, end].into_iter().for_each(|words| joined.join(words));
            assert_eq!(joined.finish(), TextHash::of(text));
        }
        assert_ne!(TextHash::of("abc"), TextHash::of("abd"));
    }
}
