//! Prints the results as Markdown for `docs/performance.md`. Columns follow the order of the routes:
//! direct, nginx, throughline.

use std::time::Duration;

use super::load::{Load, Round, Samples};
use super::process::Placement;
use super::upstream::Writes;

/// One load, with the results of each route.
pub(super) struct Row {
    pub(super) load: Load,
    pub(super) samples: Vec<Samples>,
}

/// Memory of one proxy before and with idle streams.
pub(super) struct Memory {
    pub(super) name: &'static str,
    pub(super) before: u64,
    pub(super) after: u64,
}

/// Prints how the run was done.
pub(super) fn heading(placement: Placement, rounds: u32) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n## Throughline and nginx\n");
    match placement {
        Placement::Apart => println!(
            "Loopback; each proxy alone on one core, client and upstream together on another."
        ),
        Placement::Together => println!("Loopback; all processes share {cores} core(s)."),
    }
    println!(
        "Each number is the median of {rounds} round(s) in turn; every reply is checked to be complete.\n"
    );
}

/// Prints streamed events a second and the CPU time of one.
pub(super) fn streaming(rows: &[Row]) {
    println!(
        "| connections | upstream writes | direct, events/s | nginx, events/s | throughline, events/s | throughline : nginx | nginx, CPU per event | throughline, CPU per event |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let rates: Vec<f64> = row.samples.iter().map(events_per_second).collect();
        let [direct, nginx, throughline] = rates[..] else {
            continue;
        };
        let writes = match row.load.request.writes {
            Writes::SingleEvents => "one event",
            _ => "16 KB",
        };
        println!(
            "| {} | {writes} | {direct:.0} | {nginx:.0} | {throughline:.0} | {:.2} | {:.0} ns | {:.0} ns |",
            row.load.connections,
            throughline / nginx,
            event_cpu(&row.samples[1]) * 1e3,
            event_cpu(&row.samples[2]) * 1e3,
        );
    }
    println!();
}

/// Prints the time a proxy adds to a short request.
pub(super) fn latency(rows: &[Row]) {
    println!(
        "| connections | requests/s | measure | direct | nginx | throughline | nginx adds | throughline adds |\n|---:|---|---|---:|---:|---:|---:|---:|"
    );
    for row in rows {
        let pace = row.load.pace.map_or("one after another".to_owned(), |pace| pace.to_string());
        type Pick = fn(&Round) -> &[Duration];
        let picks: [(&str, Pick); 2] =
            [("first byte", |round| &round.first_byte), ("whole reply", |round| &round.whole)];
        for (name, pick) in picks {
            for share in [50, 99] {
                let times: Vec<Duration> = row
                    .samples
                    .iter()
                    .map(|samples| {
                        let each = samples.rounds.iter();
                        let each = each.map(|round| percentile(pick(round), share).as_secs_f64());
                        Duration::from_secs_f64(median(each))
                    })
                    .collect();
                let [direct, nginx, throughline] = times[..] else {
                    continue;
                };
                println!(
                    "| {} | {pace} | {name}, p{share} | {} | {} | {} | {} | {} |",
                    row.load.connections,
                    microseconds(direct),
                    microseconds(nginx),
                    microseconds(throughline),
                    added(direct, nginx),
                    added(direct, throughline),
                );
            }
        }
    }
    println!();
}

/// Prints the memory of open streams that send nothing.
pub(super) fn memory(proxies: &[Memory], streams: usize) {
    println!("| proxy | memory at rest | with {streams} idle streams | per stream |");
    println!("|---|---:|---:|---:|");
    for Memory { name, before, after } in proxies {
        let each = after.saturating_sub(*before) as f64 / streams.max(1) as f64;
        println!(
            "| {name} | {} KB | {} KB | {:.1} KB |",
            before / 1024,
            after / 1024,
            each / 1024.0,
        );
    }
    println!();
}

/// One measure of both proxies.
pub(super) struct Comparison {
    case: String,
    measure: &'static str,
    nginx: f64,
    throughline: f64,
}

impl Comparison {
    /// Takes the value of nginx, then that of the gateway.
    pub(super) fn new(case: impl Into<String>, measure: &'static str, values: &[f64]) -> Self {
        let value = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { case: case.into(), measure, nginx: value(0), throughline: value(1) }
    }
}

/// Prints measures with their ratio.
pub(super) fn comparisons(title: &str, rows: &[Comparison]) {
    println!("{title}:\n");
    println!("| case | measure | nginx | throughline | throughline : nginx |");
    println!("|---|---|---:|---:|---:|");
    for Comparison { case, measure, nginx, throughline } in rows {
        let (left, right) = (number(*nginx), number(*throughline));
        println!("| {case} | {measure} | {left} | {right} | {:.2} |", throughline / nginx);
    }
    println!();
}

/// Three digits for small numbers, no fraction for large ones.
fn number(value: f64) -> String {
    match value {
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

pub(super) fn events_per_second(samples: &Samples) -> f64 {
    median(samples.rounds.iter().map(|round| round.events_per_second))
}

pub(super) fn requests_per_second(samples: &Samples) -> f64 {
    median(samples.rounds.iter().map(|round| round.requests_per_second))
}

/// Microseconds of the proxy's CPU time for each event.
pub(super) fn event_cpu(samples: &Samples) -> f64 {
    samples.proxy_cpu.as_secs_f64() * 1e6 / samples.events.max(1) as f64
}

/// Microseconds of the proxy's CPU time for each request.
pub(super) fn request_cpu(samples: &Samples) -> f64 {
    samples.proxy_cpu.as_secs_f64() * 1e6 / samples.requests.max(1) as f64
}

/// The number of instructions in a file of callgrind.
pub(super) fn callgrind_total(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("totals:").or_else(|| line.strip_prefix("summary:")))?;
    line.split_whitespace().next()?.parse().ok()
}

fn microseconds(duration: Duration) -> String {
    format!("{} µs", duration.as_micros())
}

/// With its sign: a number below zero means that the run was too noisy.
fn added(direct: Duration, through: Duration) -> String {
    if through >= direct {
        format!("+{}", microseconds(through - direct))
    } else {
        format!("-{}", microseconds(direct - through))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

fn percentile(times: &[Duration], share: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    let index = (times.len() * share).div_ceil(100).saturating_sub(1);
    times.get(index).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_is_the_mean_of_the_middle() {
        assert!((median([4.0, 1.0, 3.0, 2.0].into_iter()) - 2.5).abs() < f64::EPSILON);
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn total_is_read_from_a_file_of_callgrind() {
        let text = "version: 1\nevents: Ir\nsummary: 12\n\nfn=(1) main\n16 12\n\ntotals: 34\n";
        assert_eq!(callgrind_total(text), Some(34));
        assert_eq!(callgrind_total("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(callgrind_total(""), None);
    }

    #[test]
    fn percentile_is_one_of_the_values() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99), Duration::from_millis(198));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
