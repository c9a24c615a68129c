//! Custom tools: tools that take free text instead of JSON. OpenAI's dialects have them. In other
//! dialects such a tool becomes a function with one string parameter.

use serde_json::{Map, Value, json};
use throughline_canonical::{Block, Lossy};

/// How a dialect reads and writes custom tools, their calls and their results.
#[derive(Clone, Copy, Debug)]
pub struct CustomToolFormat {
    /// The dialect's name for a call of a custom tool.
    pub name: &'static str,
    /// Reads a tool definition.
    pub tool: fn(&Value) -> Option<CustomTool>,
    /// Reads a call.
    pub call: fn(&Value) -> Option<CustomCall>,
    /// Reads the result of a call, with the losses of reading it.
    pub result: fn(&Value) -> Option<Lossy<Block>>,
    /// Writes a call.
    pub write: fn(&CustomCall) -> Value,
}

/// A tool that takes free text.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomTool {
    /// The name that the model calls.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The grammar of the input; null for free text.
    pub grammar: Value,
}

/// A call of a custom tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CustomCall {
    /// The id of the call.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The input text.
    pub input: String,
}

/// Takes the name of a forced custom tool out of the members that only its dialect has. `is_known` says
/// whether the request offers such a tool.
pub fn take_forced(
    members: &mut Map<String, Value>,
    is_known: impl Fn(&str) -> bool,
) -> Option<String> {
    const MEMBER: &str = "tool_choice";
    let choice = members.get(MEMBER)?;
    // One dialect nests the name.
    let named = choice.get("custom").unwrap_or(choice);
    let name = named.get("name")?.as_str().filter(|name| is_known(name))?.to_owned();
    members.shift_remove(MEMBER);
    Some(name)
}

impl CustomTool {
    /// Reads the members that both of OpenAI's dialects share.
    pub(crate) fn read(tool: &Value) -> Option<Self> {
        let format = tool.get("format");
        let grammar = format.filter(|format| format["type"] == "grammar");
        Some(Self {
            name: tool.get("name")?.as_str()?.to_owned(),
            description: text(tool, "description"),
            grammar: grammar.cloned().unwrap_or_default(),
        })
    }

    /// The description for a model that only knows functions: it includes the grammar.
    pub fn function_description(&self) -> String {
        let mut description = self.description.clone();
        // The dialects nest the grammar differently.
        let rule = self.grammar.get("grammar").unwrap_or(&self.grammar);
        if let Some(definition) = rule.get("definition").and_then(Value::as_str) {
            let syntax = text(rule, "syntax");
            description.push_str(&format!(
                "\n\n`input` is a text of this grammar ({syntax}):\n\n{definition}"
            ));
        }
        description
    }

    /// The parameters of the function that stands for a custom tool.
    pub fn parameters() -> Value {
        json!({
            "type": "object",
            "properties": {"input": {"type": "string"}},
            "required": ["input"],
            "additionalProperties": false,
        })
    }
}

impl CustomCall {
    /// The arguments of that function for this call.
    pub fn arguments(&self) -> String {
        json!({"input": self.input}).to_string()
    }

    /// Extracts the input from function arguments; `None` if they are not JSON. Models sometimes
    /// forget the object around the string, or do not escape the string.
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

/// Repairs JSON whose strings contain raw line breaks or single backslashes.
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

/// A string member; empty if it is missing.
pub(crate) fn text(object: &Value, name: &str) -> String {
    let text = object.get(name).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_found_in_every_spelling_of_the_arguments() {
        for (arguments, input) in [
            (r#"{"input":"a \"b\"\n"}"#, Some("a \"b\"\n")),
            ("{\"input\":\"one\n\ttwo\"}", Some("one\n\ttwo")),
            (r#"{"input":"\d+\\w"}"#, Some(r"\d+\w")),
            (r#""only text""#, Some("only text")),
            (r#"{"patch":"x"}"#, Some(r#"{"patch":"x"}"#)),
            (r#"{"input":"cut"#, None),
            ("*** Begin Patch", None),
        ] {
            assert_eq!(CustomCall::input_of(arguments).as_deref(), input, "{arguments}");
        }
    }
}
