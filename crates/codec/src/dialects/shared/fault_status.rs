//! HTTP statuses of faults.

use throughline_canonical::FaultKind;

/// The HTTP status of a fault, in dialects that define none of their own.
pub(crate) fn status(kind: FaultKind) -> u16 {
    match kind {
        FaultKind::Invalid => 400,
        FaultKind::Unauthenticated => 401,
        FaultKind::Forbidden => 403,
        FaultKind::NotFound => 404,
        FaultKind::WrongMethod => 405,
        FaultKind::Conflict => 409,
        FaultKind::TooLarge => 413,
        FaultKind::RateLimited => 429,
        FaultKind::Overloaded => 503,
        FaultKind::Unreachable | FaultKind::ToolCallUnreadable => 502,
        FaultKind::TimedOut => 504,
        FaultKind::Internal => 500,
    }
}
