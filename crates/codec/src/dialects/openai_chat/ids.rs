//! Call ids for servers with strict rules.

use std::borrow::Cow;

use sha2::{Digest, Sha256};
use throughline_canonical::{Loss, LossReason, LossSubject};

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The loss of the original spelling of an id.
pub(super) const SPELLED: Loss =
    Loss::SettingAdapted { setting: LossSubject::ToolCallId, reason: LossReason::Characters };

/// The id if it has nine letters and digits, else a hash of nine. The hash is deterministic, so
/// call and result match, also in later turns.
pub(super) fn nine_letters(id: &str) -> Cow<'_, str> {
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    let hash = Sha256::digest(id.as_bytes());
    let letters = hash.iter().take(9).map(|byte| {
        let letter = LETTERS[usize::from(*byte) % LETTERS.len()];
        char::from(letter)
    });
    Cow::Owned(letters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_nine_letters_and_stay_distinct() {
        assert_eq!(nine_letters("D681PevKs"), "D681PevKs");
        let spelled: Vec<_> = ["", "call_1", "call_2", "toolu_01A2b3C4d5", "D681PevK\u{df}"]
            .into_iter()
            .map(nine_letters)
            .collect();
        for (at, id) in spelled.iter().enumerate() {
            assert_eq!(nine_letters(id), *id, "{id}");
            assert!(!spelled[..at].contains(id), "{id}");
        }
    }
}
