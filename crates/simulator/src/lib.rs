//! A strict provider: signs its thinking and refuses what the real ones refuse.
//!
//! The simulator speaks the Anthropic dialect on `/v1/messages`,
//! `/v1/messages/count_tokens` and `/v1/models`. It keeps no conversations: each
//! request is judged by what it carries, as a provider does. It is a part of the
//! product (`throughline simulate`, and the backend when there is no key), for
//! demos, for the project's tests and for tests of other clients.
//!
//! # What it says
//! A reply is decided by the seed and the request; asked twice, it says the same,
//! streamed or not. Words in the last user text steer it. Texts that begin with
//! `<system` (the reminders of clients) are not looked at.
//!
//! | the user's text has | the reply |
//! |---|---|
//! | nothing special | thinking, then a text that quotes the user |
//! | `tool`, `tools` or a tool's name as a word | thinking, text, a tool call filled from its schema; after the result thinking again, then an answer that quotes it |
//! | `in parallel` (with a tool) | two calls in one message |
//! | `twice` or `two tools` (with a tool) | a second round of calls after the first result |
//! | `redacted` | a redacted thinking block before the first one |
//! | `think twice` | two thinking blocks with text between |
//! | `only think` | thinking and one word of text |
//! | `bench N` | a text of N deltas and nothing else |
//!
//! Thinking appears where the request, or the model's default, asks for it. The
//! usual replies stop at `max_tokens`; benches and scenarios do not.
//!
//! # Headers it obeys
//!
//! | header | value |
//! |---|---|
//! | `x-simulator-fault` | one or more faults separated by `;`, see below |
//! | `x-simulator-signature` | `delta`, `start`, `empty` or `late`: how thinking is signed; `empty` neither signs nor verifies |
//! | `x-simulator-deltas` | `N`: as `bench N` |
//! | `x-simulator-model` | the model name to answer under |
//!
//! # Faults
//! `event=N` means after N events, the ping included. In a reply that is no
//! stream an event is a slice of 32 bytes, and an error is a status 529.
//!
//! | fault | effect |
//! |---|---|
//! | `cut:bytes=N`, `cut:event=N` | the connection breaks |
//! | `end:event=N` | the body ends cleanly, without its terminal event |
//! | `stall:event=N,ms=M` | silence, then it goes on |
//! | `head-delay:ms=M` | the response head comes late |
//! | `status:429,retry-after=2` | any status from 400 to 599, with or without `retry-after` |
//! | `garbage`, `garbage:event=N` | bytes that are no events, as the whole body or between two events |
//! | `error:event=N` | an `overloaded_error` event ends the stream |
//! | `no-ping` | no ping events |
//! | `chunk:bytes=N` | the body is written N bytes at a time |
//! | `crlf` | lines end in CR LF |
//!
//! # Scenario files
//! ```toml
//! signature = "start"            # optional, for all replies
//!
//! [[step]]                       # without `when`: the next request, once
//! say = [
//!   { thinking = "Hm." }, { redacted = true }, { text = "Yes." },
//!   { tool = { name = "look", input = { where = "here" } } },
//! ]
//!
//! [[step]]
//! when = { contains = "rain", model = "claude-*", nth = 3 }
//! times = 1                      # without it: whenever `when` fits
//! fault = "cut:event=5"
//! signature = "late"
//! answer_model = "another-name"
//! ```
//! The first step that fits and has turns left is taken; `nth` counts requests
//! for messages from 1, and `contains` looks at all the user said last.
//!
//! # The recording
//! `GET /simulator/requests` lists the last 256 requests as they came, bodies in
//! base64 and, where they are UTF-8, as text, with the status and refusal that
//! were answered; `?after=ID` lists newer ones only, and `DELETE` forgets them.
//! Credentials are in it as they were sent.

mod anthropic;
mod delivery;
mod fault;
mod recording;
mod scenario;
mod script;
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
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::Value;

use crate::anthropic::Refusal;
use crate::recording::{Recording, RefusalText};
use crate::scenario::Progress;
use crate::signing::{Signer, hash};

pub use crate::fault::FaultError;
pub use crate::scenario::{Scenario, ScenarioError};
pub use crate::style::{SignatureStyle, UnknownStyle};

/// The largest body that is read.
const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// Streams still open get this long after a shutdown was asked for.
const GRACE: Duration = Duration::from_secs(1);

/// How a simulator behaves.
#[derive(Clone, Debug)]
pub struct Options {
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
    let simulator = Arc::new(Simulator {
        signer: Signer::new(&options.identity),
        scenario: options.scenario.clone().map(Progress::new),
        recording: Recording::default(),
        options,
    });
    let recorded = Router::new()
        .route("/", get(|| async { "throughline simulator\n" }))
        .merge(anthropic::routes())
        .fallback(|id: Extension<RequestId>| async move {
            Refusal::new(StatusCode::NOT_FOUND, "Not found").respond(&id)
        })
        .method_not_allowed_fallback(|id: Extension<RequestId>| async move {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed").respond(&id)
        })
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(simulator.clone(), record));
    Router::new()
        .route(
            "/simulator/requests",
            get(list_requests).delete(forget_requests),
        )
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
    options: Options,
    signer: Signer,
    scenario: Option<Progress>,
    recording: Recording,
}

impl Simulator {
    /// The signature style: the request's, the scenario's or the usual one.
    fn style(&self, asked: Option<SignatureStyle>) -> SignatureStyle {
        let scenario = self.options.scenario.as_ref();
        asked
            .or_else(|| scenario.and_then(Scenario::signature))
            .unwrap_or(self.options.signature_style)
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
    let kept = read.as_ref().cloned().unwrap_or_default();
    let entry = simulator
        .recording
        .begin(method, uri, request.headers().clone(), kept);
    let id = request_id(simulator.options.seed, entry);
    let mut response = match read {
        Ok(bytes) => {
            *request.body_mut() = body::Body::from(bytes);
            request.extensions_mut().insert(id.clone());
            next.run(request).await
        }
        Err(_) => {
            let message = "Request exceeds the maximum allowed number of bytes.";
            Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message).respond(&id)
        }
    };
    let refusal = response.extensions_mut().remove::<RefusalText>();
    let refusal = refusal.map(|RefusalText(text)| text);
    simulator
        .recording
        .answered(entry, response.status(), refusal);
    if let Ok(value) = HeaderValue::try_from(id.0) {
        let name = HeaderName::from_static("request-id");
        response.headers_mut().insert(name, value);
    }
    response
}

fn request_id(seed: u64, entry: u64) -> RequestId {
    let digest = hash(&[&seed.to_be_bytes(), &entry.to_be_bytes()]);
    let hex: String = digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
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
