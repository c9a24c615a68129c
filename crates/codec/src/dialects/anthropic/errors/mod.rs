//! Reads a provider's error, instead of a reply or inside one.

use throughline_canonical::{Fault, FaultKind};

use crate::dialects::shared::{error_codes, fault_status};
use crate::json::{JsonError, Kind, Span, each_member, inside, text};

pub mod refusal;

/// Reads an error that arrives instead of a reply.
pub(super) fn read_fault(status: u16, body: &[u8]) -> Fault {
    let mut fault = Fault::new(FaultKind::Internal, "");
    // An HTML page of a proxy has no message to show.
    let _ = each_member(body, 0, |key, kind, span| match (key, kind) {
        (b"error", Kind::Object) => fault = read_error(body, &span).unwrap_or(fault.clone()),
        (b"error" | b"message", Kind::String) if fault.message.is_empty() => {
            fault.message = text(body, &span).into_owned();
        }
        _ => {}
    });
    if fault.message.is_empty() {
        fault.message = format!("the provider answered with status {status}");
    }
    if fault.kind == FaultKind::Internal {
        fault.kind = fault_status::kind_of(status);
    }
    fault
}

/// Reads the error object.
pub(super) fn read_error(json: &[u8], error: &Span) -> Result<Fault, JsonError> {
    let (mut kind, mut message) = (FaultKind::Internal, String::new());
    each_member(json, error.start, |key, value, span| match (key, value) {
        (b"type", Kind::String) => {
            kind = match inside(json, &span) {
                b"invalid_request_error" => FaultKind::Invalid,
                b"authentication_error" => FaultKind::Unauthenticated,
                b"permission_error" => FaultKind::Forbidden,
                b"not_found_error" => FaultKind::NotFound,
                b"conflict_error" => FaultKind::Conflict,
                b"request_too_large" => FaultKind::TooLarge,
                b"rate_limit_error" => FaultKind::RateLimited,
                b"overloaded_error" => FaultKind::Overloaded,
                b"timeout_error" => FaultKind::TimedOut,
                _ => FaultKind::Internal,
            };
        }
        (b"message", Kind::String) => message = text(json, &span).into_owned(),
        _ => {}
    })?;
    Ok(error_codes::with_code(Fault::new(kind, message), None))
}
