//! The inside of a string of a foreign syntax, as it streams: its escapes, and its closing quote.

use super::json_writer::JsonWriter;
use crate::search::special_or;

/// A string that is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quoted {
    /// What ends it.
    quote: &'static str,
    /// Whether a backslash means what it means in Python.
    escapes: bool,
    /// Whether its text is written as JSON writes it inside a string, or as it is.
    to_json: bool,
}

/// How far a string was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// So many bytes are used up, and the string goes on.
    Inside(usize),
    /// The string ended after so many bytes, its quote included.
    Closed(usize),
}

/// What a backslash and what follows stand for.
enum Escape {
    /// A character, in so many bytes.
    Character(char, usize),
    /// Nothing, in so many bytes.
    Nothing(usize),
    /// A backslash: Python knows no such escape.
    Backslash,
    /// More text must show.
    Begun,
}

impl Quoted {
    /// A string behind its opening quote.
    pub(crate) const fn new(quote: &'static str, escapes: bool, to_json: bool) -> Self {
        Self { quote, escapes, to_json }
    }

    /// Reads on. What is left over may begin the closing quote or an escape; of a text that will
    /// not go on, a quote that has begun is text, and an escape that has begun is dropped.
    pub(crate) fn read(self, text: &str, last: bool, json: &mut JsonWriter<'_>) -> Reached {
        let bytes = text.as_bytes();
        let first = self.quote.as_bytes()[0];
        let mut at = 0;
        // From where on nothing has been written.
        let mut from = 0;
        loop {
            at = special_or(first, bytes, at);
            let rest = &bytes[at..];
            if self.escapes && self.to_json && is_escape_of_both(rest) {
                at += 2;
                continue;
            }
            json.pass(&text[from..at]);
            let Some(&byte) = rest.first() else {
                return Reached::Inside(at);
            };
            if rest.starts_with(self.quote.as_bytes()) {
                return Reached::Closed(at + self.quote.len());
            }
            if !last && self.quote.as_bytes().starts_with(rest) {
                return Reached::Inside(at);
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
                Escape::Begun if last => return Reached::Inside(text.len()),
                Escape::Begun => return Reached::Inside(at),
            };
            match character {
                Some(character) if self.to_json => json.escaped(character),
                Some(character) => json.literal(character),
                None => {}
            }
            at += used;
            from = at;
        }
    }
}

/// Whether a text begins with an escape that means the same in JSON, so that it can stay.
fn is_escape_of_both(text: &[u8]) -> bool {
    matches!(text, [b'\\', b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't', ..])
}

/// Reads the escape a text begins with.
fn read_escape(text: &[u8]) -> Escape {
    let Some(kind) = text.get(1) else {
        return Escape::Begun;
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
        return Escape::Begun;
    }
    let code = text[1..=digits].iter().fold(0, |code, digit| code * 8 + u32::from(digit - b'0'));
    Escape::Character(char::from_u32(code).unwrap_or('\u{fffd}'), 1 + digits)
}

/// Reads an escape with so many hexadecimal digits. Models that learnt JSON write a character in two
/// halves; half a character alone has no place in JSON text.
fn read_code(text: &[u8], digits: usize) -> Escape {
    let code = match read_hex(&text[2..], digits) {
        Hex::Code(code) => code,
        Hex::No => return Escape::Backslash,
        Hex::Begun => return Escape::Begun,
    };
    let used = 2 + digits;
    match code {
        0xd800..=0xdbff if digits == 4 => match read_low_half(&text[used..]) {
            Hex::Code(low) => {
                let code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                let character = char::from_u32(code).unwrap_or('\u{fffd}');
                Escape::Character(character, used + 6)
            }
            Hex::No => Escape::Character('\u{fffd}', used),
            Hex::Begun => Escape::Begun,
        },
        0xd800..=0xdfff => Escape::Character('\u{fffd}', used),
        _ => match char::from_u32(code) {
            Some(character) => Escape::Character(character, used),
            None => Escape::Backslash,
        },
    }
}

/// Reads the second half of a character.
fn read_low_half(text: &[u8]) -> Hex {
    let Some(digits) = text.strip_prefix(b"\\u") else {
        return match b"\\u".starts_with(text) {
            true => Hex::Begun,
            false => Hex::No,
        };
    };
    match read_hex(digits, 4) {
        Hex::Code(code) if !(0xdc00..=0xdfff).contains(&code) => Hex::No,
        read => read,
    }
}

/// A number in hexadecimal digits.
enum Hex {
    Code(u32),
    No,
    Begun,
}

fn read_hex(text: &[u8], digits: usize) -> Hex {
    let mut code: u32 = 0;
    for place in 0..digits {
        let Some(byte) = text.get(place) else {
            return Hex::Begun;
        };
        let Some(digit) = char::from(*byte).to_digit(16) else {
            return Hex::No;
        };
        // Eight digits fit.
        code = code << 4 | digit;
    }
    Hex::Code(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(quoted: Quoted, text: &str, last: bool) -> (String, Reached) {
        let (mut gathered, mut written) = (String::new(), String::new());
        let mut out = |delta: &str| written.push_str(delta);
        let mut json = JsonWriter::new(&mut gathered, &mut out);
        let reached = quoted.read(text, last, &mut json);
        json.flush();
        (written, reached)
    }

    #[test]
    fn escapes_mean_what_they_mean_in_python() {
        let check = |inside: &str, expected: &str| {
            let quoted = Quoted::new("'", true, false);
            let (written, reached) = read(quoted, &format!("{inside}'"), false);
            assert_eq!(written, expected, "{inside}");
            assert_eq!(reached, Reached::Closed(inside.len() + 1), "{inside}");
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
    fn what_stays_as_it_is_means_the_same_in_json() {
        for inside in [
            r#"\n\t\r\b\f\\\" a\n"#,
            r#"\a\v\'\0\x41 \/ \d\u00e9\"#,
            r#"\\n \\\n \\'x'"#,
            "\"\n\\\nend",
        ] {
            let (text, reached) = read(Quoted::new("'", true, false), inside, true);
            let (json, same) = read(Quoted::new("'", true, true), inside, true);
            assert_eq!(reached, same, "{inside}");
            let expected = serde_json::to_string(&text).unwrap();
            assert_eq!(format!("\"{json}\""), expected, "{inside}");
        }
    }

    #[test]
    fn only_what_may_begin_a_quote_or_an_escape_is_held() {
        let check = |quoted: Quoted, text: &str, held: &str| {
            let (_, reached) = read(quoted, text, false);
            assert_eq!(reached, Reached::Inside(text.len() - held.len()), "{text}");
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
    fn at_the_end_a_quote_that_has_begun_is_text_and_an_escape_is_dropped() {
        let gemma = Quoted::new("<|\"|>", false, true);
        assert_eq!(read(gemma, "a<|\"", true), ("a<|\\\"".into(), Reached::Inside(4)));
        let python = Quoted::new("'", true, true);
        assert_eq!(read(python, r"a\u12", true), ("a".into(), Reached::Inside(5)));
        assert_eq!(read(python, r"a\1", true), ("a".into(), Reached::Inside(3)));
    }
}
