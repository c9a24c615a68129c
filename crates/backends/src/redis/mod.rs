//! The bus between instances, on a Redis server. Each run has a stream with the newest pieces of its log, and
//! each topic a channel on which they are announced. A process has two connections: one writes and reads
//! streams, one listens for all readers of the process.
//!
//! - `link`: keeps both connections, and connects again when they are lost;
//! - `wire`: the names and the bytes in Redis.

mod link;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use redis::Client;
use redis::aio::MultiplexedConnection;
use throughline_conversations::bus::chat_stream::ChatMessage;
use throughline_conversations::bus::hub::{Hub, Listener};
use throughline_conversations::bus::{Bus, BusHealth, News, Topic};
use throughline_conversations::store::Piece;
use tokio::sync::mpsc;
use tokio::time::timeout;

use self::link::{Connections, Link};
use self::wire::Order;

/// How long a connection or a reply may take.
const MAX_WAIT: Duration = Duration::from_secs(3);
/// What may wait to be published.
const MAX_ORDERS: usize = 4_096;
/// How many bytes of it.
const MAX_ORDER_BYTES: usize = 16 << 20;
/// Pieces that a reader gets at a time.
const LOG_PAGE: usize = 200;

/// Why a Redis server cannot be used. It never shows a password.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the Redis server{}: {cause}", .address.as_ref().map(|at| format!(" at {at}")).unwrap_or_default())]
pub struct RedisError {
    address: Option<String>,
    cause: String,
}

/// A bus on a Redis server.
pub struct RedisBus {
    hub: Arc<Hub>,
    health: Arc<BusHealth>,
    orders: mpsc::Sender<Order>,
    /// The bytes of all orders that wait.
    waiting: Arc<AtomicUsize>,
    /// The connection for streams, while there is one.
    streams: Arc<Mutex<Option<MultiplexedConnection>>>,
}

/// Shows no address.
impl fmt::Debug for RedisBus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RedisBus").field("health", &self.health).finish_non_exhaustive()
    }
}

impl RedisBus {
    /// Connects to a server, and keeps the connection. A stream stays `retention` after its newest piece.
    /// Must be called inside a Tokio runtime.
    pub async fn connect(url: &str, retention: Duration) -> Result<Self, RedisError> {
        let client = open(url)?;
        let connections = Connections::open(&client).await.map_err(|cause| RedisError {
            address: Some(client.get_connection_info().addr().to_string()),
            cause,
        })?;
        let health = Arc::new(BusHealth::connected());
        let hub = Hub::new(health.clone());
        let (orders, queue) = mpsc::channel(MAX_ORDERS);
        let (waiting, streams) = (Arc::default(), Arc::default());
        let bus = Self { hub, health, orders, waiting, streams };
        let link = Link {
            client,
            retention,
            queue,
            hub: bus.hub.clone(),
            health: bus.health.clone(),
            waiting: bus.waiting.clone(),
            streams: bus.streams.clone(),
        };
        tokio::spawn(link.run(connections));
        Ok(bus)
    }

    /// Finds out whether a server answers. Returns its address.
    pub async fn check(url: &str) -> Result<String, RedisError> {
        let client = open(url)?;
        let address = client.get_connection_info().addr().to_string();
        match Connections::open(&client).await {
            Ok(_) => Ok(address),
            Err(cause) => Err(RedisError { address: Some(address), cause }),
        }
    }

    fn order(&self, order: Order) {
        let bytes = order.bytes();
        // Who takes the order gives the bytes back.
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let fits = self.health.is_live() && before <= MAX_ORDER_BYTES;
        if !fits || self.orders.try_send(order).is_err() {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.health.dropped.increment();
        }
    }
}

impl Bus for RedisBus {
    fn wants(&self, _: &Topic) -> bool {
        self.health.is_live()
    }

    fn publish(&self, topic: &Topic, news: News) {
        self.order(Order::Tell(topic.clone(), news));
    }

    fn listen(&self, topic: Topic) -> Listener {
        self.hub.listen(topic)
    }

    fn logged<'a>(&'a self, run: &'a str, after: u64) -> BoxFuture<'a, Vec<Piece>> {
        async move {
            let connection = self.streams.lock().clone();
            let Some(mut connection) = connection else {
                return Vec::new();
            };
            let command = wire::read_stream(run, after, LOG_PAGE);
            let read = timeout(MAX_WAIT, command.query_async(&mut connection)).await;
            // Without an answer, the caller reads the store. The link finds out by itself.
            read.ok().and_then(Result::ok).map(wire::pieces).unwrap_or_default()
        }
        .boxed()
    }

    fn send(&self, message: ChatMessage) {
        self.order(Order::Send(message));
    }

    fn health(&self) -> &Arc<BusHealth> {
        &self.health
    }
}

/// Reads an address. A message about it does not repeat it: it may contain a password.
fn open(url: &str) -> Result<Client, RedisError> {
    // Fails if one is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::open(url).map_err(|_| RedisError {
        address: None,
        cause: "the address is not valid; write `redis://user:password@host:6379/0`".to_owned(),
    })
}
