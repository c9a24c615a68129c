//! Cuts bytes into frames: server-sent events and lines. Also undoes content encodings.

pub mod encoding;
pub mod ndjson;
pub mod sse;

/// The longest event or line of a stream.
pub const MAX_EVENT_BYTES: usize = 16 << 20;
/// The longest whole reply, and the longest event that repeats one.
pub const MAX_REPLY_BYTES: usize = 64 << 20;
