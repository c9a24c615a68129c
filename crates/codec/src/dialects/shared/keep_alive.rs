//! The keep-alive of event streams.

/// A comment: event readers skip it.
pub(crate) const COMMENT: &[u8] = b": keep-alive\n\n";
