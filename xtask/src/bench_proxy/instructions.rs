//! Counts the instructions of the gateway with callgrind. The count hardly depends on the load of the
//! machine, so it shows small changes that times cannot show.
//!
//! The real binary runs, so two trees can be compared: build both, then name each binary in
//! `THROUGHLINE_BIN`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::command;
use crate::ports;
use crate::workspace;

use super::load;
use super::report;
use super::requests::{Client, History, Request};
use super::upstream::{self, Writes};

/// Under valgrind everything takes fifty times as long.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(120);

/// Deltas of one streamed reply.
const EVENTS: u32 = 2000;
/// An agent's conversation, and a few long messages.
const LONG_HISTORY: History = History { messages: 100, bytes: 200_000 };
const LONG_MESSAGES: History = History { messages: 4, bytes: 200_000 };

/// Requests of one kind, counted by event or by request.
struct Workload {
    name: &'static str,
    request: Request,
    requests: u32,
    /// What one count is divided by: `delta` or `request`.
    unit: &'static str,
}

const fn streamed(client: Client, writes: Writes) -> Request {
    Request { client, events: EVENTS, writes, history: History::NONE }
}

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "stream passed through, 16 KB chunks",
        request: streamed(Client::Anthropic, Writes::Blocks),
        requests: 5,
        unit: "delta",
    },
    Workload {
        name: "stream passed through, one chunk per event",
        request: streamed(Client::Anthropic, Writes::ManyChunks),
        requests: 5,
        unit: "delta",
    },
    Workload {
        name: "stream translated to openai_chat, 16 KB chunks",
        request: streamed(Client::OpenAiChat, Writes::Blocks),
        requests: 5,
        unit: "delta",
    },
    Workload {
        name: "stream translated to openai_chat, one chunk per event",
        request: streamed(Client::OpenAiChat, Writes::ManyChunks),
        requests: 5,
        unit: "delta",
    },
    Workload {
        name: "small whole reply, passed through",
        request: Request::whole(Client::Anthropic, Writes::Whole, History::NONE),
        requests: 200,
        unit: "request",
    },
    Workload {
        name: "small whole reply, translated",
        request: Request::whole(Client::OpenAiChat, Writes::Whole, History::NONE),
        requests: 200,
        unit: "request",
    },
    Workload {
        name: "small whole reply with thinking, passed through",
        request: Request::whole(Client::Anthropic, Writes::WholeThinking, History::NONE),
        requests: 200,
        unit: "request",
    },
    Workload {
        name: "small whole reply with thinking, translated",
        request: Request::whole(Client::OpenAiChat, Writes::WholeThinking, History::NONE),
        requests: 200,
        unit: "request",
    },
    Workload {
        name: "200 KB in 4 messages, passed through",
        request: Request::whole(Client::Anthropic, Writes::Whole, LONG_MESSAGES),
        requests: 40,
        unit: "request",
    },
    Workload {
        name: "200 KB in 4 messages, translated",
        request: Request::whole(Client::OpenAiChat, Writes::Whole, LONG_MESSAGES),
        requests: 40,
        unit: "request",
    },
    Workload {
        name: "200 KB in 100 messages, passed through",
        request: Request::whole(Client::Anthropic, Writes::Whole, LONG_HISTORY),
        requests: 40,
        unit: "request",
    },
    Workload {
        name: "200 KB in 100 messages, translated",
        request: Request::whole(Client::OpenAiChat, Writes::Whole, LONG_HISTORY),
        requests: 40,
        unit: "request",
    },
];

/// `instructions`
pub(crate) fn run() -> Result<(), Failure> {
    if !command::answers(Command::new("valgrind").arg("--version")) {
        return Err("valgrind is not installed; Debian has it as `valgrind`".to_owned());
    }
    let binary = workspace::release_binary()?;
    let folder = workspace::target_directory()?.join("instructions");
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make `{}`: {error}", folder.display()))?;
    let upstream = upstream::start()?;
    // Starting, warming up and stopping costs this much in every run.
    let idle = count(&binary, upstream, None, &folder.join("idle.callgrind"))?;
    println!("| workload | instructions | per |\n|---|---:|---|");
    for (index, workload) in WORKLOADS.iter().enumerate() {
        let file = folder.join(format!("{}.callgrind", index + 1));
        let whole = count(&binary, upstream, Some(workload), &file)?;
        let units = match workload.unit {
            "delta" => workload.requests * EVENTS,
            _ => workload.requests,
        };
        let each = whole.saturating_sub(idle) / u64::from(units);
        println!("| {} | {each} | {} |", workload.name, workload.unit);
    }
    println!("\n`callgrind_annotate {}/N.callgrind` shows where they are spent", folder.display());
    Ok(())
}

/// Starts the gateway under callgrind, sends the requests, stops it; returns its instructions.
fn count(
    binary: &Path,
    upstream: std::net::SocketAddr,
    workload: Option<&Workload>,
    file: &Path,
) -> Result<u64, Failure> {
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let address = ports::free()?;
    let config = super::write_config(address, upstream, folder.path())?;
    let mut serve = Command::new("valgrind");
    serve.args(["--tool=callgrind", "--quiet"]);
    serve.arg(format!("--callgrind-out-file={}", file.display()));
    serve.arg(binary).args(["serve", "--config"]).arg(config).env_remove("RUST_LOG");
    // More workers would wake each other in an order that changes from run to run.
    serve.env("TOKIO_WORKER_THREADS", "1");
    let gateway = Guard::start("throughline", &mut serve, folder.path())?;
    let runtime = load::runtime()?;
    let outcome = ports::wait_until_ready("throughline", address, "/readyz", START_TIMEOUT)
        .and_then(|()| runtime.block_on(load::warm_up(address)))
        .and_then(|()| match workload {
            Some(workload) => {
                runtime.block_on(load::send_times(address, workload.request, workload.requests))
            }
            None => Ok(()),
        });
    outcome.map_err(|failure| format!("{failure}\n{}", gateway.last_lines()))?;
    gateway.stop(STOP_TIMEOUT)?;
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("callgrind wrote no `{}`: {error}", file.display()))?;
    report::callgrind_total(&text)
        .ok_or_else(|| format!("no total in what callgrind wrote to `{}`", file.display()))
}
