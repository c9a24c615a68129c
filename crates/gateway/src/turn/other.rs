//! Requests that are not turns, such as file uploads. They are forwarded unchanged. If the backend
//! uses another error format than the client, its errors are translated.

use http::{Response, header};
use hyper::body::Incoming;
use throughline_canonical::Fault;

use crate::backend::{Auth, Backend};
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::translated_reply::fault_of;
use crate::reply::passthrough::Through;
use crate::reply::{Clocks, ReplyBody};
use crate::turn::error_reply::{Reply, error_response, finish_headers};
use crate::turn::request::IncomingRequest;
use crate::unix_ms;
use crate::upstream::send::{MAX_ERROR_BYTES, read_whole};
use crate::upstream::{RequestBody, SendError};

/// Whether client and backend use the same error format.
fn alike(asked: &IncomingRequest, backend: &Backend) -> bool {
    let vendor = |name: &'static str| name.split('_').next();
    vendor(asked.dialect.name()) == vendor(backend.dialect.name())
}

/// Reads an error that the client could not parse.
async fn error_of(backend: &Backend, response: Response<Incoming>) -> Fault {
    let (head, body) = response.into_parts();
    match read_whole(backend, body, MAX_ERROR_BYTES, backend.timeouts.idle).await {
        Ok(body) => fault_of(backend.dialect, &Response::from_parts(head, body)),
        Err(error) => error.fault(),
    }
}

impl Gateway {
    /// Forwards a request that is not a turn.
    pub async fn pass(&self, asked: IncomingRequest, body: RequestBody) -> Reply {
        let settings = self.settings();
        let id = self.turns.id(unix_ms());
        let chosen = settings.routes.choose(&settings, asked.pin.as_deref(), None, &self.active());
        let backend = match chosen {
            Ok(chosen) => chosen.chain[0].clone(),
            Err(fault) => return error_response(asked.dialect, &fault, &id, ""),
        };
        let mut head = headers::upstream(&asked.headers, &backend, headers::Body::Passed);
        if let Some(length) = asked.headers.get(header::CONTENT_LENGTH) {
            head.insert(header::CONTENT_LENGTH, length.clone());
        }
        let patience = backend.timeouts.head(false);
        // Remove a key from the query too if it is not meant for this backend.
        let query = match backend.auth {
            Auth::Passthrough => asked.query.clone(),
            _ => asked.query.as_deref().map(headers::without_key).filter(|query| !query.is_empty()),
        };
        let place = (asked.path.as_str(), query.as_deref());
        let sent = self.request(&backend, &asked.method, place, head, body, patience);
        match sent.await {
            Ok(response) if response.status().as_u16() >= 400 && !alike(&asked, &backend) => {
                let told = error_of(&backend, response).await;
                error_response(asked.dialect, &told, &id, &backend.name)
            }
            Ok(response) => {
                let (head, upstream) = response.into_parts();
                let mut reply_headers = headers::client(&head.headers, &backend.auth);
                finish_headers(&mut reply_headers, &id, &backend.name, &[]);
                let clocks = Clocks {
                    keep_alive: settings.keep_alive,
                    idle: backend.timeouts.idle,
                    ends: (asked.began + backend.timeouts.total).into(),
                };
                let transform = Box::new(Through::unread());
                let name = backend.name.clone();
                let mut reply =
                    Response::new(ReplyBody::live(upstream, transform, &clocks, name, None));
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
                error_response(asked.dialect, &error.fault(), &id, &backend.name)
            }
        }
    }
}
