//! Finds the end of a JSON value while it arrives. Each byte is examined once.
//!
//! The scanner also checks the grammar. A caller that accepts malformed JSON calls
//! [`JsonScanner::tolerate`], which continues with brackets and strings only.

use crate::json::BitStack;
use crate::search::special;

/// Limit for the nesting of a value.
const MAX_DEPTH: usize = 512;

/// Scans one value.
#[derive(Clone, Debug, Default)]
pub(crate) struct JsonScanner {
    /// One bit for each open container: set for objects.
    open: BitStack,
    expected: Expected,
    /// The grammar is violated. Only brackets and strings count from here on.
    tolerant: bool,
}

/// What the grammar allows next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Value,
    ValueOrClose,
    Key,
    KeyOrClose,
    Colon,
    CommaOrClose,
    /// Inside a string. True for a key.
    String(bool),
    Escape(bool),
    /// This many digits of `\uXXXX` are missing.
    Hex(bool, u8),
    NumberPosition(NumberPosition),
    /// The rest of `true`, `false` or `null`.
    Word(&'static [u8]),
}

/// The position in a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NumberPosition {
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
pub(crate) enum ScanResult {
    /// All bytes belong to the value, and it continues.
    All,
    /// The value ended after this many bytes.
    Ended(usize),
    /// The byte at this position is not allowed.
    Broken(usize),
}

impl JsonScanner {
    /// Scans the next bytes.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> ScanResult {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if self.tolerant {
                return self.follow_brackets(bytes, at);
            }
            match self.expected {
                Expected::String(key) => {
                    at = special(bytes, at);
                    match bytes.get(at) {
                        None => return ScanResult::All,
                        Some(b'"') if key => self.expected = Expected::Colon,
                        Some(b'"') => {
                            self.expected = Expected::CommaOrClose;
                            if self.open.count() == 0 {
                                return ScanResult::Ended(at + 1);
                            }
                        }
                        Some(b'\\') => self.expected = Expected::Escape(key),
                        Some(_) => return ScanResult::Broken(at),
                    }
                }
                Expected::Escape(key) => match byte {
                    b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                        self.expected = Expected::String(key);
                    }
                    b'u' => self.expected = Expected::Hex(key, 4),
                    _ => return ScanResult::Broken(at),
                },
                Expected::Hex(key, missing) => {
                    if !byte.is_ascii_hexdigit() {
                        return ScanResult::Broken(at);
                    }
                    self.expected = match missing {
                        1 => Expected::String(key),
                        _ => Expected::Hex(key, missing - 1),
                    };
                }
                Expected::NumberPosition(position) => match position.advance(byte) {
                    Some(position) => self.expected = Expected::NumberPosition(position),
                    None if position.may_end() => {
                        self.expected = Expected::CommaOrClose;
                        if self.open.count() == 0 {
                            return ScanResult::Ended(at);
                        }
                        continue;
                    }
                    None => return ScanResult::Broken(at),
                },
                Expected::Word(rest) => {
                    if byte != rest[0] {
                        return ScanResult::Broken(at);
                    }
                    self.expected = Expected::Word(&rest[1..]);
                    if rest.len() == 1 {
                        self.expected = Expected::CommaOrClose;
                        if self.open.count() == 0 {
                            return ScanResult::Ended(at + 1);
                        }
                    }
                }
                _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => {}
                _ => match self.structural(byte) {
                    None => return ScanResult::Broken(at),
                    Some(true) => return ScanResult::Ended(at + 1),
                    Some(false) => {}
                },
            }
            at += 1;
        }
        ScanResult::All
    }

    /// Handles a byte between tokens. Returns whether it ended the value, or `None` if it is not
    /// allowed.
    fn structural(&mut self, byte: u8) -> Option<bool> {
        match (self.expected, byte) {
            (Expected::Value | Expected::ValueOrClose, b'{' | b'[') => {
                if self.open.count() == MAX_DEPTH {
                    return None;
                }
                let object = byte == b'{';
                self.open.push(object);
                self.expected = if object { Expected::KeyOrClose } else { Expected::ValueOrClose };
            }
            (Expected::Value | Expected::ValueOrClose, b'"') => {
                self.expected = Expected::String(false);
            }
            (Expected::Value | Expected::ValueOrClose, b't') => {
                self.expected = Expected::Word(b"rue");
            }
            (Expected::Value | Expected::ValueOrClose, b'f') => {
                self.expected = Expected::Word(b"alse");
            }
            (Expected::Value | Expected::ValueOrClose, b'n') => {
                self.expected = Expected::Word(b"ull");
            }
            (Expected::Value | Expected::ValueOrClose, b'-') => {
                self.expected = Expected::NumberPosition(NumberPosition::Minus);
            }
            (Expected::Value | Expected::ValueOrClose, b'0') => {
                self.expected = Expected::NumberPosition(NumberPosition::Zero);
            }
            (Expected::Value | Expected::ValueOrClose, b'1'..=b'9') => {
                self.expected = Expected::NumberPosition(NumberPosition::Digits);
            }
            (Expected::Key | Expected::KeyOrClose, b'"') => self.expected = Expected::String(true),
            (Expected::Colon, b':') => self.expected = Expected::Value,
            (Expected::CommaOrClose, b',') => {
                self.expected = if self.open.last() { Expected::Key } else { Expected::Value };
            }
            (Expected::CommaOrClose | Expected::KeyOrClose, b'}') if self.open.last() => {
                return Some(self.close());
            }
            (Expected::CommaOrClose | Expected::ValueOrClose, b']') if !self.open.last() => {
                return Some(self.close());
            }
            _ => return None,
        }
        Some(false)
    }

    fn close(&mut self) -> bool {
        self.open.pop();
        self.expected = Expected::CommaOrClose;
        self.open.count() == 0
    }

    /// Continues from the byte that violated the grammar, without checking it further. Only for
    /// containers.
    pub(crate) fn tolerate(&mut self) {
        self.tolerant = true;
        self.expected = match self.expected {
            Expected::String(_) | Expected::Escape(_) | Expected::Hex(..) => {
                Expected::String(false)
            }
            _ => Expected::Value,
        };
    }

    /// Whether the grammar was violated.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.tolerant
    }

    /// Whether the next byte is inside a string.
    pub(crate) fn in_string(&self) -> bool {
        matches!(self.expected, Expected::String(_) | Expected::Escape(_) | Expected::Hex(..))
    }

    /// Whether the value is complete if no more text follows. Only a bare number can be.
    pub(crate) fn may_end(&self) -> bool {
        match self.expected {
            Expected::NumberPosition(position) => self.open.count() == 0 && position.may_end(),
            _ => false,
        }
    }

    fn follow_brackets(&mut self, bytes: &[u8], from: usize) -> ScanResult {
        for (at, &byte) in bytes.iter().enumerate().skip(from) {
            match (self.expected, byte) {
                (Expected::Escape(_), _) => self.expected = Expected::String(false),
                (Expected::String(_), b'\\') => self.expected = Expected::Escape(false),
                (Expected::String(_), b'"') => self.expected = Expected::Value,
                (Expected::String(_), _) => {}
                (_, b'"') => self.expected = Expected::String(false),
                (_, b'{' | b'[') => self.open.push(byte == b'{'),
                (_, b'}' | b']') => {
                    self.open.pop();
                    if self.open.count() == 0 {
                        return ScanResult::Ended(at + 1);
                    }
                }
                _ => {}
            }
        }
        ScanResult::All
    }
}

impl NumberPosition {
    fn advance(self, byte: u8) -> Option<Self> {
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

    /// The end of the first value according to `serde_json`.
    fn theirs(text: &str) -> Option<usize> {
        let mut values = serde_json::Deserializer::from_str(text)
            .into_iter::<Box<serde_json::value::RawValue>>();
        values.next()?.ok()?;
        Some(values.byte_offset())
    }

    fn ours(text: &str, piece: usize) -> Option<usize> {
        let mut scan = JsonScanner::default();
        let mut before = 0;
        for piece in text.as_bytes().chunks(piece) {
            match scan.read(piece) {
                ScanResult::All => before += piece.len(),
                ScanResult::Ended(at) => return Some(before + at),
                ScanResult::Broken(_) => return None,
            }
        }
        scan.may_end().then_some(before)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn finds_the_same_end_as_serde_json(
            text in r#"[\[{"]?[\[\]{}":,0-9a-f\\utrlsen. eE+\-"é]{0,24}"#,
            piece in 1usize..9,
        ) {
            // Parsers disagree about a number that runs into something else.
            prop_assume!(!text.trim_start().starts_with(|first: char| first == '-' || first.is_ascii_digit()));
            prop_assert_eq!(ours(&text, piece), theirs(&text), "{}", text);
        }
    }

    #[test]
    fn tolerant_scan_ends_at_the_matching_bracket() {
        let text = br#"{"a": [1, 2,], "b": "x}\"y", oops: {}} rest"#;
        let mut scan = JsonScanner::default();
        assert_eq!(scan.read(text), ScanResult::Broken(12));
        scan.tolerate();
        assert_eq!(scan.read(&text[12..]), ScanResult::Ended(26));
    }
}
