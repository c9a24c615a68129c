//! The Anthropic dialect: its routes and the order in which a request is judged.

mod ask;
mod compose;
mod dialogue;
mod models;
mod modes;
mod prefix;
mod refusal;
mod reply;
mod shape;
mod verify;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Map, Value, json};

use self::ask::{Ask, Terms};
use self::compose::Composer;
use self::models::Model;
use self::modes::Plan;
use self::shape::Endpoint;
use self::verify::{Verified, Verifier};
use crate::dialect::{Dialect, Models};
use crate::exchange::{Content, Exchange, Said};
use crate::refusal::Refusal;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator, draft};

const VERSIONS: &[&str] = &["2023-01-01", "2023-06-01", "2026-10-21"];

/// This dialect's row.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "anthropic",
    routes,
    models: Some(Models {
        paths: &["/v1/models"],
        list: models::list,
        describe: |name| Ok(models::describe(name)),
    }),
    recognises,
    envelope: refusal::envelope,
    words: refusal::words,
    overloaded: refusal::OVERLOADED,
    error_event: refusal::event,
};

fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
}

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    let told = |name| headers.contains_key(name);
    told("anthropic-version") || told("x-api-key") || uri.path().starts_with("/v1/messages")
}

async fn messages(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&simulator, &headers, &body).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(&DIALECT, &id),
    }
}

async fn count_tokens(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = || {
        let exchange = Exchange::open(&simulator, &DIALECT, &headers)?;
        exchange.refuse_on_demand()?;
        let accepted = judge(&exchange, &headers, read(&body)?, Endpoint::CountTokens)?;
        Ok(Json(json!({ "input_tokens": input_tokens(&accepted.ask) })))
    };
    match count() {
        Ok(counted) => counted.into_response(),
        Err(refusal) => Refusal::respond(refusal, &DIALECT, &id),
    }
}

/// A request that passed, or that nobody judged.
struct Accepted {
    ask: Ask,
    plan: Plan,
    model: &'static Model,
    terms: Terms,
    verified: Verified,
}

async fn answer(
    simulator: &Simulator,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, &DIALECT, headers)?;
    let json = read(body)?;
    exchange.meet(|| said(&json)).await?;
    let accepted = judge(&exchange, headers, json, Endpoint::Messages)?;
    exchange.deliver(|exchange| {
        let composer = Composer {
            exchange,
            model: accepted.model,
            plan: &accepted.plan,
            terms: &accepted.terms,
            input_tokens: input_tokens(&accepted.ask),
        };
        let reply = composer.compose(&accepted.ask, accepted.verified);
        if accepted.ask.stream {
            Content::Events(reply.frames(exchange.pings()))
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// The rules in their order: the caller, the shape, the modes, the dialogue, the thinking.
fn judge(
    exchange: &Exchange<'_>,
    headers: &HeaderMap,
    body: Map<String, Value>,
    endpoint: Endpoint,
) -> Result<Accepted, Refusal> {
    let simulator = exchange.simulator();
    let strict = simulator.options.strict;
    let terms = Terms::read(headers);
    check_key(simulator, headers)?;
    if strict {
        check_version(&terms)?;
        shape::check(&body, endpoint, &terms)?;
    }
    let sampling: Map<String, Value> = ["temperature", "top_p", "top_k"]
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone())))
        .collect();
    let ask = Ask::read(body);
    let model = Model::named(&ask.model);
    let plan = Plan::read(&ask, model);
    if strict {
        modes::check(&ask, &plan, model)?;
        modes::check_sampling(&sampling, &plan, model, &terms)?;
        dialogue::check(&ask, model)?;
    }
    // A backend that does not sign does not verify either.
    let verified = if strict && exchange.style() != SignatureStyle::Empty {
        let verifier = Verifier {
            signer: exchange.signer(),
            model,
            plan: &plan,
            prefix_binding: simulator.options.prefix_binding,
        };
        verifier.check(&ask)?
    } else {
        verify::trust(&ask)
    };
    Ok(Accepted { ask, plan, model, terms, verified })
}

fn check_key(simulator: &Simulator, headers: &HeaderMap) -> Result<(), Refusal> {
    if simulator.lacks_key(headers, &["x-api-key", "authorization"]) {
        let message = "x-api-key header is required";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
    }
    Ok(())
}

fn check_version(terms: &Terms) -> Result<(), Refusal> {
    match terms.version.as_deref() {
        None => Err(Refusal::invalid("anthropic-version: header is required")),
        Some(version) if VERSIONS.contains(&version) => Ok(()),
        Some(version) => Err(Refusal::invalid(format!(
            "anthropic-version: \"{version}\" is not a valid version"
        ))),
    }
}

fn read(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(Refusal::invalid("Input should be a valid dictionary")),
        Err(error) => Err(Refusal::invalid(format!("The request body is not valid JSON: {error}"))),
    }
}

fn said(body: &Map<String, Value>) -> Said {
    let ask = Ask::read(body.clone());
    Said { text: compose::last_said(&ask), model: ask.model }
}

/// What the model reads, whatever else the body says.
fn input_tokens(ask: &Ask) -> usize {
    let blocks = ask.turns.iter().flat_map(|turn| &turn.blocks);
    let read = ask.system.iter().chain(&ask.tools).chain(blocks);
    read.map(|part| draft::tokens(&part.to_string())).sum()
}
