//! Sends each request to its handler.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::model_paths::is_about_models;
use throughline_codec::dialects::ollama::Endpoint;
use throughline_codec::dialects::{CLIENT, anthropic, openai_responses};
use throughline_conversations::front_doors::RunRequest;
use throughline_conversations::responses::Responses;
use throughline_gateway::IncomingRequest;

use super::admit::{self, MethodUse};
use super::body::read_body;
use super::detect::{PinnedPath, detect_dialect};
use super::{into_response, ollama, plan, refuse, socket};
use crate::session_cookie;
use crate::wiring::App;

/// Where providers have their paths. A backend may know more of them than we do.
const PROVIDER_PREFIXES: [&str; 3] = ["/v1/", "/v1beta/", "/models"];

const WELCOME: &str = "Throughline is running. Point a client at this address; \
                       see /admin/backends, /admin/turns, /metrics.\n";

/// Handles every path that is not one of the server's own.
pub async fn dispatch(State(app): State<Arc<App>>, request: Request) -> Response {
    let began = Instant::now();
    let (mut head, body) = request.into_parts();
    session_cookie::remove(&mut head.headers);
    let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &app).await;
    let PinnedPath { path, pin } = PinnedPath::read(head.uri.path(), &head.headers);
    let dialect = detect_dialect(&path, &head.headers);
    if let Err(fault) = admit::check_path(&path) {
        return refuse(&app, dialect, &fault);
    }
    let about_runs = RunRequest::read(&head.method, &path, head.uri.query());
    let Some(resource) = about_runs.map(Resource::Runs).or_else(|| Resource::at(&path)) else {
        return not_found(&app, &head.method, &path, &head.headers);
    };
    let request = IncomingRequest {
        id: app.gateway.new_turn_id(),
        dialect,
        method: head.method,
        path,
        query: head.uri.query().map(ToOwned::to_owned),
        headers: head.headers,
        pin,
        private: false,
        began,
    };
    if socket::is_upgrade(&request) {
        return socket::open(&app, request, upgrade).await;
    }
    match resource {
        Resource::Runs(about) => app.front_doors.answer(request, about).await.map(Body::new),
        Resource::StoredResponses => stored_responses(&app, request, body).await,
        Resource::Ollama(endpoint) => ollama::answer(&app, request, endpoint, body).await,
        Resource::Turn => match admit::method_use(&request) {
            MethodUse::Run => run_turn(&app, request, body).await,
            MethodUse::Forward => forward(&app, request, body).await,
            MethodUse::Empty => StatusCode::NO_CONTENT.into_response(),
            MethodUse::Reject => admit::reject_method(&app, &request, "POST"),
        },
        Resource::Other => forward(&app, request, body).await,
    }
}

/// What a path addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Resource {
    /// Replies of front ends, to resume or to stop.
    Runs(RunRequest),
    /// Responses and conversations that this server stores.
    StoredResponses,
    /// Ollama's questions about models and about the server.
    Ollama(Endpoint),
    /// A turn with the model, or the plan of one.
    Turn,
    /// Anything else that a provider may serve.
    Other,
}

impl Resource {
    fn at(path: &str) -> Option<Self> {
        if Responses::handles(path) {
            return Some(Self::StoredResponses);
        }
        if let Some(endpoint) = Endpoint::at(path) {
            return Some(Self::Ollama(endpoint));
        }
        if path == plan::PATH || CLIENT.iter().any(|dialect| dialect.operation(path).is_some()) {
            return Some(Self::Turn);
        }
        let served = PROVIDER_PREFIXES.iter().any(|prefix| path.starts_with(prefix));
        served.then_some(Self::Other)
    }
}

async fn run_turn(app: &App, request: IncomingRequest, body: Body) -> Response {
    let (body, slot) = match admit::admit(app, &request, body).await {
        Ok(admitted) => admitted,
        Err(refusal) => return refusal,
    };
    if request.path == plan::PATH {
        return plan::plan(app, request, body).await;
    }
    if request.dialect.name() == openai_responses::NAME {
        return app.responses.create(request, body, slot).await.map(Body::new);
    }
    if request.dialect.name() == anthropic::NAME {
        return app.threads.turn(request, body, slot).await.map(Body::new);
    }
    app.front_doors.turn(request, body, slot).await.map(Body::new)
}

async fn stored_responses(app: &App, request: IncomingRequest, body: Body) -> Response {
    match read_body(body, app.gateway.settings().limits.body).await {
        Ok(body) => app.responses.state(request, body).await.map(Body::new),
        Err(fault) => into_response(app.gateway.reject(&request, &fault)),
    }
}

/// Sends a request on without reading it, or answers it from the configured models.
async fn forward(app: &App, request: IncomingRequest, body: Body) -> Response {
    let body = body.map_err(Into::into).boxed_unsync();
    if request.method == Method::GET && is_about_models(&request.path) {
        return into_response(app.gateway.models(request, body).await);
    }
    into_response(app.gateway.forward_request(request, body).await)
}

/// Answers the probes that clients send when they start, and 404 for everything else.
fn not_found(app: &App, method: &Method, path: &str, headers: &HeaderMap) -> Response {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/" | "/api/hello") => WELCOME.into_response(),
        (&Method::OPTIONS, _) => StatusCode::NO_CONTENT.into_response(),
        _ => {
            // The usual reason is a base URL without its `/v1`.
            let versioned = format!("/v1{path}");
            let by_version = CLIENT.iter().find(|row| row.operation(&versioned).is_some());
            let (dialect, hint) = match by_version {
                Some(dialect) => (*dialect, format!("; did you mean `{versioned}`?")),
                None => (detect_dialect(path, headers), String::new()),
            };
            let message = format!("no such path `{path}`{hint}");
            refuse(app, dialect, &Fault::new(FaultKind::NotFound, message))
        }
    }
}
