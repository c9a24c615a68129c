//! The paths that clients of a model call. A request goes through three steps, one file each:
//!
//! - [`detect`]: which dialect the request uses, and which backend it pins;
//! - [`admit`]: whether its path and method are acceptable, and whether a slot is free for it;
//! - [`mod@dispatch`]: which handler answers it.
//!
//! The turn itself is the gateway's work. Host and origin checks come earlier, in [`crate::guard`],
//! because they also protect the operator's paths.

pub mod admit;
pub mod body;
pub mod detect;
pub mod dispatch;
pub mod ollama;
pub mod plan;
pub mod protocol;
pub mod socket;

use axum::body::Body;
use axum::response::Response;
use throughline_canonical::Fault;
use throughline_codec::dialects::ClientDialect;
use throughline_gateway::turn::error_reply::{Reply, error_response};

pub use dispatch::dispatch;

use crate::wiring::App;

/// Answers with a fault, written in the client's dialect.
fn refuse(app: &App, dialect: &dyn ClientDialect, fault: &Fault) -> Response {
    into_response(error_response(dialect, fault, &app.gateway.new_turn_id(), ""))
}

/// Turns the gateway's reply into one that axum can send.
fn into_response(reply: Reply) -> Response {
    reply.map(Body::new)
}
