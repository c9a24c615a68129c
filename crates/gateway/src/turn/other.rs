//! Requests that are not turns, such as file uploads. They are forwarded unchanged. If the backend
//! uses another error format than the client, its errors are translated.

use http::{Response, header};
use throughline_canonical::Fault;
use throughline_codec::dialects::client_headers::without_key;
use tracing::Instrument;

use crate::backend::{Auth, Backend};
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::translated_reply::read_provider_fault;
use crate::reply::passthrough::PassthroughReply;
use crate::reply::{Clocks, Live, ReplyBody};
use crate::turn::error_reply::{Reply, TurnHeaders, error_response};
use crate::turn::request::IncomingRequest;
use crate::upstream::send::{MAX_ERROR_BYTES, read_whole};
use crate::upstream::{RequestBody, SendError, UpstreamBody};

/// Whether the client can read the backend's errors unchanged.
fn reads_errors(incoming: &IncomingRequest, backend: &Backend) -> bool {
    incoming.dialect.defaults().reads_errors_of.contains(&backend.dialect.name())
}

/// Reads an error that the client could not parse.
async fn read_error(backend: &Backend, response: Response<UpstreamBody>) -> Fault {
    let (head, body) = response.into_parts();
    match read_whole(backend, body, MAX_ERROR_BYTES, backend.timeouts.idle).await {
        Ok(body) => read_provider_fault(backend.dialect, &Response::from_parts(head, body)),
        Err(error) => error.fault(),
    }
}

impl Gateway {
    /// Forwards a request that is not a turn.
    pub async fn forward_request(&self, incoming: IncomingRequest, body: RequestBody) -> Reply {
        let span = incoming.span();
        self.forward_unread(incoming, body).instrument(span).await
    }

    async fn forward_unread(&self, incoming: IncomingRequest, body: RequestBody) -> Reply {
        let (settings, id) = (self.settings(), incoming.id.as_str());
        let chosen =
            settings.routes.choose(&settings, incoming.pin.as_deref(), None, &self.active());
        let backend = match chosen {
            Ok(chosen) => chosen.chain[0].clone(),
            Err(fault) => return error_response(incoming.dialect, &fault, id, ""),
        };
        let mut head = headers::upstream(&incoming.headers, &backend, headers::Body::Forwarded);
        if let Some(length) = incoming.headers.get(header::CONTENT_LENGTH) {
            head.insert(header::CONTENT_LENGTH, length.clone());
        }
        let timeout = backend.timeouts.head(false);
        // Remove a key from the query too if it is not meant for this backend.
        let query = match backend.auth {
            Auth::Passthrough => incoming.query.clone(),
            _ => incoming.query.as_deref().map(without_key).filter(|query| !query.is_empty()),
        };
        let address = (incoming.path.as_str(), query.as_deref());
        let sent = self.request(&backend, &incoming.method, address, head, body, timeout);
        match sent.await {
            Ok(response)
                if response.status().as_u16() >= 400 && !reads_errors(&incoming, &backend) =>
            {
                let fault = read_error(&backend, response).await;
                error_response(incoming.dialect, &fault, id, &backend.name)
            }
            Ok(response) => {
                let (head, upstream) = response.into_parts();
                let mut reply_headers = headers::client(&head.headers, &backend.auth);
                TurnHeaders::new(id, &backend.name).write(&mut reply_headers);
                let clocks = Clocks {
                    keep_alive: settings.keep_alive,
                    idle: backend.timeouts.idle,
                    ends: (incoming.began + backend.timeouts.total).into(),
                    shutdown: self.shutdown.watch(),
                    shared_writes: None,
                };
                let transform = Box::new(PassthroughReply::unread());
                let name = backend.name.clone();
                let live = Live::new(upstream, transform, clocks, name, None);
                let mut reply = Response::new(ReplyBody::Live(Box::new(live)));
                *reply.status_mut() = head.status;
                *reply.headers_mut() = reply_headers;
                reply
            }
            Err(error) => {
                let cause = &error as &dyn std::error::Error;
                if let SendError::Caller(_) = error {
                    tracing::info!(
                        backend = backend.name,
                        error = cause,
                        "the client's body ended early"
                    );
                } else {
                    tracing::warn!(
                        backend = backend.name,
                        error = cause,
                        "the backend did not reply"
                    );
                }
                error_response(incoming.dialect, &error.fault(), id, &backend.name)
            }
        }
    }
}
