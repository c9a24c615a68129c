//! Custom tools: tools with free-text input.

use serde_json::{Value, json};

use super::client_request::items;
use crate::dialects::shared::custom_tools::{CustomCall, CustomTool, CustomToolFormat, text};

/// The format of this dialect.
pub(super) const CALLS: CustomToolFormat = CustomToolFormat {
    name: "custom_tool_call",
    tool: |tool| match tool.get("type")?.as_str()? {
        "custom" => CustomTool::read(tool),
        _ => None,
    },
    call: |item| {
        (item["type"] == "custom_tool_call").then(|| CustomCall {
            id: text(item, "call_id"),
            name: text(item, "name"),
            input: text(item, "input"),
        })
    },
    result: |item| match item["type"] == "custom_tool_call_output" {
        true => items::read_result(item),
        false => None,
    },
    write,
};

fn write(call: &CustomCall) -> Value {
    json!({
        "type": "custom_tool_call",
        // Items have their own ids; this one is as unique as the id of the call.
        "id": format!("ctc_{}", call.id.trim_start_matches("call_")),
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
        "input": call.input,
    })
}
