//! A tree of values from JSON that nests deeper than the usual reader follows, which stops at 127 levels
//! to spare its stack. This one takes none of it for a level.

use serde_json::{Map, Value};

use super::cursor::{Cursor, JsonError, Kind, slice};
use super::decode;

/// More levels than this are never read into a tree: whoever walks one does need a stack.
pub const DEEPEST: usize = 1024;

/// An object or a list whose end has not come.
struct Open {
    container: Container,
    /// Nothing of it has come yet.
    first: bool,
}

enum Container {
    Object { members: Map<String, Value>, key: String },
    List(Vec<Value>),
}

impl Open {
    fn put(&mut self, value: Value) {
        match &mut self.container {
            Container::Object { members, key } => {
                members.insert(std::mem::take(key), value);
            }
            Container::List(list) => list.push(value),
        }
    }

    /// Whether another value stands next.
    fn goes_on(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, JsonError> {
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

/// Reads a text that is one value and nothing else.
pub(super) fn read(bytes: &[u8]) -> Result<Value, JsonError> {
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(JsonError::NotUtf8(error.valid_up_to()));
    }
    let mut cursor = Cursor::new(bytes, DEEPEST);
    let mut open: Vec<Open> = Vec::new();
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
            Some(container) => open.push(Open { container, first: true }),
            None => {
                let at = cursor.start();
                let scalar = cursor.skip()?;
                let read = serde_json::from_slice(slice(bytes, &scalar));
                value = Some(read.map_err(|_| JsonError::Unexpected(at))?);
            }
        }
        // What ends here goes into what stands around it.
        loop {
            let Some(inmost) = open.last_mut() else {
                cursor.end()?;
                return Ok(value.unwrap_or_default());
            };
            if let Some(value) = value.take() {
                inmost.put(value);
            }
            if inmost.goes_on(&mut cursor)? {
                break;
            }
            value = open.pop().map(Open::close);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_the_usual_reader_reads() {
        for text in [
            "7",
            " \"a\\u00e9\\n\" ",
            "[]",
            "{}",
            "[1,-2.5e3,18446744073709551615,true,false,null,\"x\"]",
            r#"{"a":{"b":[{},[],[[1]]],"a":1},"":"","a\"":2,"a":3}"#,
        ] {
            let usual: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text.as_bytes()), Ok(usual), "{text}");
        }
        for text in ["", "[", "[1,]", "{\"a\"}", "{\"a\":1,}", "1 2", "nul", "[1}"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(read(b"\"\xff\"").is_err());
    }

    #[test]
    fn depth_has_a_bound() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert!(read(&nested(DEEPEST)).is_ok());
        assert_eq!(read(&nested(DEEPEST + 1)), Err(JsonError::TooDeep(DEEPEST)));
        assert_eq!(read(&vec![b'['; 5_000_000]), Err(JsonError::TooDeep(DEEPEST)));
    }
}
