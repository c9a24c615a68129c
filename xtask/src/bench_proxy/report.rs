//! The numbers as Markdown, ready to be pasted into the documentation.
//! The columns follow the order of the ways: direct, nginx, throughline.

use std::time::Duration;

use super::load::{Load, Round, Samples};
use super::process::Placing;
use super::upstream::Writes;

/// One load, with what each way has shown under it.
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

/// What was run, and where.
pub(super) fn heading(placing: Placing, rounds: u32) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("\n## Throughline beside nginx\n");
    match placing {
        Placing::Apart => println!(
            "Loopback; each proxy alone on one core, client and upstream together on another."
        ),
        Placing::Together => println!("Loopback; all processes share {cores} core(s)."),
    }
    println!(
        "Each number is the median of {rounds} round(s) in turn; every reply is checked to be complete.\n"
    );
}

/// Streamed events a second and what one costs.
pub(super) fn streaming(rows: &[Row]) {
    println!(
        "| connections | upstream writes | direct, events/s | nginx, events/s | throughline, events/s | throughline : nginx | nginx, CPU per event | throughline, CPU per event |"
    );
    println!("|---:|---|---:|---:|---:|---:|---:|---:|");
    for row in rows {
        let rates: Vec<f64> = row
            .samples
            .iter()
            .map(|samples| median(samples.rounds.iter().map(|round| round.events_per_second)))
            .collect();
        let [direct, nginx, throughline] = rates[..] else {
            continue;
        };
        let writes = match row.load.writes {
            Writes::Blocks => "16 KB",
            Writes::SingleEvents => "one event",
            Writes::Hold => "none",
        };
        println!(
            "| {} | {writes} | {direct:.0} | {nginx:.0} | {throughline:.0} | {:.2} | {} | {} |",
            row.load.connections,
            throughline / nginx,
            cost(&row.samples[1]),
            cost(&row.samples[2]),
        );
    }
    println!();
}

/// What a proxy adds to a short request.
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

/// What an open stream that says nothing keeps in memory.
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

fn cost(samples: &Samples) -> String {
    let events = u32::try_from(samples.events).unwrap_or(u32::MAX).max(1);
    let nanoseconds = (samples.proxy_cpu / events).as_nanos();
    format!("{nanoseconds} ns")
}

fn microseconds(duration: Duration) -> String {
    format!("{} µs", duration.as_micros())
}

/// With its sign: a number below zero says that the run was too noisy to tell.
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
    let place = (times.len() * share).div_ceil(100).saturating_sub(1);
    times.get(place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_lies_between() {
        assert!((median([4.0, 1.0, 3.0, 2.0].into_iter()) - 2.5).abs() < f64::EPSILON);
        assert!((median([3.0, 1.0, 2.0].into_iter()) - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn percentile_is_a_value_that_was_seen() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&times, 50), Duration::from_millis(100));
        assert_eq!(percentile(&times, 99), Duration::from_millis(198));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }
}
