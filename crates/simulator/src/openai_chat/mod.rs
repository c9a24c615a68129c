//! The OpenAI chat dialect: its routes and the order of its checks.

mod compose;
mod dialogue;
mod logprobs;
mod messages;
mod modes;
mod openrouter;
mod prompt;
mod reply;
mod request;
mod shape;
mod signatures;
mod variants;
mod verify;

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use axum::routing::post;
use axum::{Extension, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::{Map, Value, json};

use self::compose::Composer;
use self::modes::ThinkingPlan;
use self::request::ParsedRequest;
use self::verify::Verifier;
use crate::dialect::Dialect;
use crate::exchange::{Content, Exchange};
use crate::fault::Frame;
use crate::refusal::Refusal;
use crate::stored;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator, openai};

pub use self::variants::{UnknownVariant, Variant};

/// The row of this dialect.
pub(crate) static DIALECT: Dialect = ROW;

const ROW: Dialect = Dialect {
    name: "openai_chat",
    routes,
    models: Some(openai::MODELS),
    recognises,
    error_body: openai::error_body,
    status_message: openai::status_message,
    overloaded_status: StatusCode::SERVICE_UNAVAILABLE,
    error_event,
};

/// The paths of this dialect's servers: OpenAI, GLM, Google and OpenRouter.
const PATHS: &[&str] = &[
    "/v1/chat/completions",
    "/chat/completions",
    "/v4/chat/completions",
    "/api/paas/v4/chat/completions",
    "/v1beta/openai/chat/completions",
    "/api/v1/chat/completions",
];

fn routes() -> Router<Arc<Simulator>> {
    PATHS.iter().fold(Router::new(), |router, path| router.route(path, post(completions)))
}

/// OpenAI's two dialects use the same key header; without another sign, this dialect answers.
fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().ends_with("/chat/completions") || headers.contains_key(header::AUTHORIZATION)
}

fn error_event(_: usize) -> Bytes {
    let message = openai::status_message(StatusCode::SERVICE_UNAVAILABLE);
    let error = json!({ "message": message, "type": "server_error", "param": null, "code": null });
    Frame::event(None, &json!({ "error": error })).bytes
}

async fn completions(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let parsed = read(&body).and_then(|body| {
        let request = ParsedRequest::read(body);
        let usual = simulator.options.variant;
        let variant = Variant::of(&headers, usual, request.model())?;
        Ok((request, variant))
    });
    let response = match parsed {
        Ok((request, variant)) => match answer(&simulator, &headers, &request, variant).await {
            Ok(response) => response,
            Err(refusal) => refusal.respond(variant.dialect, &id),
        },
        Err(refusal) => refusal.respond(&DIALECT, &id),
    };
    openai::with_request_id(response, &id)
}

async fn answer(
    simulator: &Simulator,
    headers: &HeaderMap,
    request: &ParsedRequest,
    variant: &'static Variant,
) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, variant.dialect, headers)?;
    exchange.apply_scenario(|| request.scenario_input()).await?;
    let plan = validate(&exchange, headers, request, variant)?;
    exchange.deliver(|exchange| {
        let composer = Composer { exchange, variant, plan };
        let reply = composer.compose(request);
        if request.streams() {
            Content::Events(reply.frames())
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// Checks, in this order, the caller, the shape, the modes, the dialogue and the reasoning.
fn validate(
    exchange: &Exchange<'_>,
    headers: &HeaderMap,
    request: &ParsedRequest,
    variant: &'static Variant,
) -> Result<ThinkingPlan, Refusal> {
    let simulator = exchange.simulator();
    if simulator.lacks_key(headers, &["authorization"]) {
        return Err(openai::missing_key());
    }
    let plan = ThinkingPlan::read(request, variant);
    if exchange.simulator().options.strict {
        shape::check(request, variant, &plan)?;
        stored::check(request.body())?;
        modes::check(request, variant, &plan)?;
        dialogue::check(request, variant)?;
        prompt::check_marks(request, variant)?;
        // A server that does not sign does not verify.
        let signs = exchange.style() != SignatureStyle::Empty;
        let verifier = Verifier { signer: signs.then(|| exchange.signer()), variant, plan };
        verifier.check(request)?;
    }
    Ok(plan)
}

fn read(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        _ => Err(Refusal::invalid(
            "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)",
        )),
    }
}
