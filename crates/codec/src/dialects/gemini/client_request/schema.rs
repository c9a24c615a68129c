//! Converts the provider's schemas (a subset of OpenAPI) to JSON Schema.
//!
//! Their types are in upper case, `nullable` is next to the type, and counts may be strings.

use serde_json::{Map, Value};

use super::super::names;

/// Keywords in the spelling of JSON Schema. The provider accepts either spelling.
const KEYWORDS: [&str; 12] = [
    "anyOf",
    "maxItems",
    "minItems",
    "maxLength",
    "minLength",
    "maxProperties",
    "minProperties",
    "propertyOrdering",
    "additionalProperties",
    "prefixItems",
    "oneOf",
    "allOf",
];

/// Converts a schema. Unknown keywords stay unchanged.
pub fn to_json_schema(schema: &Value) -> Value {
    let Value::Object(members) = schema else {
        return schema.clone();
    };
    let nullable = members.get("nullable") == Some(&Value::Bool(true));
    let mut written = Map::new();
    for (key, value) in members {
        let key = KEYWORDS.into_iter().find(|keyword| names::is(key, keyword)).unwrap_or(key);
        let value = match (key, value) {
            ("nullable", Value::Bool(_)) => continue,
            ("type", Value::String(word)) => {
                let word = word.to_ascii_lowercase();
                if word == "type_unspecified" {
                    continue;
                }
                if nullable { serde_json::json!([word, "null"]) } else { word.into() }
            }
            ("properties", Value::Object(properties)) => properties
                .iter()
                .map(|(name, property)| (name.clone(), to_json_schema(property)))
                .collect::<Map<_, _>>()
                .into(),
            ("items" | "additionalProperties", value) => to_json_schema(value),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(schemas)) => {
                let mut schemas: Vec<_> = schemas.iter().map(to_json_schema).collect();
                if key == "anyOf" && nullable && !members.contains_key("type") {
                    schemas.push(serde_json::json!({"type": "null"}));
                }
                schemas.into()
            }
            (_, Value::String(text)) if is_count(key) => match text.parse::<u64>() {
                Ok(count) => count.into(),
                Err(_) => value.clone(),
            },
            (_, value) => value.clone(),
        };
        written.insert(key.to_owned(), value);
    }
    Value::Object(written)
}

fn is_count(keyword: &str) -> bool {
    keyword.starts_with("min") || keyword.starts_with("max")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn provider_schema_becomes_json_schema() {
        for (own, standard) in [
            (json!({"type": "STRING"}), json!({"type": "string"})),
            (
                json!({"type": "STRING", "nullable": true, "enum": ["A"]}),
                json!({"type": ["string", "null"], "enum": ["A"]}),
            ),
            (
                json!({"type": "OBJECT", "properties": {"type": {"type": "INTEGER", "format": "int32"}},
                    "required": ["type"], "property_ordering": ["type"]}),
                json!({"type": "object", "properties": {"type": {"type": "integer", "format": "int32"}},
                    "required": ["type"], "propertyOrdering": ["type"]}),
            ),
            (
                json!({"type": "ARRAY", "items": {"type": "NUMBER"}, "min_items": "1", "maxItems": 4}),
                json!({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 4}),
            ),
            (
                json!({"any_of": [{"type": "STRING"}, {"type": "BOOLEAN"}], "nullable": true}),
                json!({"anyOf": [{"type": "string"}, {"type": "boolean"}, {"type": "null"}]}),
            ),
            (json!({"type": "TYPE_UNSPECIFIED"}), json!({})),
            // JSON Schema stays unchanged.
            (
                json!({"type": ["string", "null"], "additionalProperties": false, "x": "MIN"}),
                json!({"type": ["string", "null"], "additionalProperties": false, "x": "MIN"}),
            ),
        ] {
            assert_eq!(to_json_schema(&own), standard, "{own}");
            assert_eq!(to_json_schema(&standard), standard);
        }
    }
}
