//! A strict JSON reader that reports spans. It never builds a value.

use std::borrow::Cow;
use std::ops::Range;

use super::string::decode;
use crate::search::{Specials, special};

/// A byte range in the text.
pub type Span = Range<usize>;

/// The type of a value, known from its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Starts with `{`.
    Object,
    /// Starts with `[`.
    Array,
    /// Starts with `"`.
    String,
    /// Starts with a digit or a minus sign.
    Number,
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
}

impl Kind {
    /// The name used in error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "an object",
            Self::Array => "a list",
            Self::String => "a string",
            Self::Number => "a number",
            Self::Bool => "a boolean",
            Self::Null => "null",
        }
    }
}

/// Why a text is not JSON, with the byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text ends inside a value.
    #[error("the JSON ends unexpectedly at byte {0}")]
    Truncated(usize),
    /// A byte that is not allowed at this position.
    #[error("unexpected byte in the JSON at byte {0}")]
    Unexpected(usize),
    /// More levels of nesting than allowed.
    #[error("the JSON is nested too deeply at byte {0}")]
    TooDeep(usize),
    /// Not valid UTF-8.
    #[error("the JSON is not valid UTF-8 at byte {0}")]
    NotUtf8(usize),
}

/// The bytes of a span. Empty if the span is outside the text.
pub fn slice<'a>(bytes: &'a [u8], span: &Span) -> &'a [u8] {
    bytes.get(span.clone()).unwrap_or_default()
}

/// The bytes between the quotes of a string value, still escaped.
pub fn inside<'a>(bytes: &'a [u8], string: &Span) -> &'a [u8] {
    slice(bytes, &(string.start + 1..string.end.saturating_sub(1)))
}

/// The decoded text of a string value.
pub fn text<'a>(bytes: &'a [u8], string: &Span) -> Cow<'a, str> {
    decode(inside(bytes, string))
}

/// The type and span of a value, if it was found.
pub(crate) type Found = Option<(Kind, Span)>;

/// The text of a value. Empty if it was not found or is no string.
pub(crate) fn found_text<'a>(bytes: &'a [u8], found: &Found) -> Cow<'a, str> {
    match found {
        Some((Kind::String, span)) => text(bytes, span),
        _ => "".into(),
    }
}

/// A value as a whole number.
pub fn number(bytes: &[u8], span: &Span) -> Option<u64> {
    std::str::from_utf8(slice(bytes, span)).ok()?.parse().ok()
}

/// Visits the members of the object at `start`: key, type and span of each value.
pub fn each_member<'a>(
    bytes: &'a [u8],
    start: usize,
    mut member: impl FnMut(&'a [u8], Kind, Span),
) -> Result<(), JsonError> {
    // Walking uses no stack per level, so the depth needs no limit here.
    let mut cursor = Cursor::at(bytes, start, usize::MAX);
    cursor.enter_object()?;
    let mut first = true;
    while let Some(key) = cursor.key(&mut first)? {
        let kind = cursor.peek()?;
        member(key, kind, cursor.skip()?);
    }
    Ok(())
}

/// Finds a member of this type in the object at `start`. If there are several, the last one counts.
pub fn find_member(
    bytes: &[u8],
    start: usize,
    name: &[u8],
    wanted: Kind,
) -> Result<Option<Span>, JsonError> {
    let mut found = None;
    each_member(bytes, start, |key, kind, span| {
        if key == name && kind == wanted {
            found = Some(span);
        }
    })?;
    Ok(found)
}

/// Visits the elements of the array at `start`: type and span of each.
pub fn each_element(
    bytes: &[u8],
    start: usize,
    mut element: impl FnMut(Kind, Span),
) -> Result<(), JsonError> {
    try_each_element(bytes, start, |kind, span| {
        element(kind, span);
        Ok(())
    })
}

/// As [`each_element`], until `element` fails.
pub fn try_each_element(
    bytes: &[u8],
    start: usize,
    mut element: impl FnMut(Kind, Span) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let mut cursor = Cursor::at(bytes, start, usize::MAX);
    cursor.enter_array()?;
    let mut first = true;
    while cursor.element(&mut first)? {
        let kind = cursor.peek()?;
        element(kind, cursor.skip()?)?;
    }
    Ok(())
}

/// Checks that the text is exactly one JSON value.
pub fn validate(bytes: &[u8], depth: usize) -> Result<Kind, JsonError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(JsonError::NotUtf8(error.valid_up_to()));
    }
    let mut cursor = Cursor::new(bytes, depth);
    let kind = cursor.peek()?;
    cursor.skip()?;
    cursor.end()?;
    Ok(kind)
}

/// A position in a JSON text.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    limit: usize,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the start of a text that may nest `limit` levels deep.
    pub fn new(bytes: &'a [u8], limit: usize) -> Self {
        Self { bytes, at: 0, depth: 0, limit }
    }

    /// Creates a cursor at the start of a value inside the text. Its spans are relative to the
    /// whole text.
    pub fn at(bytes: &'a [u8], at: usize, limit: usize) -> Self {
        Self { bytes, at, depth: 0, limit }
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_white_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
    }

    fn error<T>(&self) -> Result<T, JsonError> {
        Err(if self.at >= self.bytes.len() {
            JsonError::Truncated(self.at)
        } else {
            JsonError::Unexpected(self.at)
        })
    }

    /// Returns the type of the next value.
    pub fn peek(&mut self) -> Result<Kind, JsonError> {
        self.skip_white_space();
        match self.byte() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => self.error(),
        }
    }

    /// Enters the next value, which must be an object.
    pub fn enter_object(&mut self) -> Result<(), JsonError> {
        self.enter(b'{')
    }

    /// Enters the next value, which must be an array.
    pub fn enter_array(&mut self) -> Result<(), JsonError> {
        self.enter(b'[')
    }

    fn enter(&mut self, open: u8) -> Result<(), JsonError> {
        self.skip_white_space();
        if self.byte() != Some(open) {
            return self.error();
        }
        self.depth += 1;
        if self.depth > self.limit {
            return Err(JsonError::TooDeep(self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Skips white space and returns the position.
    pub fn start(&mut self) -> usize {
        self.skip_white_space();
        self.at
    }

    /// Returns the position without skipping white space.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Inside an object: reads the next key and its colon. Returns the raw key without quotes, or
    /// `None` after the closing brace.
    pub fn key(&mut self, first: &mut bool) -> Result<Option<&'a [u8]>, JsonError> {
        let span = self.key_span(first)?;
        Ok(span.map(|span| slice(self.bytes, &span)))
    }

    /// Like [`Cursor::key`], but returns the span of the key.
    pub fn key_span(&mut self, first: &mut bool) -> Result<Option<Span>, JsonError> {
        if !self.has_key(first)? {
            return Ok(None);
        }
        let span = self.string()?;
        self.colon()?;
        Ok(Some(span))
    }

    /// Inside an object: whether another key follows. Consumes the comma or the closing brace.
    pub(super) fn has_key(&mut self, first: &mut bool) -> Result<bool, JsonError> {
        self.has_next(first, b'}')
    }

    /// Consumes the colon after a key.
    pub(super) fn colon(&mut self) -> Result<(), JsonError> {
        self.skip_white_space();
        if self.byte() != Some(b':') {
            return self.error();
        }
        self.at += 1;
        Ok(())
    }

    /// Inside an array: whether another element follows. Consumes the comma or the closing bracket.
    pub fn element(&mut self, first: &mut bool) -> Result<bool, JsonError> {
        self.has_next(first, b']')
    }

    fn has_next(&mut self, first: &mut bool, close: u8) -> Result<bool, JsonError> {
        self.skip_white_space();
        match self.byte() {
            Some(byte) if byte == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(b',') if !*first => {
                self.at += 1;
                self.skip_white_space();
                Ok(true)
            }
            Some(_) if *first => {
                *first = false;
                Ok(true)
            }
            _ => self.error(),
        }
    }

    /// Reads the next value, which must be a string. The span is between its quotes, still escaped.
    pub fn string(&mut self) -> Result<Span, JsonError> {
        self.string_with(|_| {})
    }

    /// Like [`Cursor::string`]. Also passes on the position of each escape.
    // Always inlined, so that it does not cost `string` anything.
    #[inline(always)]
    pub(super) fn string_with(&mut self, mut escape: impl FnMut(usize)) -> Result<Span, JsonError> {
        self.skip_white_space();
        if self.byte() != Some(b'"') {
            return self.error();
        }
        let start = self.at + 1;
        let first = special(self.bytes, start);
        if self.bytes.get(first) == Some(&b'"') {
            self.at = first + 1;
            return Ok(start..first);
        }
        let mut specials = Specials::new(self.bytes, first);
        while let Some(at) = specials.next() {
            match self.bytes[at] {
                b'"' => {
                    self.at = at + 1;
                    return Ok(start..at);
                }
                b'\\' => {
                    match self.bytes.get(at + 1) {
                        Some(b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {}
                        // The escaped byte is special too.
                        Some(b'"' | b'\\') => drop(specials.next()),
                        Some(b'u') => {
                            for digit in at + 2..at + 6 {
                                match self.bytes.get(digit) {
                                    Some(byte) if byte.is_ascii_hexdigit() => {}
                                    Some(_) => return Err(JsonError::Unexpected(digit)),
                                    None => return Err(JsonError::Truncated(digit)),
                                }
                            }
                        }
                        Some(_) => return Err(JsonError::Unexpected(at + 1)),
                        None => return Err(JsonError::Truncated(at + 1)),
                    }
                    escape(at);
                }
                _ => return Err(JsonError::Unexpected(at)),
            }
        }
        Err(JsonError::Truncated(self.bytes.len()))
    }

    /// Skips the next value and returns its span, without white space around it.
    pub fn skip(&mut self) -> Result<Span, JsonError> {
        self.skip_white_space();
        let start = self.at;
        // One bit for each open container: set for objects. Levels beyond one word use the heap.
        let mut open = BitStack::default();
        let outer = self.depth;
        loop {
            // A value follows.
            match self.peek()? {
                kind @ (Kind::Object | Kind::Array) => {
                    self.depth += 1;
                    if self.depth > self.limit {
                        return Err(JsonError::TooDeep(self.at));
                    }
                    self.at += 1;
                    self.skip_white_space();
                    let object = kind == Kind::Object;
                    let close = if object { b'}' } else { b']' };
                    if self.byte() == Some(close) {
                        self.at += 1;
                        self.depth -= 1;
                    } else {
                        open.push(object);
                        if object {
                            self.member()?;
                        }
                        continue;
                    }
                }
                Kind::String => {
                    self.string()?;
                }
                Kind::Number => self.number()?,
                Kind::Bool if self.byte() == Some(b't') => self.literal(b"true")?,
                Kind::Bool => self.literal(b"false")?,
                Kind::Null => self.literal(b"null")?,
            }
            // A value has ended: close the containers that end with it, or find the next value.
            loop {
                if self.depth == outer {
                    return Ok(start..self.at);
                }
                let object = open.last();
                self.skip_white_space();
                match self.byte() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.skip_white_space();
                            self.member()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    _ => return self.error(),
                }
                self.at += 1;
                self.depth -= 1;
                open.pop();
            }
        }
    }

    /// Reads a key and its colon.
    fn member(&mut self) -> Result<(), JsonError> {
        self.string()?;
        self.colon()
    }

    fn literal(&mut self, literal: &'static [u8]) -> Result<(), JsonError> {
        for expected in literal {
            if self.byte() != Some(*expected) {
                return self.error();
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return self.error(),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.one_or_more_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.one_or_more_digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
    }

    fn one_or_more_digits(&mut self) -> Result<(), JsonError> {
        let before = self.at;
        self.digits();
        if self.at == before {
            return self.error();
        }
        Ok(())
    }

    /// Checks that only white space follows.
    pub fn end(&mut self) -> Result<(), JsonError> {
        self.skip_white_space();
        if self.at < self.bytes.len() {
            return self.error();
        }
        Ok(())
    }
}

/// A stack of bits, for example one per open container.
#[derive(Clone, Debug, Default)]
pub(crate) struct BitStack {
    word: u64,
    count: usize,
    spilled: Vec<u64>,
}

impl BitStack {
    pub(crate) fn push(&mut self, bit: bool) {
        if self.count > 0 && self.count.is_multiple_of(64) {
            self.spilled.push(self.word);
        }
        self.word = self.word << 1 | u64::from(bit);
        self.count += 1;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn last(&self) -> bool {
        self.word & 1 == 1
    }

    pub(crate) fn pop(&mut self) {
        self.count = self.count.saturating_sub(1);
        if self.count > 0 && self.count.is_multiple_of(64) {
            self.word = self.spilled.pop().unwrap_or_default();
        } else {
            self.word >>= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bit_stack_holds_more_than_one_word() {
        let mut stack = BitStack::default();
        let bits: Vec<bool> = (0..300).map(|n| n % 3 == 0 || n % 7 == 2).collect();
        for &bit in &bits {
            stack.push(bit);
        }
        for &bit in bits.iter().rev() {
            assert_eq!(stack.last(), bit);
            stack.pop();
        }
    }

    #[test]
    fn depth_is_limited() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert_eq!(validate(&nested(128), 128), Ok(Kind::Array));
        assert_eq!(validate(&nested(129), 128), Err(JsonError::TooDeep(128)));
        assert_eq!(validate(&vec![b'['; 5_000_000], 128), Err(JsonError::TooDeep(128)));
    }

    #[test]
    fn every_cut_of_a_value_is_truncated() {
        let text = br#"{"a":[1,-2.5e+3,true,null,"x\u00e9\n"],"b":{}}"#;
        assert_eq!(validate(text, 8), Ok(Kind::Object));
        for cut in 0..text.len() {
            assert!(validate(&text[..cut], 8).is_err(), "cut at {cut}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        /// We accept exactly the texts that another strict parser accepts.
        #[test]
        fn validate_agrees_with_serde_json(text in r#"[\[\]{}":,0-9a-f\\utrlsen. eE+\-"é]{0,24}"#) {
            let theirs = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text).is_ok();
            // Lone surrogates are valid escapes; only decoding rejects them.
            prop_assert_eq!(validate(text.as_bytes(), 100).is_ok(), theirs, "{}", text);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = validate(&bytes, 16);
            let _ = Cursor::new(&bytes, 16).skip();
        }
    }
}
