//! Nonces, by the dice of the system. The only dice of this crate.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use throughline_sealing::Nonce;

/// Bytes nobody has used before.
pub fn nonce() -> Nonce {
    let mut nonce = Nonce::default();
    match getrandom::fill(&mut nonce) {
        Ok(()) => nonce,
        Err(_) => counted(),
    }
}

/// Letters and digits nobody guesses.
pub fn id() -> String {
    throughline_canonical::thinking::hex(&nonce()[..12])
}

/// A nonce need not be secret, only new; so a system that has lost its dice stops nobody.
fn counted() -> Nonce {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let hash = Sha256::new()
        .chain_update(now.unwrap_or_default().as_nanos().to_le_bytes())
        .chain_update(std::process::id().to_le_bytes())
        .chain_update(COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes())
        .finalize();
    let mut nonce = Nonce::default();
    nonce.copy_from_slice(&hash[..24]);
    nonce
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_nonce_comes_twice() {
        let made: HashSet<Nonce> = (0..1000).flat_map(|_| [nonce(), counted()]).collect();
        assert_eq!(made.len(), 2000);
    }
}
