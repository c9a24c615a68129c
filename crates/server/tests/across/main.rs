//! The across lane over real HTTP: clients of one dialect over backends of another, with what goes
//! wrong on the way. That every pair understands each other when nothing does is the matrix's matter.

#[path = "../matrix/ag_ui.rs"]
mod ag_ui;
#[path = "../matrix/anthropic.rs"]
mod anthropic;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "the tests of the wire use all of it, and fail by panicking"
)]
#[path = "../wire/upstream.rs"]
mod bare;
#[path = "../matrix/chat.rs"]
mod chat;
#[path = "../matrix/gemini.rs"]
mod gemini;
#[path = "../matrix/ollama.rs"]
mod ollama;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/responses.rs"]
mod responses;
#[path = "../matrix/speaker.rs"]
mod speaker;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/upstreams.rs"]
mod upstreams;

mod abandoned;
mod counting;
mod depth;
mod empty;
mod envelopes;
mod extensions;
mod fallback;
mod faults;
mod free_text;
mod front;
mod front_faults;
mod heard;
mod ids;
mod kept;
mod leaving;
mod lines;
mod natives;
mod paths;
mod policies;
mod prefix;
mod raw_text;
mod refused;
mod runs;
mod silence;
mod socket;
mod support;
mod usage;
mod vault;
mod wishes;
