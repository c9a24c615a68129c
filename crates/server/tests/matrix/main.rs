//! The support matrix: every client dialect over every upstream dialect, against strict simulators.
//! No simulator refuses a request, every client sees the same content, and the losses are exactly
//! those in docs/support.md.

mod ag_ui;
mod agent_session;
#[allow(dead_code, reason = "the matrix and the tests of state use a part each")]
mod anthropic;
mod caching;
mod canonical;
mod chat;
mod gemini;
mod ollama;
#[allow(dead_code, reason = "the matrix and the tests of state use a part each")]
mod responses;
mod scenarios;
mod table;
mod test_client;
mod ui_stream;
mod upstreams;
