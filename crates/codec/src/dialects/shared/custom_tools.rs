//! Tools that take free text in place of JSON. OpenAI's dialects have them; elsewhere one is a function with
//! a single text.

use serde_json::{Value, json};
use throughline_canonical::{Block, Lossy};

/// How a dialect writes such tools, their calls and what they gave.
#[derive(Clone, Copy, Debug)]
pub struct CustomToolFormat {
    /// What the dialect calls a call of one.
    pub name: &'static str,
    /// Reads a tool.
    pub tool: fn(&Value) -> Option<FreeTool>,
    /// Reads a call.
    pub call: fn(&Value) -> Option<FreeCall>,
    /// Reads what a call gave, and what of that is lost.
    pub result: fn(&Value) -> Option<Lossy<Block>>,
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

    /// The text in the arguments of a function; none where they are no JSON. A model may forget that they
    /// are an object, or how texts are written in one.
    pub fn input_of(arguments: &str) -> Option<String> {
        let read = serde_json::from_str(arguments);
        Some(match read.or_else(|_| serde_json::from_str(&spelled(arguments))).ok()? {
            Value::String(text) => text,
            value => match value.get("input") {
                Some(Value::String(text)) => text.clone(),
                _ => arguments.to_owned(),
            },
        })
    }
}

/// JSON in whose texts lines break as they are, and backslashes stand for themselves.
fn spelled(json: &str) -> String {
    let mut spelled = String::with_capacity(json.len());
    let mut inside = false;
    let mut letters = json.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => inside = !inside,
            '\\' if inside => match letters.peek() {
                Some('"' | '\\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u') => {
                    spelled.push(letter);
                    spelled.extend(letters.next());
                    continue;
                }
                _ => spelled.push(letter),
            },
            letter if inside && letter.is_ascii_control() => {
                spelled.push_str(&format!("\\u{:04x}", u32::from(letter)));
                continue;
            }
            _ => {}
        }
        spelled.push(letter);
    }
    spelled
}

/// A text of an object; empty where there is none.
pub(super) fn text(object: &Value, name: &str) -> String {
    let text = object.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_found_however_a_model_writes_it() {
        for (arguments, input) in [
            (r#"{"input":"a \"b\"\n"}"#, Some("a \"b\"\n")),
            ("{\"input\":\"one\n\ttwo\"}", Some("one\n\ttwo")),
            (r#"{"input":"\d+\\w"}"#, Some(r"\d+\w")),
            (r#""only text""#, Some("only text")),
            (r#"{"patch":"x"}"#, Some(r#"{"patch":"x"}"#)),
            (r#"{"input":"cut"#, None),
            ("*** Begin Patch", None),
        ] {
            assert_eq!(FreeCall::input_of(arguments).as_deref(), input, "{arguments}");
        }
    }
}
