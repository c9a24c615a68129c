//! Responses over one long connection, as Codex speaks it: a message asks, messages answer.

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use http::{StatusCode, header};
use throughline_canonical::{Fault, FaultKind};
use throughline_conversations::responses::Socket;
use throughline_gateway::Asked;
use tokio::sync::mpsc;

use crate::client_api::refuse;
use crate::wiring::House;

/// Messages that may wait, in either direction.
const WAITING: usize = 32;

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
    upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .on_upgrade(|connection| serve(connection, socket))
}

/// Takes messages until the client goes away. One is answered after the other; a client that leaves
/// stops the one being answered, of which is kept what had come, and one that asks for too much at once
/// is left.
async fn serve(mut connection: WebSocket, mut socket: Socket) {
    let (ask, mut asked) = mpsc::channel::<String>(WAITING);
    let (tell, mut told) = mpsc::channel::<String>(WAITING);
    let answering = async move {
        while let Some(message) = asked.recv().await {
            if tell.is_closed() || socket.take(&message, &tell).await.is_err() {
                return;
            }
        }
    };
    let carrying = async move {
        loop {
            let carried = tokio::select! {
                message = connection.recv() => match message {
                    Some(Ok(Message::Text(text))) => ask.try_send(text.to_string()).is_ok(),
                    Some(Ok(Message::Binary(bytes))) => {
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        ask.try_send(text).is_ok()
                    }
                    // Signs of life are answered by the connection itself.
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => true,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => false,
                },
                event = told.recv() => match event {
                    Some(event) => connection.send(Message::Text(event.into())).await.is_ok(),
                    None => false,
                },
            };
            if !carried {
                return;
            }
        }
    };
    tokio::join!(answering, carrying);
}
