//! The content of a string in a syntax that is not JSON, while it streams: its escapes and its
//! closing quote.

use super::hex::{Hex, read_hex, read_low_surrogate};
use super::json_writer::JsonWriter;
use crate::search::special_or;

/// A string that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quoted {
    /// The closing quote.
    quote: &'static str,
    /// Whether a backslash has the same meaning as in Python.
    escapes: bool,
    /// Whether the text is escaped for JSON, or written unchanged.
    to_json: bool,
}

/// How far a string was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StringProgress {
    /// This many bytes are used, and the string continues.
    Inside(usize),
    /// The string ended after this many bytes, with its quote.
    Closed(usize),
}

/// The meaning of a backslash and the text after it.
enum Escape {
    /// A character, in this many bytes.
    Character(char, usize),
    /// Nothing, in this many bytes.
    Nothing(usize),
    /// A backslash: Python has no such escape.
    Backslash,
    /// More text is needed.
    Partial,
}

impl Quoted {
    /// Creates a reader that starts after the opening quote.
    pub(crate) const fn new(quote: &'static str, escapes: bool, to_json: bool) -> Self {
        Self { quote, escapes, to_json }
    }

    /// Reads the next text. The rest may be a partial closing quote or escape. If no more text
    /// follows, a partial quote is text, and a partial escape is dropped.
    pub(crate) fn read(self, text: &str, last: bool, json: &mut JsonWriter<'_>) -> StringProgress {
        let bytes = text.as_bytes();
        let first = self.quote.as_bytes()[0];
        let mut at = 0;
        // Everything from here on is not written yet.
        let mut from = 0;
        loop {
            at = special_or(first, bytes, at);
            let rest = &bytes[at..];
            if self.escapes && self.to_json && is_json_escape(rest) {
                at += 2;
                continue;
            }
            json.write_raw(&text[from..at]);
            let Some(&byte) = rest.first() else {
                return StringProgress::Inside(at);
            };
            if rest.starts_with(self.quote.as_bytes()) {
                return StringProgress::Closed(at + self.quote.len());
            }
            if !last && self.quote.as_bytes().starts_with(rest) {
                return StringProgress::Inside(at);
            }
            let escape = if byte == b'\\' && self.escapes {
                read_escape(rest)
            } else {
                Escape::Character(char::from(byte), 1)
            };
            let (character, used) = match escape {
                Escape::Character(character, used) => (Some(character), used),
                Escape::Backslash => (Some('\\'), 1),
                Escape::Nothing(used) => (None, used),
                Escape::Partial if last => return StringProgress::Inside(text.len()),
                Escape::Partial => return StringProgress::Inside(at),
            };
            match character {
                Some(character) if self.to_json => json.write_escaped(character),
                Some(character) => json.write_char(character),
                None => {}
            }
            at += used;
            from = at;
        }
    }
}

/// Whether a text starts with an escape that means the same in JSON, so that it can be copied.
fn is_json_escape(text: &[u8]) -> bool {
    matches!(text, [b'\\', b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..])
}

/// Reads the escape at the start of a text.
fn read_escape(text: &[u8]) -> Escape {
    let Some(kind) = text.get(1) else {
        return Escape::Partial;
    };
    let character = match kind {
        b'n' => '\n',
        b't' => '\t',
        b'r' => '\r',
        b'a' => '\u{7}',
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'v' => '\u{b}',
        b'\\' | b'\'' | b'"' => char::from(*kind),
        b'\n' => return Escape::Nothing(2),
        b'0'..=b'7' => return read_octal(text),
        b'x' => return read_code(text, 2),
        b'u' => return read_code(text, 4),
        b'U' => return read_code(text, 8),
        _ => return Escape::Backslash,
    };
    Escape::Character(character, 2)
}

/// Reads `\N`, `\NN` or `\NNN`.
fn read_octal(text: &[u8]) -> Escape {
    let digits = text[1..].iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
    if digits < 3 && text.len() == 1 + digits {
        return Escape::Partial;
    }
    let code = text[1..=digits].iter().fold(0, |code, digit| code * 8 + u32::from(digit - b'0'));
    Escape::Character(char::from_u32(code).unwrap_or('\u{fffd}'), 1 + digits)
}

/// Reads an escape with this many hexadecimal digits. Models that learned JSON write surrogate
/// pairs. A lone surrogate is not allowed in JSON text.
fn read_code(text: &[u8], digits: usize) -> Escape {
    let code = match read_hex(&text[2..], digits) {
        Hex::Code(code) => code,
        Hex::No => return Escape::Backslash,
        Hex::Partial => return Escape::Partial,
    };
    let used = 2 + digits;
    match code {
        0xd800..=0xdbff if digits == 4 => match read_low_surrogate(&text[used..]) {
            Hex::Code(low) => {
                let code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                let character = char::from_u32(code).unwrap_or('\u{fffd}');
                Escape::Character(character, used + 6)
            }
            Hex::No => Escape::Character('\u{fffd}', used),
            Hex::Partial => Escape::Partial,
        },
        0xd800..=0xdfff => Escape::Character('\u{fffd}', used),
        _ => match char::from_u32(code) {
            Some(character) => Escape::Character(character, used),
            None => Escape::Backslash,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(quoted: Quoted, text: &str, last: bool) -> (String, StringProgress) {
        let (mut buffer, mut written) = (String::new(), String::new());
        let mut out = |delta: &str| written.push_str(delta);
        let mut json = JsonWriter::new(&mut buffer, &mut out);
        let end = quoted.read(text, last, &mut json);
        json.flush();
        (written, end)
    }

    #[test]
    fn decodes_escapes_like_python() {
        let check = |inside: &str, expected: &str| {
            let quoted = Quoted::new("'", true, false);
            let (written, end) = read(quoted, &format!("{inside}'"), false);
            assert_eq!(written, expected, "{inside}");
            assert_eq!(end, StringProgress::Closed(inside.len() + 1), "{inside}");
        };
        check(r#"\n\t\r\a\b\f\v"#, "\n\t\r\u{7}\u{8}\u{c}\u{b}");
        check(r#"\\ \' \" ""#, "\\ ' \" \"");
        check(r"\x41\xe9\u00e9\U0001F600", "Aéé😀");
        check(r"\0 \7 \101 \1012 \08", "\0 \u{7} A A2 \08");
        check("one\\\nline", "oneline");
        check(r"\d\.\/\N{DASH}\(é\é", r"\d\.\/\N{DASH}\(é\é");
        check(r"\x4 \xzz \u12 \U0011FFFF", r"\x4 \xzz \u12 \U0011FFFF");
        check(r"\ud83d\ude00", "😀");
        check(r"\ud83d \ude00 \ud83d\u0041", "\u{fffd} \u{fffd} \u{fffd}A");
        check(r"\ud83d\ud83d\ude00 \ud83d\x", "\u{fffd}😀 \u{fffd}\\x");
        check("tab\tand\r\nlines", "tab\tand\r\nlines");
    }

    #[test]
    fn copied_escapes_mean_the_same_in_json() {
        for inside in [
            r#"\n\t\r\b\f\\\" a\n"#,
            r#"\a\v\'\0\x41 \/ \d\u00e9\"#,
            r#"\\n \\\n \\'x'"#,
            "\"\n\\\nend",
        ] {
            let (text, end) = read(Quoted::new("'", true, false), inside, true);
            let (json, json_end) = read(Quoted::new("'", true, true), inside, true);
            assert_eq!(end, json_end, "{inside}");
            let expected = serde_json::to_string(&text).unwrap();
            assert_eq!(format!("\"{json}\""), expected, "{inside}");
        }
    }

    #[test]
    fn holds_only_a_partial_quote_or_escape() {
        let check = |quoted: Quoted, text: &str, held: &str| {
            let (_, end) = read(quoted, text, false);
            assert_eq!(end, StringProgress::Inside(text.len() - held.len()), "{text}");
        };
        let python = Quoted::new("'''", true, true);
        check(python, "plain", "");
        check(python, "a''", "''");
        check(python, "a''b\"\"", "");
        check(python, r"a\", r"\");
        check(python, r"a\n", "");
        check(python, r"a\u12", r"\u12");
        check(python, r"a\ud83d\ude0", r"\ud83d\ude0");
        check(python, r"a\12", r"\12");
        let gemma = Quoted::new("<|\"|>", false, true);
        check(gemma, "a <b <|\"", "<|\"");
        check(gemma, r"a\", "");
    }

    #[test]
    fn at_the_end_a_partial_quote_is_text_and_a_partial_escape_is_dropped() {
        let gemma = Quoted::new("<|\"|>", false, true);
        assert_eq!(read(gemma, "a<|\"", true), ("a<|\\\"".into(), StringProgress::Inside(4)));
        let python = Quoted::new("'", true, true);
        assert_eq!(read(python, r"a\u12", true), ("a".into(), StringProgress::Inside(5)));
        assert_eq!(read(python, r"a\1", true), ("a".into(), StringProgress::Inside(3)));
    }
}
