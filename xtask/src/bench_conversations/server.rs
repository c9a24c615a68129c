//! The server in front of a store: many runs at the same time, pages of histories, previews. All of
//! it over HTTP, against the release binary.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::Failure;
use crate::bench_proxy::load;
use crate::bench_proxy::process::{cpu_time, cpu_time_of_tree};
use crate::bench_proxy::upstream::{Writes, model_name};
use crate::children::Guard;
use crate::command;
use crate::gateway::START_TIMEOUT;
use crate::ports;

use super::Effort;
use super::postgres::Postgres;
use super::stores;

/// Events a second of each run.
const RATE: u32 = 50;
/// Events of the answer that fills projects: thinking, then text.
const ANSWER_EVENTS: u32 = 60;
/// Nodes of the branch whose context is assembled.
const CONTEXT_NODES: usize = 2_000;
/// 32 bytes in base64; the server and the program that fills projects share it.
const KEYRING: &str = "YmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmVuY2ggYmU=";
/// How long the server may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Everything that a measurement needs.
pub(super) struct Bench<'a> {
    pub(super) binary: PathBuf,
    pub(super) effort: Effort,
    pub(super) runtime: Runtime,
    pub(super) upstream: SocketAddr,
    pub(super) postgres: &'a Postgres,
}

/// What the server showed in front of one store.
pub(super) struct Measured {
    pub(super) many_runs: ManyRuns,
    pub(super) requests: Vec<RequestCost>,
}

/// What many runs at the same time cost.
pub(super) struct ManyRuns {
    store: &'static str,
    runs: usize,
    events_per_second: f64,
    /// CPU seconds per second.
    server: f64,
    database: f64,
}

/// What a request costs.
pub(super) struct RequestCost {
    store: &'static str,
    name: &'static str,
    nodes: usize,
    best: Duration,
    median: Duration,
    /// CPU time of the server for one, if that is known.
    cpu: Option<Duration>,
}

/// A running server with its folder.
pub(super) struct Server {
    pub(super) guard: Guard,
    pub(super) address: SocketAddr,
}

/// One store, and the folder of the server in front of it.
pub(super) struct Subject<'a> {
    pub(super) name: &'static str,
    pub(super) folder: &'a Path,
    pub(super) database: Option<&'a str>,
}

impl Subject<'_> {
    /// The store as the program that fills projects takes it.
    fn store(&self) -> String {
        let file = self.folder.join("data/throughline.db");
        self.database.map_or_else(|| file.display().to_string(), str::to_owned)
    }
}

impl Bench<'_> {
    /// Measures the server in front of SQLite, or of this Postgres database.
    pub(super) fn measure(&self, database: Option<&str>) -> Result<Measured, Failure> {
        let folder = tempfile::tempdir()
            .map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let name = if database.is_some() { "Postgres" } else { "SQLite" };
        let subject = Subject { name, folder: folder.path(), database };
        let requests = self.measure_requests(&subject)?;
        let many_runs = self.measure_many_runs(&subject)?;
        Ok(Measured { many_runs, requests })
    }

    pub(super) fn start(&self, subject: &Subject<'_>) -> Result<Server, Failure> {
        let address = ports::free()?;
        let config = subject.folder.join("throughline.toml");
        let store =
            subject.database.map_or(String::new(), |url| format!("store.url = \"{url}\"\n"));
        let text = format!(
            r#"listen = "{address}"
data_dir = "{}"
log = {{ level = "warn" }}
pacing = {{ thinking = "immediate" }}
{store}
[[backend]]
name = "upstream"
dialect = "anthropic"
base_url = "http://{}"
api_key = "bench"
"#,
            subject.folder.join("data").display(),
            self.upstream
        );
        std::fs::write(&config, text)
            .map_err(|error| format!("cannot write the server's configuration: {error}"))?;
        let mut serve = Command::new(&self.binary);
        serve.args(["serve", "--config"]).arg(&config);
        serve.env("THROUGHLINE_KEYRING", KEYRING).env_remove("RUST_LOG");
        let guard = Guard::start("throughline", &mut serve, subject.folder)?;
        ports::wait_until_ready("throughline", address, "/readyz", START_TIMEOUT)
            .map_err(|failure| format!("{failure}\n{}", guard.last_lines()))?;
        Ok(Server { guard, address })
    }

    /// Times pages and previews while the branch and the store grow.
    fn measure_requests(&self, subject: &Subject<'_>) -> Result<Vec<RequestCost>, Failure> {
        let server = self.start(subject)?;
        let (growing, context) = (new_talk(server.address)?, new_talk(server.address)?);
        server.guard.stop(STOP_TIMEOUT)?;
        fill(subject, &context, CONTEXT_NODES)?;
        let mut costs = Vec::new();
        for nodes in self.effort.sizes {
            fill(subject, &growing, *nodes)?;
            let server = self.start(subject)?;
            let page = format!("/api/projects/{growing}/nodes?limit=100");
            let requests = [
                ("page of the newest 100 nodes", get(&server, &format!("{page}&order=desc"))),
                ("page of the oldest 100 nodes", get(&server, &page)),
                (
                    "preview of a branch of 2,000 nodes",
                    post(
                        &server,
                        &format!("/api/projects/{context}/preview"),
                        r#"{"message":"And then?"}"#,
                    ),
                ),
            ];
            for (name, request) in requests {
                costs.push(self.time_request(subject.name, name, *nodes, &server, &request)?);
            }
            costs.extend(self.time_steps(subject.name, *nodes, &server, &context)?);
            server.guard.stop(STOP_TIMEOUT)?;
        }
        Ok(costs)
    }

    fn time_request(
        &self,
        store: &'static str,
        name: &'static str,
        nodes: usize,
        server: &Server,
        request: &[u8],
    ) -> Result<RequestCost, Failure> {
        let times = self.effort.requests;
        let replies =
            |count| self.runtime.block_on(load::time_replies(server.address, request, count));
        replies(2).map_err(|failure| format!("{name}: {failure}"))?;
        let before = cpu_time(server.guard.id())?;
        let mut taken = replies(times)?;
        let cpu = cpu_time(server.guard.id())?.saturating_sub(before) / times;
        taken.sort();
        let (best, median) = (taken[0], taken[taken.len() / 2]);
        Ok(RequestCost { store, name, nodes, best, median, cpu: Some(cpu) })
    }

    /// How long the steps of a preview take, as the server itself says: the assembly of the context, and
    /// the plan of the request.
    fn time_steps(
        &self,
        store: &'static str,
        nodes: usize,
        server: &Server,
        context: &str,
    ) -> Result<[RequestCost; 2], Failure> {
        let path = format!("/api/projects/{context}/preview");
        let (mut assembly, mut plan) = (Vec::new(), Vec::new());
        for _ in 0..self.effort.requests {
            let (head, _) = exchange(server.address, &path, &[], r#"{"message":"And then?"}"#)?;
            let step = |name| step_of(&head, name).ok_or_else(|| format!("no times: {head}"));
            assembly.push(step("assembly")?);
            plan.push(step("plan")?);
        }
        let cost = |name, mut taken: Vec<Duration>| {
            taken.sort();
            let (best, median) = (taken[0], taken[taken.len() / 2]);
            RequestCost { store, name, nodes, best, median, cpu: None }
        };
        Ok([
            cost("of it, assembly of the context", assembly),
            cost("of it, plan of the request", plan),
        ])
    }

    /// Starts many runs, each in a project of its own, and reads all of them for a while.
    fn measure_many_runs(&self, subject: &Subject<'_>) -> Result<ManyRuns, Failure> {
        let server = self.start(subject)?;
        let model = model_name(0, Writes::Slow(RATE));
        let mut requests = Vec::new();
        for _ in 0..self.effort.runs {
            let project = new_project(server.address, &model)?;
            let path = format!("/api/projects/{project}/chat?format=sse");
            requests.push(post(&server, &path, r#"{"message":"Go on."}"#));
        }
        let stretch = self.effort.stretch;
        let process = server.guard.id();
        let database = || cpu_time_of_tree(self.postgres.process());
        let (seen, database) = self
            .runtime
            .block_on(async {
                let requests = requests.iter().map(Vec::as_slice);
                let streams = load::open_each(server.address, requests).await?;
                let before = database()?;
                let seen = load::read_streams(streams, stretch, process).await?;
                Ok((seen, database()?.saturating_sub(before)))
            })
            .map_err(|failure: Failure| format!("{failure}\n{}", server.guard.last_lines()))?;
        let seconds = stretch.as_secs_f64();
        Ok(ManyRuns {
            store: subject.name,
            runs: self.effort.runs,
            events_per_second: seen.events as f64 / seconds,
            server: seen.cpu.as_secs_f64() / seconds,
            database: database.as_secs_f64() / (stretch + load::SETTLE).as_secs_f64(),
        })
    }
}

/// Adds nodes to a project of a server that does not run, until it has this many.
fn fill(subject: &Subject<'_>, project: &str, nodes: usize) -> Result<(), Failure> {
    let mut seed = stores::program();
    seed.args(["seed", &subject.store(), project, &nodes.to_string()]);
    command::output(seed.env("THROUGHLINE_KEYRING", KEYRING)).map(drop)
}

/// A project with one question and its answer.
fn new_talk(address: SocketAddr) -> Result<String, Failure> {
    let project = new_project(address, &model_name(ANSWER_EVENTS, Writes::Blocks))?;
    let question = r#"{"message":"What do herons do when it rains for a week?"}"#;
    let reply = call(address, &format!("/api/projects/{project}/chat"), &[], question)?;
    match reply.contains(r#""reason":"completed""#) {
        true => Ok(project),
        false => Err(format!("the chat did not end well: {reply}")),
    }
}

fn new_project(address: SocketAddr, model: &str) -> Result<String, Failure> {
    create_project(address, &[], &format!(r#"{{"title":"Bench","model":"{model}"}}"#))
}

/// Creates a project and returns its id.
pub(super) fn create_project(
    address: SocketAddr,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<String, Failure> {
    let reply = call(address, "/api/projects", headers, body)?;
    let project: Value =
        serde_json::from_str(&reply).map_err(|error| format!("not a project: {error}: {reply}"))?;
    let id = project["id"].as_str().ok_or_else(|| format!("no project: {reply}"))?;
    Ok(id.to_owned())
}

fn get(server: &Server, path: &str) -> Vec<u8> {
    get_with(server, path, &[])
}

pub(super) fn get_with(server: &Server, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers = written(headers);
    format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{headers}\r\n", server.address).into_bytes()
}

fn written(headers: &[(&str, &str)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

fn post(server: &Server, path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    )
    .into_bytes()
}

/// The time of a step in the head of a reply.
fn step_of(head: &str, name: &str) -> Option<Duration> {
    let (_, times) = head.split_once("server-timing: ")?;
    let step = times.lines().next()?.split(", ").find_map(|step| step.strip_prefix(name))?;
    let milliseconds: f64 = step.strip_prefix(";dur=")?.parse().ok()?;
    Some(Duration::from_secs_f64(milliseconds / 1e3))
}

/// Sends a request and returns the body of its reply.
pub(crate) fn call(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<String, Failure> {
    exchange(address, path, headers, body).map(|(_, body)| body)
}

/// Sends a request over a connection of its own; returns the head and the body of the reply. HTTP/1.0
/// keeps the body in one piece.
fn exchange(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(String, String), Failure> {
    let headers = written(headers);
    let exchange = || {
        let mut stream = TcpStream::connect(address)?;
        write!(
            stream,
            "POST {path} HTTP/1.0\r\nhost: {address}\r\n{headers}content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        Ok(reply)
    };
    let reply =
        exchange().map_err(|error: std::io::Error| format!("cannot reach the server: {error}"))?;
    match reply.split_once("\r\n\r\n") {
        Some((head, body)) => Ok((head.to_owned(), body.to_owned())),
        None => Err(format!("no reply from `{path}`: {reply}")),
    }
}

/// Many runs as a table.
pub(super) fn table_of_runs(rows: &[ManyRuns], cores: usize) -> String {
    let mut table = format!(
        "| store | runs | events a second, of each run | events a second, of all | CPU of the server | CPU of the database | of {cores} cores | CPU per event |\n|---|---:|---:|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let ManyRuns { store, runs, events_per_second: events, server, database } = row;
        // SQLite runs inside of the server.
        let database = if *store == "SQLite" { 0.0 } else { *database };
        let all = server + database;
        table.push_str(&format!(
            "| {store} | {runs} | {:.1} | {events:.0} | {server:.2} s/s | {database:.2} s/s | {:.0} % | {:.1} µs |\n",
            events / *runs as f64,
            all * 100.0 / cores as f64,
            all * 1e6 / events,
        ));
    }
    table
}

/// Requests as a table.
pub(super) fn table_of_requests(rows: &[RequestCost]) -> String {
    let mut table =
        "| store | request | nodes of the other branch | best | median | CPU of the server |\n|---|---|---:|---:|---:|---:|\n"
            .to_owned();
    let shown = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    for RequestCost { store, name, nodes, best, median, cpu } in rows {
        table.push_str(&format!(
            "| {store} | {name} | {nodes} | {} | {} | {} |\n",
            shown(*best),
            shown(*median),
            cpu.map_or(String::new(), shown)
        ));
    }
    table
}
