//! The span of a turn, which puts the turn's id on every log line.

use tracing::Span;

/// The span of a turn. It is enabled at every log level, so that warnings have the id too.
///
/// Enter it only where something may be logged: a reply passes in many pieces, and each of them
/// would pay for it.
pub fn turn_span(id: &str) -> Span {
    tracing::error_span!("turn", turn = %id)
}
