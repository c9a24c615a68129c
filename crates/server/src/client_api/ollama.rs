//! The paths where Ollama's clients ask about models and about the server.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use throughline_codec::dialects::ollama::model_card::DETAILS;
use throughline_codec::dialects::ollama::{Endpoint, VERSION};
use throughline_gateway::IncomingRequest;

use super::admit::reject_method;
use super::body::read_body;
use super::{into_response, refuse};
use crate::wiring::App;

/// Bytes of a request to show a model.
const MAX_SHOW_BYTES: usize = 64 << 10;

/// Answers a request for one of these paths.
pub(super) async fn answer(
    app: &App,
    request: IncomingRequest,
    endpoint: Endpoint,
    body: Body,
) -> Response {
    let allowed = match endpoint {
        Endpoint::Show => "POST",
        Endpoint::Tags | Endpoint::Running | Endpoint::Version => "GET",
    };
    let is_probe = request.method == Method::HEAD && allowed == "GET";
    if request.method.as_str() != allowed && !is_probe {
        return reject_method(app, &request, allowed);
    }
    match endpoint {
        Endpoint::Tags => {
            let body = body.map_err(Into::into).boxed_unsync();
            into_response(app.gateway.models(request, body).await)
        }
        Endpoint::Show => match read_body(body, MAX_SHOW_BYTES).await {
            Ok(body) => into_response(app.gateway.show_model(request, body, &DETAILS).await),
            Err(fault) => refuse(app, request.dialect, &fault),
        },
        // Models run at the backends; this server has none loaded.
        Endpoint::Running => axum::Json(json!({"models": []})).into_response(),
        Endpoint::Version => axum::Json(json!({"version": VERSION})).into_response(),
    }
}
