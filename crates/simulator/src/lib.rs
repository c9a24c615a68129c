//! A strict provider: signs its thinking and refuses what the real ones refuse. No decision of the
//! gateway lives here; the guide below is the one for users.
//!
#![doc = include_str!("../../../docs/simulator.md")]

mod anthropic;
mod delivery;
mod dialect;
mod draft;
mod exchange;
mod fault;
mod gemini;
mod models_list;
mod ollama;
mod openai;
mod openai_chat;
mod openai_responses;
mod recording;
mod refusal;
mod replay;
mod scenario;
mod script;
mod shape;
mod signing;
mod style;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use axum::{Extension, Json, Router, body};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use serde_json::Value;

use crate::dialect::Spoken;
use crate::recording::{Recording, RefusalText};
use crate::refusal::Refusal;
use crate::scenario::Progress;
use crate::signing::{Signer, hash};

pub use crate::dialect::{Dialect, UnknownDialect};
pub use crate::fault::FaultError;
pub use crate::openai_chat::{UnknownVariant, Variant};
pub use crate::scenario::{Scenario, ScenarioError};
pub use crate::style::{SignatureStyle, UnknownStyle};

/// The largest body that is read.
const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// Streams still open get this long after a shutdown was asked for.
const GRACE: Duration = Duration::from_secs(1);

/// How a simulator behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// What it speaks, all on one port; nothing here means every dialect.
    pub dialects: Vec<&'static Dialect>,
    /// The server that the chat dialect pretends to be, whatever the model is called.
    pub variant: Option<&'static Variant>,
    /// The name its signatures are made under. Simulators of one identity accept
    /// each other's thinking, others refuse it.
    pub identity: String,
    /// Decides, with the request, what is said.
    pub seed: u64,
    /// The speed of streams; 0 is as fast as possible.
    pub tokens_per_second: u32,
    /// Thinking is refused when anything before it has changed, for every model.
    pub prefix_binding: bool,
    /// Refuse what the provider refuses. Otherwise only what is no JSON is refused.
    pub strict: bool,
    /// Refuse requests without any key.
    pub require_key: bool,
    /// How thinking is signed, unless a request or scenario says otherwise.
    pub signature_style: SignatureStyle,
    /// What to say and break, and when.
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
            strict: true,
            require_key: false,
            signature_style: SignatureStyle::default(),
            scenario: None,
        }
    }
}

/// A simulator as a router, to be served or nested.
pub fn router(options: Options) -> Router {
    let spoken = Spoken::new(&options.dialects);
    let handlers = spoken
        .iter()
        .fold(models_list::routes(&spoken), |router, dialect| router.merge((dialect.routes)()));
    let simulator = Arc::new(Simulator {
        spoken,
        signer: Signer::new(&options.identity),
        scenario: options.scenario.clone().map(Progress::new),
        recording: Recording::default(),
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
        .fallback_service(recorded.with_state(simulator.clone()))
        .with_state(simulator)
}

/// Serves a simulator until `shutdown` resolves.
///
/// # Errors
/// Those of the listener.
pub async fn serve(
    listener: tokio::net::TcpListener,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    // Events are small and must not wait for each other.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            tracing::debug!(%error, "cannot set TCP_NODELAY");
        }
    });
    let (tell, told) = tokio::sync::oneshot::channel::<()>();
    let server = axum::serve(listener, router(options)).with_graceful_shutdown(async move {
        // A dropped sender means the same: nobody serves any more.
        let _ = told.await;
    });
    let ending = async move {
        shutdown.await;
        let _ = tell.send(());
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = server => served,
        () = ending => Ok(()),
    }
}

/// What handlers share.
struct Simulator {
    spoken: Spoken,
    options: Options,
    signer: Signer,
    scenario: Option<Progress>,
    recording: Recording,
}

impl Simulator {
    /// Whether a key is asked for and none of these headers has one.
    fn lacks_key(&self, headers: &HeaderMap, names: &[&str]) -> bool {
        let filled = |name: &&str| headers.get(*name).is_some_and(|value| !value.is_empty());
        self.options.require_key && !names.iter().any(filled)
    }
}

/// The `request-id` of an answer.
#[derive(Clone)]
pub(crate) struct RequestId(pub(crate) String);

/// Reads the body once, keeps it, and notes what was answered.
async fn record(
    State(simulator): State<Arc<Simulator>>,
    mut request: Request,
    next: Next,
) -> Response {
    let whole = std::mem::replace(request.body_mut(), body::Body::empty());
    let read = body::to_bytes(whole, BODY_LIMIT).await;
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let dialect = simulator.spoken.of(&uri, request.headers());
    let kept = read.as_ref().cloned().unwrap_or_default();
    let entry = simulator.recording.begin(method, uri, request.headers().clone(), kept);
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
    simulator.recording.answered(entry, response.status(), refusal);
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
    let dialect = simulator.spoken.of(&uri, &headers);
    Refusal::new(StatusCode::NOT_FOUND, "Not found").respond(dialect, &id)
}

async fn refuse_method(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let dialect = simulator.spoken.of(&uri, &headers);
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
