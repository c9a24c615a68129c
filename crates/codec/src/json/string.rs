//! The content of JSON strings: decoding and writing escapes.

use std::borrow::Cow;

use crate::search::{Specials, special};

/// Decodes an escaped string piece by piece, without building it.
///
/// A lone surrogate has no UTF-8 and becomes a replacement character.
pub fn decode_pieces(raw: &[u8], mut piece: impl FnMut(&[u8])) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (plain, escape) = rest.split_at(at);
        if !plain.is_empty() {
            piece(plain);
        }
        let (character, used) = decode_escape(escape);
        piece(character.encode_utf8(&mut [0; 4]).as_bytes());
        rest = escape.get(used..).unwrap_or_default();
    }
    if !rest.is_empty() {
        piece(rest);
    }
}

/// Decodes an escaped string. The result is borrowed if nothing is escaped. Invalid UTF-8 becomes
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

/// Escapes a text for use between the quotes of a JSON string.
pub(crate) fn escape(text: &str, out: &mut String) {
    escape_pieces(text, |piece| out.push_str(piece));
}

/// Like [`escape`], into bytes.
pub(crate) fn escape_bytes(text: &str, out: &mut Vec<u8>) {
    escape_pieces(text, |piece| out.extend_from_slice(piece.as_bytes()));
}

/// Writes a text as a JSON string, with quotes.
pub(crate) fn quote_bytes(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    escape_bytes(text, out);
    out.push(b'"');
}

fn escape_pieces(text: &str, mut piece: impl FnMut(&str)) {
    let bytes = text.as_bytes();
    let mut written = 0;
    // Most short texts have no special byte, and `special` is faster for those.
    for at in Specials::new(bytes, special(bytes, 0)) {
        if written < at {
            piece(&text[written..at]);
        }
        // The usual ones are constants, so that they are stored without a call.
        match bytes[at] {
            b'"' => piece("\\\""),
            b'\\' => piece("\\\\"),
            b'\n' => piece("\\n"),
            control => piece(CONTROLS.get(usize::from(control)).unwrap_or(&"")),
        }
        written = at + 1;
    }
    if written < text.len() {
        piece(&text[written..]);
    }
}

/// The escapes of control characters, indexed by their code.
const CONTROLS: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b",
    "\\t", "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012",
    "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a",
    "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
];

/// Decodes the escape at the start. Also returns its length in bytes.
fn decode_escape(escape: &[u8]) -> (char, usize) {
    // The strict reader rejects unknown escapes. Here they must only not panic.
    let length = if escape.get(1) == Some(&b'u') { 6 } else { 2 };
    read_escape(escape).unwrap_or((char::REPLACEMENT_CHARACTER, length))
}

/// Reads the escape at the start. Also returns its length in bytes. `None` for an unknown escape and
/// for a lone surrogate.
pub(super) fn read_escape(escape: &[u8]) -> Option<(char, usize)> {
    let simple = |character| Some((character, 2));
    match escape.get(1)? {
        b'"' => simple('"'),
        b'\\' => simple('\\'),
        b'/' => simple('/'),
        b'b' => simple('\u{8}'),
        b'f' => simple('\u{c}'),
        b'n' => simple('\n'),
        b'r' => simple('\r'),
        b't' => simple('\t'),
        b'u' => read_unicode(escape),
        _ => None,
    }
}

fn read_unicode(escape: &[u8]) -> Option<(char, usize)> {
    let unit = unit(escape)?;
    if let Some(character) = char::from_u32(unit) {
        return Some((character, 6));
    }
    if let 0xd800..=0xdbff = unit
        && let Some(low @ 0xdc00..=0xdfff) = escape.get(6..).and_then(self::unit)
        && let Some(character) = char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))
    {
        return Some((character, 12));
    }
    None
}

/// The code unit in `\uXXXX`.
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
    fn decodes_every_escape() {
        assert_eq!(
            decode(br#"a\n\t\"\\\/\b\f\r\u00e9\ud83e\udde0z"#),
            "a\n\t\"\\/\u{8}\u{c}\ré🧠z"
        );
        assert!(matches!(decode("plain é".as_bytes()), Cow::Borrowed(_)));
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        assert_eq!(decode(br"a\ud800x"), "a\u{fffd}x");
        assert_eq!(decode(br"\ud800\ud83e\udde0"), "\u{fffd}🧠");
        assert_eq!(decode(br"\udde0"), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn decodes_strings_written_by_serde_json(text in any::<String>()) {
            let quoted = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(decode(&quoted.as_bytes()[1..quoted.len() - 1]), text);
        }

        #[test]
        fn quotes_like_serde_json(text in r#"[\x00-\x7f"\\é🧠]{0,40}"#) {
            let mut quoted = Vec::new();
            quote_bytes(&text, &mut quoted);
            prop_assert_eq!(quoted, serde_json::to_vec(&text).unwrap());
        }

        #[test]
        fn decode_accepts_arbitrary_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = decode(&bytes);
        }
    }
}
