//! Sealed bytes as text for a field that must look like base64.
//!
//! Clients decode such fields and encode them again, some in the URL-safe alphabet, some without
//! padding. The text is made so that it survives that: it begins with letters of both alphabets, and
//! either spelling is read.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// How every such text begins.
pub const BEGINNING: &str = "TLine1";

/// `TLine1` and two letters more are six bytes, so that what follows is spelled by itself.
const HEAD: &str = "TLine1AA";

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, ANY_PADDING);

/// Writes sealed bytes as text.
pub fn write(sealed: &[u8]) -> String {
    let mut text = String::with_capacity(HEAD.len() + sealed.len().div_ceil(3) * 4);
    text.push_str(HEAD);
    STANDARD.encode_string(sealed, &mut text);
    text
}

/// Reads such a text; `None` if it is none.
pub fn read(text: &str) -> Option<Vec<u8>> {
    let body = text.trim().strip_prefix(HEAD)?;
    let standard: String = body
        .chars()
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            letter => letter,
        })
        .collect();
    STANDARD.decode(standard).ok()
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_ours_is_none() {
        for text in
            ["", "EqQBCkYIBxgCKkD", "TLine1", "TLine1AA!", "skip_thought_signature_validator"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(HEAD.starts_with(BEGINNING));
    }

    proptest! {
        #[test]
        fn a_text_survives_being_decoded_and_encoded_again(
            bytes in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let text = write(&bytes);
            prop_assert_eq!(read(&text), Some(bytes.clone()));
            let decoded = BASE64_STANDARD.decode(&text).unwrap();
            for again in [
                BASE64_STANDARD.encode(&decoded),
                BASE64_URL_SAFE.encode(&decoded),
                BASE64_URL_SAFE_NO_PAD.encode(&decoded),
            ] {
                prop_assert_eq!(read(&again), Some(bytes.clone()), "{}", again);
            }
        }
    }
}
