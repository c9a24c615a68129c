//! The OpenAI Responses dialect: its routes and the order in which a request is judged.

mod ask;
mod compose;
mod dialogue;
mod events;
mod items;
mod marks;
mod memory;
mod models;
mod refusal;
mod reply;
mod settings;
mod shape;
mod tools;
mod verify;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::{Map, Value, json};

use self::ask::Ask;
use self::memory::Memory;
use self::models::Model;
use self::shape::Endpoint;
use self::verify::Verifier;
use crate::dialect::Dialect;
use crate::exchange::{Content, Exchange, Said};
use crate::fault::Frame;
use crate::refusal::Refusal;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator, openai};

/// This dialect's row.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "openai_responses",
    routes,
    models: None,
    recognises,
    envelope: openai::envelope,
    words: openai::words,
    overloaded: StatusCode::SERVICE_UNAVAILABLE,
    error_event,
};

/// Each simulator remembers for itself what it stored.
fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/v1/responses", post(create).get(upgrade))
        .route("/v1/responses/input_tokens", post(input_tokens))
        .route("/v1/responses/{id}", get(retrieve).delete(forget))
        .layer(Extension(Arc::new(Memory::default())))
}

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().split('/').any(|part| part == "responses")
        || headers.contains_key(header::AUTHORIZATION)
}

/// Events are numbered from 0, so this one's number is how many there were.
fn error_event(sent: usize) -> Bytes {
    let message = openai::words(StatusCode::SERVICE_UNAVAILABLE);
    let error = json!({ "type": "error", "code": "server_error", "message": message,
                        "param": null, "sequence_number": sent });
    Frame::event(Some("error"), &error).bytes
}

async fn create(
    State(simulator): State<Arc<Simulator>>,
    Extension(memory): Extension<Arc<Memory>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&simulator, &memory, &headers, &body).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(&DIALECT, &id),
    }
}

async fn input_tokens(
    State(simulator): State<Arc<Simulator>>,
    Extension(memory): Extension<Arc<Memory>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = || {
        let exchange = Exchange::open(&simulator, &DIALECT, &headers)?;
        exchange.refuse_on_demand()?;
        let ask = judge(&exchange, &memory, &headers, read(&body)?, Endpoint::InputTokens)?;
        Ok(Json(json!({ "object": "response.input_tokens", "input_tokens": ask.input_tokens() })))
    };
    match count() {
        Ok(counted) => counted.into_response(),
        Err(refusal) => Refusal::respond(refusal, &DIALECT, &id),
    }
}

/// Clients that try a WebSocket first fall back to HTTP at once on this status.
async fn upgrade(Extension(id): Extension<RequestId>, headers: HeaderMap) -> Response {
    let refusal = if headers.contains_key(header::UPGRADE) {
        let message = "Responses over WebSocket are not available here. Use POST.";
        Refusal::new(StatusCode::UPGRADE_REQUIRED, message)
    } else {
        Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
    };
    refusal.respond(&DIALECT, &id)
}

async fn retrieve(
    Extension(memory): Extension<Arc<Memory>>,
    Extension(request): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    match memory.response(&id) {
        Some(response) => Json(response).into_response(),
        None => not_stored(&id).respond(&DIALECT, &request),
    }
}

async fn forget(
    Extension(memory): Extension<Arc<Memory>>,
    Extension(request): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    if memory.forget(&id) {
        Json(json!({ "id": id, "object": "response.deleted", "deleted": true })).into_response()
    } else {
        not_stored(&id).respond(&DIALECT, &request)
    }
}

fn not_stored(id: &str) -> Refusal {
    let message = format!("Response with id '{id}' not found.");
    Refusal::new(StatusCode::NOT_FOUND, message)
}

async fn answer(
    simulator: &Simulator,
    memory: &Memory,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, &DIALECT, headers)?;
    let json = read(body)?;
    exchange.meet(|| said(&json, memory)).await?;
    let ask = judge(&exchange, memory, headers, json, Endpoint::Responses)?;
    exchange.deliver(|exchange| {
        let reply = compose::compose(exchange, &ask, Model::named(&ask.model));
        if ask.store {
            let said = ask.items.iter().map(|item| item.value.clone());
            let items = said.chain(reply.items()).collect();
            memory.keep(&reply.id, reply.json(), items);
        }
        if ask.stream {
            Content::Events(events::write(&reply, exchange.style()))
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// The rules in their order: the caller, the shape, the settings, what is stored, the dialogue, the
/// reasoning.
fn judge(
    exchange: &Exchange<'_>,
    memory: &Memory,
    headers: &HeaderMap,
    body: Map<String, Value>,
    endpoint: Endpoint,
) -> Result<Ask, Refusal> {
    let simulator = exchange.simulator();
    if simulator.lacks_key(headers, &["authorization"]) {
        let message = "Missing bearer or basic authentication in header";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
    }
    let strict = simulator.options.strict;
    if strict {
        shape::check(&body, endpoint)?;
    }
    let ask = Ask::read(body, memory);
    if !strict {
        return Ok(ask);
    }
    let model = Model::named(&ask.model);
    settings::check(&ask, model)?;
    verify::check_references(&ask)?;
    dialogue::check(&ask)?;
    // A backend that does not sign does not verify either.
    if exchange.style() != SignatureStyle::Empty {
        let verifier = Verifier {
            signer: exchange.signer(),
            identity: &simulator.options.identity,
            family: (!ask.model.is_empty()).then_some(model.family),
            memory,
        };
        verifier.check(&ask)?;
    }
    Ok(ask)
}

fn read(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        _ => Err(Refusal::invalid(
            "We could not parse the JSON body of your request. The request body must be a JSON object.",
        )),
    }
}

fn said(body: &Map<String, Value>, memory: &Memory) -> Said {
    let ask = Ask::read(body.clone(), memory);
    Said { text: ask.last_said(), model: ask.model }
}
