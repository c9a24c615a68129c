//! Sealed bytes as text, for fields that must hold base64.
//!
//! Some clients decode such a field and encode it again, in the URL-safe alphabet or without padding.
//! The text survives that: it starts with letters that both alphabets share, and both alphabets are
//! read.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The start of every such text.
pub const PREFIX: &str = "TLine1";

/// `TLine1` and two more letters are exactly six bytes, so that the text of the sealed bytes does not
/// depend on them.
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

/// Reads sealed bytes from text; `None` if the text is not one of ours.
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
    fn other_text_is_not_read() {
        for text in
            ["", "EqQBCkYIBxgCKkD", "TLine1", "TLine1AA!", "skip_thought_signature_validator"]
        {
            assert_eq!(read(text), None, "{text}");
        }
        assert!(HEAD.starts_with(PREFIX));
    }

    proptest! {
        #[test]
        fn text_survives_decoding_and_encoding(
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
