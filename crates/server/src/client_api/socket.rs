//! The Responses API over a WebSocket, as Codex uses it: each text message is a request, and each
//! event of the reply is a message.

use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::Bytes;
use http::{StatusCode, header};
use throughline_canonical::{Fault, FaultKind};
use throughline_conversations::responses::Socket;
use throughline_gateway::IncomingRequest;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::body::too_large;
use super::refuse;
use crate::cors::RefusedUse;
use crate::wiring::App;

/// Messages that may wait, in either direction.
const QUEUE_LENGTH: usize = 32;
/// Bytes beyond the limit that are still read. A client that is cut off while it sends never sees
/// the error.
const MAX_EXCESS_BYTES: usize = 16 << 20;
/// Pings that may stay unanswered. A client that is sending a large message cannot answer before its
/// end, and some clients read from the connection only when they wait for a reply.
const MAX_UNANSWERED_PINGS: u32 = 20;
/// How long a client may take to confirm a close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The close code and reason for each read error, found by the start of the error's text: the errors
/// have no type that is visible here.
const CLOSE_CODES: [(&str, u16, &str); 3] = [
    ("Space limit exceeded", close_code::SIZE, TOO_LARGE),
    ("UTF-8 encoding error", close_code::INVALID, "text messages must be UTF-8"),
    ("WebSocket protocol error", close_code::PROTOCOL, "not a valid WebSocket frame"),
];
const TOO_LARGE: &str = "the message is larger than `limits.body`";
const STOPPING: &str = "the server is stopping";

/// Whether a request asks for such a connection.
pub(super) fn is_upgrade(request: &IncomingRequest) -> bool {
    request.path == "/v1/responses"
        && request
            .headers
            .get(header::UPGRADE)
            .is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Opens the connection, or answers 426: clients fall back to HTTP only after that status. Browsers
/// send no preflight for a WebSocket, so the origin is checked here.
pub(super) async fn open(
    app: &App,
    request: IncomingRequest,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if app.is_disallowed_origin(&request.headers) {
        app.refused_origins.report(RefusedUse::Client, &request.headers);
        let message = "cross-origin WebSockets are not allowed; add the origin to `cors_origins`";
        let fault = Fault::new(FaultKind::Forbidden, message);
        return refuse(app, request.dialect, &fault);
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let message = format!("not a valid WebSocket request: {rejection}; use HTTP instead");
            return refuse_upgrade(app, &request, &Fault::invalid(message));
        }
    };
    let Ok(slot) = app.sockets.clone().try_acquire_owned() else {
        let message = "too many open WebSockets (`limits.streams`); use HTTP instead";
        return refuse_upgrade(app, &request, &Fault::new(FaultKind::Overloaded, message));
    };
    let settings = app.gateway.settings();
    let (limit, ping_interval) = (settings.limits.body, settings.keep_alive);
    let socket = Socket::new(app.responses.clone(), request);
    let stopping = app.stopping.subscribe();
    let read_limit = limit.saturating_add(MAX_EXCESS_BYTES);
    upgrade.max_message_size(read_limit).max_frame_size(read_limit).on_upgrade(
        async move |connection| {
            serve(connection, socket, Limits { limit, ping_interval, stopping }).await;
            drop(slot);
        },
    )
}

/// Answers 426, so that the client falls back to HTTP.
fn refuse_upgrade(app: &App, request: &IncomingRequest, fault: &Fault) -> Response {
    let mut response = refuse(app, request.dialect, fault);
    *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
    response
}

/// What ends a connection.
struct Limits {
    /// The bytes of a message.
    limit: usize,
    /// The silence after which the client gets a ping.
    ping_interval: Duration,
    /// Becomes true when the server stops.
    stopping: watch::Receiver<bool>,
}

/// Serves a connection until the client leaves or the server stops. Requests are answered one after
/// the other.
async fn serve(connection: WebSocket, mut socket: Socket, limits: Limits) {
    let (requests, mut waiting) = mpsc::channel::<Result<String, Fault>>(QUEUE_LENGTH);
    let (replies, events) = mpsc::channel::<String>(QUEUE_LENGTH);
    let answer = async move {
        while let Some(message) = waiting.recv().await {
            if replies.is_closed() || socket.take(message, &replies).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(answer, relay_messages(connection, requests, events, limits));
}

/// Relays messages in both directions and pings a silent client. Returns when the client leaves,
/// does not answer pings, does not take what it is sent, or sends more requests than may wait. Its
/// return closes both channels, which also stops the reply in progress. After a message
/// that is too large, or when the server stops, nothing more is read; requests before that are still
/// answered.
async fn relay_messages(
    mut connection: WebSocket,
    requests: mpsc::Sender<Result<String, Fault>>,
    mut events: mpsc::Receiver<String>,
    limits: Limits,
) {
    let Limits { limit, ping_interval, mut stopping } = limits;
    let mut requests = Some(requests);
    let mut last_word = (close_code::SIZE, TOO_LARGE);
    let send_timeout = ping_interval.saturating_mul(MAX_UNANSWERED_PINGS);
    let mut unanswered_pings = 0;
    let silence = tokio::time::sleep(ping_interval);
    tokio::pin!(silence);
    loop {
        tokio::select! {
            message = connection.recv(), if requests.is_some() => {
                unanswered_pings = 0;
                silence.as_mut().reset(Instant::now() + ping_interval);
                let text = match message {
                    Some(Ok(Message::Text(text))) => Some(text.to_string()),
                    Some(Ok(Message::Binary(bytes))) => {
                        Some(String::from_utf8_lossy(&bytes).into_owned())
                    }
                    // The connection answers pings itself.
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Close(_))) | None => return,
                    Some(Err(error)) => match close_code_for(&error) {
                        // Too large to be read to its end.
                        Some((close_code::SIZE, _)) => None,
                        Some((code, reason)) => return close(connection, code, reason).await,
                        // The client is gone.
                        None => return,
                    },
                };
                let text = text.filter(|text| text.len() <= limit);
                let fits = text.is_some();
                let request = text.ok_or_else(|| too_large(limit));
                if requests.as_ref().is_some_and(|queue| queue.try_send(request).is_err()) {
                    return;
                }
                requests = requests.filter(|_| fits);
            }
            () = stopped(&mut stopping), if requests.is_some() => {
                last_word = (close_code::AWAY, STOPPING);
                requests = None;
            }
            () = &mut silence, if requests.is_some() => {
                let ping = Message::Ping(Bytes::new());
                let gone = unanswered_pings == MAX_UNANSWERED_PINGS;
                if gone || !send_in_time(&mut connection, ping, send_timeout).await {
                    return;
                }
                unanswered_pings += 1;
                silence.as_mut().reset(Instant::now() + ping_interval);
            }
            event = events.recv() => match event {
                Some(event) => {
                    let event = Message::Text(event.into());
                    if !send_in_time(&mut connection, event, send_timeout).await {
                        return;
                    }
                }
                // Every request that was read is answered.
                None => return close(connection, last_word.0, last_word.1).await,
            },
        }
    }
}

/// Waits until the server stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    drop(stopping.wait_for(|stop| *stop).await);
}

/// Sends a message. False if the client does not take it in time.
async fn send_in_time(connection: &mut WebSocket, message: Message, timeout: Duration) -> bool {
    let sent = tokio::time::timeout(timeout, connection.send(message)).await;
    matches!(sent, Ok(Ok(())))
}

/// The close code and reason for an error; `None` if the connection is gone.
fn close_code_for(error: &axum::Error) -> Option<(u16, &'static str)> {
    let text = error.to_string();
    let row = CLOSE_CODES.iter().find(|(start, ..)| text.starts_with(start));
    row.map(|(_, code, reason)| (*code, *reason))
}

async fn close(mut connection: WebSocket, code: u16, reason: &'static str) {
    let frame = CloseFrame { code, reason: reason.into() };
    let closing = async {
        if connection.send(Message::Close(Some(frame))).await.is_ok() {
            while let Some(Ok(_)) = connection.recv().await {}
        }
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, closing).await;
}
