//! Where a JSON value ends, found as it arrives: each byte is looked at once.
//!
//! The grammar is checked on the way. A caller that can live with broken JSON turns to
//! [`Scan::tolerate`], which goes on by brackets and strings alone.

use crate::json::Levels;
use crate::search::special;

/// How deep a value may nest.
const DEPTH: usize = 512;

/// One value, as far as it has been seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    /// One bit for each open container: set for objects.
    open: Levels,
    next: Next,
    /// The grammar no longer holds; only brackets and strings count.
    tolerant: bool,
}

/// What the grammar allows next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    Colon,
    CommaOrClose,
    /// Inside a string; of a key if so.
    String(bool),
    Escape(bool),
    /// So many digits of `\uXXXX` are missing.
    Hex(bool, u8),
    Number(Number),
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// Where in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Digits,
    Dot,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

/// How far a scan got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// All bytes belong to the value, and it goes on.
    All,
    /// The value ended after so many bytes.
    Ended(usize),
    /// The byte at this place cannot stand there.
    Broken(usize),
}

impl Scan {
    /// Goes on with the next bytes.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Scanned {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.tolerant {
                return self.by_brackets(bytes, at);
            }
            match self.next {
                Next::String(key) => {
                    at = special(bytes, at);
                    match bytes.get(at) {
                        None => return Scanned::All,
                        Some(b'"') if key => self.next = Next::Colon,
                        Some(b'"') => {
                            self.next = Next::CommaOrClose;
                            if self.open.count() == 0 {
                                return Scanned::Ended(at + 1);
                            }
                        }
                        Some(b'\\') => self.next = Next::Escape(key),
                        Some(_) => return Scanned::Broken(at),
                    }
                }
                Next::Escape(key) => match byte {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                        self.next = Next::String(key);
                    }
                    b'u' => self.next = Next::Hex(key, 4),
                    _ => return Scanned::Broken(at),
                },
                Next::Hex(key, missing) => {
                    if !byte.is_ascii_hexdigit() {
                        return Scanned::Broken(at);
                    }
                    self.next = match missing {
                        1 => Next::String(key),
                        _ => Next::Hex(key, missing - 1),
                    };
                }
                Next::Number(place) => match place.after(byte) {
                    Some(place) => self.next = Next::Number(place),
                    None if place.may_end() => {
                        self.next = Next::CommaOrClose;
                        if self.open.count() == 0 {
                            return Scanned::Ended(at);
                        }
                        continue;
                    }
                    None => return Scanned::Broken(at),
                },
                Next::Word(rest) => {
                    if byte != rest[0] {
                        return Scanned::Broken(at);
                    }
                    self.next = Next::Word(&rest[1..]);
                    if rest.len() == 1 {
                        self.next = Next::CommaOrClose;
                        if self.open.count() == 0 {
                            return Scanned::Ended(at + 1);
                        }
                    }
                }
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {}
                _ => match self.structural(byte) {
                    None => return Scanned::Broken(at),
                    Some(true) => return Scanned::Ended(at + 1),
                    Some(false) => {}
                },
            }
            at += 1;
        }
        Scanned::All
    }

    /// A byte between tokens; tells whether the value ended with it.
    fn structural(&mut self, byte: u8) -> Option<bool> {
        match (self.next, byte) {
            (Next::Value | Next::ValueOrClose, b'{' | b'[') => {
                if self.open.count() == DEPTH {
                    return None;
                }
                let object = byte == b'{';
                self.open.push(object);
                self.next = if object { Next::KeyOrClose } else { Next::ValueOrClose };
            }
            (Next::Value | Next::ValueOrClose, b'"') => self.next = Next::String(false),
            (Next::Value | Next::ValueOrClose, b't') => self.next = Next::Word(b"rue"),
            (Next::Value | Next::ValueOrClose, b'f') => self.next = Next::Word(b"alse"),
            (Next::Value | Next::ValueOrClose, b'n') => self.next = Next::Word(b"ull"),
            (Next::Value | Next::ValueOrClose, b'-') => self.next = Next::Number(Number::Minus),
            (Next::Value | Next::ValueOrClose, b'0') => self.next = Next::Number(Number::Zero),
            (Next::Value | Next::ValueOrClose, b'1'..=b'9') => {
                self.next = Next::Number(Number::Digits);
            }
            (Next::Key | Next::KeyOrClose, b'"') => self.next = Next::String(true),
            (Next::Colon, b':') => self.next = Next::Value,
            (Next::CommaOrClose, b',') => {
                self.next = if self.open.last() { Next::Key } else { Next::Value };
            }
            (Next::CommaOrClose | Next::KeyOrClose, b'}') if self.open.last() => {
                return Some(self.close());
            }
            (Next::CommaOrClose | Next::ValueOrClose, b']') if !self.open.last() => {
                return Some(self.close());
            }
            _ => return None,
        }
        Some(false)
    }

    fn close(&mut self) -> bool {
        self.open.pop();
        self.next = Next::CommaOrClose;
        self.open.count() == 0
    }

    /// The grammar is broken, and the caller wants to go on from the byte that broke it. Only for
    /// containers.
    pub(crate) fn tolerate(&mut self) {
        self.tolerant = true;
        self.next = match self.next {
            Next::String(_) | Next::Escape(_) | Next::Hex(..) => Next::String(false),
            _ => Next::Value,
        };
    }

    /// Whether the grammar was broken.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.tolerant
    }

    /// Whether the next byte lies in a string.
    pub(crate) fn in_string(&self) -> bool {
        matches!(self.next, Next::String(_) | Next::Escape(_) | Next::Hex(..))
    }

    /// Whether the value could end here, if nothing followed: only a bare number can.
    pub(crate) fn may_end(&self) -> bool {
        match self.next {
            Next::Number(place) => self.open.count() == 0 && place.may_end(),
            _ => false,
        }
    }

    fn by_brackets(&mut self, bytes: &[u8], from: usize) -> Scanned {
        for (at, &byte) in bytes.iter().enumerate().skip(from) {
            match (self.next, byte) {
                (Next::Escape(_), _) => self.next = Next::String(false),
                (Next::String(_), b'\\') => self.next = Next::Escape(false),
                (Next::String(_), b'"') => self.next = Next::Value,
                (Next::String(_), _) => {}
                (_, b'"') => self.next = Next::String(false),
                (_, b'{' | b'[') => self.open.push(byte == b'{'),
                (_, b'}' | b']') => {
                    self.open.pop();
                    if self.open.count() == 0 {
                        return Scanned::Ended(at + 1);
                    }
                }
                _ => {}
            }
        }
        Scanned::All
    }
}

impl Number {
    fn after(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Digits, b'0'..=b'9') => Self::Digits,
            (Self::Zero | Self::Digits, b'.') => Self::Dot,
            (Self::Dot | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Digits | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Digits | Self::Fraction | Self::ExponentDigits)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The end of the first value, as another parser sees it.
    fn theirs(text: &str) -> Option<usize> {
        let mut values = serde_json::Deserializer::from_str(text)
            .into_iter::<Box<serde_json::value::RawValue>>();
        values.next()?.ok()?;
        Some(values.byte_offset())
    }

    fn ours(text: &str, piece: usize) -> Option<usize> {
        let mut scan = Scan::default();
        let mut before = 0;
        for piece in text.as_bytes().chunks(piece) {
            match scan.read(piece) {
                Scanned::All => before += piece.len(),
                Scanned::Ended(at) => return Some(before + at),
                Scanned::Broken(_) => return None,
            }
        }
        scan.may_end().then_some(before)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn the_end_is_where_serde_json_sees_it(
            text in r#"[\[{"]?[\[\]{}":,0-9a-f\\utrlsen. eE+\-"é]{0,24}"#,
            piece in 1usize..9,
        ) {
            // A number that runs into something else is one parser's end and another's error.
            prop_assume!(!text.trim_start().starts_with(|first: char| first == '-' || first.is_ascii_digit()));
            prop_assert_eq!(ours(&text, piece), theirs(&text), "{}", text);
        }
    }

    #[test]
    fn what_is_broken_is_followed_by_its_brackets() {
        let text = br#"{"a": [1, 2,], "b": "x}\"y", oops: {}} rest"#;
        let mut scan = Scan::default();
        assert_eq!(scan.read(text), Scanned::Broken(12));
        scan.tolerate();
        assert_eq!(scan.read(&text[12..]), Scanned::Ended(26));
    }
}
