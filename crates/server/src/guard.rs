//! Checks the `Host` and `Origin` of every request, for clients' and operators' paths alike.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::cors::RefusedUse;
use crate::wiring::App;
use crate::{admin_api, cors};

/// Rejects requests for another host, and requests of web pages that may not use this server.
pub async fn check_host_and_origin(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if !app.is_allowed_host(request.uri(), headers) {
        let hint = "this server does not answer to that `Host`; add it to `allowed_hosts`\n";
        return (StatusCode::MISDIRECTED_REQUEST, hint).into_response();
    }
    if admin_api::is_operator_path(request.uri().path()) && app.is_cross_origin(headers) {
        app.refused_origins.report(RefusedUse::Operator, headers);
        let hint = "cross-origin requests are not allowed on operator paths\n";
        return (StatusCode::FORBIDDEN, hint).into_response();
    }
    if cors::is_simple_request(request.method(), headers) && app.is_disallowed_origin(headers) {
        app.refused_origins.report(RefusedUse::Client, headers);
        let hint = "cross-origin requests are not allowed; add the origin to `cors_origins`, \
                    or send `content-type: application/json`\n";
        return (StatusCode::FORBIDDEN, hint).into_response();
    }
    next.run(request).await
}
