//! The Gemini dialect: its routes and the order of its checks.

mod compose;
mod content;
mod dialogue;
mod models;
mod modes;
mod refusal;
mod reply;
mod request;
mod schema;
mod shape;
mod verify;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::{Map, Value, json};

use self::compose::Composer;
use self::models::Model;
use self::modes::ThinkingPlan;
use self::request::ParsedRequest;
use crate::dialect::{Dialect, Models};
use crate::exchange::{Content, Exchange, ScenarioInput};
use crate::prompt_cache::PromptPart;
use crate::refusal::Refusal;
use crate::stored;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator};

/// Clients put one of these versions before the models, or none.
const MODELS: &[&str] = &["/v1beta/models", "/v1/models", "/models"];

/// The row of this dialect.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "gemini",
    routes,
    models: Some(Models {
        paths: MODELS,
        list: models::list,
        describe: |name| Ok(models::describe(name)),
    }),
    recognises,
    error_body: refusal::error_body,
    status_message: refusal::status_message,
    overloaded_status: StatusCode::SERVICE_UNAVAILABLE,
    error_event: refusal::event,
};

fn routes() -> Router<Arc<Simulator>> {
    MODELS
        .iter()
        .fold(Router::new(), |router, path| router.route(&format!("{path}/{{name}}"), post(call)))
}

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    let path = uri.path();
    let called = path.rsplit('/').next().unwrap_or_default().contains(':');
    called
        || path.starts_with("/v1beta")
        || headers.contains_key("x-goog-api-key")
        || parameter(uri, "key").is_some()
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    Generate,
    /// A stream of events.
    Stream,
    /// A stream that is one growing array.
    StreamArray,
    Count,
}

impl Method {
    fn read(name: &str, uri: &Uri) -> Result<Self, Refusal> {
        match (name, parameter(uri, "alt")) {
            ("generateContent", _) => Ok(Self::Generate),
            ("countTokens", _) => Ok(Self::Count),
            ("streamGenerateContent", Some("sse")) => Ok(Self::Stream),
            ("streamGenerateContent", None | Some("json" | "")) => Ok(Self::StreamArray),
            ("streamGenerateContent", Some(alt)) => {
                Err(Refusal::invalid(format!("Invalid value \"{alt}\" for query parameter alt")))
            }
            _ => Err(Refusal::new(StatusCode::NOT_FOUND, "Not found")),
        }
    }
}

/// A request before it is parsed.
struct Received<'a> {
    model: &'a str,
    method: Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    body: &'a Bytes,
}

async fn call(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let (model, method) = name.rsplit_once(':').unwrap_or((&name, ""));
    let method = match Method::read(method, &uri) {
        Ok(method) => method,
        Err(refusal) => return refusal.respond(&DIALECT, &id),
    };
    let received = Received { model, method, uri: &uri, headers: &headers, body: &body };
    let answered = match method {
        Method::Count => count(&simulator, &received),
        _ => answer(&simulator, &received).await,
    };
    match answered {
        Ok(response) => response,
        Err(refusal) if method == Method::StreamArray => {
            // In a reply that is an array, the error is its only element.
            let array = json!([refusal::error_body(&refusal, &id)]).to_string();
            let mut response = refusal.respond(&DIALECT, &id);
            *response.body_mut() = Body::from(array);
            response
        }
        Err(refusal) => refusal.respond(&DIALECT, &id),
    }
}

/// A request that passed the checks, or any request if `strict` is off.
struct Accepted {
    request: ParsedRequest,
    plan: ThinkingPlan,
    model: Model,
}

async fn answer(simulator: &Simulator, received: &Received<'_>) -> Result<Response, Refusal> {
    let mut exchange = Exchange::open(simulator, &DIALECT, received.headers)?;
    let json = read(received.body)?;
    exchange.apply_scenario(|| scenario_input(received.model, &json)).await?;
    let accepted = validate(&exchange, received, json)?;
    exchange.deliver(|exchange| {
        let composer = Composer {
            exchange,
            model: &accepted.model,
            plan: &accepted.plan,
            cache_use: exchange.cached(
                received.model,
                parameter(received.uri, "key").unwrap_or_default(),
                &prompt(&accepted.request),
                accepted.model.caching(),
            ),
        };
        let reply = composer.compose(&accepted.request);
        match received.method {
            Method::Stream => Content::Events(reply.events()),
            Method::StreamArray => {
                Content::JsonInParts { parts: reply.array(), error: refusal::in_array() }
            }
            Method::Generate | Method::Count => Content::Json(reply.json()),
        }
    })
}

fn count(simulator: &Simulator, received: &Received<'_>) -> Result<Response, Refusal> {
    let exchange = Exchange::open(simulator, &DIALECT, received.headers)?;
    exchange.refuse_on_demand()?;
    let accepted = validate(&exchange, received, read(received.body)?)?;
    let total = PromptPart::total(&prompt(&accepted.request));
    let details = json!([{"modality": "TEXT", "tokenCount": total}]);
    let counted = json!({"totalTokens": total, "promptTokensDetails": details});
    Ok(Json(counted).into_response())
}

/// Checks, in this order, the caller, the shape, the modes, the dialogue and the signatures.
fn validate(
    exchange: &Exchange<'_>,
    received: &Received<'_>,
    body: Map<String, Value>,
) -> Result<Accepted, Refusal> {
    let simulator = exchange.simulator();
    let strict = simulator.options.strict;
    check_key(simulator, received)?;
    let body = match received.method {
        Method::Count => counted(body, strict)?,
        _ => shape::read(body, &schema::GENERATE, schema::IN_PATH, strict)?,
    };
    if strict {
        stored::check(&body)?;
    }
    let request = ParsedRequest::read(received.model, body);
    let model = Model::named(received.model);
    let plan = ThinkingPlan::read(&request, &model);
    if strict {
        content::check(&request)?;
        modes::check(&request, &model)?;
        dialogue::check(&request)?;
        // A backend that does not sign does not verify.
        if exchange.style() != SignatureStyle::Empty {
            verify::check(&request, &model, exchange.signer())?;
        }
    }
    Ok(Accepted { request, plan, model })
}

/// The request to count: contents alone, or a whole request.
fn counted(body: Map<String, Value>, strict: bool) -> Result<Map<String, Value>, Refusal> {
    let mut body = shape::read(body, &schema::COUNT, schema::IN_BODY, strict)?;
    match body.remove("generateContentRequest") {
        Some(Value::Object(whole)) if body.is_empty() || !strict => Ok(whole),
        Some(_) => {
            Err(Refusal::invalid("Only one of contents and generate_content_request can be set."))
        }
        None => Ok(body),
    }
}

fn check_key(simulator: &Simulator, received: &Received<'_>) -> Result<(), Refusal> {
    let in_query = parameter(received.uri, "key").is_some_and(|key| !key.is_empty());
    if !in_query && simulator.lacks_key(received.headers, &["x-goog-api-key", "authorization"]) {
        return Err(Refusal::new(
            StatusCode::FORBIDDEN,
            "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.",
        ));
    }
    Ok(())
}

fn read(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(Refusal::invalid(
            "Invalid JSON payload received. Unknown name \"\": Root element must be a message.",
        )),
        Err(error) => Err(Refusal::invalid(format!("Invalid JSON payload received. {error}"))),
    }
}

fn scenario_input(model: &str, body: &Map<String, Value>) -> ScenarioInput {
    // Without `strict`, reading never fails.
    let body =
        shape::read(body.clone(), &schema::GENERATE, schema::IN_PATH, false).unwrap_or_default();
    let request = ParsedRequest::read(model, body);
    let parts = request.contents.iter().flat_map(|content| &content.parts);
    ScenarioInput {
        conversation: parts.map(Value::to_string).collect::<Vec<_>>().join("\n"),
        text: compose::last_said(&request),
        model: request.model,
    }
}

/// The parts of the prompt, in the order in which the provider reads them.
fn prompt(request: &ParsedRequest) -> Vec<PromptPart> {
    let system = Some(&request.system).filter(|system| !system.is_null());
    let before = system.into_iter().chain(&request.tools);
    let contents = request.contents.iter();
    let parts = contents.flat_map(|content| content.parts.iter().map(|part| (&content.role, part)));
    let before = before.map(|part| PromptPart::new("", &part.to_string(), None));
    before.chain(parts.map(|(role, part)| PromptPart::new(role, &part.to_string(), None))).collect()
}

/// A query parameter.
fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
}
