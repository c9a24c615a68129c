//! Cutting bytes into frames: server-sent events, and the content encodings around them.

pub mod encoding;
pub mod sse;
