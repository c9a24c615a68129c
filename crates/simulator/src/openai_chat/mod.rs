//! The OpenAI chat dialect: its routes and the order in which a request is judged.

mod ask;
mod compose;
mod dialogue;
mod marks;
mod messages;
mod modes;
mod openrouter;
mod reply;
mod shape;
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

use self::ask::Ask;
use self::compose::Composer;
use self::modes::Plan;
use self::verify::Verifier;
use crate::dialect::Dialect;
use crate::exchange::{Content, Exchange};
use crate::fault::Frame;
use crate::refusal::Refusal;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator, openai};

pub use self::variants::{UnknownVariant, Variant};

/// This dialect's row.
pub(crate) static DIALECT: Dialect = ROW;

const ROW: Dialect = Dialect {
    name: "openai_chat",
    routes,
    models: Some(openai::MODELS),
    recognises,
    envelope: openai::envelope,
    words: openai::words,
    overloaded: StatusCode::SERVICE_UNAVAILABLE,
    error_event,
};

/// Where servers of this dialect answer: OpenAI's path, and those of GLM, Google and OpenRouter.
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

/// Of the two dialects of OpenAI, this one speaks where only the key tells.
fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().ends_with("/chat/completions") || headers.contains_key(header::AUTHORIZATION)
}

fn error_event(_: usize) -> Bytes {
    let message = openai::words(StatusCode::SERVICE_UNAVAILABLE);
    let error = json!({ "message": message, "type": "server_error", "param": null, "code": null });
    Frame::event(None, &json!({ "error": error })).bytes
}

async fn completions(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let asked = read(&body).and_then(|body| {
        let ask = Ask::read(body);
        let usual = simulator.options.variant;
        let variant = Variant::of(&headers, usual, ask.model())?;
        Ok((ask, variant))
    });
    let response = match asked {
        Ok((ask, variant)) => match answer(&simulator, &headers, &ask, variant).await {
            Ok(response) => response,
            Err(refusal) => refusal.respond(variant.dialect, &id),
        },
        Err(refusal) => refusal.respond(&DIALECT, &id),
    };
    openai::stamped(response, &id)
}

async fn answer(
    simulator: &Simulator,
    headers: &HeaderMap,
    ask: &Ask,
    variant: &'static Variant,
) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, variant.dialect, headers)?;
    exchange.meet(|| ask.said()).await?;
    let plan = judge(&exchange, headers, ask, variant)?;
    exchange.deliver(|exchange| {
        let composer = Composer { exchange, variant, plan };
        let reply = composer.compose(ask);
        if ask.streams() {
            Content::Events(reply.frames())
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// The rules in their order: the caller, the shape, the modes, the dialogue, the reasoning.
fn judge(
    exchange: &Exchange<'_>,
    headers: &HeaderMap,
    ask: &Ask,
    variant: &'static Variant,
) -> Result<Plan, Refusal> {
    let simulator = exchange.simulator();
    if simulator.lacks_key(headers, &["authorization"]) {
        return Err(openai::lacks_key());
    }
    let plan = Plan::read(ask, variant);
    if simulator.options.strict {
        shape::check(ask, variant, &plan)?;
        modes::check(ask, variant, &plan)?;
        dialogue::check(ask, variant)?;
        // A server that does not sign does not verify either.
        let signs = exchange.style() != SignatureStyle::Empty;
        let verifier = Verifier { signer: signs.then(|| exchange.signer()), variant, plan };
        verifier.check(ask)?;
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
