//! The wire, through the real binary: what goes up is what came, what comes down is what was sent,
//! and whatever breaks on either side ends in something a client understands.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod bad_requests;
mod bytes;
mod compression;
mod cors;
mod credentials;
mod cuts;
mod fallback;
mod headers;
mod hosts;
mod keep_alive;
mod limits;
mod malformed;
mod models;
mod names;
mod passing;
mod reload;
mod routing;
mod shutdown;
mod streams;
mod support;
mod unreachable;
mod upstream;
