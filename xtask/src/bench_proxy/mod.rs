//! The gateway beside a plain reverse proxy, in one run on one machine: the
//! order of events. The upstream, the load, the numbers and the table have
//! their own files.

mod load;
mod nginx;
mod process;
mod report;
mod upstream;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::ports;
use crate::workspace;

use load::{Load, Samples};
use upstream::Writes;

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u32,
    stretch: Duration,
}

const FULL: Effort = Effort { rounds: 4, stretch: Duration::from_millis(1200) };
const QUICK: Effort = Effort { rounds: 1, stretch: Duration::from_millis(700) };

/// Events of one long reply, and of one short one.
const LONG: u32 = 2000;
const SHORT: u32 = 12;
/// Requests a second, over all connections, when many wait side by side.
const PACE: u32 = 1500;
const CONNECTIONS: [usize; 2] = [1, 64];
const IDLE_STREAMS: usize = 256;

/// A way from the client to the upstream.
struct Way {
    name: &'static str,
    address: SocketAddr,
    /// The proxy on the way, if there is one.
    process: Option<u32>,
}

/// `bench-proxy [--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let effort = match arguments {
        [] => FULL,
        ["--quick"] => QUICK,
        _ => return Err("bench-proxy takes only `--quick`".to_owned()),
    };
    nginx::have()?;
    let binary = workspace::release_binary()?;
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let placing = process::Placing::choose();
    placing.place_ourselves()?;
    let upstream = upstream::start()?;

    let limit = Duration::from_secs(20);
    let nginx_address = ports::free()?;
    let nginx = nginx::start(nginx_address, upstream, placing, folder.path())?;
    wait("nginx", &nginx, nginx_address, "/ready", limit)?;
    let gateway_address = ports::free()?;
    let gateway = gateway(&binary, gateway_address, upstream, placing, folder.path())?;
    wait("throughline", &gateway, gateway_address, "/readyz", limit)?;

    let ways = [
        Way { name: "direct", address: upstream, process: None },
        Way { name: "nginx", address: nginx_address, process: Some(nginx.id()) },
        Way { name: "throughline", address: gateway_address, process: Some(gateway.id()) },
    ];
    let outcome = measure(&ways, effort, placing);
    outcome.map_err(|failure| {
        let words = [nginx.last_lines(), gateway.last_words()];
        format!("{failure}\n{}", words.join("\n"))
    })
}

fn measure(ways: &[Way], effort: Effort, placing: process::Placing) -> Result<(), Failure> {
    let runtime = load::runtime()?;
    report::heading(placing, effort.rounds);

    // Memory first: a heap that has already grown under load would hide what a stream costs.
    for way in ways {
        runtime.block_on(load::warm_up(way.address))?;
    }
    let mut memory = Vec::new();
    for way in ways {
        let Some(process) = way.process else { continue };
        let before = process::resident_bytes(process)?;
        let streams = runtime.block_on(load::open_idle(way.address, IDLE_STREAMS))?;
        let after = process::resident_bytes(process)?;
        drop(streams);
        memory.push(report::Memory { name: way.name, before, after });
    }

    let mut streaming = Vec::new();
    for writes in [Writes::Blocks, Writes::SingleEvents] {
        for connections in CONNECTIONS {
            let load =
                Load { connections, events: LONG, writes, pace: None, stretch: effort.stretch };
            let samples = alternate(&runtime, ways, load, effort.rounds)?;
            streaming.push(report::Row { load, samples });
        }
    }
    let mut latency = Vec::new();
    for connections in CONNECTIONS {
        let load = Load {
            connections,
            events: SHORT,
            writes: Writes::Blocks,
            pace: (connections > 1).then_some(PACE),
            stretch: effort.stretch,
        };
        let samples = alternate(&runtime, ways, load, effort.rounds)?;
        latency.push(report::Row { load, samples });
    }

    report::streaming(&streaming);
    report::latency(&latency);
    report::memory(&memory, IDLE_STREAMS);
    Ok(())
}

/// Takes the ways in turn, round after round, so that a slow moment of the machine hits all.
fn alternate(
    runtime: &tokio::runtime::Runtime,
    ways: &[Way],
    load: Load,
    rounds: u32,
) -> Result<Vec<Samples>, Failure> {
    let mut all: Vec<Samples> = ways.iter().map(|_| Samples::default()).collect();
    for _ in 0..rounds {
        for (way, samples) in ways.iter().zip(&mut all) {
            let before = way.process.map(process::cpu_time).transpose()?;
            runtime
                .block_on(load::run(way.address, load, samples))
                .map_err(|failure| format!("{}: {failure}", way.name))?;
            let after = way.process.map(process::cpu_time).transpose()?;
            if let (Some(before), Some(after)) = (before, after) {
                samples.proxy_cpu += after.saturating_sub(before);
            }
        }
    }
    Ok(all)
}

fn gateway(
    binary: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
    placing: process::Placing,
    folder: &Path,
) -> Result<Guard, Failure> {
    let config = folder.join("throughline.toml");
    let data = folder.join("data");
    let data = data.display();
    // Nginx writes no access log here, so the gateway writes no line per request either.
    let text = format!(
        r#"listen = "{address}"
data_dir = "{data}"
log = {{ level = "warn" }}

[[backend]]
name = "upstream"
dialect = "anthropic"
base_url = "http://{upstream}"
api_key = "bench"

[route]
default = "upstream"
"#
    );
    std::fs::write(&config, text)
        .map_err(|error| format!("cannot write the gateway's configuration: {error}"))?;
    let mut serve: Command = placing.proxy(binary);
    serve.args(["serve", "--config"]).arg(&config).env_remove("RUST_LOG");
    Guard::start("throughline", &mut serve, folder)
}

fn wait(
    name: &str,
    process: &Guard,
    address: SocketAddr,
    path: &str,
    limit: Duration,
) -> Result<(), Failure> {
    ports::wait_until_ready(name, address, path, limit)
        .map_err(|failure| format!("{failure}\n{}", process.last_lines()))
}
