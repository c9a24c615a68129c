//! Reads tool calls and the results in the same part.

use throughline_canonical::{Block, Fault, Loss};

use super::super::metadata;
use super::messages::as_text;
use crate::dialects::shared::fields::string;
use crate::dialects::shared::losses::{missing_result, unfinished_call};
use crate::json::Node;

const DENIED: &str = "The call was denied.";

/// The tool of a part; `None` for other parts.
pub(super) fn name<'a>(kind: &'a str, part: &'a Node<'a>) -> Result<Option<&'a str>, Fault> {
    if kind == "dynamic-tool" {
        return part.need("toolName")?.text().map(Some);
    }
    Ok(kind.strip_prefix("tool-").filter(|name| !name.is_empty()))
}

/// Reads a part: the call and its result.
pub(super) fn read(
    part: &Node<'_>,
    name: &str,
    calls: &mut Vec<Block>,
    results: &mut Vec<Block>,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    let id = part.need("toolCallId")?.text()?.to_owned();
    let state = part.need("state")?;
    let (text, is_error) = match state.text()? {
        // The reply was cut inside this call.
        "input-streaming" => {
            unfinished_call(losses);
            return Ok(());
        }
        "input-available" | "approval-requested" => unanswered(losses),
        "approval-responded" if is_approved(part)? => unanswered(losses),
        "approval-responded" | "output-denied" => (denial(part)?, true),
        "output-available" => {
            // An empty output is a result too.
            let output = part.value().get("output").map(as_text);
            (output.unwrap_or_default(), false)
        }
        "output-error" => (part.need("errorText")?.text()?.to_owned(), true),
        _ => {
            return Err(state.refuse(
                "expected `input-streaming`, `input-available`, `approval-requested`, \
                 `approval-responded`, `output-available`, `output-error` or `output-denied`",
            ));
        }
    };
    // Input that was not JSON is kept as text, in some major versions under another name.
    let input = part.get("input").or_else(|| part.get("rawInput"));
    calls.push(Block::ToolCall {
        id: id.clone(),
        name: name.to_owned(),
        arguments: input.map_or_else(|| "{}".to_owned(), |input| as_text(input.value())),
        signature: metadata::signature(part, "callProviderMetadata"),
    });
    results.push(Block::ToolResult {
        id,
        name: Some(name.to_owned()),
        content: vec![Block::text(text)],
        is_error,
    });
    Ok(())
}

fn unanswered(losses: &mut Vec<Loss>) -> (String, bool) {
    (missing_result(losses).to_owned(), true)
}

fn is_approved(part: &Node<'_>) -> Result<bool, Fault> {
    let Some(approval) = part.get("approval") else {
        return Ok(false);
    };
    approval.object()?;
    approval.need("approved")?.flag()
}

fn denial(part: &Node<'_>) -> Result<String, Fault> {
    let reason = match part.get("approval") {
        Some(approval) => string(&approval, "reason")?,
        None => None,
    };
    Ok(match reason {
        Some(reason) => format!("{DENIED} {reason}"),
        None => DENIED.to_owned(),
    })
}
