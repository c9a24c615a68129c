//! Tools that take free text in place of JSON. OpenAI's dialects have them; elsewhere one is a function with
//! a single text.

use serde_json::{Value, json};

/// How a dialect writes such tools, their calls and what they gave.
#[derive(Clone, Copy, Debug)]
pub struct FreeText {
    /// What the dialect calls a call of one.
    pub name: &'static str,
    /// Reads a tool.
    pub tool: fn(&Value) -> Option<FreeTool>,
    /// Reads a call.
    pub call: fn(&Value) -> Option<FreeCall>,
    /// Reads what a call gave: its id, and the text or the parts.
    pub result: fn(&Value) -> Option<(String, Value)>,
    /// Writes a call.
    pub write: fn(&FreeCall) -> Value,
}

/// A tool that takes free text.
#[derive(Clone, Debug, PartialEq)]
pub struct FreeTool {
    /// What it is called.
    pub name: String,
    /// What a model is told of it.
    pub description: String,
    /// The grammar its text follows; null for none.
    pub grammar: Value,
}

/// A call of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeCall {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The text.
    pub input: String,
}

impl FreeTool {
    /// Reads the members that both dialects have alike.
    pub(super) fn read(tool: &Value) -> Option<Self> {
        let format = tool.get("format");
        let grammar = format.filter(|format| format["type"] == "grammar");
        Some(Self {
            name: tool.get("name")?.as_str()?.to_owned(),
            description: text(tool, "description"),
            grammar: grammar.cloned().unwrap_or_default(),
        })
    }

    /// What a model is told that only knows functions.
    pub fn told(&self) -> String {
        let mut told = self.description.clone();
        // Its place differs between the dialects.
        let rule = self.grammar.get("grammar").unwrap_or(&self.grammar);
        if let Some(definition) = rule.get("definition").and_then(Value::as_str) {
            let syntax = text(rule, "syntax");
            told.push_str(&format!(
                "\n\n`input` is a text of this grammar ({syntax}):\n\n{definition}"
            ));
        }
        told
    }

    /// The parameters of the function.
    pub fn parameters() -> Value {
        json!({
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
            "additionalProperties": false,
        })
    }
}

impl FreeCall {
    /// The arguments of the function.
    pub fn arguments(&self) -> String {
        json!({"input": self.input}).to_string()
    }

    /// The text in the arguments of a function; none where they were cut. A model may forget that they are an
    /// object.
    pub fn input_of(arguments: &str) -> Option<String> {
        match serde_json::from_str(arguments) {
            Ok(Value::String(text)) => Some(text),
            Ok(value) => Some(match value.get("input") {
                Some(Value::String(text)) => text.clone(),
                _ => arguments.to_owned(),
            }),
            Err(_) if arguments.trim_start().starts_with(['{', '"']) => None,
            Err(_) => Some(arguments.to_owned()),
        }
    }
}

/// A text of an object; empty where there is none.
pub(super) fn text(object: &Value, name: &str) -> String {
    let text = object.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}
