//! The inside of a JSON string: escapes out, text in.

use std::borrow::Cow;

/// Gives the text of an escaped string piece by piece, without building it.
///
/// A lone surrogate has no UTF-8; it is given as the three bytes of its number, so that two
/// spellings of different strings never give the same bytes.
pub fn decode_pieces(raw: &[u8], mut piece: impl FnMut(&[u8])) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        if !plain.is_empty() {
            piece(plain);
        }
        let (decoded, used) = decode_escape(escape);
        match decoded {
            Decoded::Char(character) => {
                let mut buffer = [0; 4];
                piece(character.encode_utf8(&mut buffer).as_bytes());
            }
            Decoded::Surrogate(unit) => piece(&[
                0xe0 | (unit >> 12) as u8,
                0x80 | (unit >> 6 & 0x3f) as u8,
                0x80 | (unit & 0x3f) as u8,
            ]),
        }
        rest = escape.get(used..).unwrap_or_default();
    }
    if !rest.is_empty() {
        piece(rest);
    }
}

/// The text of an escaped string; borrowed where nothing is escaped. What is not UTF-8 becomes
/// replacement characters.
pub fn decode(raw: &[u8]) -> Cow<'_, str> {
    if memchr::memchr(b'\\', raw).is_none() {
        return String::from_utf8_lossy(raw);
    }
    let mut text = Vec::with_capacity(raw.len());
    decode_pieces(raw, |piece| text.extend_from_slice(piece));
    Cow::Owned(match String::from_utf8(text) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

enum Decoded {
    Char(char),
    Surrogate(u32),
}

/// What the escape at the beginning stands for, and how many bytes it takes.
fn decode_escape(escape: &[u8]) -> (Decoded, usize) {
    let simple = |character| (Decoded::Char(character), 2);
    match escape.get(1) {
        Some(b'"') => simple('"'),
        Some(b'\\') => simple('\\'),
        Some(b'/') => simple('/'),
        Some(b'b') => simple('\u{8}'),
        Some(b'f') => simple('\u{c}'),
        Some(b'n') => simple('\n'),
        Some(b'r') => simple('\r'),
        Some(b't') => simple('\t'),
        Some(b'u') => decode_unicode(escape),
        // The reader refuses such strings; here they only must do no harm.
        _ => (Decoded::Char(char::REPLACEMENT_CHARACTER), 2),
    }
}

fn decode_unicode(escape: &[u8]) -> (Decoded, usize) {
    let Some(unit) = unit(escape) else {
        return (Decoded::Char(char::REPLACEMENT_CHARACTER), 6);
    };
    if let Some(character) = char::from_u32(unit) {
        return (Decoded::Char(character), 6);
    }
    if let 0xd800..=0xdbff = unit
        && let Some(low @ 0xdc00..=0xdfff) = escape.get(6..).and_then(self::unit)
        && let Some(character) = char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
    {
        return (Decoded::Char(character), 12);
    }
    (Decoded::Surrogate(unit), 6)
}

/// The number in `\uXXXX`.
fn unit(escape: &[u8]) -> Option<u32> {
    if escape.get(..2) != Some(b"\\u") {
        return None;
    }
    let digits = std::str::from_utf8(escape.get(2..6)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escapes_become_text() {
        assert_eq!(
            decode(br#"a\n\t\"\\\/\b\f\r\u00e9\ud83e\udde0z"#),
            "a\n\t\"\\/\u{8}\u{c}\ré🧠z"
        );
        assert!(matches!(decode("plain é".as_bytes()), Cow::Borrowed(_)));
    }

    #[test]
    fn lone_surrogates_stay_apart() {
        let bytes = |raw: &[u8]| {
            let mut all = Vec::new();
            decode_pieces(raw, |piece| all.extend_from_slice(piece));
            all
        };
        assert_ne!(bytes(br"\ud800"), bytes(br"\ud801"));
        assert_ne!(bytes(br"\ud800"), bytes(br"\udc00"));
        assert_eq!(bytes(br"\ud800x"), [0xed, 0xa0, 0x80, b'x']);
    }

    proptest! {
        #[test]
        fn what_serde_json_writes_we_read(text in any::<String>()) {
            let quoted = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(decode(&quoted.as_bytes()[1..quoted.len() - 1]), text);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }
}
