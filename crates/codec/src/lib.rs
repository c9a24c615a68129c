//! Pure translation between what providers and clients put on the wire and the canonical
//! vocabulary.
//!
//! No HTTP, no configuration, no history, no clock and no dice live here: bytes come in, values go
//! out, and the state is that of one stream at most.
//!
//! - [`json`]: reading and editing JSON in place, so that what we do not touch stays byte for byte;
//! - [`framing`]: cutting a stream of bytes into events;
//! - [`dialects`]: one folder for each wire dialect;
//! - [`text`]: reasoning and tool calls in the raw text of open models;
//! - [`pacing`]: a reply's deltas gathered into larger ones.

pub mod dialects;
pub mod framing;
pub mod json;
pub mod pacing;
mod search;
pub mod text;
