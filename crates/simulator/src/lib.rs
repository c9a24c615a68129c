//! A strict fake provider: it signs its thinking and refuses what real providers refuse. It shares
//! no decision with the gateway. The rest of this page is the user guide.
//!
#![doc = include_str!("../../../docs/simulator.md")]

mod anthropic;
mod clock;
mod delivery;
mod dialect;
mod draft;
mod exchange;
mod fault;
mod gemini;
mod mcp;
mod models_list;
mod ollama;
mod openai;
mod openai_chat;
mod openai_responses;
mod prompt_cache;
mod recording;
mod refusal;
mod replay;
mod scenario;
mod script;
mod shape;
mod signing;
mod stored;
mod style;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Extension, Json, Router, body};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::dialect::ServedDialects;
use crate::prompt_cache::{CacheUse, PromptCache};
use crate::recording::{Recording, RefusalText};
use crate::refusal::Refusal;
use crate::scenario::Progress;
use crate::signing::{Signer, hash};

pub use crate::dialect::{Dialect, UnknownDialect};
pub use crate::fault::FaultError;
pub use crate::mcp::{McpOptions, serve_mcp, serve_mcp_on_stdio};
pub use crate::openai_chat::{UnknownVariant, Variant};
pub use crate::scenario::{Scenario, ScenarioError};
pub use crate::style::{SignatureStyle, UnknownStyle};

/// Larger request bodies are refused.
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Open streams get this long to end after a shutdown request.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// How a simulator behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The dialects, all on one port; empty means all of them.
    pub dialects: Vec<&'static Dialect>,
    /// The server that the chat dialect imitates for every model name.
    pub variant: Option<&'static Variant>,
    /// The name of the signing key. Simulators with one identity accept each other's thinking;
    /// others refuse it.
    pub identity: String,
    /// Together with the request, decides the reply.
    pub seed: u64,
    /// The speed of streams; 0 means unlimited.
    pub tokens_per_second: u32,
    /// Refuse thinking if anything before it has changed, for every model.
    pub prefix_binding: bool,
    /// How long a message thread of the Anthropic dialect lives after its last use. `None` keeps no
    /// threads and refuses requests that name one.
    pub threads: Option<Duration>,
    /// Refuse what the provider refuses. If off, only bodies that are not JSON are refused.
    pub strict: bool,
    /// Refuse requests without any key.
    pub require_key: bool,
    /// The default signature style; requests and scenarios can override it.
    pub signature_style: SignatureStyle,
    /// Scripted replies and faults.
    pub scenario: Option<Scenario>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dialects: Vec::new(),
            variant: None,
            identity: "simulator".to_owned(),
            seed: 0,
            tokens_per_second: 0,
            prefix_binding: false,
            threads: None,
            strict: true,
            require_key: false,
            signature_style: SignatureStyle::default(),
            scenario: None,
        }
    }
}

/// A simulator as a router, to serve or to nest.
pub fn router(options: Options) -> Router {
    let dialects = ServedDialects::new(&options.dialects);
    let handlers = dialects
        .iter()
        .fold(models_list::routes(&dialects), |router, dialect| router.merge((dialect.routes)()));
    let simulator = Arc::new(Simulator {
        dialects,
        signer: Signer::new(&options.identity),
        scenario: options.scenario.clone().map(Progress::new),
        recording: Recording::default(),
        prompt_cache: PromptCache::new(),
        options,
    });
    let recorded = Router::new()
        .route("/", get(|| async { "throughline simulator\n" }))
        .merge(handlers)
        .fallback(refuse_path)
        .method_not_allowed_fallback(refuse_method)
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(simulator.clone(), record));
    Router::new()
        .route("/simulator/requests", get(list_requests).delete(forget_requests))
        .route("/simulator/clock", post(advance_clock))
        .fallback_service(recorded.with_state(simulator.clone()))
        .with_state(simulator)
}

/// Serves a simulator until `shutdown` resolves.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    // Events are small and must not be delayed.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, router(options)).with_graceful_shutdown(async move {
        // A dropped sender also means that the server stops.
        let _ = stopped.await;
    });
    let ending = async move {
        shutdown.await;
        let _ = stop.send(());
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        served = server => served,
        () = ending => Ok(()),
    }
}

/// The state that all handlers share.
struct Simulator {
    dialects: ServedDialects,
    options: Options,
    signer: Signer,
    scenario: Option<Progress>,
    recording: Recording,
    prompt_cache: PromptCache,
}

impl Simulator {
    /// Whether a key is required and none of these headers has one.
    fn lacks_key(&self, headers: &HeaderMap, names: &[&str]) -> bool {
        let filled = |name: &&str| headers.get(*name).is_some_and(|value| !value.is_empty());
        self.options.require_key && !names.iter().any(filled)
    }
}

/// The `request-id` of an answer.
#[derive(Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Records the request and its answer.
async fn record(
    State(simulator): State<Arc<Simulator>>,
    mut request: Request,
    next: Next,
) -> Response {
    let whole = std::mem::replace(request.body_mut(), body::Body::empty());
    let read = body::to_bytes(whole, MAX_BODY_BYTES).await;
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let dialect = simulator.dialects.for_request(&uri, request.headers());
    let kept = read.as_ref().cloned().unwrap_or_default();
    let entry = simulator.recording.record(method, uri, request.headers().clone(), kept);
    let id = request_id(simulator.options.seed, entry);
    let mut response = match read {
        Ok(bytes) => {
            *request.body_mut() = body::Body::from(bytes);
            request.extensions_mut().insert(id.clone());
            next.run(request).await
        }
        Err(_) => {
            let message = "Request exceeds the maximum allowed number of bytes.";
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message).respond(dialect, &id)
        }
    };
    let refusal = response.extensions_mut().remove::<RefusalText>();
    let refusal = refusal.map(|RefusalText(text)| text);
    let cache_use = response.extensions_mut().remove::<CacheUse>();
    simulator.recording.record_answer(entry, response.status(), refusal, cache_use);
    if let Ok(value) = HeaderValue::try_from(id.0) {
        let name = HeaderName::from_static("request-id");
        response.headers_mut().insert(name, value);
    }
    response
}

async fn refuse_path(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let dialect = simulator.dialects.for_request(&uri, &headers);
    Refusal::new(StatusCode::NOT_FOUND, "Not found").respond(dialect, &id)
}

async fn refuse_method(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let dialect = simulator.dialects.for_request(&uri, &headers);
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed").respond(dialect, &id)
}

fn request_id(seed: u64, entry: u64) -> RequestId {
    let digest = hash(&[&seed.to_be_bytes(), &entry.to_be_bytes()]);
    let hex: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    RequestId(format!("req_{hex}"))
}

async fn list_requests(
    State(simulator): State<Arc<Simulator>>,
    Query(query): Query<HashMap<String, String>>,
) -> Json<Value> {
    let after = query.get("after").and_then(|after| after.parse().ok());
    Json(simulator.recording.after(after.unwrap_or(0)))
}

async fn forget_requests(State(simulator): State<Arc<Simulator>>) -> StatusCode {
    simulator.recording.clear();
    StatusCode::NO_CONTENT
}

/// How far to move the clock.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockMove {
    advance_seconds: u64,
}

/// Moves the clock of the prompt cache forward.
async fn advance_clock(
    State(simulator): State<Arc<Simulator>>,
    Json(ClockMove { advance_seconds }): Json<ClockMove>,
) -> Json<Value> {
    let clock = &simulator.prompt_cache.clock;
    clock.advance(Duration::from_secs(advance_seconds));
    Json(json!({ "seconds": clock.now().as_secs() }))
}
