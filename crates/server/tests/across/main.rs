//! The across lane over real HTTP: clients of one dialect over backends of another, with what goes
//! wrong on the way. That every pair understands each other when nothing does is the matrix's matter.

#[path = "../matrix/anthropic.rs"]
mod anthropic;
#[path = "../matrix/chat.rs"]
mod chat;
#[path = "../matrix/gemini.rs"]
mod gemini;
#[path = "../matrix/responses.rs"]
mod responses;
#[path = "../matrix/speaker.rs"]
mod speaker;
#[allow(dead_code, reason = "the matrix uses all of it")]
#[path = "../matrix/upstreams.rs"]
mod upstreams;

mod envelopes;
mod faults;
mod heard;
mod support;
mod vault;
