//! Decides whether a request may go on: its path, its method, and a free slot for its turn.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects;
use throughline_codec::dialects::segments::has_dot_segments;
use throughline_conversations::responses::Responses;
use throughline_gateway::IncomingRequest;
use tokio::sync::OwnedSemaphorePermit;

use super::body::{drain_body, read_body};
use super::{into_response, refuse};
use crate::wiring::App;

/// Rejects paths that backends read in different ways. Some backends would resolve such a path to
/// another caller's data.
pub(super) fn check_path(path: &str) -> Result<(), Fault> {
    if has_dot_segments(path) {
        return Err(Fault::at("path", "segments `.` and `..` are not allowed"));
    }
    let versioned = path.starts_with("/v1/") || path.starts_with("/v1beta/");
    if versioned && path.contains("//") || Responses::is_misspelled(path) {
        let message = format!(
            "no such path `{path}`; remove empty and encoded segments, and write responses and \
             conversations under `/v1/`"
        );
        return Err(Fault::new(FaultKind::NotFound, message));
    }
    if is_interactions(path) {
        let message = format!(
            "`{path}`: the Interactions API is not supported yet; use \
             `POST /v1beta/models/{{model}}:generateContent`"
        );
        return Err(Fault::new(FaultKind::NotFound, message));
    }
    Ok(())
}

/// Whether a path belongs to Gemini's Interactions API. It keeps conversations, so a backend that
/// does not know it must not answer.
pub(super) fn is_interactions(path: &str) -> bool {
    let versions = ["/v1/", "/v1beta/"].iter();
    let mut rests = versions.filter_map(|version| path.strip_prefix(version));
    rests.any(|rest| rest.split(['/', ':']).next() == Some("interactions"))
}

/// What to do with the method of a request for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MethodUse {
    /// `POST` runs the turn.
    Run,
    /// `HEAD` and `OPTIONS` go to the backend, because their answer describes the backend.
    Forward,
    /// `OPTIONS` where no backend can be asked.
    Empty,
    /// The path does not take this method.
    Reject,
}

/// Decides what the method of a request for a turn means.
pub(super) fn method_use(request: &IncomingRequest) -> MethodUse {
    // Only a backend of the same dialect knows the path.
    let can_forward = dialects::passthrough(request.dialect.name()).is_some();
    match request.method {
        Method::POST => MethodUse::Run,
        Method::HEAD | Method::OPTIONS if can_forward => MethodUse::Forward,
        Method::OPTIONS => MethodUse::Empty,
        _ => MethodUse::Reject,
    }
}

/// Answers 405 and names the method that the path takes.
pub(super) fn reject_method(
    app: &App,
    request: &IncomingRequest,
    allowed: &'static str,
) -> Response {
    let (method, path) = (&request.method, &request.path);
    let message = format!("`{path}` does not accept {method}; use {allowed}");
    let fault = Fault::new(FaultKind::WrongMethod, message);
    let mut response = refuse(app, request.dialect, &fault);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    response
}

/// Takes a slot and reads the body. The slot comes first: without one, no body is kept in memory.
pub(super) async fn admit(
    app: &App,
    request: &IncomingRequest,
    body: Body,
) -> Result<(Bytes, OwnedSemaphorePermit), Response> {
    let slot = match app.gateway.admit() {
        Ok(slot) => slot,
        Err(fault) => {
            let reply = app.gateway.reject(request, &fault);
            drain_body(body).await;
            return Err(into_response(reply));
        }
    };
    match read_body(body, app.gateway.settings().limits.body).await {
        Ok(body) => Ok((body, slot)),
        Err(fault) => Err(into_response(app.gateway.reject(request, &fault))),
    }
}
