//! HTTP behaviour of the Anthropic passthrough lane and of the server, with the real binary: bytes
//! pass unchanged in both directions, and every failure ends in an error that clients understand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bytes;
mod compression;
mod cors;
mod credentials;
mod cuts;
mod fallback;
mod headers;
mod hosts;
mod invalid_requests;
mod keep_alive;
mod limits;
mod malformed_corpus;
mod metrics;
mod model_names;
mod models;
mod other_paths;
mod page;
mod reload;
mod routing;
mod shutdown;
mod streams;
mod support;
mod unreachable;
