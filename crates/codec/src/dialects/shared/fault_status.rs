//! HTTP statuses of faults, both ways.

use throughline_canonical::FaultKind;

/// The HTTP status of a fault, in dialects that define none of their own.
pub fn status(kind: FaultKind) -> u16 {
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

/// The kind of a provider's error with this HTTP status, if its body does not say more.
pub(crate) fn kind_of(status: u16) -> FaultKind {
    match status {
        401 => FaultKind::Unauthenticated,
        402 | 403 => FaultKind::Forbidden,
        404 => FaultKind::NotFound,
        408 | 504 => FaultKind::TimedOut,
        409 => FaultKind::Conflict,
        413 => FaultKind::TooLarge,
        429 => FaultKind::RateLimited,
        400..=499 => FaultKind::Invalid,
        502 => FaultKind::Unreachable,
        503 | 529 => FaultKind::Overloaded,
        _ => FaultKind::Internal,
    }
}
