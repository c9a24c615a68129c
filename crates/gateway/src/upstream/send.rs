//! Sends a request to a backend, and retries HTTP errors as often as the operator allows.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};

use throughline_codec::framing::encoding::{Encoding, unpack};

use crate::backend::{Auth, Backend};
use crate::cool_down::{FailedRequest, Failure};
use crate::gateway::Gateway;
use crate::metrics::Answer;
use crate::turn::Attempt;
use crate::turn::request::content_encoding;
use crate::unix_ms;
use crate::upstream::{BoxError, RequestBody, SendError, UpstreamBody, whole};

/// How many bytes of an error reply are read. Errors are short.
pub(crate) const MAX_ERROR_BYTES: usize = 1 << 20;

/// The longest pause before a retry that a backend can ask for.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(30);

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
    /// Sends a request. Retries on 429, on 5xx and on a failed connection, as often as `retries` of
    /// the backend or of the client's dialect allows.
    pub(crate) async fn send_with_retries(
        &self,
        attempt: &Attempt<'_>,
        outbound: &OutboundRequest,
    ) -> Result<UpstreamAnswer, SendError> {
        let backend = attempt.backend;
        let retries = backend.retries.max(attempt.request.incoming.dialect.defaults().retries);
        let mut tries = 0;
        loop {
            let answer = self.send_once(backend, outbound).await;
            let (wait, fail) = match &answer {
                Ok(UpstreamAnswer::Error(error)) if is_retryable(error.status()) => {
                    // A client is waiting. It must decide itself about longer pauses.
                    let wait = retry_after(error.headers());
                    (wait.filter(|wait| *wait <= MAX_RETRY_WAIT), false)
                }
                Err(SendError::Unreachable { .. }) => (None, false),
                _ => (None, true),
            };
            if fail || tries >= retries {
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

    /// Counts the result of a request. A client that leaves early says nothing about the backend.
    fn record_answer(&self, backend: &Backend, sent: &Result<Response<UpstreamBody>, SendError>) {
        let answer = match sent {
            Ok(response) => Answer::Status(response.status().as_u16()),
            Err(SendError::TimedOut { .. }) => Answer::TimedOut,
            Err(SendError::Unreachable { .. } | SendError::Empty { .. }) => Answer::Unreachable,
            Err(SendError::Caller(_)) => return,
        };
        self.metrics.record_answer(&backend.name, answer);
    }

    /// Remembers whether a backend can answer for a model, for the requests that follow.
    pub(crate) fn record_failing(
        &self,
        backend: &Backend,
        model: &str,
        answer: &Result<UpstreamAnswer, SendError>,
        waited: Duration,
    ) {
        let (failure, retry_after) = match answer {
            Ok(UpstreamAnswer::Error(error)) if is_retryable(error.status()) => {
                (Failure::Status(error.status()), retry_after(error.headers()))
            }
            Ok(_) => return self.failing.record_success(&backend.name, Some(model)),
            // A connection is the same for all models, so `request` has recorded that.
            Err(SendError::Unreachable { .. } | SendError::Caller(_)) => return,
            Err(error) => (error.failure().unwrap_or(Failure::Unreachable), None),
        };
        // The limit is the caller's own, and other callers have other limits.
        let is_callers = failure == Failure::Status(StatusCode::TOO_MANY_REQUESTS)
            && backend.auth == Auth::Passthrough;
        if !is_callers {
            let failed = FailedRequest { failure, waited, retry_after };
            self.record_failed_request(backend, Some(model), failed);
        }
    }

    fn record_failed_request(&self, backend: &Backend, model: Option<&str>, failed: FailedRequest) {
        let first = self.settings().routes.cool_down;
        self.failing.record_failure(&backend.name, model, failed, first, Instant::now());
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
        let began = Instant::now();
        let sent = backend.client.send(&backend.name, request, timeout).await;
        self.record_answer(backend, &sent);
        match &sent {
            Ok(_) => self.failing.record_success(&backend.name, None),
            Err(SendError::Unreachable { .. }) => {
                let failure = Failure::Unreachable;
                let failed = FailedRequest { failure, waited: began.elapsed(), retry_after: None };
                self.record_failed_request(backend, None, failed);
            }
            Err(_) => {}
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

/// The pause that a backend asks for: a number of milliseconds or seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    let date = || httpdate::parse_http_date(text("retry-after")?).ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"));
    match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        None => date()?.duration_since(SystemTime::now()).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_read_in_every_form() {
        let soon = SystemTime::now() + Duration::from_secs(90);
        let date = httpdate::fmt_http_date(soon);
        for (name, value, seconds) in [
            ("retry-after", "7", Some(7)),
            ("retry-after", "2.5", Some(2)),
            ("retry-after-ms", "3000", Some(3)),
            ("retry-after", "-1", None),
            ("retry-after", "soon", None),
            ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", None),
        ] {
            let headers = HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            )]);
            assert_eq!(retry_after(&headers).map(|wait| wait.as_secs()), seconds, "{value}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", date.parse().expect("a header"));
        assert!((85..=90).contains(&retry_after(&headers).expect("a pause").as_secs()), "{date}");
    }
}
