//! A JSON value that knows its path, so that errors can name the path.

use serde_json::{Map, Value};
use throughline_canonical::Fault;

use super::{Kind, MAX_TREE_DEPTH, deep};

/// A value of a request, with its path.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    value: &'a Value,
    location: Location<'a>,
}

/// The path of a value, linked from the inside out.
#[derive(Clone, Copy, Debug)]
enum Location<'a> {
    Root(IndexStyle),
    Member(&'a Node<'a>, &'a str),
    Element(&'a Node<'a>, usize),
}

/// How paths write the index of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IndexStyle {
    /// `messages[2]`
    Bracketed,
    /// `messages.2`
    Dotted,
}

impl<'a> Node<'a> {
    /// Wraps the outermost value. Paths look like `messages[2].content[0]`.
    pub fn root(value: &'a Value) -> Self {
        Self { value, location: Location::Root(IndexStyle::Bracketed) }
    }

    /// Wraps the outermost value. Paths look like `messages.2.content.0`.
    pub fn dotted(value: &'a Value) -> Self {
        Self { value, location: Location::Root(IndexStyle::Dotted) }
    }

    /// The value itself.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// The path of the value, for example `messages[2].content[0].text` or
    /// `messages.2.content.0.text`.
    pub fn path(&self) -> String {
        let mut path = String::new();
        self.write_path(&mut path);
        path
    }

    /// Appends the path. Returns the index style of this tree.
    fn write_path(&self, path: &mut String) -> IndexStyle {
        match self.location {
            Location::Root(style) => style,
            Location::Member(around, key) => {
                let style = around.write_path(path);
                append(path, key);
                style
            }
            Location::Element(around, index) => {
                let style = around.write_path(path);
                match style {
                    IndexStyle::Bracketed => path.push_str(&format!("[{index}]")),
                    IndexStyle::Dotted => append(path, &index.to_string()),
                }
                style
            }
        }
    }

    /// A fault with the path, the expected type and the type found.
    pub fn wrong(&self, expected: &str) -> Fault {
        let found = match self.value {
            Value::Null => Kind::Null,
            Value::Bool(_) => Kind::Bool,
            Value::Number(_) => Kind::Number,
            Value::String(_) => Kind::String,
            Value::Array(_) => Kind::Array,
            Value::Object(_) => Kind::Object,
        };
        let found = found.name();
        self.refuse(&format!("expected {expected}, found {found}"))
    }

    /// A fault with the path and the reason.
    pub fn refuse(&self, why: &str) -> Fault {
        match self.path() {
            path if path.is_empty() => Fault::invalid(why),
            path => Fault::at(path, why),
        }
    }

    /// The members of an object.
    pub fn object(&self) -> Result<&'a Map<String, Value>, Fault> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// A member of an object. A null member counts as missing.
    pub fn get(&'a self, key: &'a str) -> Option<Node<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Node { value, location: Location::Member(self, key) })
    }

    /// Whether a member is explicitly null.
    pub fn is_null(&self, key: &str) -> bool {
        self.value.get(key).is_some_and(Value::is_null)
    }

    /// A required member.
    pub fn need(&'a self, key: &'a str) -> Result<Node<'a>, Fault> {
        self.get(key).ok_or_else(|| {
            let location = Location::Member(self, key);
            let missing = Node { value: &Value::Null, location };
            missing.refuse("is required")
        })
    }

    /// The elements of an array.
    pub fn elements(&'a self) -> Result<impl Iterator<Item = Node<'a>>, Fault> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        Ok(list
            .iter()
            .enumerate()
            .map(move |(index, value)| Node { value, location: Location::Element(self, index) }))
    }

    /// The value as a string.
    pub fn text(&self) -> Result<&'a str, Fault> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// The value as a whole number that is not negative.
    pub fn count(&self) -> Result<u64, Fault> {
        // Some clients write 64-bit numbers as strings, and whole numbers as `5.0`.
        let read = match self.value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.as_u64().or_else(|| {
                let value = number.as_f64()?;
                (value >= 0.0 && value.fract() == 0.0 && value < 2f64.powi(53))
                    .then_some(value as u64)
            }),
            _ => None,
        };
        read.ok_or_else(|| self.wrong("a whole number"))
    }

    /// The value as a number.
    pub fn number(&self) -> Result<f64, Fault> {
        self.value.as_f64().ok_or_else(|| self.wrong("a number"))
    }

    /// The value as a boolean.
    pub fn flag(&self) -> Result<bool, Fault> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// The members whose keys are not in `known`.
    pub fn others(&self, known: &[&str]) -> Map<String, Value> {
        let Value::Object(members) = self.value else {
            return Map::new();
        };
        members
            .iter()
            .filter(|(key, _)| !known.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

fn append(path: &mut String, member: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(member);
}

/// Parses a body, which must be a JSON object that nests at most `max_depth` levels deep.
pub fn read_object(body: &[u8], max_depth: Option<usize>) -> Result<Value, Fault> {
    let value = deep::read(body, max_depth.unwrap_or(MAX_TREE_DEPTH)).map_err(|error| {
        // serde_json's message is better than ours, unless only the depth is the problem.
        match serde_json::from_slice::<Value>(body) {
            Ok(_) => Fault::invalid(error.to_string()),
            Err(error) => Fault::invalid(format!("the body is not JSON: {error}")),
        }
    })?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(Node::root(&value).wrong("a JSON object as the body"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn faults_name_the_path() {
        let body = json!({"messages": [{"content": "x"}, {"content": [{"text": 7}]}], "n": -1});
        let root = Node::root(&body);
        let messages = root.need("messages").unwrap();
        let second = messages.elements().unwrap().nth(1).unwrap();
        let content = second.need("content").unwrap();
        let block = content.elements().unwrap().next().unwrap();
        let text = block.need("text").unwrap();
        let check = |fault: Fault, message: &str| assert_eq!(fault.message, message);
        check(
            text.text().unwrap_err(),
            "messages[1].content[0].text: expected a string, found a number",
        );
        check(block.need("type").unwrap_err(), "messages[1].content[0].type: is required");
        let list = json!([[7]]);
        for (root, path) in [(Node::root(&list), "[0][0]"), (Node::dotted(&list), "0.0")] {
            let outer = root.elements().unwrap().next().unwrap();
            assert_eq!(outer.elements().unwrap().next().unwrap().path(), path);
        }
        check(root.need("model").unwrap_err(), "model: is required");
        check(
            root.need("n").unwrap().count().unwrap_err(),
            "n: expected a whole number, found a number",
        );
        check(root.elements().map(|_| ()).unwrap_err(), "expected a list, found an object");
        check(
            read_object(b"[]", None).unwrap_err(),
            "expected a JSON object as the body, found a list",
        );
        assert!(read_object(b"{", None).unwrap_err().message.starts_with("the body is not JSON"));
    }

    #[test]
    fn read_object_limits_the_depth() {
        for (levels, max_depth, accepted) in [
            (5, Some(5), true),
            (6, Some(5), false),
            (128, Some(128), true),
            (129, Some(128), false),
            (MAX_TREE_DEPTH, None, true),
            (MAX_TREE_DEPTH + 1, Some(usize::MAX), false),
        ] {
            let inner = [vec![b'['; levels - 1], vec![b']'; levels - 1]].concat();
            let body = [br#"{"a":"#, inner.as_slice(), b"}"].concat();
            assert_eq!(read_object(&body, max_depth).is_ok(), accepted, "{levels} {max_depth:?}");
        }
    }

    #[test]
    fn count_accepts_strings_and_whole_floats() {
        for (value, count) in [
            (json!(5), Some(5)),
            (json!("5"), Some(5)),
            (json!(5.0), Some(5)),
            (json!(5.5), None),
            (json!(-5), None),
            (json!("x"), None),
            (json!(true), None),
        ] {
            assert_eq!(Node::root(&value).count().ok(), count, "{value}");
        }
    }
}
