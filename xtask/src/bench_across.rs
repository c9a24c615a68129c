//! Prints the cost of translating a delta as Markdown tables. The bench of the gateway measures it
//! (`crates/gateway/benches/across.rs`).

use std::collections::BTreeMap;

use crate::Failure;
use crate::command;
use crate::workspace;

/// Deltas of a reply, except in the table by length.
const DELTAS: f64 = 10_000.0;

/// How often the bench runs: another program on the same cores can spoil one round.
const ROUNDS: usize = 3;

/// The fastest reply of one case.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Measured {
    nanoseconds: f64,
    allocations: f64,
}

/// Keyed by the names of bench and case.
type Cases = BTreeMap<(String, String), Measured>;

/// `bench-across`
pub(crate) fn run() -> Result<(), Failure> {
    let mut cases = Cases::new();
    for _ in 0..ROUNDS {
        let mut bench = workspace::cargo();
        bench.args(["bench", "--package", "throughline-gateway"]);
        bench.args(["--bench", "across", "--features", "bench"]);
        keep_best(&mut cases, read(&command::output(&mut bench)?));
    }
    for (title, writes) in
        [("One event a write", "one_event_a_write"), ("16 KB a write", "16_kb_a_write")]
    {
        println!("{title}:\n\n{}", by_pair(&cases, writes));
    }
    println!("By length:\n\n{}", by_length(&cases));
    Ok(())
}

fn keep_best(cases: &mut Cases, round: Cases) {
    for (case, measured) in round {
        let best = cases.entry(case).or_insert(measured);
        if measured.nanoseconds < best.nanoseconds {
            *best = measured;
        }
    }
}

/// Reads the tree that divan prints.
fn read(printed: &str) -> Cases {
    let mut cases = Cases::new();
    let (mut bench, mut case) = (String::new(), String::new());
    let mut counts = false;
    for line in printed.lines() {
        let words = line.trim_start_matches(['│', ' ', '├', '╰', '─']);
        let branches = line.strip_suffix(words).is_some_and(|tree| tree.ends_with("─ "));
        let words = words.split(" │").next().unwrap_or_default().trim_end();
        if let Some(name) = line.strip_prefix("├─ ").or(line.strip_prefix("╰─ ")) {
            let name = name.split_whitespace().next().unwrap_or_default();
            name.clone_into(&mut bench);
        } else if branches {
            let Some((name, time)) = words.split_once("  ") else {
                continue;
            };
            name.clone_into(&mut case);
            let measured = Measured { nanoseconds: nanoseconds(time.trim()), allocations: 0.0 };
            cases.insert((bench.clone(), case.clone()), measured);
        } else if words.ends_with(':') {
            counts = words == "alloc:";
        } else if std::mem::take(&mut counts)
            && let Ok(count) = words.parse()
            && let Some(measured) = cases.get_mut(&(bench.clone(), case.clone()))
        {
            measured.allocations = count;
        }
    }
    cases
}

/// Reads a time such as `1.5 ms`.
fn nanoseconds(time: &str) -> f64 {
    let (number, unit) = time.split_once(' ').unwrap_or_default();
    let scale = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        _ => 1e9,
    };
    number.parse().unwrap_or(f64::NAN) * scale
}

fn by_pair(cases: &Cases, writes: &str) -> String {
    let mut table = "| upstream | client | ns per delta | client : openai_chat | codec alone | lane : codec | deltas/s | allocations per delta |\n|---|---|---:|---:|---:|---:|---:|---:|\n".to_owned();
    let (lane, codec) = (format!("lane_{writes}"), format!("codec_{writes}"));
    for ((bench, pair), whole) in cases {
        let Some(alone) = cases.get(&(codec.clone(), pair.clone())) else {
            continue;
        };
        if *bench != lane {
            continue;
        }
        let (upstream, client) = pair.split_once(" to ").unwrap_or_default();
        // Every client dialect is compared with this one.
        let chat = cases.get(&(lane.clone(), format!("{upstream} to openai_chat")));
        let ratio = chat.map_or(f64::NAN, |chat| whole.nanoseconds / chat.nanoseconds);
        table.push_str(&format!(
            "| {upstream} | {client} | {:.0} | {ratio:.2} | {:.0} | {:.2} | {:.1} million | {:.2} |\n",
            whole.nanoseconds / DELTAS,
            alone.nanoseconds / DELTAS,
            whole.nanoseconds / alone.nanoseconds,
            DELTAS * 1e3 / whole.nanoseconds,
            whole.allocations / DELTAS,
        ));
    }
    table
}

fn by_length(cases: &Cases) -> String {
    let mut table =
        "| deltas | ns per delta | allocations per delta |\n|---:|---:|---:|\n".to_owned();
    for ((bench, deltas), measured) in cases {
        let Ok(count) = deltas.parse::<f64>() else {
            continue;
        };
        if bench == "lane_by_length" {
            table.push_str(&format!(
                "| {deltas} | {:.0} | {:.2} |\n",
                measured.nanoseconds / count,
                measured.allocations / count,
            ));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
across                     fastest       │ slowest       │ median
├─ codec_x                               │               │
│  ├─ gemini to gemini     1 s           │ 1.068 ms      │ 1.007 ms
│  ├─ gemini to openai_chat  1 s         │ 1.068 ms      │ 1.007 ms
│  ╰─ anthropic to openai_chat  500 µs   │ 1.068 ms      │ 1.007 ms
│                          10 Mitem/s    │ 9.359 Mitem/s │ 9.929 Mitem/s
╰─ lane_x                                │               │
   ├─ gemini to gemini     1 s           │ 1.068 ms      │ 1.007 ms
   │                       max alloc:    │               │
   │                         10          │ 10            │ 10
   │                       alloc:        │               │
   │                         5000        │ 36            │ 36
   ├─ gemini to openai_chat  2 s         │ 1.068 ms      │ 1.007 ms
   ╰─ anthropic to openai_chat  1.5 ms   │ 1.068 ms      │ 1.007 ms
                           10 Mitem/s    │ 9.359 Mitem/s │ 9.929 Mitem/s
                           max alloc:    │               │
                             10          │ 10            │ 10
                             1.346 KB    │ 1.346 KB      │ 1.346 KB
                           alloc:        │               │
                             12500       │ 36            │ 36
                             1.067 KB    │ 1.067 KB      │ 1.067 KB
                           dealloc:      │               │
                             99          │ 36            │ 36
";

    #[test]
    fn output_of_the_bench_becomes_a_table() {
        let table = by_pair(&read(PRINTED), "x");
        let rows = [
            "| anthropic | openai_chat | 150 | 1.00 | 50 | 3.00 | 6.7 million | 1.25 |",
            "| gemini | gemini | 100000 | 0.50 | 100000 | 1.00 | 0.0 million | 0.50 |",
            "| gemini | openai_chat | 200000 | 1.00 | 100000 | 2.00 | 0.0 million | 0.00 |",
        ];
        assert_eq!(table.lines().skip(2).collect::<Vec<_>>(), rows);
    }
}
