//! Keys from a passphrase. Argon2id makes each guess expensive; its settings are stored with the
//! user, so that they can grow later.

use argon2::{Algorithm, Argon2, Params, Version};
use unicode_normalization::UnicodeNormalization;
use zeroize::Zeroizing;

use crate::keyring::SECRET;
use crate::user_keys::UserKeys;

/// The smallest memory that is accepted. Settings come from the server, and a dishonest one could
/// ask for a cheap proof that it can guess from.
pub const MIN_MEMORY_KIB: u32 = 64 * 1024;
/// The largest memory, so that settings cannot exhaust the client's.
pub const MAX_MEMORY_KIB: u32 = 1024 * 1024;
/// The fewest passes over the memory.
pub const MIN_ITERATIONS: u32 = 3;
/// The most passes over the memory.
pub const MAX_ITERATIONS: u32 = 64;
/// The most lanes.
pub const MAX_PARALLELISM: u32 = 16;
/// The shortest salt, in bytes.
pub const MIN_SALT: usize = 16;
/// The longest salt, in bytes.
pub const MAX_SALT: usize = 64;

/// How a passphrase is stretched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassphraseSettings {
    memory_kib: u32,
    iterations: u32,
    parallelism: u32,
    salt: Vec<u8>,
}

/// Why settings are refused, or a passphrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassphraseError {
    /// Too little memory, or too much.
    #[error("{0} KiB of memory is not between {MIN_MEMORY_KIB} and {MAX_MEMORY_KIB}")]
    Memory(u32),
    /// Too few passes, or too many.
    #[error("{0} iterations is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")]
    Iterations(u32),
    /// No lane, or too many.
    #[error("a parallelism of {0} is not between 1 and {MAX_PARALLELISM}")]
    Parallelism(u32),
    /// A salt that is too short or too long.
    #[error("a salt of {0} bytes is not between {MIN_SALT} and {MAX_SALT}")]
    Salt(usize),
    /// There is no passphrase.
    #[error("the passphrase is empty")]
    Empty,
    /// The memory that Argon2id needs cannot be used.
    #[error("the passphrase cannot be stretched")]
    Stretch,
}

impl PassphraseSettings {
    /// Checks settings. The salt must be random and differ between users.
    pub fn new(
        memory_kib: u32,
        iterations: u32,
        parallelism: u32,
        salt: &[u8],
    ) -> Result<Self, PassphraseError> {
        if !(MIN_MEMORY_KIB..=MAX_MEMORY_KIB).contains(&memory_kib) {
            return Err(PassphraseError::Memory(memory_kib));
        }
        if !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(PassphraseError::Iterations(iterations));
        }
        if !(1..=MAX_PARALLELISM).contains(&parallelism) {
            return Err(PassphraseError::Parallelism(parallelism));
        }
        if !(MIN_SALT..=MAX_SALT).contains(&salt.len()) {
            return Err(PassphraseError::Salt(salt.len()));
        }
        Ok(Self { memory_kib, iterations, parallelism, salt: salt.to_vec() })
    }

    /// Derives the keys of a user. It takes a noticeable part of a second, on purpose.
    ///
    /// The passphrase is brought into Unicode's normal form C first, because keyboards differ in how
    /// they write letters with accents.
    pub fn derive(&self, passphrase: &str) -> Result<UserKeys, PassphraseError> {
        Ok(UserKeys::derive(self.stretch(passphrase)?.as_slice()))
    }

    fn stretch(&self, passphrase: &str) -> Result<Zeroizing<[u8; SECRET]>, PassphraseError> {
        if passphrase.is_empty() {
            return Err(PassphraseError::Empty);
        }
        let normal: Zeroizing<String> = Zeroizing::new(passphrase.nfc().collect());
        let params = Params::new(self.memory_kib, self.iterations, self.parallelism, Some(SECRET));
        let params = params.map_err(|_| PassphraseError::Stretch)?;
        let mut root = Zeroizing::new([0; SECRET]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(normal.as_bytes(), &self.salt, root.as_mut_slice())
            .map_err(|_| PassphraseError::Stretch)?;
        Ok(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; 16] = [7; 16];

    #[test]
    fn weak_or_excessive_settings_are_refused() {
        let long = [7; 65];
        for (memory, iterations, parallelism, salt, error) in [
            (65_535, 3, 1, &SALT[..], PassphraseError::Memory(65_535)),
            (u32::MAX, 3, 1, &SALT, PassphraseError::Memory(u32::MAX)),
            (65_536, 2, 1, &SALT, PassphraseError::Iterations(2)),
            (65_536, 65, 1, &SALT, PassphraseError::Iterations(65)),
            (65_536, 3, 0, &SALT, PassphraseError::Parallelism(0)),
            (65_536, 3, 17, &SALT, PassphraseError::Parallelism(17)),
            (65_536, 3, 1, &SALT[..15], PassphraseError::Salt(15)),
            (65_536, 3, 1, &long, PassphraseError::Salt(65)),
        ] {
            let settings = PassphraseSettings::new(memory, iterations, parallelism, salt);
            assert_eq!(settings, Err(error));
        }
    }

    #[test]
    fn passphrase_gives_the_same_keys_however_its_accents_are_written() {
        let settings = PassphraseSettings::new(65_536, 3, 1, &SALT).unwrap();
        let composed = settings.derive("caf\u{e9}").unwrap();
        assert_eq!(settings.derive("cafe\u{301}"), Ok(composed.clone()));
        assert_ne!(settings.derive("cafe"), Ok(composed));
        assert_eq!(settings.derive(""), Err(PassphraseError::Empty));
    }
}
