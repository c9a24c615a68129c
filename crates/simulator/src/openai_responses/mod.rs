//! The OpenAI Responses dialect: its routes and the order of its checks.

mod compact;
mod compose;
mod dialogue;
mod events;
mod item_ids;
mod items;
mod llama_cpp;
mod models;
mod refusal;
mod reply;
mod request;
mod settings;
mod shape;
mod store;
mod tools;
mod verify;
mod vllm;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::{Map, Value, json};

use self::models::Model;
use self::request::ParsedRequest;
use self::shape::Endpoint;
use self::store::ResponseStore;
use self::verify::Verifier;
use crate::dialect::Dialect;
use crate::exchange::{Content, Exchange, ScenarioInput};
use crate::fault::Frame;
use crate::prompt_cache::PromptPart;
use crate::refusal::Refusal;
use crate::signing::Signer;
use crate::stored;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator, openai};

/// The row of this dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "openai_responses",
    routes,
    models: None,
    recognises,
    error_body: openai::error_body,
    status_message: openai::status_message,
    overloaded_status: StatusCode::SERVICE_UNAVAILABLE,
    error_event,
};

/// Each simulator has its own store.
fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/v1/responses", post(create).get(upgrade))
        .route("/v1/responses/input_tokens", post(input_tokens))
        .route("/v1/responses/compact", post(compact_conversation))
        .route("/v1/responses/{id}", get(retrieve).delete(forget))
        .layer(Extension(Arc::new(ResponseStore::default())))
}

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().split('/').any(|part| part == "responses")
        || headers.contains_key(header::AUTHORIZATION)
}

/// Events are numbered from 0, so the number of this one is the count of the earlier ones.
fn error_event(sent: usize) -> Bytes {
    let message = openai::status_message(StatusCode::SERVICE_UNAVAILABLE);
    let error = json!({ "type": "error", "code": "server_error", "message": message,
                        "param": null, "sequence_number": sent });
    Frame::event(Some("error"), &error).bytes
}

async fn create(
    State(simulator): State<Arc<Simulator>>,
    Extension(responses): Extension<Arc<ResponseStore>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&simulator, &responses, &headers, &body).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(&DIALECT, &id),
    }
}

async fn input_tokens(
    State(simulator): State<Arc<Simulator>>,
    Extension(responses): Extension<Arc<ResponseStore>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = || {
        let exchange = Exchange::open(&simulator, &DIALECT, &headers)?;
        exchange.refuse_on_demand()?;
        let request =
            validate(&exchange, &responses, &headers, read(&body)?, Endpoint::InputTokens)?;
        Ok(Json(
            json!({ "object": "response.input_tokens", "input_tokens": PromptPart::total(&request.prompt()) }),
        ))
    };
    match count() {
        Ok(counted) => counted.into_response(),
        Err(refusal) => Refusal::respond(refusal, &DIALECT, &id),
    }
}

async fn compact_conversation(
    State(simulator): State<Arc<Simulator>>,
    Extension(responses): Extension<Arc<ResponseStore>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let compacted = || {
        let exchange = Exchange::open(&simulator, &DIALECT, &headers)?;
        exchange.refuse_on_demand()?;
        // An open server has no such path.
        if exchange.style() == SignatureStyle::Empty {
            return Err(Refusal::new(StatusCode::NOT_FOUND, "Not found"));
        }
        let request = validate(&exchange, &responses, &headers, read(&body)?, Endpoint::Compact)?;
        Ok(Json(compact::compact(&exchange, &request)))
    };
    match compacted() {
        Ok(compacted) => compacted.into_response(),
        Err(refusal) => Refusal::respond(refusal, &DIALECT, &id),
    }
}

/// Clients that try a WebSocket first fall back to HTTP on this status.
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
    Extension(responses): Extension<Arc<ResponseStore>>,
    Extension(request_id): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    match responses.response(&id) {
        Some(response) => Json(response).into_response(),
        None => not_stored(&id).respond(&DIALECT, &request_id),
    }
}

async fn forget(
    Extension(responses): Extension<Arc<ResponseStore>>,
    Extension(request_id): Extension<RequestId>,
    Path(id): Path<String>,
) -> Response {
    if responses.forget(&id) {
        Json(json!({ "id": id, "object": "response.deleted", "deleted": true })).into_response()
    } else {
        not_stored(&id).respond(&DIALECT, &request_id)
    }
}

fn not_stored(id: &str) -> Refusal {
    let message = format!("Response with id '{id}' not found.");
    Refusal::new(StatusCode::NOT_FOUND, message)
}

async fn answer(
    simulator: &Simulator,
    responses: &ResponseStore,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, &DIALECT, headers)?;
    let json = read(body)?;
    exchange.apply_scenario(|| scenario_input(&json, responses, &simulator.signer)).await?;
    let is_llama_cpp = llama_cpp::is_wanted(&exchange, headers)?;
    let is_vllm = vllm::is_wanted(&exchange, headers)?;
    if is_llama_cpp || is_vllm {
        exchange.set_style(SignatureStyle::Empty);
    }
    let request = validate(&exchange, responses, headers, json, Endpoint::Responses)?;
    if is_llama_cpp {
        llama_cpp::check(&request)?;
    }
    if is_vllm {
        vllm::check(&request)?;
    }
    exchange.deliver(|exchange| {
        let mut reply = compose::compose(exchange, &request, Model::named(&request.model));
        if is_vllm {
            vllm::leave_plain(&mut reply);
        }
        if is_llama_cpp {
            return match request.stream {
                true => Content::Events(llama_cpp::events(&reply)),
                false => Content::Json(llama_cpp::json(&reply).to_string().into()),
            };
        }
        if request.store {
            let history = request.items.iter().map(|item| item.value.clone());
            let items = history.chain(reply.items()).collect();
            responses.keep(&reply.id, reply.json(), items);
        }
        if request.stream {
            Content::Events(events::write(&reply, exchange.style()))
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// Checks, in this order, the caller, the shape, the settings, stored references, the dialogue and
/// the reasoning.
fn validate(
    exchange: &Exchange<'_>,
    responses: &ResponseStore,
    headers: &HeaderMap,
    body: Map<String, Value>,
    endpoint: Endpoint,
) -> Result<ParsedRequest, Refusal> {
    let simulator = exchange.simulator();
    if simulator.lacks_key(headers, &["authorization"]) {
        let message = "Missing bearer or basic authentication in header";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
    }
    let strict = simulator.options.strict;
    if strict {
        shape::check(&body, endpoint)?;
        stored::check(&body)?;
    }
    let request = ParsedRequest::read(body, responses);
    if !strict {
        return Ok(request);
    }
    let model = Model::named(&request.model);
    settings::check(&request, model)?;
    verify::check_references(&request)?;
    dialogue::check(&request)?;
    // A backend that does not sign does not verify.
    if exchange.style() != SignatureStyle::Empty {
        let verifier = Verifier {
            signer: exchange.signer(),
            identity: &simulator.options.identity,
            family: (!request.model.is_empty()).then_some(model.family),
            responses,
        };
        verifier.check(&request)?;
    }
    Ok(request)
}

fn read(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        _ => Err(Refusal::invalid(
            "We could not parse the JSON body of your request. The request body must be a JSON object.",
        )),
    }
}

fn scenario_input(
    body: &Map<String, Value>,
    responses: &ResponseStore,
    signer: &Signer,
) -> ScenarioInput {
    let request = ParsedRequest::read(body.clone(), responses);
    let read = request.items.iter().map(|item| compact::read(item, signer));
    ScenarioInput {
        conversation: read.collect::<Vec<_>>().join("\n"),
        text: request.last_said(),
        model: request.model,
    }
}
