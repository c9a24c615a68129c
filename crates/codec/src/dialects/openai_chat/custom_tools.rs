//! Custom tools: tools with free-text input.

use serde_json::json;

use super::CUSTOM;
use crate::dialects::shared::custom_tools::{CustomCall, CustomTool, CustomToolFormat, text};

/// The format of this dialect. Results are ordinary tool messages.
pub(super) const CALLS: CustomToolFormat = CustomToolFormat {
    name: CUSTOM,
    tool: |tool| CustomTool::read(tool.get(CUSTOM)?),
    call: |call| {
        let custom = call.get(CUSTOM)?;
        Some(CustomCall {
            id: text(call, "id"),
            name: text(custom, "name"),
            input: text(custom, "input"),
        })
    },
    result: |_| None,
    write: |call| json!({"id": call.id, "type": CUSTOM, "custom": {"name": call.name, "input": call.input}}),
};
