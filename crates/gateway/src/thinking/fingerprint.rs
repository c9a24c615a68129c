//! Fingerprints of long texts: the ids of conversations and the keys of stored turns.
//!
//! They cover much of the history of every request, so they use BLAKE3, which is several times faster
//! than SHA-256. They only find things. What proves something uses SHA-256 or an authenticated
//! cipher: hashes of blocks, prefixes, envelopes.

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

    /// Adds bytes without their length, so that their borders do not count.
    pub(crate) fn join(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.update(bytes.as_ref());
    }

    pub(crate) fn finish(&self) -> [u8; 16] {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0.finalize().as_bytes()[..16]);
        half
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
}
