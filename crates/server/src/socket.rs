//! Responses over one long connection, as Codex speaks it: a message asks, messages answer.

use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::Bytes;
use http::{StatusCode, header};
use throughline_canonical::{Fault, FaultKind};
use throughline_conversations::responses::Socket;
use throughline_gateway::IncomingRequest;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::client_api::{refuse, too_large};
use crate::wiring::House;

/// Messages that may wait, in either direction.
const WAITING: usize = 32;
/// How far beyond the limit a message is read to its end: a sender that is cut off while it sends
/// hears nothing of the reason.
const READ_BEYOND: usize = 16 << 20;
/// How many signs of life may stay unanswered. A client that is in the middle of a large message can
/// answer none before its end, and some look at the connection only when they ask.
const UNANSWERED: u32 = 20;
/// How long a client may take to answer that the connection is closed.
const LONGEST_GOODBYE: Duration = Duration::from_secs(10);

/// How the connection words what is wrong with what it reads, and the code by which a client is told.
/// Its errors have no type that could be looked at here.
const FLAWS: [(&str, u16, &str); 3] = [
    ("Space limit exceeded", close_code::SIZE, TOO_LARGE),
    ("UTF-8 encoding error", close_code::INVALID, "a text has to be UTF-8"),
    ("WebSocket protocol error", close_code::PROTOCOL, "this is no frame of a WebSocket"),
];
const TOO_LARGE: &str = "the message is larger than `limits.body`";

/// Whether a request asks for such a connection.
pub(crate) fn is_asked_for(asked: &IncomingRequest) -> bool {
    asked.path == "/v1/responses"
        && asked
            .headers
            .get(header::UPGRADE)
            .is_some_and(|upgrade| upgrade.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Opens the connection. Clients go on with plain requests only after this very status. Browsers ask
/// nobody before they open one, so pages from elsewhere are turned away here.
pub(crate) async fn open(
    house: &House,
    asked: IncomingRequest,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    if house.uninvited_page(&asked.headers) {
        let what =
            "pages from elsewhere may not open a WebSocket; add their origin to `cors_origins`";
        let fault = Fault::new(FaultKind::Forbidden, what);
        return refuse(house, asked.dialect, &fault);
    }
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(rejection) => {
            let what = format!("this is no request for a WebSocket: {rejection}; ask over HTTP");
            return refuse_upgrade(house, &asked, &Fault::invalid(what));
        }
    };
    let Ok(place) = house.sockets.clone().try_acquire_owned() else {
        let what =
            "all WebSockets are taken; `limits.streams` says how many there are; ask over HTTP";
        return refuse_upgrade(house, &asked, &Fault::new(FaultKind::Overloaded, what));
    };
    let settings = house.gateway.settings();
    let (limit, pace) = (settings.limits.body, settings.keep_alive);
    let socket = Socket::new(house.responses.clone(), asked);
    let read = limit.saturating_add(READ_BEYOND);
    upgrade.max_message_size(read).max_frame_size(read).on_upgrade(async move |connection| {
        serve(connection, socket, limit, pace).await;
        drop(place);
    })
}

/// Sends a client on to plain requests.
fn refuse_upgrade(house: &House, asked: &IncomingRequest, fault: &Fault) -> Response {
    let mut told = refuse(house, asked.dialect, fault);
    *told.status_mut() = StatusCode::UPGRADE_REQUIRED;
    told
}

/// Takes messages until the client goes away. One is answered after the other; a client that leaves
/// stops the one being answered, of which is kept what had come, and one that asks for too much at once
/// is left. After a message that is too large nothing more is heard: what came before it is answered.
/// A client that is silent is asked for a sign of life at this pace, and left if it gives none, or if it
/// does not take what it is sent.
async fn serve(mut connection: WebSocket, mut socket: Socket, limit: usize, pace: Duration) {
    let (ask, mut asked) = mpsc::channel::<Result<String, Fault>>(WAITING);
    let (tell, mut told) = mpsc::channel::<String>(WAITING);
    let answering = async move {
        while let Some(message) = asked.recv().await {
            if tell.is_closed() || socket.take(message, &tell).await.is_err() {
                return;
            }
        }
    };
    let carrying = async move {
        let mut ask = Some(ask);
        let patience = pace.saturating_mul(UNANSWERED);
        let mut unanswered = 0;
        let silence = tokio::time::sleep(pace);
        tokio::pin!(silence);
        loop {
            tokio::select! {
                message = connection.recv(), if ask.is_some() => {
                    unanswered = 0;
                    silence.as_mut().reset(Instant::now() + pace);
                    let heard = match message {
                        Some(Ok(Message::Text(text))) => Some(text.to_string()),
                        Some(Ok(Message::Binary(bytes))) => Some(String::from_utf8_lossy(&bytes).into_owned()),
                        // Signs of life are answered by the connection itself.
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                        Some(Ok(Message::Close(_))) | None => return,
                        Some(Err(error)) => match flaw(&error) {
                            // Too large to be read to its end.
                            Some((close_code::SIZE, _)) => None,
                            Some((code, reason)) => return close(connection, code, reason).await,
                            // Nobody is there any more to hear it.
                            None => return,
                        },
                    };
                    let heard = heard.filter(|text| text.len() <= limit);
                    let fits = heard.is_some();
                    let heard = heard.ok_or_else(|| too_large(limit));
                    if ask.as_ref().is_some_and(|ask| ask.try_send(heard).is_err()) {
                        return;
                    }
                    ask = ask.filter(|_| fits);
                }
                () = &mut silence, if ask.is_some() => {
                    let ping = Message::Ping(Bytes::new());
                    if unanswered == UNANSWERED || !is_sent(&mut connection, ping, patience).await {
                        return;
                    }
                    unanswered += 1;
                    silence.as_mut().reset(Instant::now() + pace);
                }
                event = told.recv() => match event {
                    Some(event) => {
                        let event = Message::Text(event.into());
                        if !is_sent(&mut connection, event, patience).await {
                            return;
                        }
                    }
                    // All is answered, and nothing more is heard.
                    None => return close(connection, close_code::SIZE, TOO_LARGE).await,
                },
            }
        }
    };
    tokio::join!(answering, carrying);
}

/// Sends a message to a client that takes it within this time.
async fn is_sent(connection: &mut WebSocket, message: Message, patience: Duration) -> bool {
    let sent = tokio::time::timeout(patience, connection.send(message)).await;
    matches!(sent, Ok(Ok(())))
}

/// What a client is told of an error, if it is still there.
fn flaw(error: &axum::Error) -> Option<(u16, &'static str)> {
    let told = error.to_string();
    let row = FLAWS.iter().find(|(words, ..)| told.starts_with(words));
    row.map(|(_, code, reason)| (*code, *reason))
}

async fn close(mut connection: WebSocket, code: u16, reason: &'static str) {
    let close = CloseFrame { code, reason: reason.into() };
    let goodbye = async {
        if connection.send(Message::Close(Some(close))).await.is_ok() {
            while let Some(Ok(_)) = connection.recv().await {}
        }
    };
    let _ = tokio::time::timeout(LONGEST_GOODBYE, goodbye).await;
}
