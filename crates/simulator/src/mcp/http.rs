//! MCP over streamable HTTP, at `/mcp`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::StreamExt;
use http::{HeaderMap, StatusCode, header};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;

use super::session::{Answered, Handshake, acknowledged, answer, changed};
use super::{McpOptions, RpcError, Shared, reply};

const SESSION: &str = "mcp-session-id";

struct Http {
    shared: Shared,
    /// The handshakes, by session.
    sessions: Mutex<HashMap<String, Handshake>>,
    last_session: AtomicU64,
}

/// Serves clients at `/mcp` until `stop` is ready.
pub async fn serve(
    listener: TcpListener,
    options: McpOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let http = Arc::new(Http {
        shared: Shared::new(options),
        sessions: Mutex::default(),
        last_session: AtomicU64::new(0),
    });
    let routes = Router::new().route("/mcp", post(message).delete(end)).with_state(http);
    axum::serve(listener, routes).with_graceful_shutdown(stop).await
}

/// Ends a session.
async fn end(State(http): State<Arc<Http>>, headers: HeaderMap) -> StatusCode {
    let session = headers.get(SESSION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match http.sessions.lock().remove(session) {
        Some(_) => StatusCode::NO_CONTENT,
        None => StatusCode::NOT_FOUND,
    }
}

async fn message(State(http): State<Arc<Http>>, headers: HeaderMap, body: Bytes) -> Response {
    let Ok(message) = serde_json::from_slice::<Value>(&body) else {
        return (StatusCode::BAD_REQUEST, "not JSON").into_response();
    };
    let accepts = header_text(&headers, header::ACCEPT.as_str());
    if !accepts.contains("application/json") || !accepts.contains("text/event-stream") {
        return (StatusCode::NOT_ACCEPTABLE, "accept both JSON and event streams").into_response();
    }
    let is_stateless = http.shared.options.stateless
        && !message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].is_null();
    match is_stateless {
        true => stateless(http, &headers, message).await,
        false => with_session(&http, &headers, message).await,
    }
}

async fn stateless(http: Arc<Http>, headers: &HeaderMap, message: Value) -> Response {
    if let Err(error) = check_headers(headers, &message) {
        return json_reply(StatusCode::BAD_REQUEST, &reply(&message["id"], Err(error)));
    }
    if message["id"].is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    match answer(&http.shared, &mut Handshake::None, &message).await {
        Answered::Reply(reply) => json_reply(status_of(&reply), &reply),
        Answered::Never => std::future::pending().await,
        Answered::Subscription(id) => {
            let changes = http.shared.changes.subscribe();
            let first = futures_util::stream::iter([acknowledged(&id)]);
            let later =
                futures_util::stream::unfold((changes, id), |(mut changes, id)| async move {
                    changes.changed().await.ok()?;
                    Some((changed(Some(&id)), (changes, id)))
                });
            let events = first.chain(later).map(|message| {
                Ok::<_, std::convert::Infallible>(format!("event: message\ndata: {message}\n\n"))
            });
            let kind = [(header::CONTENT_TYPE, "text/event-stream")];
            (kind, Body::from_stream(events)).into_response()
        }
    }
}

/// The headers must repeat what the body says.
fn check_headers(headers: &HeaderMap, message: &Value) -> Result<(), RpcError> {
    let params = &message["params"];
    let version = params["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
    let mut expected = vec![
        ("mcp-protocol-version", version.unwrap_or_default()),
        ("mcp-method", message["method"].as_str().unwrap_or_default()),
    ];
    if message["method"] == "tools/call" {
        expected.push(("mcp-name", params["name"].as_str().unwrap_or_default()));
    }
    if headers.contains_key(SESSION) {
        return Err(RpcError::new(-32020, "this protocol has no sessions"));
    }
    for (name, value) in expected {
        let sent = header_text(headers, name);
        if sent != value {
            let message = format!("the header `{name}` is `{sent}`, the body says `{value}`");
            return Err(RpcError::new(-32020, message));
        }
    }
    Ok(())
}

async fn with_session(http: &Http, headers: &HeaderMap, message: Value) -> Response {
    let id = header_text(headers, SESSION);
    let known = http.sessions.lock().get(&id).copied();
    if !id.is_empty() && known.is_none() {
        return (StatusCode::NOT_FOUND, "no such session").into_response();
    }
    let mut handshake = known.unwrap_or_default();
    if message["method"] == "notifications/initialized" && handshake == Handshake::Begun {
        http.sessions.lock().insert(id, Handshake::Done);
        return StatusCode::ACCEPTED.into_response();
    }
    if message["id"].is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let reply = match answer(&http.shared, &mut handshake, &message).await {
        Answered::Reply(reply) => reply,
        Answered::Never | Answered::Subscription(_) => std::future::pending().await,
    };
    let mut response = json_reply(status_of(&reply), &reply);
    if message["method"] == "initialize" && handshake == Handshake::Begun {
        let number = http.last_session.fetch_add(1, Ordering::SeqCst);
        let session = format!("session-{number}");
        if let Ok(value) = session.parse() {
            response.headers_mut().insert(SESSION, value);
        }
        http.sessions.lock().insert(session, handshake);
    }
    response
}

fn header_text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
}

/// Errors of the protocol itself have a status, errors of tools have not.
fn status_of(reply: &Value) -> StatusCode {
    match reply["error"]["code"].as_i64() {
        Some(-32602 | -32601 | -32600 | -32022 | -32020) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

fn json_reply(status: StatusCode, reply: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], reply.to_string()).into_response()
}
