//! Pure translation between wire formats and the canonical vocabulary.
//!
//! This crate has no HTTP, no configuration, no history, no clock and no random numbers. Bytes come
//! in, values go out, and the state it keeps belongs to one stream.
//!
//! - [`json`]: reads and edits JSON in place, so that unchanged parts stay equal byte for byte.
//! - [`framing`]: cuts a stream of bytes into events and lines.
//! - [`dialects`]: one folder for each wire dialect.
//! - [`text`]: finds reasoning and tool calls in the raw text of open models.
//! - [`pacing`]: joins the deltas of a reply into larger ones.

pub mod dialects;
pub mod framing;
pub mod json;
pub mod pacing;
mod search;
pub mod text;
