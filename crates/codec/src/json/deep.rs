//! Reads JSON that nests deeper than `serde_json` allows. That crate stops at 127 levels to protect
//! its stack. This reader uses no stack per level.

use serde_json::{Map, Value};

use super::cursor::{Cursor, JsonError, Kind, slice};
use super::decode;

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
    fn has_next(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, JsonError> {
        match &mut self.container {
            Container::Object { key, .. } => match cursor.key(&mut self.first)? {
                Some(raw) => {
                    *key = decode(raw).into_owned();
                    Ok(true)
                }
                None => Ok(false),
            },
            Container::List(_) => cursor.element(&mut self.first),
        }
    }

    fn close(self) -> Value {
        match self.container {
            Container::Object { members, .. } => Value::Object(members),
            Container::List(list) => Value::Array(list),
        }
    }
}

/// Reads a text that is exactly one value.
pub(super) fn read(bytes: &[u8], max_depth: usize) -> Result<Value, JsonError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(JsonError::NotUtf8(error.valid_up_to()));
    }
    let mut cursor = Cursor::new(bytes, max_depth.min(MAX_TREE_DEPTH));
    let mut open: Vec<OpenContainer> = Vec::new();
    loop {
        let container = match cursor.peek()? {
            Kind::Object => {
                cursor.enter_object()?;
                let (members, key) = (Map::new(), String::new());
                Some(Container::Object { members, key })
            }
            Kind::Array => {
                cursor.enter_array()?;
                Some(Container::List(Vec::new()))
            }
            _ => None,
        };
        let mut value = None;
        match container {
            Some(container) => open.push(OpenContainer { container, first: true }),
            None => {
                let at = cursor.start();
                let scalar = cursor.skip()?;
                let read = serde_json::from_slice(slice(bytes, &scalar));
                value = Some(read.map_err(|_| JsonError::Unexpected(at))?);
            }
        }
        // A finished value goes into its container. That may finish the container too.
        loop {
            let Some(innermost) = open.last_mut() else {
                cursor.end()?;
                return Ok(value.unwrap_or_default());
            };
            if let Some(value) = value.take() {
                innermost.insert(value);
            }
            if innermost.has_next(&mut cursor)? {
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
            "[]",
            "{}",
            "[1,-2.5e3,18446744073709551615,true,false,null,\"x\"]",
            r#"{"a":{"b":[{},[],[[1]]],"a":1},"":"","a\"":2,"a":3}"#,
        ] {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes(), 8), Ok(usual), "{text}");
        }
        for text in ["", "[", "[1,]", "{\"a\"}", "{\"a\":1,}", "1 2", "nul", "[1}"] {
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
