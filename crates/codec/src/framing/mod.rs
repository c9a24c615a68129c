//! Cutting bytes into frames: server-sent events, lines, and the content encodings around them.

pub mod encoding;
pub mod ndjson;
pub mod sse;
