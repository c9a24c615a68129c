//! The client side: connections that ask for streamed replies and time them.
//! It speaks just enough HTTP to cost little beside the proxy it measures, and
//! it counts what arrives, so a proxy that loses an event fails the run.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

use crate::Failure;

use super::upstream::{Writes, model_name};

/// What is asked for, by how many, for how long.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) connections: usize,
    pub(super) events: u32,
    pub(super) writes: Writes,
    /// Requests a second over all connections; without it each connection asks again at once.
    pub(super) pace: Option<u32>,
    pub(super) stretch: Duration,
}

/// What all rounds of one load on one way have shown.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) rounds: Vec<Round>,
    pub(super) events: u64,
    pub(super) proxy_cpu: Duration,
}

/// Rounds stay apart: their median is steady where one of them met a busy machine.
#[derive(Default)]
pub(super) struct Round {
    pub(super) events_per_second: f64,
    pub(super) first_byte: Vec<Duration>,
    pub(super) whole: Vec<Duration>,
}

/// No single request takes longer than this.
const PATIENCE: Duration = Duration::from_secs(20);

/// A single thread: the client must not take a core from the proxy.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start a runtime: {error}"))
}

/// A few requests that nobody times.
pub(super) async fn warm_up(address: SocketAddr) -> Result<(), Failure> {
    let mut connection = Connection::open(address).await?;
    for events in [12, 2000, 12] {
        connection.ask(&request(address, events, Writes::Blocks), events).await?;
    }
    Ok(())
}

/// Opens streams that have begun and then say nothing. They close when dropped.
pub(super) async fn open_idle(
    address: SocketAddr,
    count: usize,
) -> Result<Vec<Connection>, Failure> {
    let mut streams = Vec::new();
    let request = request(address, 12, Writes::Hold);
    for _ in 0..count {
        let mut connection = Connection::open(address).await?;
        connection.begin(&request).await?;
        streams.push(connection);
    }
    // What is still on its way when the last stream begins settles within this.
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(streams)
}

/// One round of a load.
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
            for (place, connection) in connections.into_iter().enumerate() {
                tasks.spawn_local(ask_until_end(connection, address, load, place, started));
            }
            let mut events: u64 = 0;
            let mut round = Round::default();
            while let Some(result) = tasks.join_next().await {
                let replies = result.map_err(|error| format!("a client task ended: {error}"))??;
                for reply in replies {
                    events += u64::from(load.events);
                    round.first_byte.push(reply.first_byte);
                    round.whole.push(reply.whole);
                }
            }
            samples.events += events;
            round.events_per_second = events as f64 / started.elapsed().as_secs_f64();
            samples.rounds.push(round);
            Ok(())
        })
        .await
}

async fn ask_until_end(
    mut connection: Connection,
    address: SocketAddr,
    load: Load,
    place: usize,
    started: Instant,
) -> Result<Vec<Reply>, Failure> {
    let request = request(address, load.events, load.writes);
    let mut replies = Vec::new();
    let width = u32::try_from(load.connections).unwrap_or(u32::MAX);
    let pause = load.pace.map(|pace| Duration::from_secs(1) * width / pace.max(1));
    if let Some(pause) = pause {
        // Spread over the first pause, so that connections do not march in step.
        let place = u32::try_from(place).unwrap_or_default();
        tokio::time::sleep(pause * place / width).await;
    }
    while started.elapsed() < load.stretch {
        let asked = Instant::now();
        replies.push(connection.ask(&request, load.events).await?);
        if let Some(pause) = pause {
            tokio::time::sleep(pause.saturating_sub(asked.elapsed())).await;
        }
    }
    Ok(replies)
}

fn request(address: SocketAddr, events: u32, writes: Writes) -> Vec<u8> {
    let model = model_name(events, writes);
    let body = format!(
        r#"{{"model":"{model}","max_tokens":4096,"stream":true,"thinking":{{"type":"enabled","budget_tokens":2048}},"messages":[{{"role":"user","content":"How fast is this?"}}]}}"#
    );
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         anthropic-version: 2023-06-01\r\nx-api-key: bench\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// When one reply began and ended, from the moment it was asked for.
struct Reply {
    first_byte: Duration,
    whole: Duration,
}

/// One connection to a proxy.
pub(super) struct Connection {
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
        match tokio::time::timeout(PATIENCE, first).await {
            Ok(Ok(0)) => Err("closed before the reply".to_owned()),
            Ok(Ok(length)) => Ok(length),
            Ok(Err(error)) => Err(format!("broke before the reply: {error}")),
            Err(_) => Err(format!("no reply within {PATIENCE:?}")),
        }
    }

    /// Asks and reads the whole reply, which must have `events` events.
    async fn ask(&mut self, request: &[u8], events: u32) -> Result<Reply, Failure> {
        let asked = Instant::now();
        let mut length = self.begin(request).await?;
        let first_byte = asked.elapsed();
        let mut reader = Reader::default();
        while !reader.push(&self.buffer[..length])? {
            if asked.elapsed() > PATIENCE {
                return Err(format!("a reply took longer than {PATIENCE:?}"));
            }
            length = self
                .stream
                .read(&mut self.buffer)
                .await
                .map_err(|error| format!("a reply broke: {error}"))?;
            if length == 0 {
                return Err(format!("cut after {} events", reader.events));
            }
        }
        if reader.events != events {
            return Err(format!("{} events arrived of {events}", reader.events));
        }
        Ok(Reply { first_byte, whole: asked.elapsed() })
    }
}

/// Counts the events of one chunked reply as its bytes come.
#[derive(Default)]
struct Reader {
    state: State,
    /// Bytes of a head or a chunk size that is not complete yet.
    pending: Vec<u8>,
    after_line_end: bool,
    events: u32,
}

#[derive(Default)]
enum State {
    #[default]
    Head,
    Size,
    Data(usize),
    /// The line end after a chunk's data.
    DataEnd(usize),
    /// The empty line after the last chunk.
    Last(usize),
}

impl Reader {
    /// Takes bytes and says whether the reply is complete.
    fn push(&mut self, mut bytes: &[u8]) -> Result<bool, Failure> {
        while !bytes.is_empty() {
            match self.state {
                State::Head => {
                    self.pending.extend_from_slice(bytes);
                    let Some(end) = memchr::memmem::find(&self.pending, b"\r\n\r\n") else {
                        return Ok(false);
                    };
                    let head = String::from_utf8_lossy(&self.pending[..end]).to_ascii_lowercase();
                    if !head.starts_with("http/1.1 200") || !head.contains("chunked") {
                        let shown = String::from_utf8_lossy(&self.pending);
                        return Err(format!("not a streamed reply: {shown}"));
                    }
                    // Only the tail of these bytes belongs to the body.
                    bytes = &bytes[bytes.len() - (self.pending.len() - end - 4)..];
                    self.pending.clear();
                    self.state = State::Size;
                }
                State::Size => {
                    let Some(end) = memchr::memchr(b'\n', bytes) else {
                        self.pending.extend_from_slice(bytes);
                        return Ok(false);
                    };
                    self.pending.extend_from_slice(&bytes[..end]);
                    bytes = &bytes[end + 1..];
                    let size = std::str::from_utf8(&self.pending)
                        .ok()
                        .and_then(|text| usize::from_str_radix(text.trim(), 16).ok())
                        .ok_or("a chunk size that is no number")?;
                    self.pending.clear();
                    self.state = if size == 0 { State::Last(2) } else { State::Data(size) };
                }
                State::Data(left) => {
                    let take = left.min(bytes.len());
                    self.count(&bytes[..take]);
                    bytes = &bytes[take..];
                    self.state =
                        if take == left { State::DataEnd(2) } else { State::Data(left - take) };
                }
                State::DataEnd(left) => {
                    bytes = &bytes[1..];
                    self.state = if left == 1 { State::Size } else { State::DataEnd(left - 1) };
                }
                State::Last(left) => {
                    bytes = &bytes[1..];
                    if left == 1 {
                        return Ok(true);
                    }
                    self.state = State::Last(left - 1);
                }
            }
        }
        Ok(false)
    }

    /// An event ends at an empty line, which may lie across two pieces.
    fn count(&mut self, data: &[u8]) {
        let Some(last) = data.last() else { return };
        if self.after_line_end && data[0] == b'\n' {
            self.events += 1;
        }
        let inside = memchr::memmem::find_iter(data, b"\n\n").count();
        self.events += u32::try_from(inside).unwrap_or(u32::MAX);
        // A line end that already closed an event does not open the next one.
        self.after_line_end = *last == b'\n' && !data.ends_with(b"\n\n") && data.len() > 1
            || (data == b"\n" && !self.after_line_end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_the_same_for_any_split() {
        let reply = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
            9\r\ndata: 1\n\n\r\n8\r\ndata: 2\n\r\na\r\n\ndata: 3\n\n\r\n0\r\n\r\n";
        for size in 1..reply.len() {
            let mut reader = Reader::default();
            let pieces: Vec<bool> =
                reply.chunks(size).map(|piece| reader.push(piece).unwrap()).collect();
            assert_eq!(reader.events, 3, "pieces of {size}");
            assert_eq!(pieces.iter().filter(|end| **end).count(), 1);
        }
    }

    #[test]
    fn refusal_is_shown() {
        let mut reader = Reader::default();
        let failure =
            reader.push(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n").unwrap_err();
        assert!(failure.contains("502"), "{failure}");
    }
}
