//! Sending to a backend: patiently where the operator allows it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use throughline_codec::framing::encoding::{Encoding, unpack};

use crate::asked::content_encoding;
use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::unix_ms;
use crate::upstream::{BoxError, RequestBody, SendError, whole};

/// The longest error that is read; errors are short.
pub(crate) const LONGEST_ERROR: usize = 1 << 20;

/// A request that is ready to go, as often as it takes.
#[derive(Clone, Debug)]
pub(crate) struct Parcel {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the reply is wanted as it is written.
    pub(crate) streamed: bool,
}

/// What came back.
pub(crate) enum Back {
    /// A reply that may begin.
    Good(Response<Incoming>),
    /// An error, read whole.
    Refused(Response<Bytes>),
}

impl Gateway {
    /// Sends, and tries again where the operator allows it for 429 and 5xx.
    pub(crate) async fn send_patiently(
        &self,
        backend: &Backend,
        parcel: &Parcel,
    ) -> Result<Back, SendError> {
        let mut tries = 0;
        loop {
            let back = self.send_once(backend, parcel).await;
            let (wait, give_up) = match &back {
                Ok(Back::Refused(error)) if worth_another(error.status()) => {
                    (retry_after(error.headers()), false)
                }
                Err(SendError::Unreachable { .. }) => (None, false),
                _ => (None, true),
            };
            if give_up || tries >= backend.retries {
                return back;
            }
            tries += 1;
            // Doubling, with a spread that keeps many callers from coming back together.
            let spread = unix_ms() % 100;
            let backoff = Duration::from_millis((250 << tries.min(6)) + spread);
            tokio::time::sleep(wait.unwrap_or(backoff)).await;
        }
    }

    async fn send_once(&self, backend: &Backend, parcel: &Parcel) -> Result<Back, SendError> {
        let response = self
            .request(
                backend,
                &Method::POST,
                (&parcel.path, parcel.query.as_deref()),
                parcel.headers.clone(),
                whole(parcel.body.clone()),
                backend.timeouts.head(parcel.streamed),
            )
            .await?;
        if response.status().is_success() {
            if response.body().is_end_stream() {
                return Err(SendError::Empty { backend: backend.name.clone() });
            }
            return Ok(Back::Good(response));
        }
        let (head, body) = response.into_parts();
        let body = read_whole(backend, body, LONGEST_ERROR, backend.timeouts.idle).await?;
        Ok(Back::Refused(Response::from_parts(head, body)))
    }

    /// Sends a request, once, and waits for the head of the reply.
    pub(crate) async fn request(
        &self,
        backend: &Backend,
        method: &Method,
        (path, query): (&str, Option<&str>),
        headers: HeaderMap,
        body: RequestBody,
        patience: Duration,
    ) -> Result<Response<Incoming>, SendError> {
        let unreachable =
            |cause: BoxError| SendError::Unreachable { backend: backend.name.clone(), cause };
        let address = backend.address(path, query).map_err(|error| unreachable(error.into()))?;
        let mut request = Request::builder()
            .method(method.clone())
            .uri(address)
            .body(body)
            .map_err(|error| unreachable(error.into()))?;
        *request.headers_mut() = headers;
        let sent = backend.client.send(&backend.name, request, patience).await;
        if !matches!(sent, Err(SendError::Caller(_))) {
            self.note_reached(&backend.name, sent.is_ok());
        }
        sent
    }
}

/// Reads a reply to its end.
pub(crate) async fn read_whole(
    backend: &Backend,
    body: Incoming,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, SendError> {
    let read = tokio::time::timeout(patience, Limited::new(body, limit).collect())
        .await
        .map_err(|_| SendError::TimedOut { backend: backend.name.clone(), waited: patience })?;
    let read =
        read.map_err(|cause| SendError::Unreachable { backend: backend.name.clone(), cause })?;
    Ok(read.to_bytes())
}

/// Reads a reply to its end, and undoes its compression.
pub(crate) async fn read_plain(
    backend: &Backend,
    response: Response<Incoming>,
    limit: usize,
    patience: Duration,
) -> Result<Bytes, SendError> {
    let (head, body) = response.into_parts();
    let body = read_whole(backend, body, limit, patience).await?;
    match content_encoding(&head.headers) {
        Some(Encoding::Identity) | None => Ok(body),
        Some(packed) => unpack(packed, &body, limit).map(Bytes::from).map_err(|error| {
            SendError::Unreachable { backend: backend.name.clone(), cause: error.into() }
        }),
    }
}

/// The text of an error, readable.
pub(crate) fn error_text(error: &Response<Bytes>) -> Vec<u8> {
    match content_encoding(error.headers()) {
        Some(Encoding::Identity) | None => error.body().to_vec(),
        Some(packed) => unpack(packed, error.body(), LONGEST_ERROR).unwrap_or_default(),
    }
}

pub(crate) fn worth_another(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let wait = number("retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))?;
    // A caller is waiting; longer pauses are its own decision.
    (wait <= Duration::from_secs(30)).then_some(wait)
}
