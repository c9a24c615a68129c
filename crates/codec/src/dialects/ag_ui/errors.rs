//! Errors: a status and a body before a run, an event inside a run. Both have the same members.

use throughline_canonical::{Fault, FaultKind};

use crate::json::ObjectWriter;

/// The status and the body of an error before the run.
pub(super) fn write(fault: &Fault) -> (u16, Vec<u8>) {
    let mut body = Vec::new();
    let mut event = ObjectWriter::new(&mut body);
    write_members(fault, &mut event);
    event.end();
    (words(fault.kind).0, body)
}

/// Writes the members of an error.
pub(super) fn write_members(fault: &Fault, event: &mut ObjectWriter<'_>) {
    event
        .text("type", "RUN_ERROR")
        .text("message", &fault.message)
        .text("code", words(fault.kind).1);
}

fn words(kind: FaultKind) -> (u16, &'static str) {
    match kind {
        FaultKind::Invalid => (400, "invalid_request"),
        FaultKind::Unauthenticated => (401, "unauthenticated"),
        FaultKind::Forbidden => (403, "forbidden"),
        FaultKind::NotFound => (404, "not_found"),
        FaultKind::WrongMethod => (405, "method_not_allowed"),
        FaultKind::Conflict => (409, "conflict"),
        FaultKind::TooLarge => (413, "request_too_large"),
        FaultKind::RateLimited => (429, "rate_limited"),
        FaultKind::Overloaded => (503, "overloaded"),
        FaultKind::Unreachable => (502, "upstream_unreachable"),
        FaultKind::TimedOut => (504, "timeout"),
        FaultKind::ToolCallUnreadable => (502, "tool_call_parse_error"),
        FaultKind::Internal => (500, "internal_error"),
    }
}
