//! Splits a byte stream into JSON objects: a growing list, an error between events, or a whole
//! reply.

use crate::dialects::shared::reply_framing::TooLong;

/// Splits a stream into its outermost objects.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    /// The start of an incomplete object.
    carry: Vec<u8>,
    depth: usize,
    inside: Inside,
    limit: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Value,
    String,
    /// After a backslash in a string.
    Escape,
}

impl Objects {
    /// Creates a splitter for objects of at most `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { carry: Vec::new(), depth: 0, inside: Inside::Value, limit }
    }

    /// Reads the next bytes and emits each complete object.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut object: impl FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        let (mut start, mut at) = (0, 0);
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            let found = match self.inside {
                _ if rest.is_empty() => None,
                Inside::Value if self.depth == 0 => {
                    let found = memchr::memchr(b'{', rest);
                    start = at + found.unwrap_or(rest.len());
                    found
                }
                Inside::Value => memchr::memchr3(b'{', b'}', b'"', rest),
                Inside::String => memchr::memchr2(b'"', b'\\', rest),
                Inside::Escape => Some(0),
            };
            let Some(found) = found else {
                break;
            };
            let byte = rest[found];
            at += found + 1;
            match (self.inside, byte) {
                (Inside::Escape, _) => self.inside = Inside::String,
                (Inside::String, b'"') => self.inside = Inside::Value,
                (Inside::String, _) => self.inside = Inside::Escape,
                (Inside::Value, b'"') => self.inside = Inside::String,
                (Inside::Value, b'{') => self.depth += 1,
                (Inside::Value, _) => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        let piece = &bytes[start..at];
                        if self.carry.len() + piece.len() > self.limit {
                            return Err(TooLong);
                        }
                        if self.carry.is_empty() {
                            object(piece);
                        } else {
                            self.carry.extend_from_slice(piece);
                            object(&self.carry);
                            self.carry.clear();
                        }
                        start = at;
                    }
                }
            }
        }
        if self.depth > 0 {
            let piece = &bytes[start..];
            if self.carry.len() + piece.len() > self.limit {
                return Err(TooLong);
            }
            self.carry.extend_from_slice(piece);
        }
        Ok(())
    }

    /// The beginning of an object whose end has not arrived.
    pub(crate) fn half(&self) -> &[u8] {
        &self.carry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(pieces: &[&[u8]], limit: usize) -> Result<Vec<String>, TooLong> {
        let mut objects = Objects::new(limit);
        let mut all = Vec::new();
        for piece in pieces {
            objects.push(piece, |object| {
                all.push(String::from_utf8_lossy(object).into_owned());
            })?;
        }
        Ok(all)
    }

    #[test]
    fn every_split_gives_the_same_objects() {
        let stream = r#"[{"a":"}\"{"}, {"b":{"c":[{}]}} ,{"d":"\\"}]{}x{"half":"#.as_bytes();
        let expected = [r#"{"a":"}\"{"}"#, r#"{"b":{"c":[{}]}}"#, r#"{"d":"\\"}"#, "{}"];
        for at in 0..=stream.len() {
            let (one, two) = stream.split_at(at);
            assert_eq!(cut(&[one, two], 100).unwrap(), expected, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(cut(&bytes, 100).unwrap(), expected);
    }

    #[test]
    fn object_limit_holds_for_every_split() {
        let stream = br#"{"a":"0123456789"}"#;
        for at in 0..stream.len() {
            let (one, two) = stream.split_at(at);
            assert_eq!(cut(&[one, two], stream.len() - 1), Err(TooLong));
            assert!(cut(&[one, two], stream.len()).is_ok());
        }
    }
}
