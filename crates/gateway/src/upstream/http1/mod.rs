//! HTTP/1.1 without TLS, mostly to model servers on the same machine or network.
//!
//! A usual client runs each connection in a task of its own and hands the reply over chunk by
//! chunk. Then every chunk costs a task switch, and an open stream holds several buffers. Here the
//! body of the reply reads its connection: all chunks that have arrived are taken before anything
//! is written, and a stream that waits holds no buffer.

mod reply;
mod request;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::uri::Authority;
use http::{Method, Request, Response};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::Instant;

use self::reply::{Framing, ReceivedHead};
use self::request::{SendFailure, SendingRequest};
use super::{BoxError, RequestBody};

/// How long a connection may be idle.
const MAX_IDLE: Duration = Duration::from_secs(90);
/// How long a connection is not used after a stream. Some servers (llama.cpp) close it then and do not
/// say so before. A request that meets the close is lost, because it may or may not have been read.
const MIN_IDLE_AFTER_STREAM: Duration = Duration::from_secs(1);
/// How many idle connections to one address are kept.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// How many bytes are read at once, at least and at most. It depends on what the last read found.
const MIN_READ: usize = 4 << 10;
const MAX_READ: usize = 64 << 10;

/// How long the first address family may take before the other one is tried too.
const FAMILY_DELAY: Duration = Duration::from_millis(300);

/// The idle connections, by address.
#[derive(Default)]
pub(super) struct Pool {
    idle: Mutex<HashMap<Authority, Vec<Idle>>>,
    /// The addresses that have answered on a connection after a stream.
    keep_after_stream: Mutex<HashSet<Authority>>,
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

/// A connection, and the bytes that were read from it and not used yet.
struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
    read_size: usize,
    /// The last reply was sent in chunks, as streams are.
    streamed: bool,
}

impl Connection {
    async fn open(authority: &Authority, connect: Duration) -> Result<Self, BoxError> {
        let port = authority.port_u16().unwrap_or(80);
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let opening = connect_any(host, port);
        let stream = tokio::time::timeout(connect, opening)
            .await
            .map_err(|_| "the connection took too long to open")??;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: BytesMut::new(), read_size: MIN_READ, streamed: false })
    }

    /// Whether the connection can take a request: it is open, and nothing has arrived unasked.
    fn is_usable(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);
        self.buffer.is_empty() && read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Reads more bytes into the buffer. Returns how many; none at the end.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.stream.poll_read_ready(context)?.is_pending() {
            if self.buffer.is_empty() {
                self.buffer = BytesMut::new();
            }
            return Poll::Pending;
        }
        self.buffer.reserve(self.read_size);
        let read = ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(context))?;
        if read >= self.read_size {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        } else if read < self.read_size / 2 {
            self.read_size = (self.read_size / 2).max(MIN_READ);
        }
        Poll::Ready(Ok(read))
    }
}

/// Connects to a host. If it has addresses of both families and the first does not answer soon, both
/// are tried side by side.
async fn connect_any(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (first, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    if other.is_empty() {
        return TcpStream::connect(&first[..]).await;
    }
    first_success(TcpStream::connect(&first[..]), TcpStream::connect(&other[..])).await
}

/// Runs `other` after a delay or after the failure of `first`. Returns the first success.
async fn first_success<T>(
    first: impl Future<Output = io::Result<T>>,
    other: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let (mut first, mut other) = (pin!(first), pin!(other));
    match tokio::time::timeout(FAMILY_DELAY, &mut first).await {
        Ok(Ok(success)) => return Ok(success),
        Ok(Err(_)) => return other.await,
        Err(_) => {}
    }
    tokio::select! {
        done = &mut first => if done.is_ok() { done } else { other.await },
        done = &mut other => if done.is_ok() { done } else { first.await },
    }
}

impl Pool {
    /// Sends a request and waits for the head of the reply.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<RequestBody>,
        connect: Duration,
    ) -> Result<Response<Driven>, BoxError> {
        let authority = request.uri().authority().cloned().ok_or("the address has no host")?;
        let (parts, body) = request.into_parts();
        let mut exchange = Exchange {
            method: parts.method.clone(),
            outgoing: Some(SendingRequest::new(&parts, body)?),
            broken: None,
        };
        loop {
            let (mut connection, reused) = match self.take(&authority) {
                Some(connection) => (connection, true),
                None => (Connection::open(&authority, connect).await?, false),
            };
            let head = std::future::poll_fn(|context| exchange.poll_head(&mut connection, context));
            let ReceivedHead { response, framing, keep_alive } = match head.await {
                Ok(head) => head,
                // The provider closed an idle connection at this very moment, and no byte of the
                // request was sent.
                Err(_) if reused && exchange.is_unsent() => {
                    exchange.broken = None;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if reused && connection.streamed {
                self.keep_after_stream.lock().insert(authority.clone());
            }
            connection.streamed = framing == Framing::ChunkSize;
            let outgoing = exchange.outgoing;
            let pool = Arc::clone(self);
            let lease = Lease { connection, outgoing, keep_alive, pool, authority };
            let mut body = Driven { framing, lease: Some(Box::new(lease)) };
            if framing.is_ended() {
                body.release();
            }
            return Ok(response.map(|()| body));
        }
    }

    fn take(&self, authority: &Authority) -> Option<Connection> {
        let keeps = self.keep_after_stream.lock().contains(authority);
        let mut idle = self.idle.lock();
        let idle = idle.get_mut(authority)?;
        let is_certain = |idle: &Idle| {
            keeps || !idle.connection.streamed || idle.since.elapsed() >= MIN_IDLE_AFTER_STREAM
        };
        while let Some(newest) = idle.iter().rposition(is_certain) {
            let Idle { connection, since } = idle.remove(newest);
            if since.elapsed() < MAX_IDLE && connection.is_usable() {
                return Some(connection);
            }
        }
        None
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

    fn close_old(&self) {
        self.idle.lock().retain(|_, idle| {
            idle.retain(|idle| idle.since.elapsed() < MAX_IDLE);
            !idle.is_empty()
        });
    }
}

/// Closes connections that are idle for too long.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(MAX_IDLE / 3).await;
        let Some(pool) = pool.upgrade() else {
            return;
        };
        pool.close_old();
    }
}

/// A request that waits for the head of its reply.
struct Exchange {
    method: Method,
    /// The request, until it is sent.
    outgoing: Option<SendingRequest>,
    /// Why the rest of the request cannot be sent.
    broken: Option<io::Error>,
}

impl Exchange {
    fn is_unsent(&self) -> bool {
        self.outgoing.as_ref().is_some_and(SendingRequest::is_unsent)
    }

    fn poll_head(
        &mut self,
        connection: &mut Connection,
        context: &mut Context<'_>,
    ) -> Poll<Result<ReceivedHead, BoxError>> {
        if let Some(outgoing) = self.outgoing.as_mut().filter(|_| self.broken.is_none()) {
            match outgoing.poll_send(&mut connection.stream, context) {
                Poll::Ready(Ok(())) => self.outgoing = None,
                Poll::Ready(Err(SendFailure::Body(error))) => return Poll::Ready(Err(error)),
                // The provider may have replied before it closed the connection.
                Poll::Ready(Err(SendFailure::Connection(error))) => self.broken = Some(error),
                Poll::Pending => {}
            }
        }
        loop {
            if !connection.buffer.is_empty()
                && let Some(head) = ReceivedHead::read(&mut connection.buffer, &self.method)?
            {
                return Poll::Ready(Ok(head));
            }
            let error = match ready!(connection.poll_read(context)) {
                Ok(0) => None,
                Ok(_) => continue,
                Err(error) => Some(error),
            };
            let error = self.broken.take().or(error).map(BoxError::from);
            let closed = "the connection was closed before the reply";
            return Poll::Ready(Err(error.unwrap_or_else(|| closed.into())));
        }
    }
}

/// A connection that is in use.
struct Lease {
    connection: Connection,
    /// The rest of the request, if the provider replies before it has read all of it.
    outgoing: Option<SendingRequest>,
    keep_alive: bool,
    pool: Arc<Pool>,
    authority: Authority,
}

/// The body of a reply. It reads its connection.
pub struct Driven {
    framing: Framing,
    lease: Option<Box<Lease>>,
}

impl fmt::Debug for Driven {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Driven")
    }
}

impl Driven {
    /// Returns the connection to the pool, once the body is complete.
    fn release(&mut self) {
        if let Some(lease) = self.lease.take()
            && lease.keep_alive
            && lease.outgoing.is_none()
        {
            lease.pool.put(lease.authority, lease.connection);
        }
    }

    /// Takes the next bytes of the body. They are empty at its end.
    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, BoxError>> {
        loop {
            let Some(lease) = &mut self.lease else {
                return Poll::Ready(Ok(Bytes::new()));
            };
            let data = self.framing.take(&mut lease.connection.buffer)?;
            if !data.is_empty() || self.framing.is_ended() {
                return Poll::Ready(Ok(data));
            }
            if let Some(outgoing) = &mut lease.outgoing
                && let Poll::Ready(sent) = outgoing.poll_send(&mut lease.connection.stream, context)
            {
                lease.keep_alive &= sent.is_ok();
                lease.outgoing = None;
            }
            if ready!(lease.connection.poll_read(context))? == 0 {
                if self.framing != Framing::UntilClose {
                    let error = "the connection was closed before the end of the reply";
                    return Poll::Ready(Err(error.into()));
                }
                self.framing = Framing::Length(0);
            }
        }
    }
}

impl Body for Driven {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let data = ready!(self.poll_data(context));
        if data.is_err() {
            self.lease = None;
        } else if self.framing.is_ended() {
            self.release();
        }
        let ended = data.as_ref().is_ok_and(Bytes::is_empty);
        Poll::Ready((!ended).then(|| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.framing.is_ended()
    }

    fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::default(),
        }
    }
}
