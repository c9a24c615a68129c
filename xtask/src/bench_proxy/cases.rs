//! The cases that are measured: which load each one sends, and which table it fills.

use crate::Failure;

use super::load::{self, Load, Samples};
use super::report::{self, Comparison};
use super::requests::{Client, History, Request};
use super::upstream::Writes;
use super::{Bench, Route, process};

/// One case.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(&Bench, &[Route; 3]) -> Result<(), Failure>,
}

pub(super) const CASES: &[Case] = &[
    Case {
        name: "idle-streams",
        about: "memory of 256 open streams that say nothing",
        run: idle_streams,
    },
    Case {
        name: "slow-streams",
        about: "memory of 500 slow streams, CPU per delta at 10 and 50 deltas a second each",
        run: slow_streams,
    },
    Case {
        name: "many-chunks",
        about: "long replies with one HTTP chunk per event and many chunks per write",
        run: many_chunks,
    },
    Case {
        name: "small-replies",
        about: "CPU per request for small whole replies, passed through and translated",
        run: small_replies,
    },
    Case {
        name: "large-requests",
        about: "CPU per request of 200 KB, passed through and translated",
        run: large_requests,
    },
    Case { name: "streaming", about: "long replies as fast as possible", run: streaming },
    Case { name: "latency", about: "time until short replies arrive", run: latency },
];

/// Events of one long reply, and of one short one.
const LONG: u32 = 2000;
const SHORT: u32 = 12;
/// Requests a second, over all connections, when many wait side by side.
const PACE: u32 = 1500;
const CONNECTIONS: [usize; 2] = [1, 64];
const IDLE_STREAMS: usize = 256;
const SLOW_STREAMS: usize = 500;
/// Deltas a second of each slow stream.
const SLOW_RATES: [u32; 2] = [10, 50];
/// Connections that send whole requests: enough to keep a proxy busy, too few to make it queue.
const REQUEST_CONNECTIONS: usize = 8;
/// A few long messages, and an agent's conversation of many short ones.
const LARGE_REQUESTS: [History; 2] =
    [History { messages: 4, bytes: 200_000 }, History { messages: 100, bytes: 200_000 }];

fn idle_streams(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let request = Request::streamed(SHORT, Writes::Hold);
    let mut memory = Vec::new();
    for route in routes {
        let Some(process) = route.process else { continue };
        let before = process::resident_bytes(process)?;
        let open = load::open_streams(route.address, request, IDLE_STREAMS);
        let streams = bench.runtime.block_on(open)?;
        let after = process::resident_bytes(process)?;
        drop(streams);
        memory.push(report::Memory { name: route.name, before, after });
    }
    report::memory(&memory, IDLE_STREAMS);
    Ok(())
}

fn slow_streams(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (index, rate) in SLOW_RATES.into_iter().enumerate() {
        let request = Request::streamed(SHORT, Writes::Slow(rate));
        let (mut memory, mut cpu, mut deltas) = (Vec::new(), Vec::new(), Vec::new());
        for route in &routes[1..] {
            let Some(process) = route.process else { continue };
            let memory_before = process::resident_bytes(process)?;
            let stretch = bench.effort.stretch * bench.effort.rounds;
            let seen = bench
                .runtime
                .block_on(async {
                    let open = load::open_streams(route.address, request, SLOW_STREAMS);
                    load::read_streams(open.await?, stretch, process).await
                })
                .map_err(|failure| format!("{}: {failure}", route.name))?;
            let grown = seen.memory.saturating_sub(memory_before) as f64;
            memory.push(grown / 1024.0 / SLOW_STREAMS as f64);
            cpu.push(seen.cpu.as_secs_f64() * 1e6 / seen.events.max(1) as f64);
            deltas.push(seen.events as f64 / stretch.as_secs_f64());
        }
        let case = format!("{SLOW_STREAMS} streams, {rate} deltas/s each");
        if index == 0 {
            rows.push(Comparison::new(&case, "memory per stream, KiB", &memory));
        }
        rows.push(Comparison::new(&case, "CPU per delta, µs", &cpu));
        rows.push(Comparison::new(&case, "deltas/s", &deltas));
    }
    report::comparisons("Slow streams", &rows);
    Ok(())
}

fn many_chunks(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for connections in [1, 16] {
        let load = Load {
            connections,
            request: Request::streamed(LONG, Writes::ManyChunks),
            pace: None,
            stretch: bench.effort.stretch,
        };
        let samples = bench.alternate(&routes[1..], load)?;
        let plural = if connections == 1 { "" } else { "s" };
        let case = format!("{connections} connection{plural}");
        rows.push(Comparison::new(&case, "deltas/s", &each(&samples, report::events_per_second)));
        rows.push(Comparison::new(&case, "CPU per delta, µs", &each(&samples, report::event_cpu)));
    }
    report::comparisons("Many HTTP chunks in one write", &rows);
    Ok(())
}

fn small_replies(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let mut rows = whole_replies(bench, routes, "text", Writes::Whole, History::NONE)?;
    let thinking = Writes::WholeThinking;
    rows.extend(whole_replies(bench, routes, "thinking and text", thinking, History::NONE)?);
    report::comparisons("Small whole replies", &rows);
    Ok(())
}

fn large_requests(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for history in LARGE_REQUESTS {
        let case = format!("{} KB in {} messages", history.bytes / 1000, history.messages);
        rows.extend(whole_replies(bench, routes, &case, Writes::Whole, history)?);
    }
    report::comparisons("Large requests", &rows);
    Ok(())
}

/// A name, and how to calculate it.
type Measure = (&'static str, fn(&Samples) -> f64);

/// Nginx cannot translate: both rows compare with what it needs to pass the request through.
fn whole_replies(
    bench: &Bench,
    routes: &[Route; 3],
    case: &str,
    writes: Writes,
    history: History,
) -> Result<Vec<Comparison>, Failure> {
    let load = |client| Load {
        connections: REQUEST_CONNECTIONS,
        request: Request::whole(client, writes, history),
        pace: None,
        stretch: bench.effort.stretch,
    };
    let passed = bench.alternate(&routes[1..], load(Client::Anthropic))?;
    let translated = bench.alternate(&routes[2..], load(Client::OpenAiChat))?;
    let mut rows = Vec::new();
    let measures: [Measure; 2] =
        [("CPU per request, µs", report::request_cpu), ("requests/s", report::requests_per_second)];
    for (measure, value) in measures {
        let mut values = each(&passed, value);
        rows.push(Comparison::new(format!("{case}, passed through"), measure, &values));
        values[1] = value(&translated[0]);
        rows.push(Comparison::new(format!("{case}, translated"), measure, &values));
    }
    Ok(rows)
}

fn streaming(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for writes in [Writes::Blocks, Writes::SingleEvents] {
        for connections in CONNECTIONS {
            let request = Request::streamed(LONG, writes);
            let load = Load { connections, request, pace: None, stretch: bench.effort.stretch };
            rows.push(report::Row { load, samples: bench.alternate(routes, load)? });
        }
    }
    report::streaming(&rows);
    Ok(())
}

fn latency(bench: &Bench, routes: &[Route; 3]) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for connections in CONNECTIONS {
        let load = Load {
            connections,
            request: Request::streamed(SHORT, Writes::Blocks),
            pace: (connections > 1).then_some(PACE),
            stretch: bench.effort.stretch,
        };
        rows.push(report::Row { load, samples: bench.alternate(routes, load)? });
    }
    report::latency(&rows);
    Ok(())
}

fn each(samples: &[Samples], value: fn(&Samples) -> f64) -> Vec<f64> {
    samples.iter().map(value).collect()
}

impl Bench {
    /// Takes the routes in turn, round after round, so that a slow moment of the machine hits all.
    fn alternate(&self, routes: &[Route], load: Load) -> Result<Vec<Samples>, Failure> {
        let mut all: Vec<Samples> = routes.iter().map(|_| Samples::default()).collect();
        for _ in 0..self.effort.rounds {
            for (route, samples) in routes.iter().zip(&mut all) {
                let before = route.process.map(process::cpu_time).transpose()?;
                self.runtime
                    .block_on(load::run(route.address, load, samples))
                    .map_err(|failure| format!("{}: {failure}", route.name))?;
                let after = route.process.map(process::cpu_time).transpose()?;
                if let (Some(before), Some(after)) = (before, after) {
                    samples.proxy_cpu += after.saturating_sub(before);
                }
            }
        }
        Ok(all)
    }
}
