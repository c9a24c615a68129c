//! The tools a request offered: their names, and what their parameters may hold.

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
    /// It is JSON of another shape.
    #[error(
        "tool {0} has no name; a tool is `{{name, description?, parameters}}` or what OpenAI's API takes"
    )]
    Shape(usize),
}

impl Tools {
    /// Reads a JSON list of `{name, description?, parameters}`, or of tools as OpenAI's API (chat or
    /// Responses) or Anthropic's takes them.
    pub fn read(json: &[u8]) -> Result<Self, ToolsError> {
        let list: Vec<Value> = serde_json::from_slice(json)?;
        let mut parameters = HashMap::with_capacity(list.len());
        for (place, tool) in list.into_iter().enumerate() {
            let tool = match tool.get("function") {
                Some(function) => function.clone(),
                None => tool,
            };
            let Some(name) = tool.get("name").and_then(Value::as_str) else {
                return Err(ToolsError::Shape(place));
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

    /// Whether a tool of this name was offered.
    pub fn declares(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    /// What is known of a tool's arguments; nothing for a tool that was not offered.
    pub(crate) fn schema(&self, tool: &str) -> Schema<'_> {
        let root = self.parameters.get(tool).unwrap_or(&NOTHING);
        Schema { root, node: root }
    }

    /// What a parameter of a tool may hold.
    pub(crate) fn kinds(&self, tool: &str, key: &str) -> Kinds {
        self.schema(tool).property(key).kinds()
    }
}

/// What a value may be. Empty where no schema says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(u8);

impl Kinds {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self(0);
    /// A text.
    pub(crate) const STRING: Self = Self(1);
    /// A whole number.
    pub(crate) const INTEGER: Self = Self(1 << 1);
    /// Any number; whole ones are numbers too.
    pub(crate) const NUMBER: Self = Self(1 << 1 | 1 << 2);
    /// True or false.
    pub(crate) const BOOLEAN: Self = Self(1 << 3);
    /// Nothing, said in so many words.
    pub(crate) const NULL: Self = Self(1 << 4);
    /// An object.
    pub(crate) const OBJECT: Self = Self(1 << 5);
    /// A list.
    pub(crate) const ARRAY: Self = Self(1 << 6);

    /// Whether no schema says anything.
    pub(crate) fn is_unknown(self) -> bool {
        self == Self::UNKNOWN
    }

    /// Whether all of these are among them.
    pub(crate) fn allow(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// Either of the two.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What both say. A schema that contradicts itself says what it said first.
    fn and(self, other: Self) -> Self {
        match Self(self.0 & other.0) {
            _ if self.is_unknown() => other,
            Self::UNKNOWN => self,
            both => both,
        }
    }

    /// The kind of this name. Besides those of JSON Schema, the ones that peers accept: models are
    /// prompted with what people write.
    fn named(name: &str) -> Self {
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

    fn of(value: &Value) -> Self {
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

    /// Any one of several; if one of them may be anything, so may the whole.
    fn any(several: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::UNKNOWN;
        for kinds in several {
            if kinds.is_unknown() {
                return kinds;
            }
            all = all.or(kinds);
        }
        all
    }
}

/// A JSON Schema, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schema<'a> {
    /// Where references are looked up.
    root: &'a Value,
    node: &'a Value,
}

/// A schema that says nothing.
static NOTHING: Value = Value::Null;

/// How many parts of a schema are looked at for one question: a schema can refer to itself.
const STEPS: usize = 200;

impl<'a> Schema<'a> {
    /// The schema that says nothing.
    pub(crate) fn nothing() -> Self {
        Self { root: &NOTHING, node: &NOTHING }
    }

    /// What a value may be.
    pub(crate) fn kinds(self) -> Kinds {
        let mut steps = STEPS;
        self.kinds_of(self.node, &mut steps)
    }

    /// What is known of a member.
    pub(crate) fn property(self, key: &str) -> Self {
        self.part(|node| node.get("properties")?.get(key))
            .or_else(|| self.part(|node| node.get("additionalProperties")))
            .unwrap_or(Self::nothing())
    }

    /// Whether a member of this name is spoken of.
    pub(crate) fn names(self, key: &str) -> bool {
        self.part(|node| node.get("properties")?.get(key)).is_some()
    }

    /// What is known of an element.
    pub(crate) fn element(self, place: usize) -> Self {
        self.part(|node| {
            let at = |list: &'a Value| list.as_array()?.get(place);
            node.get("prefixItems").and_then(at).or_else(|| match node.get("items")? {
                items @ Value::Array(_) => at(items),
                items => Some(items),
            })
        })
        .unwrap_or(Self::nothing())
    }

    /// A part of the schema, wherever in its alternatives it is.
    fn part(self, pick: impl Fn(&'a Map<String, Value>) -> Option<&'a Value>) -> Option<Self> {
        let mut left = vec![self.node];
        for _ in 0..STEPS {
            let Some(node) = left.pop()?.as_object() else {
                continue;
            };
            if let Some(node) = pick(node) {
                let root = self.root;
                return Some(Self { root, node });
            }
            for several in ["oneOf", "anyOf", "allOf"] {
                if let Some(Value::Array(several)) = node.get(several) {
                    left.extend(several.iter().rev());
                }
            }
            left.extend(self.referred(node));
        }
        None
    }

    /// What a schema refers to; only places in itself.
    fn referred(self, node: &Map<String, Value>) -> Option<&'a Value> {
        let place = node.get("$ref")?.as_str()?.strip_prefix('#')?;
        self.root.pointer(place)
    }

    fn kinds_of(self, node: &'a Value, steps: &mut usize) -> Kinds {
        let Some(node) = node.as_object() else {
            return Kinds::UNKNOWN;
        };
        if *steps == 0 {
            return Kinds::UNKNOWN;
        }
        *steps -= 1;
        let mut kinds = match node.get("type") {
            Some(Value::String(name)) => Kinds::named(name),
            Some(Value::Array(names)) => {
                Kinds::any(names.iter().map(|name| Kinds::named(name.as_str().unwrap_or_default())))
            }
            _ => Kinds::UNKNOWN,
        };
        if let Some(Value::Array(values)) = node.get("enum") {
            kinds = kinds.and(Kinds::any(values.iter().map(Kinds::of)));
        }
        if let Some(value) = node.get("const") {
            kinds = kinds.and(Kinds::of(value));
        }
        if let Some(referred) = self.referred(node) {
            kinds = kinds.and(self.kinds_of(referred, steps));
        }
        for several in ["anyOf", "oneOf"] {
            if let Some(Value::Array(several)) = node.get(several) {
                let each = several.iter().map(|node| self.kinds_of(node, steps));
                kinds = kinds.and(Kinds::any(each));
            }
        }
        if let Some(Value::Array(several)) = node.get("allOf") {
            for node in several {
                kinds = kinds.and(self.kinds_of(node, steps));
            }
        }
        if kinds.is_unknown() {
            if node.contains_key("properties") {
                kinds = Kinds::OBJECT;
            } else if node.contains_key("items") {
                kinds = Kinds::ARRAY;
            }
        }
        match node.get("nullable") {
            Some(Value::Bool(true)) if !kinds.is_unknown() => kinds.or(Kinds::NULL),
            _ => kinds,
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
    fn a_schema_says_what_a_parameter_may_be() {
        let check = |schema: &str, expected: Kinds| {
            let tools = tools(&format!(
                r##"{{"properties":{{"k":{schema}}},"$defs":{{"text":{{"type":"string"}},
                "again":{{"anyOf":[{{"$ref":"#/$defs/again"}},{{"$ref":"#/$defs/again"}}]}}}},
                "definitions":{{"whole":{{"type":"integer"}}}}}}"##
            ));
            assert_eq!(tools.kinds("t", "k"), expected, "{schema}");
        };
        let nullable = Kinds::STRING.or(Kinds::NULL);
        check(r#"{"type":"string"}"#, Kinds::STRING);
        check(r#"{"type":"STRING"}"#, Kinds::STRING);
        check(r#"{"type":["string","null"]}"#, nullable);
        check(r#"{"type":"string","nullable":true}"#, nullable);
        check(r#"{"type":"number","enum":[1,2]}"#, Kinds::INTEGER);
        check(r#"{"type":"number","enum":[1,2.5]}"#, Kinds::NUMBER);
        check(r#"{"enum":["a","b",null]}"#, nullable);
        check(r#"{"const":true}"#, Kinds::BOOLEAN);
        check(r#"{"type":"string","enum":[1]}"#, Kinds::STRING);
        check(r#"{"type":"string","anyOf":[{"minLength":1}]}"#, Kinds::STRING);
        check(r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#, nullable);
        check(r#"{"oneOf":[{"type":"object"},{"items":{}}]}"#, Kinds::OBJECT.or(Kinds::ARRAY));
        check(
            r#"{"allOf":[{"description":"x"},{"type":["string","integer"]},{"type":"integer"}]}"#,
            Kinds::INTEGER,
        );
        check(r##"{"$ref":"#/$defs/text"}"##, Kinds::STRING);
        check(r##"{"$ref":"#/definitions/whole"}"##, Kinds::INTEGER);
        check(r#"{"properties":{}}"#, Kinds::OBJECT);
        for unknown in [
            "{}",
            "true",
            r#"{"type":"any"}"#,
            r#"{"anyOf":[{"type":"string"},{}]}"#,
            r##"{"$ref":"#/$defs/again"}"##,
            r##"{"$ref":"#/nowhere"}"##,
            r#"{"$ref":"http://example.com/x"}"#,
        ] {
            check(unknown, Kinds::UNKNOWN);
        }
    }

    #[test]
    fn what_was_not_offered_is_unknown() {
        let tools = tools(r#"{"properties":{"k":{"type":"string"}}}"#);
        assert_eq!(tools.kinds("t", "other"), Kinds::UNKNOWN);
        assert_eq!(tools.kinds("other", "k"), Kinds::UNKNOWN);
    }

    #[test]
    fn parts_are_found_wherever_they_stand() {
        let tools = tools(
            r##"{"oneOf":[{"properties":{"a":{"$ref":"#/$defs/list"}}},
                {"properties":{"b":{"additionalProperties":{"type":"boolean"}}}}],
                "$defs":{"list":{"type":"array","items":{"$ref":"#/$defs/entry"}},
                "entry":{"properties":{"n":{"type":"number"},"next":{"$ref":"#/$defs/entry"},
                "pair":{"prefixItems":[{"type":"string"}],"items":{"type":"integer"}}}}}}"##,
        );
        let entry = tools.schema("t").property("a").element(3);
        assert_eq!(entry.kinds(), Kinds::OBJECT);
        let deep = entry.property("next").property("next");
        assert_eq!(deep.property("n").kinds(), Kinds::NUMBER);
        assert_eq!(deep.property("pair").element(0).kinds(), Kinds::STRING);
        assert_eq!(deep.property("pair").element(1).kinds(), Kinds::INTEGER);
        let any = tools.schema("t").property("b").property("x");
        assert_eq!(any.kinds(), Kinds::BOOLEAN);
        assert!(deep.names("n") && !deep.names("x"));
    }
}
