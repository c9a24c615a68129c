//! The tools that a request offered: their names and the types of their parameters.

use std::collections::HashMap;

use serde_json::{Map, Value};

/// The tools of a request.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    parameters: HashMap<String, Value>,
}

/// Why a list of tools cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// The text is not JSON.
    #[error("the tools are not JSON")]
    Json(#[from] serde_json::Error),
    /// The JSON has another shape.
    #[error(
        "tool {0} has no name; a tool is `{{name, description?, parameters}}` or what OpenAI's API takes"
    )]
    Shape(usize),
}

impl Tools {
    /// Reads a JSON list of `{name, description?, parameters}`, or of tools in the form of OpenAI's
    /// API (chat or Responses) or Anthropic's.
    pub fn read(json: &[u8]) -> Result<Self, ToolsError> {
        let list: Vec<Value> = serde_json::from_slice(json)?;
        let mut parameters = HashMap::with_capacity(list.len());
        for (index, tool) in list.into_iter().enumerate() {
            let tool = match tool.get("function") {
                Some(function) => function.clone(),
                None => tool,
            };
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                return Err(ToolsError::Shape(index));
            };
            let schema = ["parameters", "input_schema", "parametersJsonSchema"]
                .iter()
                .find_map(|key| tool.get(key))
                .cloned()
                .unwrap_or_default();
            parameters.insert(name.to_owned(), schema);
        }
        Ok(Self { parameters })
    }

    /// Whether no tool was offered.
    pub(crate) fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Whether a tool from_value this name was offered.
    pub fn declares(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    /// The schema of a tool's arguments. Empty for a tool that was not offered.
    pub(crate) fn schema(&self, tool: &str) -> Schema<'_> {
        let root = self.parameters.get(tool).unwrap_or(&EMPTY);
        Schema { root, node: root }
    }

    /// The types that a parameter of a tool may have.
    pub(crate) fn types(&self, tool: &str, key: &str) -> JsonTypes {
        self.schema(tool).property(key).types()
    }
}

/// A set of JSON types. Empty if the schema does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JsonTypes(u8);

impl JsonTypes {
    /// No type is known.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// A string.
    pub(crate) const STRING: Self = Self(1);
    /// A whole number.
    pub(crate) const INTEGER: Self = Self(1 << 1);
    /// Any number. Whole numbers are numbers too.
    pub(crate) const NUMBER: Self = Self(1 << 1 | 1 << 2);
    /// `true` or `false`.
    pub(crate) const BOOLEAN: Self = Self(1 << 3);
    /// An explicit null.
    pub(crate) const NULL: Self = Self(1 << 4);
    /// An object.
    pub(crate) const OBJECT: Self = Self(1 << 5);
    /// An array.
    pub(crate) const ARRAY: Self = Self(1 << 6);

    /// Whether no type is known.
    pub(crate) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }

    /// Whether all of these types are in the set.
    pub(crate) fn allow(self, types: Self) -> bool {
        self.0 & types.0 == types.0
    }

    /// The union of both sets.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The types that both sets have. If they contradict each other, the first one wins.
    fn and(self, other: Self) -> Self {
        match Self(self.0 & other.0) {
            _ if self.is_unknown() => other,
            Self::UNKNOWN => self,
            both => both,
        }
    }

    /// The type of this name. Accepts the names of JSON Schema, and those that other servers also
    /// accept: models are prompted with what people write.
    fn from_name(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            "string" | "str" | "text" => Self::STRING,
            "integer" | "int" | "long" => Self::INTEGER,
            "number" | "float" | "double" | "num" => Self::NUMBER,
            "boolean" | "bool" => Self::BOOLEAN,
            "null" | "none" => Self::NULL,
            "object" | "dict" | "map" => Self::OBJECT,
            "array" | "list" | "tuple" => Self::ARRAY,
            _ => Self::UNKNOWN,
        }
    }

    fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.is_f64() => Self::NUMBER,
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    /// The union of several sets. Unknown if one of them is unknown.
    fn any(alternatives: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::UNKNOWN;
        for types in alternatives {
            if types.is_unknown() {
                return types;
            }
            all = all.or(types);
        }
        all
    }
}

/// A JSON Schema, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'a> {
    /// The root, for references.
    root: &'a Value,
    node: &'a Value,
}

/// A schema without content.
static EMPTY: Value = Value::Null;

/// How many parts of a schema one query visits. A schema can refer to itself.
const MAX_STEPS: usize = 200;

impl<'a> Schema<'a> {
    /// A schema without content.
    pub(crate) fn empty() -> Self {
        Self { root: &EMPTY, node: &EMPTY }
    }

    /// The types that a value may have.
    pub(crate) fn types(self) -> JsonTypes {
        let mut steps_left = MAX_STEPS;
        self.types_of(self.node, &mut steps_left)
    }

    /// The schema of a member.
    pub(crate) fn property(self, key: &str) -> Self {
        self.find_part(|node| node.get("properties")?.get(key))
            .or_else(|| self.find_part(|node| node.get("additionalProperties")))
            .unwrap_or(Self::empty())
    }

    /// Whether the schema lists a member of this name.
    pub(crate) fn has_property(self, key: &str) -> bool {
        self.find_part(|node| node.get("properties")?.get(key)).is_some()
    }

    /// The schema of an element.
    pub(crate) fn element(self, index: usize) -> Self {
        self.find_part(|node| {
            let at = |list: &'a Value| list.as_array()?.get(index);
            node.get("prefixItems").and_then(at).or_else(|| match node.get("items")? {
                items @ Value::Array(_) => at(items),
                items => Some(items),
            })
        })
        .unwrap_or(Self::empty())
    }

    /// Finds a part of the schema, in the schema itself or in its alternatives.
    fn find_part(self, pick: impl Fn(&'a Map<String, Value>) -> Option<&'a Value>) -> Option<Self> {
        let mut pending = vec![self.node];
        for _ in 0..MAX_STEPS {
            let Some(node) = pending.pop()?.as_object() else {
                continue;
            };
            if let Some(node) = pick(node) {
                let root = self.root;
                return Some(Self { root, node });
            }
            for keyword in ["oneOf", "anyOf", "allOf"] {
                if let Some(Value::Array(alternatives)) = node.get(keyword) {
                    pending.extend(alternatives.iter().rev());
                }
            }
            pending.extend(self.resolve_reference(node));
        }
        None
    }

    /// Resolves a reference, if it points into the same schema.
    fn resolve_reference(self, node: &Map<String, Value>) -> Option<&'a Value> {
        let pointer = node.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(pointer)
    }

    fn types_of(self, node: &'a Value, steps_left: &mut usize) -> JsonTypes {
        let Some(node) = node.as_object() else {
            return JsonTypes::UNKNOWN;
        };
        if *steps_left == 0 {
            return JsonTypes::UNKNOWN;
        }
        *steps_left -= 1;
        let mut types = match node.get("type") {
            Some(Value::String(name)) => JsonTypes::from_name(name),
            Some(Value::Array(names)) => JsonTypes::any(
                names.iter().map(|name| JsonTypes::from_name(name.as_str().unwrap_or_default())),
            ),
            _ => JsonTypes::UNKNOWN,
        };
        if let Some(Value::Array(values)) = node.get("enum") {
            types = types.and(JsonTypes::any(values.iter().map(JsonTypes::from_value)));
        }
        if let Some(value) = node.get("const") {
            types = types.and(JsonTypes::from_value(value));
        }
        if let Some(referenced) = self.resolve_reference(node) {
            types = types.and(self.types_of(referenced, steps_left));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(alternatives)) = node.get(keyword) {
                let each = alternatives.iter().map(|node| self.types_of(node, steps_left));
                types = types.and(JsonTypes::any(each));
            }
        }
        if let Some(Value::Array(alternatives)) = node.get("allOf") {
            for node in alternatives {
                types = types.and(self.types_of(node, steps_left));
            }
        }
        if types.is_unknown() {
            if node.contains_key("properties") {
                types = JsonTypes::OBJECT;
            } else if node.contains_key("items") {
                types = JsonTypes::ARRAY;
            }
        }
        match node.get("nullable") {
            Some(Value::Bool(true)) if !types.is_unknown() => types.or(JsonTypes::NULL),
            _ => types,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(parameters: &str) -> Tools {
        Tools::read(format!(r#"[{{"name":"t","parameters":{parameters}}}]"#).as_bytes()).unwrap()
    }

    #[test]
    fn a_schema_gives_the_types_of_a_parameter() {
        let check = |schema: &str, expected: JsonTypes| {
            let tools = tools(&format!(
                r##"{{"properties":{{"k":{schema}}},"$defs":{{"text":{{"type":"string"}},
                "again":{{"anyOf":[{{"$ref":"#/$defs/again"}},{{"$ref":"#/$defs/again"}}]}}}},
                "definitions":{{"whole":{{"type":"integer"}}}}}}"##
            ));
            assert_eq!(tools.types("t", "k"), expected, "{schema}");
        };
        let nullable = JsonTypes::STRING.or(JsonTypes::NULL);
        check(r#"{"type":"string"}"#, JsonTypes::STRING);
        check(r#"{"type":"STRING"}"#, JsonTypes::STRING);
        check(r#"{"type":["string","null"]}"#, nullable);
        check(r#"{"type":"string","nullable":true}"#, nullable);
        check(r#"{"type":"number","enum":[1,2]}"#, JsonTypes::INTEGER);
        check(r#"{"type":"number","enum":[1,2.5]}"#, JsonTypes::NUMBER);
        check(r#"{"enum":["a","b",null]}"#, nullable);
        check(r#"{"const":true}"#, JsonTypes::BOOLEAN);
        check(r#"{"type":"string","enum":[1]}"#, JsonTypes::STRING);
        check(r#"{"type":"string","anyOf":[{"minLength":1}]}"#, JsonTypes::STRING);
        check(r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#, nullable);
        check(
            r#"{"oneOf":[{"type":"object"},{"items":{}}]}"#,
            JsonTypes::OBJECT.or(JsonTypes::ARRAY),
        );
        check(
            r#"{"allOf":[{"description":"x"},{"type":["string","integer"]},{"type":"integer"}]}"#,
            JsonTypes::INTEGER,
        );
        check(r##"{"$ref":"#/$defs/text"}"##, JsonTypes::STRING);
        check(r##"{"$ref":"#/definitions/whole"}"##, JsonTypes::INTEGER);
        check(r#"{"properties":{}}"#, JsonTypes::OBJECT);
        for unknown in [
            "{}",
            "true",
            r#"{"type":"any"}"#,
            r#"{"anyOf":[{"type":"string"},{}]}"#,
            r##"{"$ref":"#/$defs/again"}"##,
            r##"{"$ref":"#/nowhere"}"##,
            r#"{"$ref":"http://example.com/x"}"#,
        ] {
            check(unknown, JsonTypes::UNKNOWN);
        }
    }

    #[test]
    fn types_of_tools_that_were_not_offered_are_unknown() {
        let tools = tools(r#"{"properties":{"k":{"type":"string"}}}"#);
        assert_eq!(tools.types("t", "other"), JsonTypes::UNKNOWN);
        assert_eq!(tools.types("other", "k"), JsonTypes::UNKNOWN);
    }

    #[test]
    fn finds_parts_in_alternatives_and_references() {
        let tools = tools(
            r##"{"oneOf":[{"properties":{"a":{"$ref":"#/$defs/list"}}},
                {"properties":{"b":{"additionalProperties":{"type":"boolean"}}}}],
                "$defs":{"list":{"type":"array","items":{"$ref":"#/$defs/entry"}},
                "entry":{"properties":{"n":{"type":"number"},"next":{"$ref":"#/$defs/entry"},
                "pair":{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}}}}}"##,
        );
        let entry = tools.schema("t").property("a").element(3);
        assert_eq!(entry.types(), JsonTypes::OBJECT);
        let deep = entry.property("next").property("next");
        assert_eq!(deep.property("n").types(), JsonTypes::NUMBER);
        assert_eq!(deep.property("pair").element(0).types(), JsonTypes::STRING);
        assert_eq!(deep.property("pair").element(1).types(), JsonTypes::INTEGER);
        let any = tools.schema("t").property("b").property("x");
        assert_eq!(any.types(), JsonTypes::BOOLEAN);
        assert!(deep.has_property("n") && !deep.has_property("x"));
    }
}
