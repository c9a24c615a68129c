//! The paths where Ollama's clients ask about models and about the server.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::Method;
use http_body_util::BodyExt;
use serde_json::json;
use throughline_codec::dialects::ollama::{Page, VERSION};
use throughline_gateway::IncomingRequest;

use crate::client_api::{refuse, refuse_all_but, reply, whole};
use crate::wiring::House;

/// The longest request to be shown a model.
const LONGEST: usize = 64 << 10;

/// Answers what is asked.
pub(crate) async fn answer(
    house: &House,
    asked: IncomingRequest,
    page: Page,
    body: Body,
) -> Response {
    let taken = match page {
        Page::Show => "POST",
        Page::Tags | Page::Running | Page::Version => "GET",
    };
    let probes = asked.method == Method::HEAD && taken == "GET";
    if asked.method.as_str() != taken && !probes {
        return refuse_all_but(house, &asked, taken);
    }
    match page {
        Page::Tags => {
            let body = body.map_err(Into::into).boxed_unsync();
            reply(house.gateway.models(asked, body).await)
        }
        Page::Show => match whole(body, LONGEST).await {
            Ok(body) => reply(house.gateway.show(asked, body).await),
            Err(fault) => refuse(house, asked.dialect, &fault),
        },
        // Models are elsewhere, and nobody waits until they are loaded.
        Page::Running => axum::Json(json!({"models": []})).into_response(),
        Page::Version => axum::Json(json!({"version": VERSION})).into_response(),
    }
}
