//! The client side: connections that send requests and time the replies. Every reply is checked, so
//! a proxy that loses an event fails the run.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

use crate::Failure;

use super::process;
use super::reader::Reader;
use super::requests::Request;
use super::upstream::Writes;

/// Which requests to send, over how many connections, for how long.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) connections: usize,
    pub(super) request: Request,
    /// Requests a second over all connections. Without it, each connection sends the next request
    /// when the reply to the last one is complete.
    pub(super) pace: Option<u32>,
    pub(super) stretch: Duration,
}

/// The results of all rounds of one load through one proxy.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) rounds: Vec<Round>,
    pub(super) requests: u64,
    pub(super) events: u64,
    pub(super) proxy_cpu: Duration,
}

/// One round. Tables show the median of rounds, so that one round on a busy machine does no harm.
#[derive(Default)]
pub(super) struct Round {
    pub(super) events_per_second: f64,
    pub(super) requests_per_second: f64,
    pub(super) first_byte: Vec<Duration>,
    pub(super) whole: Vec<Duration>,
}

/// The limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A runtime with a single thread: the client must not take a core from the proxy.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))
}

/// Sends a few requests that are not measured.
pub(super) async fn warm_up(address: SocketAddr) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    for events in [12, 2000, 12] {
        let request = Request::streamed(events, Writes::Blocks);
        connection.send(&request.bytes(address), request).await?;
    }
    Ok(())
}

/// Sends a request several times over one connection.
pub(super) async fn send_times(
    address: SocketAddr,
    request: Request,
    times: u32,
) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    let bytes = request.bytes(address);
    for _ in 0..times {
        connection.send(&bytes, request).await?;
    }
    Ok(())
}

/// Opens streams, each of which has sent its first event. They close when dropped.
pub(super) async fn open_streams(
    address: SocketAddr,
    request: Request,
    count: usize,
) -> Result<Vec<OpenStream>, Failure> {
    let bytes = request.bytes(address);
    open_each(address, std::iter::repeat_n(&bytes[..], count)).await
}

/// As [`open_streams`], with a request of its own for each stream.
pub(crate) async fn open_each(
    address: SocketAddr,
    requests: impl Iterator<Item = &[u8]>,
) -> Result<Vec<OpenStream>, Failure> {
    let mut streams = Vec::new();
    for request in requests {
        let mut connection = Connection::open(address).await?;
        let length = connection.begin(request).await?;
        let mut reader = Reader::default();
        reader.push(&connection.buffer[..length])?;
        // Hundreds of large buffers would only spoil the caches.
        connection.buffer.truncate(4096);
        connection.buffer.shrink_to_fit();
        streams.push(OpenStream { connection, reader });
    }
    // Bytes that are still on their way arrive within this time.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(streams)
}

/// Sends a request several times over one connection; returns the time of each whole reply.
pub(crate) async fn time_replies(
    address: SocketAddr,
    request: &[u8],
    times: u32,
) -> Result<Vec<Duration>, Failure> {
    let mut connection = Connection::open(address).await?;
    let mut replies = Vec::new();
    for _ in 0..times {
        replies.push(connection.exchange(request).await?.0.whole);
    }
    Ok(replies)
}

/// How long streams are read before they are measured: what piled up while they were opened has
/// to be read first.
pub(crate) const SETTLE: Duration = Duration::from_millis(1500);

/// What slow streams showed while they were read.
pub(crate) struct Streamed {
    pub(crate) events: u64,
    pub(crate) cpu: Duration,
    /// Resident memory of the proxy with all streams open.
    pub(super) memory: u64,
}

/// Reads open streams for a while and measures the proxy meanwhile.
pub(crate) async fn read_streams(
    streams: Vec<OpenStream>,
    stretch: Duration,
    proxy: u32,
) -> Result<Streamed, Failure> {
    let events = Rc::new(Cell::new(0_u64));
    let local = LocalSet::new();
    local
        .run_until(async {
            let mut tasks = JoinSet::new();
            for mut stream in streams {
                let events = Rc::clone(&events);
                tasks.spawn_local(async move { stream.read(&events).await });
            }
            read_for(&mut tasks, SETTLE).await?;
            let (before, cpu) = (events.get(), process::cpu_time(proxy)?);
            let memory = process::resident_bytes(proxy)?;
            read_for(&mut tasks, stretch).await?;
            let cpu = process::cpu_time(proxy)?.saturating_sub(cpu);
            Ok(Streamed { events: events.get() - before, cpu, memory })
        })
        .await
}

/// Waits while tasks read streams, none of which may end.
async fn read_for(
    tasks: &mut JoinSet<Result<(), Failure>>,
    stretch: Duration,
) -> Result<(), Failure> {
    match tokio::time::timeout(stretch, tasks.join_next()).await {
        Err(_) => Ok(()),
        Ok(Some(Ok(Err(failure)))) => Err(failure),
        Ok(_) => Err("a stream ended too early".to_owned()),
    }
}

/// A stream that is being received.
pub(crate) struct OpenStream {
    connection: Connection,
    reader: Reader,
}

impl OpenStream {
    async fn read(&mut self, events: &Cell<u64>) -> Result<(), Failure> {
        loop {
            let read = self.connection.stream.read(&mut self.connection.buffer).await;
            let length = read.map_err(|error| format!("a stream broke: {error}"))?;
            let before = self.reader.events;
            if length == 0 || self.reader.push(&self.connection.buffer[..length])? {
                return Err("a slow stream ended too early".to_owned());
            }
            events.set(events.get() + u64::from(self.reader.events - before));
        }
    }
}

/// Runs one round of a load.
pub(super) async fn run(
    address: SocketAddr,
    load: Load,
    samples: &mut Samples,
) -> Result<(), Failure> {
    let local = LocalSet::new();
    local
        .run_until(async {
            let mut connections = Vec::new();
            for _ in 0..load.connections {
                connections.push(Connection::open(address).await?);
            }
            let started = Instant::now();
            let mut tasks = JoinSet::new();
            for (index, connection) in connections.into_iter().enumerate() {
                tasks.spawn_local(send_until_end(connection, address, load, index, started));
            }
            let (mut events, mut requests) = (0, 0);
            let mut round = Round::default();
            while let Some(result) = tasks.join_next().await {
                let replies = result.map_err(|error| format!("a client task ended: {error}"))??;
                for reply in replies {
                    events += u64::from(load.request.events);
                    requests += 1;
                    round.first_byte.push(reply.first_byte);
                    round.whole.push(reply.whole);
                }
            }
            samples.events += events;
            samples.requests += requests;
            let seconds = started.elapsed().as_secs_f64();
            round.events_per_second = events as f64 / seconds;
            round.requests_per_second = requests as f64 / seconds;
            samples.rounds.push(round);
            Ok(())
        })
        .await
}

async fn send_until_end(
    mut connection: Connection,
    address: SocketAddr,
    load: Load,
    index: usize,
    started: Instant,
) -> Result<Vec<Reply>, Failure> {
    let bytes = load.request.bytes(address);
    let mut replies = Vec::new();
    let width = u32::try_from(load.connections).unwrap_or(u32::MAX);
    let pause = load.pace.map(|pace| Duration::from_secs(1) * width / pace.max(1));
    if let Some(pause) = pause {
        // Spread over the first pause, so that connections do not send at the same moment.
        let index = u32::try_from(index).unwrap_or_default();
        tokio::time::sleep(pause * index / width).await;
    }
    while started.elapsed() < load.stretch {
        let sent = Instant::now();
        replies.push(connection.send(&bytes, load.request).await?);
        if let Some(pause) = pause {
            tokio::time::sleep(pause.saturating_sub(sent.elapsed())).await;
        }
    }
    Ok(replies)
}

/// When one reply began and ended, counted from sending its request.
struct Reply {
    first_byte: Duration,
    whole: Duration,
}

/// One connection to a proxy.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let cannot = |error| format!("cannot connect to {address}: {error}");
        let stream = TcpStream::connect(address).await.map_err(cannot)?;
        stream.set_nodelay(true).map_err(cannot)?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024] })
    }

    /// Sends a request and waits for the first bytes of its reply.
    async fn begin(&mut self, request: &[u8]) -> Result<usize, Failure> {
        let first = async {
            self.stream.write_all(request).await?;
            self.stream.read(&mut self.buffer).await
        };
        match tokio::time::timeout(REQUEST_TIMEOUT, first).await {
            Ok(Ok(0)) => Err("connection closed before the reply".to_owned()),
            Ok(Ok(length)) => Ok(length),
            Ok(Err(error)) => Err(format!("connection broke before the reply: {error}")),
            Err(_) => Err(format!("no reply within {REQUEST_TIMEOUT:?}")),
        }
    }

    /// Sends a request, reads the whole reply and checks that it is complete.
    async fn send(&mut self, bytes: &[u8], request: Request) -> Result<Reply, Failure> {
        let (reply, events) = self.exchange(bytes).await?;
        if !request.is_complete(events) {
            return Err(format!("{events} of {} events arrived", request.events));
        }
        Ok(reply)
    }

    /// Sends a request and reads the whole reply; returns also the number of its events.
    async fn exchange(&mut self, bytes: &[u8]) -> Result<(Reply, u32), Failure> {
        let sent = Instant::now();
        let mut length = self.begin(bytes).await?;
        let first_byte = sent.elapsed();
        let mut reader = Reader::default();
        while !reader.push(&self.buffer[..length])? {
            if sent.elapsed() > REQUEST_TIMEOUT {
                return Err(format!("a reply took longer than {REQUEST_TIMEOUT:?}"));
            }
            length = self
                .stream
                .read(&mut self.buffer)
                .await
                .map_err(|error| format!("a reply broke: {error}"))?;
            if length == 0 {
                return Err(format!("a reply was cut after {} events", reader.events));
            }
        }
        if reader.length == 0 {
            return Err("a reply was empty".to_owned());
        }
        Ok((Reply { first_byte, whole: sent.elapsed() }, reader.events))
    }
}
