//! Ollama's own dialect: its routes and the order of its checks.

mod dialogue;
mod models;
mod reply;
mod request;
mod shape;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Value, json};

use self::reply::Reply;
use self::request::{ParsedRequest, Path};
use crate::dialect::{Dialect, Models};
use crate::exchange::{Content, Exchange};
use crate::refusal::Refusal;
use crate::{RequestId, Simulator};

pub(crate) use self::models::{refuse_thinking, thinks};

/// The row of this dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "ollama",
    routes,
    models: Some(Models {
        paths: &["/api/tags"],
        list: models::list,
        describe: |_| Err(Refusal::new(StatusCode::NOT_FOUND, "404 page not found")),
    }),
    recognises,
    error_body: |refusal, _| json!({ "error": refusal.message }),
    status_message,
    overloaded_status: StatusCode::SERVICE_UNAVAILABLE,
    error_event: |_| {
        let words = status_message(StatusCode::SERVICE_UNAVAILABLE);
        format!("{}\n", json!({ "error": words })).into()
    },
};

fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/api/chat", post(chat))
        .route("/api/generate", post(generate))
        .route("/api/show", post(show))
        .route("/api/ps", get(|| async { Json(json!({ "models": [] })) }))
        .route("/api/version", get(|| async { Json(json!({ "version": "0.13.0" })) }))
}

/// Other dialects have paths below `/api/` too.
fn recognises(uri: &Uri, _: &HeaderMap) -> bool {
    const OURS: [&str; 9] =
        ["chat", "generate", "show", "tags", "ps", "version", "embed", "pull", "push"];
    let below = uri.path().strip_prefix("/api/");
    below.is_some_and(|rest| OURS.contains(&rest))
}

fn status_message(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "too many concurrent requests",
        503 => "server busy, please try again.  maximum pending requests exceeded",
        500.. => "llama runner process no longer running",
        _ => "refused on demand",
    }
}

async fn chat(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    into_response(answer(&simulator, &headers, &body, Path::Chat).await, &id)
}

async fn generate(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    into_response(answer(&simulator, &headers, &body, Path::Generate).await, &id)
}

async fn show(Extension(id): Extension<RequestId>, body: Bytes) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let name = body["model"].as_str().or(body["name"].as_str());
    match name.filter(|name| !name.is_empty()) {
        Some(name) => Json(models::show(name)).into_response(),
        None => Refusal::invalid("model is required").respond(&DIALECT, &id),
    }
}

fn into_response(answer: Result<Response, Refusal>, id: &RequestId) -> Response {
    answer.unwrap_or_else(|refusal| refusal.respond(&DIALECT, id))
}

async fn answer(
    simulator: &Simulator,
    headers: &HeaderMap,
    body: &Bytes,
    path: Path,
) -> Result<Response, Refusal> {
    let request = ParsedRequest::read(shape::object(body)?, path);
    let mut exchange = Exchange::open(simulator, &DIALECT, headers)?;
    exchange.apply_scenario(|| request.scenario_input()).await?;
    validate(&exchange, headers, &request)?;
    if request.is_silent() {
        return Ok(Json(Reply::of_nothing(&request)).into_response());
    }
    exchange.deliver(|exchange| {
        let reply = Reply::compose(exchange, &request);
        if request.streams() {
            Content::Lines(reply.frames())
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// Checks, in this order, the caller, the shape, the model and the dialogue.
fn validate(
    exchange: &Exchange<'_>,
    headers: &HeaderMap,
    request: &ParsedRequest,
) -> Result<(), Refusal> {
    let simulator = exchange.simulator();
    if simulator.lacks_key(headers, &["authorization"]) {
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, "unauthorized"));
    }
    if simulator.options.strict {
        shape::check(request)?;
        models::check(request)?;
        dialogue::check(request)?;
    }
    Ok(())
}
