//! The Anthropic dialect: its routes and the order of its checks.

mod compaction;
mod compose;
mod dialogue;
mod models;
mod modes;
mod prefix;
mod prompt;
mod refusal;
mod reply;
mod request;
mod shape;
mod threads;
mod verify;

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Map, Value, json};

use self::compose::Composer;
use self::models::Model;
use self::modes::ThinkingPlan;
use self::request::{ApiHeaders, ParsedRequest};
use self::shape::Endpoint;
use self::threads::ThreadStore;
use self::verify::{Verified, Verifier};
use crate::dialect::{Dialect, Models};
use crate::exchange::{Content, Exchange, ScenarioInput};
use crate::prompt_cache::PromptPart;
use crate::refusal::Refusal;
use crate::stored;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator};

const VERSIONS: &[&str] = &["2023-01-01", "2023-06-01", "2026-10-21"];

/// The row of this dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "anthropic",
    routes,
    models: Some(Models {
        paths: &["/v1/models"],
        list: models::list,
        describe: |name| Ok(models::describe(name)),
    }),
    recognises,
    error_body: refusal::error_body,
    status_message: refusal::status_message,
    overloaded_status: refusal::OVERLOADED,
    error_event: refusal::event,
};

/// Each simulator has its own threads.
fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .layer(Extension(Arc::new(ThreadStore::default())))
}

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    let has = |name| headers.contains_key(name);
    has("anthropic-version") || has("x-api-key") || uri.path().starts_with("/v1/messages")
}

async fn messages(
    State(simulator): State<Arc<Simulator>>,
    Extension(threads): Extension<Arc<ThreadStore>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&simulator, &threads, &headers, &body).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(&DIALECT, &id),
    }
}

async fn count_tokens(
    State(simulator): State<Arc<Simulator>>,
    Extension(threads): Extension<Arc<ThreadStore>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = || {
        let exchange = Exchange::open(&simulator, &DIALECT, &headers)?;
        exchange.refuse_on_demand()?;
        let mut json = read(&body)?;
        threads::expand(&threads, &simulator.options, &headers, &mut json)?;
        let accepted = validate(&exchange, &headers, json, Endpoint::CountTokens)?;
        Ok(Json(json!({ "input_tokens": PromptPart::total(&prompt::parts(&accepted.request)) })))
    };
    match count() {
        Ok(counted) => counted.into_response(),
        Err(refusal) => Refusal::respond(refusal, &DIALECT, &id),
    }
}

/// A request that passed the checks, or any request if `strict` is off.
struct Accepted {
    request: ParsedRequest,
    plan: ThinkingPlan,
    model: &'static Model,
    api_headers: ApiHeaders,
    verified: Verified,
}

async fn answer(
    simulator: &Simulator,
    threads: &Arc<ThreadStore>,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, &DIALECT, headers)?;
    let mut json = read(body)?;
    let thread = threads::expand(threads, &simulator.options, headers, &mut json)?;
    exchange.apply_scenario(|| scenario_input(&json)).await?;
    let accepted = validate(&exchange, headers, json.clone(), Endpoint::Messages)?;
    exchange.deliver(|exchange| {
        let composer = Composer {
            exchange,
            model: accepted.model,
            plan: &accepted.plan,
            api_headers: &accepted.api_headers,
            cache_use: exchange.cached(
                &accepted.request.model,
                "",
                &prompt::parts(&accepted.request),
                prompt::caching(&accepted.request.model),
            ),
        };
        let reply = composer.compose(&accepted.request, accepted.verified);
        if let Some(thread) = thread {
            thread.keep(&json, &reply);
        }
        if accepted.request.stream {
            Content::Events(reply.frames(exchange.pings()))
        } else {
            Content::Json(reply.json().to_string().into())
        }
    })
}

/// Checks, in this order, the caller, the shape, the modes, the dialogue and the thinking.
fn validate(
    exchange: &Exchange<'_>,
    headers: &HeaderMap,
    body: Map<String, Value>,
    endpoint: Endpoint,
) -> Result<Accepted, Refusal> {
    let simulator = exchange.simulator();
    let strict = simulator.options.strict;
    let api_headers = ApiHeaders::read(headers);
    check_key(simulator, headers)?;
    if strict {
        check_version(&api_headers)?;
        shape::check(&body, endpoint, &api_headers)?;
        stored::check(&body)?;
    }
    let sampling: Map<String, Value> = ["temperature", "top_p", "top_k"]
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone())))
        .collect();
    let mut request = ParsedRequest::read(body);
    compaction::drop_replaced(&mut request);
    let model = Model::named(&request.model);
    let plan = ThinkingPlan::read(&request, model);
    if strict {
        compaction::check(&request, &api_headers)?;
        modes::check(&request, &plan, model)?;
        modes::check_sampling(&sampling, &plan, model, &api_headers)?;
        dialogue::check(&request, model)?;
        prompt::check_marks(&request)?;
    }
    // A backend that does not sign does not verify.
    let verified = if strict && exchange.style() != SignatureStyle::Empty {
        let verifier = Verifier {
            signer: exchange.signer(),
            model,
            plan: &plan,
            prefix_binding: simulator.options.prefix_binding,
        };
        verifier.check(&request)?
    } else {
        verify::accept_unverified(&request)
    };
    Ok(Accepted { request, plan, model, api_headers, verified })
}

fn check_key(simulator: &Simulator, headers: &HeaderMap) -> Result<(), Refusal> {
    if simulator.lacks_key(headers, &["x-api-key", "authorization"]) {
        let message = "x-api-key header is required";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
    }
    Ok(())
}

fn check_version(api_headers: &ApiHeaders) -> Result<(), Refusal> {
    match api_headers.version.as_deref() {
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

fn scenario_input(body: &Map<String, Value>) -> ScenarioInput {
    let mut request = ParsedRequest::read(body.clone());
    compaction::drop_replaced(&mut request);
    let blocks = request.turns.iter().flat_map(|turn| &turn.blocks);
    ScenarioInput {
        conversation: blocks.map(Value::to_string).collect::<Vec<_>>().join("\n"),
        text: compose::last_said(&request),
        model: request.model,
    }
}
