//! Function definitions, as OpenAI-shaped requests write them.

use serde_json::Value;
use throughline_canonical::{Fault, Tool};

use super::fields::{flag, string};
use crate::json::Node;

/// Reads a function that the model may call.
pub(crate) fn read_function(function: &Node<'_>) -> Result<Tool, Fault> {
    function.object()?;
    let name = function.need("name")?;
    let parameters = function.get("parameters");
    if let Some(parameters) = &parameters {
        parameters.object()?;
    }
    Ok(Tool::Function {
        name: match name.text()? {
            "" => return Err(name.refuse("is empty")),
            text => text.to_owned(),
        },
        description: string(function, "description")?,
        parameters: parameters.map_or(Value::Null, |parameters| parameters.value().clone()),
        strict: flag(function, "strict")?,
    })
}
