//! Item ids. The id of a call shows whether the call was made with reasoning, and with which item.
//!
//! The provider has records of which items belong together. The simulator only stores responses
//! with `store`, so the id itself carries this information.

use crate::signing::{Hash, hash};

/// Length of the part that both ids share.
const STEM_LENGTH: usize = 24;
/// Length of the proof that this identity made the id.
const PROOF_LENGTH: usize = 16;

/// The id of a reasoning item.
pub(crate) fn reasoning(stem: &str) -> String {
    format!("rs_{stem}")
}

/// The id of a call that the reasoning item of `stem` led to.
pub(crate) fn call(identity: &str, stem: &str, index: usize) -> String {
    let index = format!("{:02x}", index % 256);
    format!("fc_{stem}{index}{}", proof(identity, stem, &index))
}

/// The id of the reasoning item a call was made with. Returns `None` if it had none or if another
/// identity made the call.
pub(crate) fn required(identity: &str, id: &str) -> Option<String> {
    let rest = id.strip_prefix("fc_")?;
    let (stem, rest) = rest.split_at_checked(STEM_LENGTH)?;
    let (index, found) = rest.split_at_checked(2)?;
    (found == proof(identity, stem, index)).then(|| reasoning(stem))
}

fn proof(identity: &str, stem: &str, index: &str) -> String {
    let parts: [&[u8]; 4] =
        [b"made with reasoning", identity.as_bytes(), stem.as_bytes(), index.as_bytes()];
    let digest: Hash = hash(&parts);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(PROOF_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_id_names_the_reasoning_it_came_from() {
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
