//! Random nonces, ids and secrets. The gateway uses no other source of randomness.

use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use throughline_sealing::{EnvelopeNonce, Nonce};

/// A nonce that was never used before.
pub fn nonce() -> Nonce {
    let mut nonce = Nonce::default();
    match getrandom::fill(&mut nonce) {
        Ok(()) => nonce,
        Err(_) => counter_nonce(),
    }
}

/// A nonce for the envelope of a field. It was never used before.
pub fn envelope_nonce() -> EnvelopeNonce {
    let mut short = EnvelopeNonce::default();
    short.copy_from_slice(&nonce()[..size_of::<EnvelopeNonce>()]);
    short
}

/// An id that cannot be guessed.
pub fn id() -> String {
    throughline_canonical::thinking::hex(&nonce()[..12])
}

/// The system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness;

/// Bytes that cannot be guessed. Unlike a nonce, a secret has no replacement without system
/// randomness.
pub fn secret<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// A nonce must be new but need not be secret, so the gateway can continue without system
/// randomness.
fn counter_nonce() -> Nonce {
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
    fn nonces_do_not_repeat() {
        let made: HashSet<Nonce> = (0..1000).flat_map(|_| [nonce(), counter_nonce()]).collect();
        assert_eq!(made.len(), 2000);
    }
}
