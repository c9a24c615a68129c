//! Measures rooms with many readers on one server: its memory, the delay of an event, and whether readers
//! that stop reading delay the others. All of it over HTTP, against the release binary.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memchr::memmem;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::LocalSet;

use crate::Failure;
use crate::bench_conversations::call;
use crate::bench_proxy::load;
use crate::bench_proxy::process::{cpu_time, resident_bytes};
use crate::children::Guard;
use crate::gateway;
use crate::workspace;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    /// Readers of one room, one case after the other.
    readers: &'static [usize],
    /// Messages of each case.
    messages: u32,
}

const FULL: Effort = Effort { readers: &[500, 1000, 2000], messages: 100 };
const QUICK: Effort = Effort { readers: &[100, 200], messages: 20 };

/// Messages a second.
const RATE: u32 = 10;
/// One of this many readers stops reading in the last case.
const STALLED: usize = 10;
/// The receive buffer of a reader that stops, in bytes: small, so that its connection is soon full.
const STALLED_BUFFER: u32 = 4096;
/// Messages that fill the connections of readers that have stopped, and the size of each.
const FILLING: (u32, usize) = (40, 100_000);
/// What begins the number in a message.
const MARK: &[u8] = b"\"content\":\"bench:";
/// How long a message may take to reach all readers.
const PATIENCE: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

const CONFIGURATION: &str = r#"log = { level = "warn" }

[[backend]]
name = "upstream"
dialect = "simulator"
"#;

/// What one case showed.
struct Case {
    readers: usize,
    stalled: usize,
    /// Resident memory for each reader.
    memory: f64,
    /// From sending a message until a reader has it, sorted.
    delays: Vec<Duration>,
    /// CPU time of the server for each event of a reader.
    cpu: Duration,
}

/// `bench-rooms [--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let effort = match arguments {
        [] => FULL,
        ["--quick"] => QUICK,
        _ => return Err("bench-rooms takes only `--quick`".to_owned()),
    };
    let binary = workspace::release_binary()?;
    let runtime = load::runtime()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n## Rooms\n\n{cores} cores, {RATE} messages a second.\n");
    let most = effort.readers.last().copied().unwrap_or_default();
    let cases = effort.readers.iter().map(|readers| (*readers, 0));
    let mut rows = Vec::new();
    for (readers, stalled) in cases.chain([(most - most / STALLED, most / STALLED)]) {
        let folder = tempfile::tempdir()
            .map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let template = folder.path().join("template.toml");
        std::fs::write(&template, CONFIGURATION)
            .map_err(|error| format!("cannot write the server's configuration: {error}"))?;
        let (server, address) = gateway::start(&binary, &template, &[], folder.path())?;
        let room = new_room(address)?;
        let case = Bench { server: &server, address, room: &room, readers, stalled };
        let measured = runtime.block_on(LocalSet::new().run_until(case.measure(effort.messages)));
        rows.push(measured.map_err(|failure| format!("{failure}\n{}", server.last_lines()))?);
        server.stop(STOP_TIMEOUT)?;
    }
    println!("{}", table(&rows));
    Ok(())
}

fn new_room(address: SocketAddr) -> Result<String, Failure> {
    let reply = call(address, "/api/rooms", &[], r#"{"title":"Bench"}"#)?;
    let room: Value =
        serde_json::from_str(&reply).map_err(|error| format!("not a room: {error}: {reply}"))?;
    let id = room["id"].as_str().ok_or_else(|| format!("no room: {reply}"))?;
    // The person joins before anything is measured.
    say(address, id, "hello")?;
    Ok(id.to_owned())
}

fn say(address: SocketAddr, room: &str, content: &str) -> Result<(), Failure> {
    let body = format!(r#"{{"participant":"ada","content":"{content}"}}"#);
    let reply = call(address, &format!("/api/rooms/{room}/messages"), &[], &body)?;
    match reply.contains("nodeId") {
        true => Ok(()),
        false => Err(format!("the message was not stored: {reply}")),
    }
}

/// One case.
struct Bench<'a> {
    server: &'a Guard,
    address: SocketAddr,
    room: &'a str,
    readers: usize,
    stalled: usize,
}

impl Bench<'_> {
    async fn measure(&self, messages: u32) -> Result<Case, Failure> {
        let process = self.server.id();
        let before = resident_bytes(process)?;
        let seen = Seen::default();
        let mut stalled = Vec::new();
        for _ in 0..self.stalled {
            stalled.push(self.open(Some(STALLED_BUFFER)).await?);
        }
        for _ in 0..self.readers {
            let stream = self.open(None).await?;
            tokio::task::spawn_local(read(stream, seen.clone()));
        }
        // Each reader gets the first message, so all of them are there.
        self.send(&seen, 1, 0).await?;
        let all = self.readers + self.stalled;
        let memory = resident_bytes(process)?.saturating_sub(before) as f64 / all as f64;
        if self.stalled > 0 {
            let (count, size) = FILLING;
            self.send(&seen, count, size).await?;
        }
        seen.0.borrow_mut().delays.clear();
        let cpu = cpu_time(process)?;
        self.send(&seen, messages, 0).await?;
        let events = u32::try_from(self.readers).unwrap_or(u32::MAX).saturating_mul(messages);
        let cpu = cpu_time(process)?.saturating_sub(cpu) / events.max(1);
        let mut delays = std::mem::take(&mut seen.0.borrow_mut().delays);
        delays.sort();
        drop(stalled);
        Ok(Case { readers: self.readers, stalled: self.stalled, memory, delays, cpu })
    }

    /// Opens the stream of a reader, from now on.
    async fn open(&self, buffer: Option<u32>) -> Result<TcpStream, Failure> {
        let open = async {
            let socket = TcpSocket::new_v4()?;
            if let Some(bytes) = buffer {
                socket.set_recv_buffer_size(bytes)?;
            }
            let mut stream = socket.connect(self.address).await?;
            let path = format!("/api/rooms/{}/events?after=1", self.room);
            let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
            stream.write_all(request.as_bytes()).await?;
            Ok(stream)
        };
        open.await.map_err(|error: std::io::Error| format!("cannot open a reader: {error}"))
    }

    /// Sends messages at the rate, and waits until every reader that reads has all of them.
    async fn send(&self, seen: &Seen, messages: u32, padding: usize) -> Result<(), Failure> {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / RATE);
        let expected = seen.count() + self.readers * messages as usize;
        for _ in 0..messages {
            ticks.tick().await;
            let number = seen.begin();
            let content = format!("bench:{number}:{}", "x".repeat(padding));
            let (address, room) = (self.address, self.room.to_owned());
            let stored = tokio::task::spawn_blocking(move || say(address, &room, &content));
            stored.await.map_err(|error| format!("a message failed: {error}"))??;
        }
        let all = async {
            while seen.count() < expected {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let arrived = tokio::time::timeout(PATIENCE, all).await;
        arrived.map_err(|_| format!("{} of {expected} events arrived", seen.count()))
    }
}

/// What all readers have seen.
#[derive(Clone, Default)]
struct Seen(Rc<RefCell<Messages>>);

#[derive(Default)]
struct Messages {
    /// When each message was sent.
    sent: Vec<Instant>,
    delays: Vec<Duration>,
    count: usize,
}

impl Seen {
    /// Counts a message that is sent now. Returns its number.
    fn begin(&self) -> usize {
        let mut messages = self.0.borrow_mut();
        messages.sent.push(Instant::now());
        messages.sent.len() - 1
    }

    fn count(&self) -> usize {
        self.0.borrow().count
    }

    fn arrived(&self, number: usize) {
        let mut messages = self.0.borrow_mut();
        messages.count += 1;
        let delay = messages.sent.get(number).map(Instant::elapsed);
        messages.delays.extend(delay);
    }
}

/// Reads one stream until it ends.
async fn read(mut stream: TcpStream, seen: Seen) {
    let mut kept: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(length @ 1..) = stream.read(&mut buffer).await else { return };
        kept.extend_from_slice(&buffer[..length]);
        let mut at = 0;
        while let Some(start) = memmem::find(&kept[at..], MARK).map(|found| at + found) {
            let digits = start + MARK.len();
            let Some(end) = memchr::memchr(b':', &kept[digits..]) else {
                at = start;
                break;
            };
            let number = std::str::from_utf8(&kept[digits..digits + end]).unwrap_or_default();
            seen.arrived(number.parse().unwrap_or(usize::MAX));
            at = digits + end;
        }
        // A mark may be cut. Nothing before it is needed any more.
        let is_cut = kept[at..].starts_with(MARK);
        let keep = if is_cut { at } else { at.max(kept.len().saturating_sub(MARK.len() - 1)) };
        kept.drain(..keep);
    }
}

fn table(rows: &[Case]) -> String {
    let mut table = "| readers | of them stopped | memory for each | delay of an event, median | 99 % | longest | CPU per event |\n|---:|---:|---:|---:|---:|---:|---:|\n".to_owned();
    for Case { readers, stalled, memory, delays, cpu } in rows {
        let at = |part: f64| {
            let index = (delays.len() as f64 * part) as usize;
            let delay = delays.get(index.min(delays.len().saturating_sub(1)));
            delay.map_or(0.0, Duration::as_secs_f64) * 1e3
        };
        table.push_str(&format!(
            "| {} | {stalled} | {:.1} KB | {:.1} ms | {:.1} ms | {:.1} ms | {:.1} µs |\n",
            readers + stalled,
            memory / 1e3,
            at(0.5),
            at(0.99),
            at(1.0),
            cpu.as_secs_f64() * 1e6,
        ));
    }
    table
}
