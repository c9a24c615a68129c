//! Sends a request to a backend, and retries HTTP errors as often as the operator allows.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};

use throughline_codec::framing::encoding::{Encoding, unpack};

use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::metrics::Answer;
use crate::turn::request::content_encoding;
use crate::unix_ms;
use crate::upstream::{BoxError, RequestBody, SendError, UpstreamBody, whole};

/// How many bytes of an error reply are read. Errors are short.
pub(crate) const MAX_ERROR_BYTES: usize = 1 << 20;

/// A request that is ready to be sent, more than once if needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OutboundRequest {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// Whether the client asked for a stream.
    pub(crate) streamed: bool,
}

/// The backend's answer.
pub(crate) enum UpstreamAnswer {
    /// A successful reply. Its body may still be arriving.
    Ok(Response<UpstreamBody>),
    /// An error reply, read completely.
    Error(Response<Bytes>),
}

impl Gateway {
    /// Sends a request. Retries on 429, on 5xx and on a failed connection, as often as `retries`
    /// allows.
    pub(crate) async fn send_with_retries(
        &self,
        backend: &Backend,
        outbound: &OutboundRequest,
    ) -> Result<UpstreamAnswer, SendError> {
        let mut tries = 0;
        loop {
            let answer = self.send_once(backend, outbound).await;
            let (wait, fail) = match &answer {
                Ok(UpstreamAnswer::Error(error)) if is_retryable(error.status()) => {
                    (retry_after(error.headers()), false)
                }
                Err(SendError::Unreachable { .. }) => (None, false),
                _ => (None, true),
            };
            if fail || tries >= backend.retries {
                return answer;
            }
            tries += 1;
            // Double the pause each time. The random part keeps many callers from retrying
            // together.
            let spread = unix_ms() % 100;
            let backoff = Duration::from_millis((250 << tries.min(6)) + spread);
            tokio::time::sleep(wait.unwrap_or(backoff)).await;
        }
    }

    async fn send_once(
        &self,
        backend: &Backend,
        outbound: &OutboundRequest,
    ) -> Result<UpstreamAnswer, SendError> {
        let response = self
            .request(
                backend,
                &Method::POST,
                (&outbound.path, outbound.query.as_deref()),
                outbound.headers.clone(),
                whole(outbound.body.clone()),
                backend.timeouts.head(outbound.streamed),
            )
            .await?;
        if response.status().is_success() {
            if response.body().is_end_stream() {
                return Err(SendError::Empty { backend: backend.name.clone() });
            }
            return Ok(UpstreamAnswer::Ok(response));
        }
        let (head, body) = response.into_parts();
        let body = read_whole(backend, body, MAX_ERROR_BYTES, backend.timeouts.idle).await?;
        Ok(UpstreamAnswer::Error(Response::from_parts(head, body)))
    }

    /// Counts what became of a request. A client that leaves early says nothing about the backend.
    fn record_answer(&self, backend: &Backend, sent: &Result<Response<UpstreamBody>, SendError>) {
        let answer = match sent {
            Ok(response) => Answer::Status(response.status().as_u16()),
            Err(SendError::TimedOut { .. }) => Answer::TimedOut,
            Err(SendError::Unreachable { .. } | SendError::Empty { .. }) => Answer::Unreachable,
            Err(SendError::Caller(_)) => return,
        };
        self.metrics.record_answer(&backend.name, answer);
    }

    /// Sends a request once and waits for the head of the reply.
    pub(crate) async fn request(
        &self,
        backend: &Backend,
        method: &Method,
        (path, query): (&str, Option<&str>),
        headers: HeaderMap,
        body: RequestBody,
        timeout: Duration,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let unreachable =
            |cause: BoxError| SendError::Unreachable { backend: backend.name.clone(), cause };
        let address = backend.address(path, query).map_err(|error| unreachable(error.into()))?;
        let mut request = Request::builder()
            .method(method.clone())
            .uri(address)
            .body(body)
            .map_err(|error| unreachable(error.into()))?;
        *request.headers_mut() = headers;
        let sent = backend.client.send(&backend.name, request, timeout).await;
        self.record_answer(backend, &sent);
        if !matches!(sent, Err(SendError::Caller(_))) {
            self.record_reachability(&backend.name, sent.is_ok());
        }
        sent
    }
}

/// Reads a reply body to its end.
pub(crate) async fn read_whole(
    backend: &Backend,
    body: UpstreamBody,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, SendError> {
    let read = tokio::time::timeout(timeout, Limited::new(body, limit).collect())
        .await
        .map_err(|_| SendError::TimedOut { backend: backend.name.clone(), waited: timeout })?;
    let read =
        read.map_err(|cause| SendError::Unreachable { backend: backend.name.clone(), cause })?;
    Ok(read.to_bytes())
}

/// Reads a reply body to its end and decompresses it.
pub(crate) async fn read_plain(
    backend: &Backend,
    response: Response<UpstreamBody>,
    limit: usize,
    timeout: Duration,
) -> Result<Bytes, SendError> {
    let (head, body) = response.into_parts();
    let body = read_whole(backend, body, limit, timeout).await?;
    match content_encoding(&head.headers) {
        Some(Encoding::Identity) | None => Ok(body),
        Some(packed) => unpack(packed, &body, limit).map(Bytes::from).map_err(|error| {
            SendError::Unreachable { backend: backend.name.clone(), cause: error.into() }
        }),
    }
}

/// The body of an error reply, decompressed.
pub(crate) fn error_text(error: &Response<Bytes>) -> Vec<u8> {
    match content_encoding(error.headers()) {
        Some(Encoding::Identity) | None => error.body().to_vec(),
        Some(packed) => unpack(packed, error.body(), MAX_ERROR_BYTES).unwrap_or_default(),
    }
}

pub(crate) fn is_retryable(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let wait = number("retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))?;
    // A client is waiting. It must decide itself about longer pauses.
    (wait <= Duration::from_secs(30)).then_some(wait)
}
