//! A JSON value with the way to it, so that whoever finds something wrong can say where.

use serde_json::{Map, Value};
use throughline_canonical::Fault;

use super::{Kind, deep};

/// A value of a request, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    value: &'a Value,
    way: Way<'a>,
}

/// The way to a value, from the inside out.
#[derive(Clone, Copy, Debug)]
enum Way<'a> {
    Root(Places),
    Member(&'a Node<'a>, &'a str),
    Element(&'a Node<'a>, usize),
}

/// How the place of an element is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    /// `messages[2]`
    Bracketed,
    /// `messages.2`
    Dotted,
}

impl<'a> Node<'a> {
    /// The outermost value.
    pub fn root(value: &'a Value) -> Self {
        Self { value, way: Way::Root(Places::Bracketed) }
    }

    /// The outermost value, for a dialect that spells places as `messages.2.content.0`.
    pub fn dotted(value: &'a Value) -> Self {
        Self { value, way: Way::Root(Places::Dotted) }
    }

    /// The value itself.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// Where it stands, such as `messages[2].content[0].text`, or `messages.2.content.0.text`.
    pub fn path(&self) -> String {
        let mut path = String::new();
        self.spell(&mut path);
        path
    }

    /// Appends where it stands. Answers how places are spelled here.
    fn spell(&self, path: &mut String) -> Places {
        match self.way {
            Way::Root(places) => places,
            Way::Member(around, key) => {
                let places = around.spell(path);
                append(path, key);
                places
            }
            Way::Element(around, place) => {
                let places = around.spell(path);
                match places {
                    Places::Bracketed => path.push_str(&format!("[{place}]")),
                    Places::Dotted => append(path, &place.to_string()),
                }
                places
            }
        }
    }

    /// A fault that says where, and what was expected there.
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
        match self.path().as_str() {
            "" => Fault::invalid(format!("expected {expected}, found {found}")),
            path => Fault::invalid(format!("{path}: expected {expected}, found {found}")),
        }
    }

    /// A fault that says where, and what is wrong with the value there.
    pub fn refuse(&self, why: &str) -> Fault {
        match self.path().as_str() {
            "" => Fault::invalid(why),
            path => Fault::invalid(format!("{path}: {why}")),
        }
    }

    /// The members of an object.
    pub fn object(&self) -> Result<&'a Map<String, Value>, Fault> {
        self.value.as_object().ok_or_else(|| self.wrong("an object"))
    }

    /// A member of an object. One that is null is not there.
    pub fn get(&'a self, key: &'a str) -> Option<Node<'a>> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Node { value, way: Way::Member(self, key) })
    }

    /// Whether a member is there and null: whoever writes that says that there is nothing.
    pub fn is_null(&self, key: &str) -> bool {
        self.value.get(key).is_some_and(Value::is_null)
    }

    /// A member that must be there.
    pub fn need(&'a self, key: &'a str) -> Result<Node<'a>, Fault> {
        self.get(key).ok_or_else(|| {
            let way = Way::Member(self, key);
            let missing = Node { value: &Value::Null, way };
            missing.refuse("is required")
        })
    }

    /// The elements of a list.
    pub fn elements(&'a self) -> Result<impl Iterator<Item = Node<'a>>, Fault> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("a list"))?;
        Ok(list
            .iter()
            .enumerate()
            .map(move |(place, value)| Node { value, way: Way::Element(self, place) }))
    }

    /// A string.
    pub fn text(&self) -> Result<&'a str, Fault> {
        self.value.as_str().ok_or_else(|| self.wrong("a string"))
    }

    /// A whole number that is not negative.
    pub fn count(&self) -> Result<u64, Fault> {
        // Some clients write 64-bit numbers as strings, and whole ones with a fraction of zero.
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

    /// A number.
    pub fn number(&self) -> Result<f64, Fault> {
        self.value.as_f64().ok_or_else(|| self.wrong("a number"))
    }

    /// True or false.
    pub fn flag(&self) -> Result<bool, Fault> {
        self.value.as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    /// Members that are none of these.
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

/// Reads a body, which must be a JSON object.
pub fn read_object(body: &[u8]) -> Result<Value, Fault> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        // It tells better than we do what is wrong, unless that is the depth alone.
        Err(error) => deep::read(body)
            .map_err(|_| Fault::invalid(format!("the body is not JSON: {error}")))?,
    };
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
    fn faults_say_where() {
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
        check(read_object(b"[]").unwrap_err(), "expected a JSON object as the body, found a list");
        assert!(read_object(b"{").unwrap_err().message.starts_with("the body is not JSON"));
    }

    #[test]
    fn numbers_come_in_many_spellings() {
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
