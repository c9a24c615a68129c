//! A strict reader that walks JSON and tells where things are. It never builds a value.

use std::borrow::Cow;
use std::ops::Range;

use super::string::decode;
use crate::search::special;

/// A place in the text.
pub type Span = Range<usize>;

/// What a value is, by its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{`
    Object,
    /// `[`
    Array,
    /// `"`
    String,
    /// A digit or a minus.
    Number,
    /// `true` or `false`
    Bool,
    /// `null`
    Null,
}

impl Kind {
    /// What a person calls it.
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

/// Why a text is not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text ends inside a value.
    #[error("the JSON ends unexpectedly at byte {0}")]
    Truncated(usize),
    /// A byte that cannot stand there.
    #[error("unexpected byte in the JSON at byte {0}")]
    Unexpected(usize),
    /// More levels than allowed.
    #[error("the JSON is nested too deeply at byte {0}")]
    TooDeep(usize),
    /// Not UTF-8.
    #[error("the JSON is not valid UTF-8 at byte {0}")]
    NotUtf8(usize),
}

/// The bytes of a span; empty if the span does not lie in the text.
pub fn slice<'a>(bytes: &'a [u8], span: &Span) -> &'a [u8] {
    bytes.get(span.clone()).unwrap_or_default()
}

/// What stands between the quotes of a string value, still escaped.
pub fn inside<'a>(bytes: &'a [u8], string: &Span) -> &'a [u8] {
    slice(bytes, &(string.start + 1..string.end.saturating_sub(1)))
}

/// The text of a string value.
pub fn text<'a>(bytes: &'a [u8], string: &Span) -> Cow<'a, str> {
    decode(inside(bytes, string))
}

/// What a value is and where it stands, if it was found.
pub(crate) type Found = Option<(Kind, Span)>;

/// The text of a value; empty where it is no string or was not found.
pub(crate) fn found_text<'a>(bytes: &'a [u8], found: &Found) -> Cow<'a, str> {
    match found {
        Some((Kind::String, span)) => text(bytes, span),
        _ => "".into(),
    }
}

/// A value that is a whole number.
pub fn number(bytes: &[u8], span: &Span) -> Option<u64> {
    std::str::from_utf8(slice(bytes, span)).ok()?.parse().ok()
}

/// Walks the members of the object that stands at `start`: key, kind and place of each value.
pub fn each_member<'a>(
    bytes: &'a [u8],
    start: usize,
    mut member: impl FnMut(&'a [u8], Kind, Span),
) -> Result<(), JsonError> {
    // Walking costs no stack, so the depth needs no limit here.
    let mut cursor = Cursor::at(bytes, start, usize::MAX);
    cursor.enter_object()?;
    let mut first = true;
    while let Some(key) = cursor.key(&mut first)? {
        let kind = cursor.peek()?;
        member(key, kind, cursor.skip()?);
    }
    Ok(())
}

/// Walks the elements of the array that stands at `start`: kind and place of each.
pub fn each_element(
    bytes: &[u8],
    start: usize,
    mut element: impl FnMut(Kind, Span),
) -> Result<(), JsonError> {
    let mut cursor = Cursor::at(bytes, start, usize::MAX);
    cursor.enter_array()?;
    let mut first = true;
    while cursor.element(&mut first)? {
        let kind = cursor.peek()?;
        element(kind, cursor.skip()?);
    }
    Ok(())
}

/// Checks that the text is one JSON value and nothing else.
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

/// Where the reader stands.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    limit: usize,
}

impl<'a> Cursor<'a> {
    /// A reader at the beginning of a text, which may nest `limit` levels deep.
    pub fn new(bytes: &'a [u8], limit: usize) -> Self {
        Self { bytes, at: 0, depth: 0, limit }
    }

    /// A reader at the beginning of a value somewhere in the text. Spans it gives are places in
    /// the whole text.
    pub fn at(bytes: &'a [u8], at: usize, limit: usize) -> Self {
        Self { bytes, at, depth: 0, limit }
    }

    fn byte(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn white_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
    }

    fn wrong<T>(&self) -> Result<T, JsonError> {
        Err(if self.at >= self.bytes.len() {
            JsonError::Truncated(self.at)
        } else {
            JsonError::Unexpected(self.at)
        })
    }

    /// What stands next.
    pub fn peek(&mut self) -> Result<Kind, JsonError> {
        self.white_space();
        match self.byte() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => self.wrong(),
        }
    }

    /// Steps into the object that stands next.
    pub fn enter_object(&mut self) -> Result<(), JsonError> {
        self.enter(b'{')
    }

    /// Steps into the array that stands next.
    pub fn enter_array(&mut self) -> Result<(), JsonError> {
        self.enter(b'[')
    }

    fn enter(&mut self, open: u8) -> Result<(), JsonError> {
        self.white_space();
        if self.byte() != Some(open) {
            return self.wrong();
        }
        self.depth += 1;
        if self.depth > self.limit {
            return Err(JsonError::TooDeep(self.at));
        }
        self.at += 1;
        Ok(())
    }

    /// Where the next thing begins.
    pub fn start(&mut self) -> usize {
        self.white_space();
        self.at
    }

    /// Where the last thing ended.
    pub fn position(&self) -> usize {
        self.at
    }

    /// Inside an object: the next key, raw and without its quotes, or none where the object ends
    /// (which is then behind the reader). The value stands next.
    pub fn key(&mut self, first: &mut bool) -> Result<Option<&'a [u8]>, JsonError> {
        let span = self.key_span(first)?;
        Ok(span.map(|span| slice(self.bytes, &span)))
    }

    /// As [`Cursor::key`], but tells where the key stands.
    pub fn key_span(&mut self, first: &mut bool) -> Result<Option<Span>, JsonError> {
        if !self.more(first, b'}')? {
            return Ok(None);
        }
        if self.byte() != Some(b'"') {
            return self.wrong();
        }
        let span = self.string()?;
        self.white_space();
        if self.byte() != Some(b':') {
            return self.wrong();
        }
        self.at += 1;
        Ok(Some(span))
    }

    /// Inside an array: whether another element stands next.
    pub fn element(&mut self, first: &mut bool) -> Result<bool, JsonError> {
        self.more(first, b']')
    }

    fn more(&mut self, first: &mut bool, close: u8) -> Result<bool, JsonError> {
        self.white_space();
        match self.byte() {
            Some(byte) if byte == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(b',') if !*first => {
                self.at += 1;
                self.white_space();
                Ok(true)
            }
            Some(_) if *first => {
                *first = false;
                Ok(true)
            }
            _ => self.wrong(),
        }
    }

    /// Reads the string that stands next; the span lies between its quotes, still escaped.
    pub fn string(&mut self) -> Result<Span, JsonError> {
        self.white_space();
        if self.byte() != Some(b'"') {
            return self.wrong();
        }
        let start = self.at + 1;
        let mut at = start;
        loop {
            at = special(self.bytes, at);
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(start..at);
                }
                Some(b'\\') => match self.bytes.get(at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                    Some(b'u') => {
                        for digit in at + 2..at + 6 {
                            match self.bytes.get(digit) {
                                Some(byte) if byte.is_ascii_hexdigit() => {}
                                Some(_) => return Err(JsonError::Unexpected(digit)),
                                None => return Err(JsonError::Truncated(digit)),
                            }
                        }
                        at += 6;
                    }
                    Some(_) => return Err(JsonError::Unexpected(at + 1)),
                    None => return Err(JsonError::Truncated(at + 1)),
                },
                Some(_) => return Err(JsonError::Unexpected(at)),
                None => return Err(JsonError::Truncated(at)),
            }
        }
    }

    /// Steps over the value that stands next and tells where it was, without white space.
    pub fn skip(&mut self) -> Result<Span, JsonError> {
        self.white_space();
        let start = self.at;
        // One bit for each open container: set for objects. Levels beyond a word use the heap.
        let mut open = Levels::default();
        let outer = self.depth;
        loop {
            // A value stands next.
            match self.peek()? {
                kind @ (Kind::Object | Kind::Array) => {
                    self.depth += 1;
                    if self.depth > self.limit {
                        return Err(JsonError::TooDeep(self.at));
                    }
                    self.at += 1;
                    self.white_space();
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
                Kind::Bool if self.byte() == Some(b't') => self.word(b"true")?,
                Kind::Bool => self.word(b"false")?,
                Kind::Null => self.word(b"null")?,
            }
            // A value has ended: close what ends with it, or find the next one.
            loop {
                if self.depth == outer {
                    return Ok(start..self.at);
                }
                let object = open.last();
                self.white_space();
                match self.byte() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.white_space();
                            self.member()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    _ => return self.wrong(),
                }
                self.at += 1;
                self.depth -= 1;
                open.pop();
            }
        }
    }

    /// A key and its colon.
    fn member(&mut self) -> Result<(), JsonError> {
        self.string()?;
        self.white_space();
        if self.byte() != Some(b':') {
            return self.wrong();
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &'static [u8]) -> Result<(), JsonError> {
        for expected in word {
            if self.byte() != Some(*expected) {
                return self.wrong();
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
            _ => return self.wrong(),
        }
        if self.byte() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.some_digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.byte() {
            self.at += 1;
        }
    }

    fn some_digits(&mut self) -> Result<(), JsonError> {
        let before = self.at;
        self.digits();
        if self.at == before {
            return self.wrong();
        }
        Ok(())
    }

    /// Checks that nothing but white space follows.
    pub fn end(&mut self) -> Result<(), JsonError> {
        self.white_space();
        if self.at < self.bytes.len() {
            return self.wrong();
        }
        Ok(())
    }
}

/// A stack of bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Levels {
    word: u64,
    count: usize,
    spilled: Vec<u64>,
}

impl Levels {
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
    fn levels_remember_more_than_a_word() {
        let mut levels = Levels::default();
        let bits: Vec<bool> = (0..300).map(|n| n % 3 == 0 || n % 7 == 2).collect();
        for &bit in &bits {
            levels.push(bit);
        }
        for &bit in bits.iter().rev() {
            assert_eq!(levels.last(), bit);
            levels.pop();
        }
    }

    #[test]
    fn depth_is_limited_everywhere() {
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
        /// Whatever another strict parser says of a text, so do we.
        #[test]
        fn verdicts_agree_with_serde_json(text in r#"[\[\]{}":,0-9a-f\\utrlsen. eE+\-"é]{0,24}"#) {
            let theirs = serde_json::from_str::<Box<serde_json::value::RawValue>>(&text).is_ok();
            // Lone surrogates are spelled correctly and refused only when decoded.
            prop_assert_eq!(validate(text.as_bytes(), 100).is_ok(), theirs, "{}", text);
        }

        #[test]
        fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = validate(&bytes, 16);
            let _ = Cursor::new(&bytes, 16).skip();
        }
    }
}
