//! The shape of the items in `input`. How they follow each other is in `dialogue`.

use serde_json::{Map, Value};

use super::ask::is_reference;
use super::refusal::{coded, missing, unknown, wrong_type, wrong_value};
use super::shape::one_of;
use crate::refusal::Refusal;

/// All that an item can be.
const KINDS: &[&str] = &[
    "message",
    "reasoning",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "item_reference",
    "compaction",
    "compaction_trigger",
    "configuration_update",
    "additional_tools",
    "tool_search_call",
    "tool_search_output",
    "program",
    "program_output",
    "web_search_call",
    "file_search_call",
    "computer_call",
    "computer_call_output",
    "image_generation_call",
    "code_interpreter_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
];

const STATUSES: &[&str] = &["in_progress", "completed", "incomplete"];
const GIVEN: &[&str] = &["input_text", "input_image", "input_file", "input_audio"];
const SAID: &[&str] = &["output_text", "refusal"];

/// Refuses items of the wrong shape.
pub(crate) fn check(input: &Value) -> Result<(), Refusal> {
    for (index, item) in input.as_array().into_iter().flatten().enumerate() {
        let path = format!("input[{index}]");
        let Value::Object(members) = item else {
            return Err(wrong_type(&path, "an object", item));
        };
        Item { members, path }.check(item)?;
    }
    Ok(())
}

struct Item<'a> {
    members: &'a Map<String, Value>,
    path: String,
}

impl Item<'_> {
    fn check(&self, item: &Value) -> Result<(), Refusal> {
        let kind = match item["type"].as_str() {
            Some(kind) => kind,
            None if is_reference(item) => "item_reference",
            None if self.get("role").is_null() => return Err(missing(&self.at("type"))),
            None => "message",
        };
        if !KINDS.contains(&kind) {
            return Err(wrong_value(&self.at("type"), kind, KINDS));
        }
        match kind {
            "message" => self.check_message(),
            "reasoning" => self.check_reasoning(),
            "function_call" => {
                let optional = ["id", "status", "namespace", "async", "caller"];
                self.check_members(&["call_id", "name", "arguments"], &optional)?;
                self.check_id("fc")
            }
            "function_call_output" => {
                self.check_members(&["call_id"], &["output", "id", "status", "caller"])?;
                self.check_id("fc")?;
                match self.get("output") {
                    Value::Null => Err(missing(&self.at("output"))),
                    output => self.check_content("output", output, GIVEN),
                }
            }
            "item_reference" => self.check_members(&["id"], &[]),
            _ => Ok(()),
        }
    }

    fn check_message(&self) -> Result<(), Refusal> {
        let roles = ["user", "assistant", "system", "developer"];
        if self.get("role").is_null() {
            return Err(missing(&self.at("role")));
        }
        one_of(self.get("role"), &self.at("role"), &roles)?;
        let said = self.get("role") == "assistant";
        let mut optional = vec!["content", "id", "status"];
        if said {
            optional.push("phase");
        }
        self.check_members(&["role"], &optional)?;
        self.check_id("msg")?;
        let phases = ["commentary", "final_answer"];
        one_of(self.get("phase"), &self.at("phase"), &phases)?;
        let kinds = if said { SAID } else { GIVEN };
        match self.members.get("content") {
            None => Err(missing(&self.at("content"))),
            Some(content) => self.check_content("content", content, kinds),
        }
    }

    fn check_reasoning(&self) -> Result<(), Refusal> {
        let optional = ["id", "summary", "content", "encrypted_content", "status"];
        self.check_members(&[], &optional)?;
        self.check_id("rs")?;
        match self.get("summary") {
            Value::Null => return Err(missing(&self.at("summary"))),
            summary => self.check_parts("summary", summary, &["summary_text"])?,
        }
        match self.get("content") {
            Value::Null => {}
            content => self.check_parts("content", content, &["reasoning_text"])?,
        }
        match self.get("encrypted_content") {
            Value::Null | Value::String(_) => Ok(()),
            other => Err(wrong_type(&self.at("encrypted_content"), "a string", other)),
        }
    }

    /// Members besides the type: strings that have to be there, and others that may be.
    fn check_members(&self, needed: &[&str], optional: &[&str]) -> Result<(), Refusal> {
        for key in self.members.keys() {
            let key = key.as_str();
            if key != "type" && !needed.contains(&key) && !optional.contains(&key) {
                return Err(unknown(&self.at(key)));
            }
        }
        for key in needed {
            match self.get(key) {
                Value::String(_) => {}
                Value::Null => return Err(missing(&self.at(key))),
                other => return Err(wrong_type(&self.at(key), "a string", other)),
            }
        }
        one_of(self.get("status"), &self.at("status"), STATUSES)
    }

    /// The id of an item is not the id of its call, and shows it.
    fn check_id(&self, start: &str) -> Result<(), Refusal> {
        let path = self.at("id");
        match self.get("id") {
            Value::Null => Ok(()),
            Value::String(id) if id.starts_with(start) => Ok(()),
            Value::String(id) => Err(coded(
                format!("Invalid '{path}': '{id}'. Expected an ID that begins with '{start}'."),
                &path,
                "invalid_value",
            )),
            other => Err(wrong_type(&path, "a string", other)),
        }
    }

    fn check_content(&self, key: &str, content: &Value, kinds: &[&str]) -> Result<(), Refusal> {
        match content {
            Value::String(_) => Ok(()),
            Value::Array(_) => self.check_parts(key, content, kinds),
            other => {
                let expected = "one of an array of objects or string";
                Err(wrong_type(&self.at(key), expected, other))
            }
        }
    }

    fn check_parts(&self, key: &str, parts: &Value, kinds: &[&str]) -> Result<(), Refusal> {
        let Value::Array(parts) = parts else {
            return Err(wrong_type(&self.at(key), "an array of objects", parts));
        };
        for (index, part) in parts.iter().enumerate() {
            let path = format!("{}[{index}]", self.at(key));
            if !part.is_object() {
                return Err(wrong_type(&path, "an object", part));
            }
            let Some(kind) = part["type"].as_str() else {
                return Err(missing(&format!("{path}.type")));
            };
            if !kinds.contains(&kind) {
                return Err(wrong_value(&format!("{path}.type"), kind, kinds));
            }
            check_part(part, kind, &path)?;
        }
        Ok(())
    }

    fn get(&self, key: &str) -> &Value {
        self.members.get(key).unwrap_or(&Value::Null)
    }

    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }
}

fn check_part(part: &Value, kind: &str, path: &str) -> Result<(), Refusal> {
    let text: (&str, &[&str]) = match kind {
        "output_text" => ("text", &["annotations", "logprobs"]),
        "refusal" => ("refusal", &[]),
        "summary_text" | "reasoning_text" => ("text", &[]),
        "input_text" => ("text", &["prompt_cache_breakpoint"]),
        // Where a picture or a file comes from has many forms.
        _ => return Ok(()),
    };
    let (needed, optional) = text;
    for key in part.as_object().into_iter().flat_map(Map::keys) {
        if key != "type" && key != needed && !optional.contains(&key.as_str()) {
            return Err(unknown(&format!("{path}.{key}")));
        }
    }
    match &part[needed] {
        Value::String(_) => Ok(()),
        Value::Null => Err(missing(&format!("{path}.{needed}"))),
        other => Err(wrong_type(&format!("{path}.{needed}"), "a string", other)),
    }
}
