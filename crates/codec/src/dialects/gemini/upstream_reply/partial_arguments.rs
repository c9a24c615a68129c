//! Calls whose arguments arrive in pieces, each with its path (Vertex).
//!
//! Pieces may arrive in any order, so the arguments are emitted when the call is complete.

use serde_json::{Map, Value};

/// Deeper paths are ignored.
const DEPTH: usize = 100;

/// The arguments so far.
#[derive(Debug, Default)]
pub(crate) struct PartialArguments {
    root: Map<String, Value>,
    /// The path of an incomplete string.
    unfinished: Option<String>,
}

impl PartialArguments {
    /// Starts with the arguments that came with the call.
    pub(crate) fn from(arguments: &[u8]) -> Self {
        Self { root: serde_json::from_slice(arguments).unwrap_or_default(), unfinished: None }
    }

    /// Adds a list of pieces.
    pub(crate) fn take(&mut self, pieces: &[u8]) {
        let Ok(Value::Array(pieces)) = serde_json::from_slice(pieces) else {
            return;
        };
        for piece in &pieces {
            self.take_one(piece);
        }
    }

    fn take_one(&mut self, piece: &Value) {
        let get = |camel: &str, snake: &str| piece.get(camel).or_else(|| piece.get(snake));
        let Some(path) = get("jsonPath", "json_path").and_then(Value::as_str) else {
            return;
        };
        let value = if let Some(text) = get("stringValue", "string_value") {
            text.clone()
        } else if let Some(number) = get("numberValue", "number_value") {
            number.clone()
        } else if let Some(flag) = get("boolValue", "bool_value") {
            flag.clone()
        } else {
            Value::Null
        };
        let goes_on = get("willContinue", "will_continue") == Some(&Value::Bool(true));
        let continued = self.unfinished.as_deref() == Some(path);
        if let Some(slot) = value_at(&mut self.root, path) {
            match (slot, value) {
                (Value::String(text), Value::String(more)) if continued => text.push_str(&more),
                // A string may end without more text.
                (Value::String(_), Value::Null) if continued => {}
                (slot, value) => *slot = value,
            }
        }
        self.unfinished = goes_on.then(|| path.to_owned());
    }

    /// The arguments as JSON.
    pub(crate) fn finish(self) -> String {
        Value::Object(self.root).to_string()
    }
}

/// The value at a path such as `$.stops[0]['long name']`. Missing containers are created.
fn value_at<'a>(root: &'a mut Map<String, Value>, path: &str) -> Option<&'a mut Value> {
    let mut steps = steps(path)?.into_iter();
    let mut slot = match steps.next()? {
        Step::Member(name) => root.entry(name).or_insert(Value::Null),
        Step::Element(_) => return None,
    };
    for step in steps {
        slot = match step {
            Step::Member(name) => {
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                slot.as_object_mut()?.entry(name).or_insert(Value::Null)
            }
            Step::Element(at) => {
                if !slot.is_array() {
                    *slot = Value::Array(Vec::new());
                }
                let list = slot.as_array_mut()?;
                // A large index must not create a long list.
                let at = at.min(list.len());
                if at == list.len() {
                    list.push(Value::Null);
                }
                list.get_mut(at)?
            }
        };
    }
    Some(slot)
}

enum Step {
    Member(String),
    Element(usize),
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if steps.len() == DEPTH {
            return None;
        }
        if let Some(inside) = rest.strip_prefix('[') {
            let quote = inside.chars().next().filter(|&quote| quote == '\'' || quote == '"');
            if let Some(quote) = quote {
                let inside = &inside[1..];
                let mut end = inside.find(quote)?;
                while inside[..end].ends_with('\\') {
                    end += 1 + inside[end + 1..].find(quote)?;
                }
                steps.push(Step::Member(inside[..end].replace('\\', "")));
                rest = inside[end + 1..].strip_prefix(']')?;
            } else {
                let (number, after) = inside.split_once(']')?;
                steps.push(Step::Element(number.parse().ok()?));
                rest = after;
            }
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return None;
            }
            steps.push(Step::Member(name[..end].to_owned()));
            rest = &name[end..];
        }
    }
    Some(steps)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(pieces: &[Value], expected: &Value) {
        let mut arguments = PartialArguments::default();
        for piece in pieces {
            arguments.take(json!([piece]).to_string().as_bytes());
        }
        assert_eq!(arguments.finish(), expected.to_string());
    }

    #[test]
    fn pieces_are_placed_by_their_path() {
        check(
            &[
                json!({"jsonPath": "$.city", "stringValue": "Os", "willContinue": true}),
                json!({"jsonPath": "$.city", "stringValue": "lo", "willContinue": true}),
                json!({"jsonPath": "$.city"}),
                json!({"jsonPath": "$.days", "numberValue": 3}),
                json!({"jsonPath": "$.now", "boolValue": true}),
                json!({"jsonPath": "$.note", "nullValue": "NULL_VALUE"}),
                json!({"jsonPath": "$.stops[0].name", "stringValue": "A"}),
                json!({"jsonPath": "$.stops[1]['long name']", "stringValue": "B"}),
                json!({"jsonPath": "$.city2", "stringValue": "x"}),
                json!({"jsonPath": "$.city2", "stringValue": "y"}),
            ],
            &json!({"city": "Oslo", "days": 3, "now": true, "note": null,
                "stops": [{"name": "A"}, {"long name": "B"}], "city2": "y"}),
        );
    }

    #[test]
    fn invalid_paths_are_ignored() {
        let path = |path: &str| json!({"jsonPath": path, "stringValue": "x"});
        check(
            &[
                path("$.a[99999999999]"),
                path("$.a[1e9]"),
                path("$[0]"),
                path("$.."),
                path("$"),
                path("$['open"),
                path(&".a".repeat(100_000)),
                json!({"stringValue": "no path"}),
                json!(7),
            ],
            &json!({"a": ["x"]}),
        );
    }
}
