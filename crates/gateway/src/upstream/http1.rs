//! HTTP/1 connections that are driven by whoever reads the reply.
//!
//! A usual client runs each connection in a task of its own and hands the reply over chunk by chunk. Then
//! every chunk costs a task switch, and the server that forwards it writes each one by itself. Here the
//! reply's body polls its connection, so all chunks that have arrived are read before anything is
//! written.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::{BoxError, RequestBody};

/// How long a connection may be idle.
const MAX_IDLE: Duration = Duration::from_secs(90);
/// How many idle connections to one address are kept.
const MAX_IDLE_CONNECTIONS: usize = 256;

/// The idle connections, by address.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Authority, Vec<Idle>>>,
    sweeping: OnceLock<()>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pool")
    }
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// A connection, and the future that moves its bytes.
struct Connection {
    sender: http1::SendRequest<RequestBody>,
    driver: Pin<Box<http1::Connection<TokioIo<TcpStream>, RequestBody>>>,
}

impl Connection {
    async fn open(authority: &Authority, connect: Duration) -> Result<Self, BoxError> {
        let port = authority.port_u16().unwrap_or(80);
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let opening = TcpStream::connect((host, port));
        let stream = tokio::time::timeout(connect, opening)
            .await
            .map_err(|_| "the connection took too long to open")??;
        stream.set_nodelay(true)?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Box::pin(driver) })
    }

    /// Moves bytes. Returns whether the connection is still open.
    fn poll_driver(&mut self, context: &mut Context<'_>) -> bool {
        self.driver.as_mut().poll(context).is_pending()
    }

    /// Whether the connection can take a request.
    async fn is_usable(&mut self) -> bool {
        std::future::poll_fn(|context| {
            let open = self.poll_driver(context);
            Poll::Ready(open && self.sender.is_ready())
        })
        .await
    }
}

impl Pool {
    /// Sends a request and waits for the head of the reply.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        connect: Duration,
    ) -> Result<Response<Driven>, BoxError> {
        let authority = request.uri().authority().cloned().ok_or("the address has no host")?;
        if !request.headers().contains_key(header::HOST) {
            let host = HeaderValue::from_str(authority.as_str())?;
            request.headers_mut().insert(header::HOST, host);
        }
        let path = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
        loop {
            let (mut connection, reused) = match self.take(&authority).await {
                Some(connection) => (connection, true),
                None => (Connection::open(&authority, connect).await?, false),
            };
            let mut reply = Box::pin(connection.sender.try_send_request(request));
            let outcome = std::future::poll_fn(|context| {
                // The request is in the connection's queue only after the first poll of the reply.
                let early = reply.as_mut().poll(context);
                if early.is_ready() {
                    return early;
                }
                let _ = connection.driver.as_mut().poll(context);
                reply.as_mut().poll(context)
            })
            .await;
            drop(reply);
            match outcome {
                Ok(response) => {
                    let pool = Arc::clone(self);
                    let lease = Lease { connection, pool, authority };
                    return Ok(response.map(|body| Driven { body, lease: Some(lease) }));
                }
                // The provider closed an idle connection at this very moment. The request was not sent.
                Err(mut error) => match error.take_message().filter(|_| reused) {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
    }

    async fn take(&self, authority: &Authority) -> Option<Connection> {
        loop {
            let mut idle = self.idle.lock().get_mut(authority)?.pop()?;
            if idle.since.elapsed() < MAX_IDLE && idle.connection.is_usable().await {
                return Some(idle.connection);
            }
        }
    }

    fn put(self: &Arc<Self>, authority: Authority, connection: Connection) {
        {
            let mut idle = self.idle.lock();
            let idle = idle.entry(authority).or_default();
            if idle.len() < MAX_IDLE_CONNECTIONS {
                idle.push(Idle { connection, since: Instant::now() });
            }
        }
        self.sweeping.get_or_init(|| drop(tokio::spawn(sweep(Arc::downgrade(self)))));
    }
}

/// Closes connections that are idle for too long.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(MAX_IDLE / 3).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        pool.idle.lock().retain(|_, idle| {
            idle.retain(|idle| idle.since.elapsed() < MAX_IDLE);
            !idle.is_empty()
        });
    }
}

/// A connection that is in use.
struct Lease {
    connection: Connection,
    pool: Arc<Pool>,
    authority: Authority,
}

/// The body of a reply, which drives its connection.
pub struct Driven {
    body: Incoming,
    lease: Option<Lease>,
}

impl fmt::Debug for Driven {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Driven")
    }
}

impl Driven {
    /// Returns the connection to the pool, once the body is complete.
    fn release(&mut self, context: &mut Context<'_>) {
        if let Some(mut lease) = self.lease.take()
            && lease.connection.poll_driver(context)
            && lease.connection.sender.is_ready()
        {
            lease.pool.put(lease.authority, lease.connection);
        }
    }
}

impl Body for Driven {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = &mut *self;
        let mut polled = Pin::new(&mut this.body).poll_frame(context);
        if polled.is_pending()
            && let Some(lease) = &mut this.lease
        {
            if !lease.connection.poll_driver(context) {
                this.lease = None;
            }
            polled = Pin::new(&mut this.body).poll_frame(context);
        }
        match &polled {
            Poll::Ready(None | Some(Err(_))) => this.release(context),
            // With a known length the last frame is the end: nobody polls again.
            Poll::Ready(Some(Ok(_))) if this.body.is_end_stream() => this.release(context),
            _ => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
