//! Responses over one long connection, as Codex speaks it: a message asks, messages answer.

use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use http::{StatusCode, header};
use throughline_canonical::{Fault, FaultKind};
use throughline_conversations::responses::Socket;
use throughline_gateway::Asked;
use tokio::sync::mpsc;

use crate::client_api::{refuse, too_large};
use crate::wiring::House;

/// Messages that may wait, in either direction.
const WAITING: usize = 32;
/// How far beyond the limit a message is read to its end: a sender that is cut off while it sends
/// hears nothing of the reason.
const READ_BEYOND: usize = 16 << 20;
/// How long a client may take to answer that the connection is closed.
const LONGEST_GOODBYE: Duration = Duration::from_secs(10);

/// Whether a request asks for such a connection.
pub(crate) fn is_asked_for(asked: &Asked) -> bool {
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
    asked: Asked,
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
            let mut told = refuse(house, asked.dialect, &Fault::invalid(what));
            *told.status_mut() = StatusCode::UPGRADE_REQUIRED;
            return told;
        }
    };
    let limit = house.gateway.settings().limits.body;
    let socket = Socket::new(house.responses.clone(), asked);
    let read = limit.saturating_add(READ_BEYOND);
    upgrade
        .max_message_size(read)
        .max_frame_size(read)
        .on_upgrade(move |connection| serve(connection, socket, limit))
}

/// Takes messages until the client goes away. One is answered after the other; a client that leaves
/// stops the one being answered, of which is kept what had come, and one that asks for too much at once
/// is left. After a message that is too large nothing more is heard: what came before it is answered.
async fn serve(mut connection: WebSocket, mut socket: Socket, limit: usize) {
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
        loop {
            tokio::select! {
                message = connection.recv(), if ask.is_some() => {
                    let text = match message {
                        Some(Ok(Message::Text(text))) => text.to_string(),
                        Some(Ok(Message::Binary(bytes))) => String::from_utf8_lossy(&bytes).into_owned(),
                        // Signs of life are answered by the connection itself.
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                        Some(Ok(Message::Close(_))) | None => return,
                        // Too large to be read to its end, or nobody is there any more to hear it.
                        Some(Err(_)) => return close_as_too_large(connection).await,
                    };
                    let fits = text.len() <= limit;
                    let heard = fits.then_some(text).ok_or_else(|| too_large(limit));
                    if ask.as_ref().is_some_and(|ask| ask.try_send(heard).is_err()) {
                        return;
                    }
                    ask = ask.filter(|_| fits);
                }
                event = told.recv() => match event {
                    Some(event) => {
                        if connection.send(Message::Text(event.into())).await.is_err() {
                            return;
                        }
                    }
                    // All is answered, and nothing more is heard.
                    None => return close_as_too_large(connection).await,
                },
            }
        }
    };
    tokio::join!(answering, carrying);
}

async fn close_as_too_large(mut connection: WebSocket) {
    let close = CloseFrame {
        code: close_code::SIZE,
        reason: "the message is larger than `limits.body`".into(),
    };
    if connection.send(Message::Close(Some(close))).await.is_ok() {
        let goodbye = async { while let Some(Ok(_)) = connection.recv().await {} };
        let _ = tokio::time::timeout(LONGEST_GOODBYE, goodbye).await;
    }
}
