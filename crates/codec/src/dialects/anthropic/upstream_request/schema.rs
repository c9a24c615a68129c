//! JSON Schemas for answers. The provider builds a grammar from them, which is weaker than JSON
//! Schema: objects must be closed, and bounds are not supported. Unsupported rules go into the
//! description, for the model.

use serde_json::{Map, Value};

/// Keywords that the provider rejects.
const BOUNDS: [&str; 12] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
];

/// The schema in the form that the provider accepts.
pub(crate) fn closed(schema: &Value) -> Value {
    let Value::Object(members) = schema else {
        return schema.clone();
    };
    let merged = merged(members);
    let members = merged.as_ref().unwrap_or(members);
    let mut written = Map::new();
    let mut bounds = Vec::new();
    for (key, value) in members {
        let value = match (key.as_str(), value) {
            // Only 0 and 1 are supported.
            ("minItems", Value::Number(count))
                if count.as_u64().is_some_and(|count| count <= 1) =>
            {
                value.clone()
            }
            (bound, value) if BOUNDS.contains(&bound) => {
                bounds.push(format!("{bound}: {value}"));
                continue;
            }
            (
                "properties" | "$defs" | "definitions" | "patternProperties",
                Value::Object(named),
            ) => named
                .iter()
                .map(|(name, schema)| (name.clone(), closed(schema)))
                .collect::<Map<_, _>>()
                .into(),
            ("anyOf" | "allOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                schemas.iter().map(closed).collect::<Vec<_>>().into()
            }
            ("items", Value::Array(schemas)) => {
                schemas.iter().map(closed).collect::<Vec<_>>().into()
            }
            ("items" | "not" | "if" | "then" | "else" | "contains" | "additionalItems", value) => {
                closed(value)
            }
            (_, value) => value.clone(),
        };
        let key = match key.as_str() {
            "oneOf" if !members.contains_key("anyOf") => "anyOf",
            key => key,
        };
        written.insert(key.to_owned(), value);
    }
    if is_object(&written) {
        written.insert("additionalProperties".to_owned(), false.into());
    }
    if !bounds.is_empty() {
        let bounds = format!("{{{}}}", bounds.join(", "));
        let description = match written.get("description").and_then(Value::as_str) {
            Some(description) => format!("{description} {bounds}"),
            None => bounds,
        };
        written.insert("description".to_owned(), description.into());
    }
    written.into()
}

/// Merges `allOf` parts of an object into one object: closed, each part would reject the members of
/// the others. `None` if there are no parts.
fn merged(members: &Map<String, Value>) -> Option<Map<String, Value>> {
    let parts = members.get("allOf")?.as_array()?;
    let mut whole = members.clone();
    whole.shift_remove("allOf");
    for part in parts {
        let part = part.as_object().filter(|part| is_object(part))?;
        for (key, value) in part {
            match (key.as_str(), whole.get_mut(key), value) {
                ("properties", Some(Value::Object(all)), Value::Object(more)) => {
                    all.extend(more.clone());
                }
                ("required", Some(Value::Array(all)), Value::Array(more)) => {
                    let new = more.iter().filter(|name| !all.contains(name));
                    let new: Vec<Value> = new.cloned().collect();
                    all.extend(new);
                }
                (_, Some(_), _) if matches!(key.as_str(), "type" | "description" | "title") => {}
                ("additionalProperties", ..) => {}
                (_, Some(_), _) => return None,
                (_, None, value) => {
                    whole.insert(key.clone(), value.clone());
                }
            }
        }
    }
    Some(whole)
}

fn is_object(schema: &Map<String, Value>) -> bool {
    match schema.get("type") {
        Some(Value::String(word)) => word == "object",
        Some(Value::Array(words)) => words.iter().any(|word| word == "object"),
        _ => schema.contains_key("properties"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_closed_and_bounds_go_to_the_description() {
        let schema = json!({
            "type": "object",
            "properties": {
                "age": {"type": "integer", "minimum": 0, "maximum": 150, "description": "In years."},
                "names": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "string", "maxLength": 8}},
                "home": {"oneOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
                "minimum": {"type": ["object", "null"], "additionalProperties": {"type": "string"}},
            },
            "required": ["age"],
            "$defs": {"place": {"properties": {"town": {"type": "string"}}}},
        });
        assert_eq!(
            closed(&schema),
            json!({
                "type": "object",
                "properties": {
                    "age": {"type": "integer", "description": "In years. {minimum: 0, maximum: 150}"},
                    "names": {"type": "array", "minItems": 1, "items": {"type": "string", "description": "{maxLength: 8}"},
                        "description": "{maxItems: 3}"},
                    "home": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/place"}]},
                    "minimum": {"type": ["object", "null"], "additionalProperties": false},
                },
                "required": ["age"],
                "$defs": {"place": {"properties": {"town": {"type": "string"}}, "additionalProperties": false}},
                "additionalProperties": false,
            })
        );
    }

    #[test]
    fn parts_of_an_object_merge_and_choices_stay_separate() {
        let part = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
        assert_eq!(
            closed(&json!({"allOf": [part("a"), part("b")]})),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "required": ["a", "b"], "additionalProperties": false})
        );
        let both = json!({"anyOf": [{"type": "string"}], "oneOf": [{"type": "string"}]});
        assert_eq!(closed(&both), both);
        assert_eq!(
            closed(&json!({"type": "array", "minItems": 2.0})),
            json!({"type": "array", "description": "{minItems: 2.0}"})
        );
    }

    #[test]
    fn accepted_schema_stays_unchanged() {
        let schema = json!({"type": "object", "properties": {"row": {"type": "integer", "enum": [1, 2]}},
            "required": ["row"], "additionalProperties": false});
        assert_eq!(closed(&schema), schema);
    }
}
