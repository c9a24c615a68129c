//! Names of items: a call's says whether it was made with reasoning, and with which.
//!
//! The provider knows what belongs together from its own records. The simulator keeps none of what
//! is not stored, so the name itself has to tell.

use crate::signing::{Hash, hash};

/// How long the part is that both names share.
const STEM: usize = 24;
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

/// The reasoning item a call was made with; nothing where it had none or is not of this identity.
pub(crate) fn required(identity: &str, id: &str) -> Option<String> {
    let rest = id.strip_prefix("fc_")?;
    let (stem, rest) = rest.split_at_checked(STEM)?;
    let (index, mark) = rest.split_at_checked(2)?;
    (mark == proof(identity, stem, index)).then(|| reasoning(stem))
}

fn proof(identity: &str, stem: &str, index: &str) -> String {
    let parts: [&[u8]; 4] =
        [b"made with reasoning", identity.as_bytes(), stem.as_bytes(), index.as_bytes()];
    let digest: Hash = hash(&parts);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(PROOF).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_names_the_reasoning_it_came_from() {
        let stem = "01abcdefghijkmnopqrstuvw";
        let id = call("one", stem, 3);
        assert_eq!(required("one", &id), Some(reasoning(stem)));
        assert_eq!(required("two", &id), None);
        for other in ["fc_1", "call_1", "fc_", &id[..id.len() - 1], "fc_ééééééééééééé"]
        {
            assert_eq!(required("one", other), None, "{other}");
        }
    }
}
