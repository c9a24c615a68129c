//! Errors: a status and a body before a reply, a line inside one. They consist of a message only.

use serde_json::json;
use throughline_canonical::{Fault, FaultKind};

use crate::dialects::shared::{fault_status, openai_errors};
use crate::json::{Kind, Span};

/// The status and the body of an error.
pub(super) fn write(fault: &Fault) -> (u16, Vec<u8>) {
    (fault_status::status(fault.kind), body(fault))
}

/// The body of an error.
pub(super) fn body(fault: &Fault) -> Vec<u8> {
    json!({"error": fault.message}).to_string().into_bytes()
}

/// Reads an error inside a reply. Only its text shows the kind.
pub(super) fn read_inside(json: &[u8], kind: Kind, error: &Span) -> Option<Fault> {
    let mut fault = openai_errors::read_inside(json, kind, error)?;
    let contains = |words: &str| fault.message.contains(words);
    if fault.kind == FaultKind::Internal && (contains("server busy") || contains("overloaded")) {
        fault.kind = FaultKind::Overloaded;
    }
    Some(fault)
}
