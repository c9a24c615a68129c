//! The HTTP client: connections to one backend. The retry rules are in `send` (HTTP errors) and
//! `retry` (refused thinking).

mod http1;
pub mod refusal_policy;
pub(crate) mod retry;
pub(crate) mod send;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use throughline_canonical::{Fault, FaultKind};

use crate::cool_down::Failure;

/// Any error, as the source of another error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A request body: complete, or streamed as it arrives.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

/// Connections to one backend.
#[derive(Clone)]
pub struct Client {
    /// For `https`, where a connection may carry several requests.
    inner: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, RequestBody>,
    /// For `http`.
    plain: Arc<http1::Pool>,
    connect: Duration,
}

/// The body of a reply.
#[derive(Debug)]
pub enum UpstreamBody {
    /// It reads its own connection.
    Driven(http1::Driven),
    /// Its connection runs in another task.
    Shared(Incoming),
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Driven(body) => Pin::new(body).poll_frame(context),
            Self::Shared(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Driven(body) => body.is_end_stream(),
            Self::Shared(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Driven(body) => body.size_hint(),
            Self::Shared(body) => body.size_hint(),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Client")
    }
}

/// Why a backend sent no reply.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// There is no connection, or it broke before the reply.
    #[error("cannot reach backend `{backend}`")]
    Unreachable {
        /// The backend's name.
        backend: String,
        /// The cause.
        #[source]
        cause: BoxError,
    },
    /// The head of the reply did not arrive in time.
    #[error("backend `{backend}` did not answer within {} s", .waited.as_secs_f32())]
    TimedOut {
        /// The backend's name.
        backend: String,
        /// How long the gateway waited.
        waited: Duration,
    },
    /// The head of a successful reply says that it has no body.
    #[error("backend `{backend}` answered with an empty body")]
    Empty {
        /// The backend's name.
        backend: String,
    },
    /// The client's body ended early or did not match its declared length.
    #[error("the request body was cut off")]
    Caller(#[source] BoxError),
}

impl SendError {
    /// What the backend failed with; `None` if the client is to blame.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            Self::Unreachable { .. } | Self::Empty { .. } => Some(Failure::Unreachable),
            Self::TimedOut { .. } => Some(Failure::TimedOut),
            Self::Caller(_) => None,
        }
    }

    /// The fault that the client gets.
    pub fn fault(&self) -> Fault {
        match self {
            Self::Unreachable { backend, cause } => Fault::new(
                FaultKind::Unreachable,
                format!("cannot reach backend `{backend}`: {}", root(cause.as_ref())),
            ),
            Self::TimedOut { .. } => Fault::new(FaultKind::TimedOut, self.to_string()),
            Self::Empty { .. } => Fault::new(FaultKind::Unreachable, self.to_string()),
            Self::Caller(_) => Fault::invalid(self.to_string()),
        }
    }
}

/// The innermost cause. It says what happened; the outer causes say where.
fn root(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

impl Client {
    /// Creates a client whose connections must open within `connect`.
    pub fn new(connect: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(connect));
        http.set_nodelay(true);
        http.enforce_http(false);
        // Use the system's certificates if there are any, so that private authorities work.
        let tls = HttpsConnectorBuilder::new()
            .with_native_roots()
            .unwrap_or_else(|_| HttpsConnectorBuilder::new().with_webpki_roots());
        let connector = tls.https_or_http().enable_http1().enable_http2().wrap_connector(http);
        Self {
            inner: hyper_util::client::legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(Duration::from_secs(90))
                .build(connector),
            plain: Arc::default(),
            connect,
        }
    }

    /// Sends a request and waits for the head of the reply.
    pub async fn send(
        &self,
        backend: &str,
        request: Request<RequestBody>,
        first_byte: Duration,
    ) -> Result<Response<UpstreamBody>, SendError> {
        let caller_broke_off = Arc::new(AtomicBool::new(false));
        let noted = caller_broke_off.clone();
        // Record a broken client body here, because only HTTP/1 errors name it as their cause.
        let request = request.map(|body| {
            body.map_err(move |error| {
                noted.store(true, Ordering::Relaxed);
                error
            })
            .boxed_unsync()
        });
        match tokio::time::timeout(first_byte, self.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if caller_broke_off.load(Ordering::Relaxed) => {
                Err(SendError::Caller(error))
            }
            Ok(Err(cause)) => Err(SendError::Unreachable { backend: backend.to_owned(), cause }),
            Err(_) => Err(SendError::TimedOut { backend: backend.to_owned(), waited: first_byte }),
        }
    }
}

impl Client {
    async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, BoxError> {
        if request.uri().scheme() == Some(&http::uri::Scheme::HTTP) {
            let response = self.plain.send(request, self.connect).await?;
            return Ok(response.map(UpstreamBody::Driven));
        }
        let response = self.inner.request(request).await?;
        Ok(response.map(UpstreamBody::Shared))
    }
}

/// A request body whose bytes are all known.
pub fn whole(bytes: Bytes) -> RequestBody {
    http_body_util::Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}
