//! Members in either spelling: the provider accepts `thinkingConfig` and `thinking_config`, and
//! real clients mix them.

use serde_json::{Map, Value};
use throughline_canonical::Fault;

use crate::json::Node;

/// Whether a key has this name, given in camel case.
pub(crate) fn is(key: &str, name: &str) -> bool {
    if key == name {
        return true;
    }
    let mut key = key.chars();
    for letter in name.chars() {
        let found = if letter.is_ascii_uppercase() {
            key.next() == Some('_') && key.next() == Some(letter.to_ascii_lowercase())
        } else {
            key.next() == Some(letter)
        };
        if !found {
            return false;
        }
    }
    key.next().is_none()
}

/// Finds a member. Null counts as absent.
pub(crate) fn member<'a>(node: &'a Node<'a>, name: &str) -> Option<Node<'a>> {
    let members = node.value().as_object()?;
    let (key, _) = members.iter().find(|(key, value)| !value.is_null() && is(key, name))?;
    node.get(key)
}

/// Finds a required member.
pub(crate) fn need<'a>(node: &'a Node<'a>, name: &'a str) -> Result<Node<'a>, Fault> {
    match member(node, name) {
        Some(found) => Ok(found),
        None => node.need(name),
    }
}

/// The other members that are not null.
pub(crate) fn others(node: &Node<'_>, known: &[&str]) -> Map<String, Value> {
    let Value::Object(members) = node.value() else {
        return Map::new();
    };
    members
        .iter()
        .filter(|(key, value)| !value.is_null() && !known.iter().any(|name| is(key, name)))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_match() {
        for (key, name, same) in [
            ("thinkingConfig", "thinkingConfig", true),
            ("thinking_config", "thinkingConfig", true),
            ("parameters_json_schema", "parametersJsonSchema", true),
            ("thinking_Config", "thinkingConfig", false),
            ("thinkingconfig", "thinkingConfig", false),
            ("thinking", "thinkingConfig", false),
            ("thinking_configs", "thinkingConfig", false),
            ("topP", "topP", true),
            ("top_p", "topP", true),
            ("", "topP", false),
        ] {
            assert_eq!(is(key, name), same, "{key}");
        }
    }

    #[test]
    fn null_counts_as_absent_in_either_spelling() {
        let value = serde_json::json!({"topP": null, "top_p": 1, "x": null, "y": 2});
        let node = Node::root(&value);
        assert_eq!(member(&node, "topP").unwrap().path(), "top_p");
        assert!(member(&node, "x").is_none());
        assert_eq!(Value::Object(others(&node, &["topP"])), serde_json::json!({"y": 2}));
        assert_eq!(need(&node, "zZ").unwrap_err().message, "zZ: is required");
    }
}
