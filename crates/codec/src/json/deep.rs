//! Reads JSON into a tree. `serde_json` stops at 127 levels to protect its stack; this reader uses no
//! stack per level. It also reads long strings with many escapes in half the time.

use serde_json::{Map, Value};

use super::cursor::{Cursor, JsonError, Kind, slice};
use super::string::read_escape;

/// Deepest nesting that is read into a tree. Code that walks a tree does need stack per level.
pub const MAX_TREE_DEPTH: usize = 1024;

/// An object or array whose end has not been read.
struct OpenContainer {
    container: Container,
    /// Nothing inside it has been read yet.
    first: bool,
}

enum Container {
    Object { members: Map<String, Value>, key: String },
    List(Vec<Value>),
}

impl OpenContainer {
    fn insert(&mut self, value: Value) {
        match &mut self.container {
            Container::Object { members, key } => {
                members.insert(std::mem::take(key), value);
            }
            Container::List(list) => list.push(value),
        }
    }

    /// Moves to the next value. Returns false at the end of the container.
    fn has_next(&mut self, reader: &mut TextReader<'_>) -> Result<bool, JsonError> {
        match &mut self.container {
            Container::Object { key, .. } => match reader.key(&mut self.first)? {
                Some(next) => {
                    *key = next;
                    Ok(true)
                }
                None => Ok(false),
            },
            Container::List(_) => reader.cursor.element(&mut self.first),
        }
    }

    fn close(self) -> Value {
        match self.container {
            Container::Object { members, .. } => Value::Object(members),
            Container::List(list) => Value::Array(list),
        }
    }
}

/// Reads strings, and knows that the whole text is UTF-8.
struct TextReader<'a> {
    text: &'a str,
    cursor: Cursor<'a>,
    /// The string that is being decoded. It is kept for the next one, because it need not grow again.
    decoded: String,
}

impl TextReader<'_> {
    /// Reads the next key and its colon. `None` after the closing brace.
    fn key(&mut self, first: &mut bool) -> Result<Option<String>, JsonError> {
        if !self.cursor.has_key(first)? {
            return Ok(None);
        }
        let key = self.string()?;
        self.cursor.colon()?;
        Ok(Some(key))
    }

    /// Reads the next value, which must be a string.
    fn string(&mut self) -> Result<String, JsonError> {
        let Self { text, cursor, decoded } = self;
        decoded.clear();
        let mut written = cursor.start() + 1;
        let mut wrong = None;
        let span = cursor.string_with(|at| {
            // The second half of a surrogate pair was decoded with the first.
            if at < written {
                return;
            }
            let Some((character, length)) = read_escape(&text.as_bytes()[at..]) else {
                wrong = Some(at);
                return;
            };
            decoded.push_str(&text[written..at]);
            decoded.push(character);
            written = at + length;
        })?;
        match wrong {
            Some(at) => Err(JsonError::Unexpected(at)),
            None if written == span.start => Ok(text[span].to_owned()),
            None => {
                decoded.push_str(&text[written..span.end]);
                Ok(decoded.clone())
            }
        }
    }
}

/// Reads a text that is exactly one value.
pub(super) fn read(bytes: &[u8], max_depth: usize) -> Result<Value, JsonError> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|error| JsonError::NotUtf8(error.valid_up_to()))?;
    let cursor = Cursor::new(bytes, max_depth.min(MAX_TREE_DEPTH));
    let mut reader = TextReader { text, cursor, decoded: String::new() };
    let mut open: Vec<OpenContainer> = Vec::new();
    loop {
        let mut value = None;
        let mut begin = |container| open.push(OpenContainer { container, first: true });
        match reader.cursor.peek()? {
            Kind::Object => {
                reader.cursor.enter_object()?;
                begin(Container::Object { members: Map::new(), key: String::new() });
            }
            Kind::Array => {
                reader.cursor.enter_array()?;
                begin(Container::List(Vec::new()));
            }
            Kind::String => value = Some(Value::String(reader.string()?)),
            Kind::Number | Kind::Bool | Kind::Null => {
                let at = reader.cursor.start();
                let scalar = reader.cursor.skip()?;
                let read = serde_json::from_slice(slice(bytes, &scalar));
                value = Some(read.map_err(|_| JsonError::Unexpected(at))?);
            }
        }
        // A finished value goes into its container. That may finish the container too.
        loop {
            let Some(innermost) = open.last_mut() else {
                reader.cursor.end()?;
                return Ok(value.unwrap_or_default());
            };
            if let Some(value) = value.take() {
                innermost.insert(value);
            }
            if innermost.has_next(&mut reader)? {
                break;
            }
            value = open.pop().map(OpenContainer::close);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_serde_json() {
        for text in [
            "7",
            " \"a\\u00e9\\n\" ",
            r#"["\\","\"","a\\\"b","\ud83e\udde0","x\ud83e\udde0\\y","\ufffd","","\/\b\f\r\t"]"#,
            r#"{"k\u00e9y\\":1,"\n":"\n"}"#,
            "[]",
            "{}",
            "[1,-2.5e3,18446744073709551615,true,false,null,\"x\"]",
            r#"{"a":{"b":[{},[],[[1]]],"a":1},"":"","a\"":2,"a":3}"#,
        ] {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes(), 8), Ok(usual), "{text}");
        }
        let lone = [r#""\ud83e""#, r#""\ud83e\n""#, r#""\udde0""#, r#"{"\ud83e":1}"#];
        let broken = ["", "[", "[1,]", "{\"a\"}", "{\"a\":1,}", "1 2", "nul", "[1}", "\"\\x\""];
        for text in broken.into_iter().chain(lone) {
            assert!(serde_json::from_str::<Value>(text).is_err(), "{text}");
            assert!(read(text.as_bytes(), 8).is_err(), "{text}");
        }
        assert!(read(b"\"\xff\"", 8).is_err());
    }

    #[test]
    fn depth_is_limited() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert!(read(&nested(MAX_TREE_DEPTH), usize::MAX).is_ok());
        assert_eq!(
            read(&nested(MAX_TREE_DEPTH + 1), usize::MAX),
            Err(JsonError::TooDeep(MAX_TREE_DEPTH))
        );
        assert_eq!(read(&vec![b'['; 5_000_000], 200), Err(JsonError::TooDeep(200)));
    }
}
