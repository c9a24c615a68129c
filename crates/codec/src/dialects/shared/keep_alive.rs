//! The keep-alive of event streams.

/// Clients of this dialect skip comments.
/// A comment: event readers skip it.
pub(crate) const COMMENT: &[u8] = b": keep-alive\n\n";
