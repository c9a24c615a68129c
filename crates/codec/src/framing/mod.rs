//! Cuts bytes into frames: server-sent events and lines. Also undoes content encodings.

pub mod encoding;
pub mod ndjson;
pub mod sse;
