//! Names of items: a call's says whether it was made with reasoning, and with which.
//!
//! The provider knows what belongs together from its own records. The simulator keeps none of what
//! is not stored, so the name itself has to tell.

use crate::signing::{Hash, hash};

/// How long the proof is that the name is ours.
const PROOF: usize = 16;

/// The name of a reasoning item.
pub(crate) fn reasoning(stem: &str) -> String {
    format!("rs_{stem}")
}

/// The name of a call that the reasoning item of `stem` led to.
pub(crate) fn call(identity: &str, stem: &str, index: usize) -> String {
    let index = format!("{:02x}", index % 256);
    format!("fc_{stem}{index}{}", proof(identity, stem, &index))
}

fn proof(identity: &str, stem: &str, index: &str) -> String {
    let parts: [&[u8]; 4] = [
        b"made with reasoning",
        identity.as_bytes(),
        stem.as_bytes(),
        index.as_bytes(),
    ];
    let digest: Hash = hash(&parts);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(PROOF).collect()
}
