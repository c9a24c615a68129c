//! Completes a JSON text that was cut, so that a client can parse it and read the error in it.

use super::cursor::BitStack;

/// What the current container expects at this position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// A first member or element, or the end.
    First,
    /// A key, after a comma.
    Key,
    /// A colon, after a key.
    Colon,
    /// A value, after a colon or a comma.
    Value,
    /// A comma or the end, after a value.
    Comma,
}

/// Writes the bytes that are missing at the end of a cut object, with one more member at its end.
/// Returns false, and writes nothing, if `half` is not a cut object.
pub(crate) fn complete_object(half: &[u8], member: &[u8], out: &mut Vec<u8>) -> bool {
    let half = half.trim_ascii_start();
    if half.first() != Some(&b'{') {
        return false;
    }
    let start = out.len();
    let mut open = BitStack::default();
    let mut expected = Expected::Value;
    let mut at = 0;
    while let Some(&byte) = half.get(at) {
        at += 1;
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'[' => {
                open.push(byte == b'{');
                expected = Expected::First;
            }
            b'}' | b']' => {
                open.pop();
                expected = Expected::Comma;
            }
            b',' if open.last() => expected = Expected::Key,
            b',' | b':' => expected = Expected::Value,
            b'"' => {
                let key = open.last() && expected != Expected::Value;
                match end_of_string(half, at) {
                    Some(end) => at = end,
                    None => {
                        finish_string(half.get(at..).unwrap_or_default(), out);
                        at = half.len();
                    }
                }
                expected = if key { Expected::Colon } else { Expected::Comma };
            }
            _ => {
                let rest = half.get(at - 1..).unwrap_or_default();
                let scalar = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
                let length = rest.iter().take_while(|byte| scalar(byte)).count();
                if length == rest.len() {
                    finish_scalar(rest, out);
                }
                at += length.max(1) - 1;
                expected = Expected::Comma;
            }
        }
        if open.count() == 0 {
            // The text does not begin with an object, or the object is complete.
            out.truncate(start);
            return false;
        }
    }
    loop {
        let (object, last) = (open.last(), open.count() == 1);
        match expected {
            Expected::Colon => out.extend_from_slice(b":null"),
            Expected::Value => out.extend_from_slice(b"null"),
            Expected::Key if !last => out.extend_from_slice(b"\"\":null"),
            Expected::Key | Expected::First | Expected::Comma => {}
        }
        if last {
            if !matches!(expected, Expected::Key | Expected::First) {
                out.push(b',');
            }
            out.extend_from_slice(member);
            out.push(b'}');
            return true;
        }
        out.push(if object { b'}' } else { b']' });
        open.pop();
        expected = Expected::Comma;
    }
}

/// Returns the position after the closing quote of the string whose text starts at `at`.
fn end_of_string(half: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at = crate::search::special(half, at);
        match half.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Completes a string of which `text` has arrived.
fn finish_string(text: &[u8], out: &mut Vec<u8>) {
    // Where the second half of a surrogate pair must follow.
    let mut pending = None;
    let mut at = 0;
    let cut = loop {
        let Some(found) = memchr::memchr(b'\\', text.get(at..).unwrap_or_default()) else {
            break None;
        };
        let from = at + found;
        let length = if text.get(from + 1) == Some(&b'u') { 6 } else { 2 };
        let Some(escape) = text.get(from..from + length) else {
            break Some(from);
        };
        let second = pending == Some(from);
        at = from + length;
        pending = (!second && escape.get(2..).is_some_and(is_high)).then_some(at);
    };
    let from = cut.unwrap_or(text.len());
    let escape = text.get(from..).unwrap_or_default();
    if pending == Some(from) {
        out.extend_from_slice(&b"\\udc00"[escape.len()..]);
    } else if let [_, _, digits @ ..] = escape {
        let mut whole = digits.to_vec();
        whole.resize(4, b'0');
        out.extend_from_slice(&whole[digits.len()..]);
        if is_high(&whole) {
            out.extend_from_slice(b"\\udc00");
        }
    } else {
        out.extend_from_slice(escape);
    }
    finish_character(text, out);
    out.push(b'"');
}

/// Whether an escape is the first half of a surrogate pair.
fn is_high(digits: &[u8]) -> bool {
    matches!(digits, [b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..])
}

fn finish_scalar(text: &[u8], out: &mut Vec<u8>) {
    for word in [&b"true"[..], b"false", b"null"] {
        if let (true, Some(rest)) = (word.starts_with(text), word.get(text.len()..)) {
            return out.extend_from_slice(rest);
        }
    }
    if let Some(b'-' | b'+' | b'.' | b'e' | b'E') = text.last() {
        out.push(b'0');
    }
}

/// Completes a character that was cut. Some clients stop at bytes that are not UTF-8 and would
/// never see the error after them.
pub(crate) fn finish_character(half: &[u8], bytes: &mut Vec<u8>) {
    let tail = &half[half.len().saturating_sub(3)..];
    let Some(at) = tail.iter().rposition(|byte| byte & 0xc0 != 0x80) else {
        return;
    };
    let (lead, have) = (tail[at], tail.len() - at);
    let length = match lead {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return,
    };
    for at in have..length {
        // After these lead bytes, 0x80 is not a valid second byte.
        bytes.push(match (at, lead) {
            (1, 0xe0) => 0xa0,
            (1, 0xf0) => 0x90,
            _ => 0x80,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_cut_character_is_completed() {
        for character in ["\u{80}", "\u{800}", "\u{d7ff}", "\u{ffff}", "\u{10000}", "\u{10ffff}"] {
            for cut in 1..character.len() {
                let mut bytes = [b"abc", &character.as_bytes()[..cut]].concat();
                finish_character(&bytes.clone(), &mut bytes);
                let text = String::from_utf8(bytes).unwrap();
                assert_eq!(text.chars().count(), 4, "{character:?} cut at {cut}");
            }
        }
        for whole in ["", "a", "\u{e9}", "\u{20ac}", "\u{1f914}"] {
            let mut bytes = Vec::new();
            finish_character(whole.as_bytes(), &mut bytes);
            assert!(bytes.is_empty(), "{whole}");
        }
    }

    #[test]
    fn an_object_cut_anywhere_becomes_valid_json() {
        let text = r#" { "a" : [1, -2.5e+3, true , false, null, "x\"é€🤔\u00e9\ud83e\udd14\\" , {}, []] , "b" : { "c":{"d":[[{"e":"f"}]]}}, "":0.5,"g":-1}"#;
        for cut in 0..text.len() {
            let half = &text.as_bytes()[..cut];
            let mut whole = half.to_vec();
            let completed = complete_object(half, br#""error":{"m":1}"#, &mut whole);
            if cut < 2 {
                assert!(!completed && whole == half);
                continue;
            }
            assert!(completed, "cut at {cut}");
            let shown = String::from_utf8(whole).unwrap();
            let value: Value =
                serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(value["error"]["m"], 1, "{shown}");
        }
    }

    #[test]
    fn input_that_is_no_cut_object_is_left_unchanged() {
        for text in ["", "  ", "[DONE", "[1", "\"a", "{}", "{\"a\":1} ", "x", "]"] {
            let mut out = Vec::new();
            let completed = complete_object(text.as_bytes(), b"\"error\":1", &mut out);
            assert!(!completed && out.is_empty(), "{text}");
        }
    }
}
