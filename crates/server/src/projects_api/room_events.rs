//! The events of a room, as server-sent events and over a WebSocket.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::rooms::NewMessage;
use throughline_conversations::rooms::reader::RoomReader;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::call::{Call, Names, Refusal};
use super::openapi::{Refused, StreamedEvent};

/// How long a client may take nothing before it is detached.
const MAX_STALL: Duration = Duration::from_secs(30);
/// How long a silent connection stays without a ping.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// The largest message of a client.
const MAX_MESSAGE: usize = 1 << 20;

/// How a caller wants to read a room.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct RoomEventsQuery {
    /// The `seq` of the last event that the caller has. Default: 0, which means all stored events.
    after: Option<String>,
    /// The channel that reads. Transports get what models think only if their metadata say so.
    channel: Option<String>,
}

impl RoomEventsQuery {
    /// The cursor: that of a browser that reconnects, or that of the query.
    fn cursor(&self, call: &Call) -> Result<u64, Refusal> {
        let header = call.caller.headers.get("last-event-id");
        let header = header.and_then(|value| value.to_str().ok());
        let after = header.or(self.after.as_deref()).filter(|after| !after.is_empty());
        let Some(after) = after else { return Ok(0) };
        let wrong = || {
            Problem::invalid("after", format!("`{after}` is no cursor"))
                .hint("send the `seq` of an event that you received")
        };
        Ok(after.parse().map_err(|_| wrong())?)
    }
}

async fn reader(call: &Call, id: &str) -> Result<RoomReader, Refusal> {
    let query: RoomEventsQuery = call.query()?;
    let after = query.cursor(call)?;
    let channel = query.channel.as_deref().filter(|channel| !channel.is_empty());
    Ok(call.rooms().read(&call.caller, id, channel, after).await?)
}

/// Reads the events of a room after a cursor, those so far and those to come.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}/events",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room"), RoomEventsQuery),
    responses((status = 200, description = "The events of the room", content((StreamedEvent = "text/event-stream"))), Refused)
)]
pub(super) async fn room_events(call: Call, Names(id): Names<String>) -> Result<Response, Refusal> {
    let reader = reader(&call, &id).await?;
    let stopping = call.app.stopping.subscribe();
    let events = stream::unfold((reader, stopping), |(mut reader, mut stopping)| async {
        let frame = tokio::select! {
            frame = reader.next() => frame?,
            () = stopped(&mut stopping) => return None,
        };
        let mut event = Event::default().data(&*frame.json);
        if let Some(seq) = frame.seq {
            event = event.id(seq.to_string());
        }
        Some((Ok::<_, Infallible>(event), (reader, stopping)))
    });
    let keep_alive = call.app.gateway.settings().keep_alive;
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(keep_alive)).into_response())
}

/// Reads the events of a room over a WebSocket, and says something there: a text message is
/// `{"participant", "content"}`, as in `POST /api/rooms/{id}/messages`.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}/ws",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room"), RoomEventsQuery),
    responses((status = 101, description = "The connection is a WebSocket now"), Refused)
)]
pub(super) async fn socket(
    call: Call,
    Names(id): Names<String>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    if call.app.is_disallowed_origin(&call.caller.headers) {
        let message = "cross-origin WebSockets are not allowed; add the origin to `cors_origins`";
        return Err(Fault::new(FaultKind::Forbidden, message).into());
    }
    let upgrade = upgrade.map_err(|error| {
        Fault::invalid(format!("not a valid WebSocket request: {error}; use `events` instead"))
    })?;
    let Ok(slot) = call.app.sockets.clone().try_acquire_owned() else {
        let message = "too many open WebSockets (`limits.streams`)";
        return Err(Fault::new(FaultKind::Overloaded, message).into());
    };
    let reader = reader(&call, &id).await?;
    let response = upgrade.max_message_size(MAX_MESSAGE).on_upgrade(async move |connection| {
        serve(connection, reader, call, id).await;
        drop(slot);
    });
    Ok(response)
}

/// Serves a connection until the client leaves, is too slow, or the server stops.
async fn serve(mut connection: WebSocket, mut reader: RoomReader, call: Call, id: String) {
    let mut stopping = call.app.stopping.subscribe();
    // Hooks may decide about a message for a while. Events go on meanwhile, and the next message waits.
    let mut storing: Option<BoxFuture<'_, Option<Value>>> = None;
    loop {
        let is_free = storing.is_none();
        let stored = async {
            match &mut storing {
                Some(stored) => stored.await,
                None => pending().await,
            }
        };
        let message = tokio::select! {
            refused = stored => {
                storing = None;
                match refused {
                    Some(refused) => Message::Text(refused.to_string().into()),
                    None => continue,
                }
            }
            frame = reader.next() => match frame {
                Some(frame) => Message::Text(frame.json.to_string().into()),
                None => return close(connection, "resume with your cursor").await,
            },
            received = connection.recv(), if is_free => match received {
                Some(Ok(Message::Text(text))) => {
                    storing = Some(store_message(&call, &id, text).boxed());
                    continue;
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => continue,
            },
            () = stopped(&mut stopping) => return close(connection, "the server is stopping").await,
            () = tokio::time::sleep(PING_INTERVAL) => Message::Ping(bytes::Bytes::new()),
        };
        let sent = tokio::time::timeout(MAX_STALL, connection.send(message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            return;
        }
    }
}

/// Takes what a client says. Returns an error for the client.
async fn store_message(call: &Call, id: &str, text: Utf8Bytes) -> Option<Value> {
    let refused = |problem: &Problem| {
        let (_, body) = problem.write();
        json!({"type": "ERROR", "room": id, "data": {"kind": "refused", "message": body["detail"], "problem": body}})
    };
    let message: NewMessage = match serde_json::from_str(&text) {
        Ok(message) => message,
        Err(error) => {
            let problem =
                Problem::from(Fault::invalid(format!("the message is not valid: {error}")));
            return Some(refused(&problem));
        }
    };
    call.rooms().say(&call.caller, id, message).await.err().map(|problem| refused(&problem))
}

async fn stopped(stopping: &mut watch::Receiver<bool>) {
    drop(stopping.wait_for(|stop| *stop).await);
}

async fn close(mut connection: WebSocket, reason: &'static str) {
    let frame = CloseFrame { code: close_code::AWAY, reason: reason.into() };
    let closing = connection.send(Message::Close(Some(frame)));
    let _ = tokio::time::timeout(MAX_STALL, closing).await;
}
