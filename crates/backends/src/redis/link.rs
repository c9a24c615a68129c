//! Keeps the connections to a Redis server. While there are none, nothing is published; when they are back,
//! all readers learn that they may have missed something.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use parking_lot::Mutex;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, Client, Msg, Pipeline};
use throughline_conversations::bus::hub::Hub;
use throughline_conversations::bus::{BusHealth, News, Topic};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::MAX_WAIT;
use super::wire::{self, Order};

/// Orders that are sent at a time.
const MAX_BATCH: usize = 256;
/// The pause before the first attempt to connect again. It doubles with each one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// How often the connections are checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The two connections.
pub(super) struct Connections {
    streams: MultiplexedConnection,
    sink: PubSubSink,
    messages: PubSubStream,
}

impl Connections {
    /// Opens both, and waits for an answer on each.
    pub(super) async fn open(client: &Client) -> Result<Self, String> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(MAX_WAIT))
            .set_response_timeout(Some(MAX_WAIT));
        let opened = timeout(2 * MAX_WAIT, async {
            let streams = client.get_multiplexed_async_connection_with_config(&config).await?;
            let (mut sink, messages) = client.get_async_pubsub().await?.split();
            sink.ping::<redis::Value>().await?;
            Ok::<_, redis::RedisError>(Self { streams, sink, messages })
        });
        opened.await.unwrap_or_else(|_| Err(no_answer())).map_err(|error| error.to_string())
    }
}

/// The task that publishes and listens.
pub(super) struct Link {
    pub(super) client: Client,
    pub(super) retention: Duration,
    pub(super) queue: mpsc::Receiver<Order>,
    pub(super) hub: Arc<Hub>,
    pub(super) health: Arc<BusHealth>,
    pub(super) waiting: Arc<AtomicUsize>,
    pub(super) streams: Arc<Mutex<Option<MultiplexedConnection>>>,
}

/// Why a connection is not used any more.
enum Lost {
    /// It failed.
    Failed(String),
    /// The bus is not in use any more.
    Closed,
}

impl From<redis::RedisError> for Lost {
    fn from(error: redis::RedisError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl Link {
    /// Works until the bus is dropped.
    pub(super) async fn run(mut self, connections: Connections) {
        let mut next = Some(connections);
        while let Some(Connections { streams, sink, messages }) = next.take() {
            *self.streams.lock() = Some(streams.clone());
            self.health.record_connected();
            let publisher = Publisher { retention: self.retention, streams };
            let lost = tokio::select! {
                lost = publisher.run(&mut self.queue, &self.waiting, &self.health) => lost,
                lost = hear(&self.hub, &self.health, sink, messages) => lost,
            };
            *self.streams.lock() = None;
            let Lost::Failed(why) = lost else { return };
            self.health.record_lost(&why);
            next = self.connect().await;
        }
    }

    /// Connects again. `None` if the bus is dropped meanwhile.
    async fn connect(&mut self) -> Option<Connections> {
        let mut pause = FIRST_PAUSE;
        loop {
            self.drop_orders();
            if self.queue.is_closed() {
                return None;
            }
            match Connections::open(&self.client).await {
                Ok(connections) => return Some(connections),
                Err(why) => self.health.record_lost(&why),
            }
            sleep(pause).await;
            pause = MAX_PAUSE.min(2 * pause);
        }
    }

    /// Forgets what waits: the store has it.
    fn drop_orders(&mut self) {
        while let Ok(order) = self.queue.try_recv() {
            self.waiting.fetch_sub(order.bytes(), Ordering::Relaxed);
            self.health.dropped.increment();
        }
    }
}

/// Sends orders over one connection.
struct Publisher {
    retention: Duration,
    streams: MultiplexedConnection,
}

impl Publisher {
    async fn run(
        mut self,
        queue: &mut mpsc::Receiver<Order>,
        waiting: &AtomicUsize,
        health: &BusHealth,
    ) -> Lost {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, MAX_BATCH).await > 0 {
            let mut commands = Pipeline::new();
            // A piece that Redis has is refused, and the rest is done.
            commands.ignore_errors();
            for order in batch.drain(..) {
                waiting.fetch_sub(order.bytes(), Ordering::Relaxed);
                order.write(self.retention, &mut commands);
                health.published.increment();
            }
            if let Err(error) = commands.exec_async(&mut self.streams).await {
                return error.into();
            }
        }
        Lost::Closed
    }
}

/// Gives messages to the readers of this process, and follows what they listen to.
async fn hear(
    hub: &Hub,
    health: &BusHealth,
    mut sink: PubSubSink,
    mut messages: PubSubStream,
) -> Lost {
    let all = hub.topics();
    if let Err(lost) = subscribe(hub, &mut sink, &all).await {
        return lost;
    }
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let worked = tokio::select! {
            message = messages.next() => match message {
                Some(message) => {
                    health.heard.increment();
                    deliver(hub, &message);
                    Ok(())
                }
                None => Err(Lost::Failed("the server has closed the connection".to_owned())),
            },
            changed = hub.changed() => {
                let (new, old) = changed.into_iter().partition::<Vec<_>, _>(|topic| hub.has(topic));
                match subscribe(hub, &mut sink, &new).await {
                    Ok(()) => unsubscribe(&mut sink, &old).await,
                    lost => lost,
                }
            }
            _ = checks.tick() => in_time(sink.ping::<redis::Value>()).await.map(drop),
        };
        if let Err(lost) = worked {
            return lost;
        }
    }
}

fn deliver(hub: &Hub, message: &Msg) {
    let topic = wire::topic(message.get_channel_name());
    if let (Some(topic), Some(news)) = (topic, wire::read(message.get_payload_bytes())) {
        hub.deliver(&topic, news);
    }
}

/// Listens to topics. What was published before may have been missed.
async fn subscribe(hub: &Hub, sink: &mut PubSubSink, topics: &[Topic]) -> Result<(), Lost> {
    if topics.is_empty() {
        return Ok(());
    }
    let channels: Vec<String> = topics.iter().map(wire::channel).collect();
    in_time(sink.subscribe(channels)).await?;
    for topic in topics {
        hub.deliver(topic, News::Missed);
    }
    Ok(())
}

async fn unsubscribe(sink: &mut PubSubSink, topics: &[Topic]) -> Result<(), Lost> {
    if topics.is_empty() {
        return Ok(());
    }
    let channels: Vec<String> = topics.iter().map(wire::channel).collect();
    in_time(sink.unsubscribe(channels)).await
}

async fn in_time<T>(
    request: impl Future<Output = Result<T, redis::RedisError>>,
) -> Result<T, Lost> {
    Ok(timeout(MAX_WAIT, request).await.unwrap_or_else(|_| Err(no_answer()))?)
}

fn no_answer() -> redis::RedisError {
    (redis::ErrorKind::Io, "the server does not answer in time").into()
}
