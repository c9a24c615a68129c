//! Metrics in the Prometheus text format. [`FAMILIES`] lists them all; the table in
//! `docs/operations.md` is written from it.

use std::fmt::{Display, Write};

use throughline_conversations::bus::BusHealth;
use throughline_gateway::Gateway;
use throughline_gateway::metrics::{Answer, Histogram, Recorded, TOKEN_KINDS};
use throughline_gateway::thinking::health::StoreHealth;
use throughline_gateway::thinking::memory::Statistics;

use crate::wiring::App;

/// All metrics with one name.
struct Family {
    /// The name, without `throughline_`.
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    write: fn(&mut Series<'_>, &View<'_>),
}

/// The values that metrics are read from.
struct View<'a> {
    gateway: &'a Gateway,
    recorded: Recorded,
    memory: Statistics,
    stores: Vec<&'a StoreHealth>,
    bus: &'a BusHealth,
}

const FAMILIES: &[Family] = &[
    Family {
        name: "build_info",
        kind: "gauge",
        help: "Always 1. The version that runs.",
        labels: &["version"],
        write: |series, _| series.add(&[&env!("CARGO_PKG_VERSION")], 1),
    },
    Family {
        name: "turns_total",
        kind: "counter",
        help: "Turns that have ended. Status 0: the client left before the reply began.",
        labels: &["backend", "model", "client_dialect", "upstream_dialect", "status"],
        write: |series, view| {
            for (of, count) in &view.recorded.turns {
                let dialects = [&of.client_dialect, &of.upstream_dialect];
                series.add(&[&of.backend, &of.model, dialects[0], dialects[1], &of.status], *count);
            }
        },
    },
    Family {
        name: "turns_failed_total",
        kind: "counter",
        help: "Turns that ended in an error of the gateway or of the backend.",
        labels: &["backend"],
        write: |series, view| {
            for (backend, of) in &view.recorded.backends {
                series.add(&[backend], of.failed);
            }
        },
    },
    Family {
        name: "replies_cut_total",
        kind: "counter",
        help: "Replies that the backend cut off.",
        labels: &["backend"],
        write: |series, view| {
            for (backend, of) in &view.recorded.backends {
                series.add(&[backend], of.cut);
            }
        },
    },
    Family {
        name: "turn_duration_seconds",
        kind: "histogram",
        help: "Time from the request to the end of its reply.",
        labels: &["backend", "model"],
        write: |series, view| {
            for ((backend, model), of) in &view.recorded.models {
                series.add_histogram(&[backend, model], &of.duration);
            }
        },
    },
    Family {
        name: "time_to_first_token_seconds",
        kind: "histogram",
        help: "Time from the request to the first thinking, text or tool call of a streamed reply.",
        labels: &["backend", "model"],
        write: |series, view| {
            for ((backend, model), of) in &view.recorded.models {
                series.add_histogram(&[backend, model], &of.first_token);
            }
        },
    },
    Family {
        name: "first_byte_seconds",
        kind: "histogram",
        help: "Time from the request to the head of the backend's reply.",
        labels: &[],
        write: |series, view| series.add_histogram(&[], &view.recorded.first_byte.0),
    },
    Family {
        name: "first_thinking_seconds",
        kind: "histogram",
        help: "Time from the request to the first thinking, if there is any.",
        labels: &[],
        write: |series, view| series.add_histogram(&[], &view.recorded.first_thinking.0),
    },
    Family {
        name: "first_text_seconds",
        kind: "histogram",
        help: "Time from the request to the first text, if there is any.",
        labels: &[],
        write: |series, view| series.add_histogram(&[], &view.recorded.first_text.0),
    },
    Family {
        name: "losses_total",
        kind: "counter",
        help: "Losses, with the same numbers as in the header. Thinking is counted in blocks.",
        labels: &["kind", "backend", "client_dialect", "upstream_dialect"],
        write: |series, view| {
            for (of, count) in &view.recorded.losses {
                let dialects = [&of.client_dialect, &of.upstream_dialect];
                series.add(&[&of.kind, &of.backend, dialects[0], dialects[1]], *count);
            }
        },
    },
    Family {
        name: "tokens_total",
        kind: "counter",
        help: "Tokens, as providers report them. Input excludes cached tokens; output includes \
               reasoning.",
        labels: &["kind", "backend", "model"],
        write: |series, view| {
            for ((backend, model), of) in &view.recorded.models {
                for ((kind, _), count) in TOKEN_KINDS.iter().zip(of.tokens) {
                    series.add(&[kind, backend, model], count);
                }
            }
        },
    },
    Family {
        name: "upstream_requests_total",
        kind: "counter",
        help: "Requests to backends, retries included, by status, or `timeout` or `unreachable`.",
        labels: &["backend", "status"],
        write: |series, view| {
            for (backend, of) in &view.recorded.backends {
                for (answer, count) in &of.answers {
                    match answer {
                        Answer::Status(status) => series.add(&[backend, status], *count),
                        Answer::TimedOut => series.add(&[backend, &"timeout"], *count),
                        Answer::Unreachable => series.add(&[backend, &"unreachable"], *count),
                    }
                }
            }
        },
    },
    Family {
        name: "fallbacks_total",
        kind: "counter",
        help: "Turns answered by a fallback.",
        labels: &["backend", "fallback"],
        write: |series, view| {
            for ((chosen, answered), count) in &view.recorded.fallbacks {
                series.add(&[chosen, answered], *count);
            }
        },
    },
    Family {
        name: "backend_cooling_down",
        kind: "gauge",
        help: "1 while requests go to other backends, because this one fails for all or some models.",
        labels: &["backend"],
        write: |series, view| {
            for backend in &view.gateway.settings().backends {
                let cools_down = !view.gateway.cool_downs(&backend.name).is_empty();
                series.add(&[&backend.name], u64::from(cools_down));
            }
        },
    },
    Family {
        name: "requests_retried_total",
        kind: "counter",
        help: "Requests that were sent again, changed after the backend refused their thinking or a setting.",
        labels: &[],
        write: |series, view| series.add(&[], view.gateway.metrics.retried.get()),
    },
    Family {
        name: "keep_alives_total",
        kind: "counter",
        help: "Keep-alives that were sent to clients.",
        labels: &[],
        write: |series, view| series.add(&[], view.gateway.metrics.keep_alives.get()),
    },
    Family {
        name: "resumes_total",
        kind: "counter",
        help: "Streams that continued or followed a run.",
        labels: &[],
        write: |series, view| series.add(&[], view.gateway.metrics.resumes.get()),
    },
    Family {
        name: "detached_readers_total",
        kind: "counter",
        help: "Readers disconnected because they were too slow.",
        labels: &[],
        write: |series, view| series.add(&[], view.gateway.metrics.detached_readers.get()),
    },
    Family {
        name: "streams_active",
        kind: "gauge",
        help: "Requests in progress.",
        labels: &[],
        write: |series, view| series.add(&[], view.gateway.in_progress() as u64),
    },
    Family {
        name: "blocks_remembered_total",
        kind: "counter",
        help: "Thinking blocks that were stored in the memory.",
        labels: &[],
        write: |series, view| series.add(&[], view.gateway.metrics.remembered.get()),
    },
    Family {
        name: "blocks_tried_total",
        kind: "counter",
        help: "Thinking blocks of unknown origin that were sent.",
        labels: &[],
        write: |series, view| series.add(&[], view.memory.tried),
    },
    Family {
        name: "blocks_refused_total",
        kind: "counter",
        help: "Thinking blocks that a backend refused.",
        labels: &[],
        write: |series, view| series.add(&[], view.memory.refused),
    },
    Family {
        name: "memory_blocks",
        kind: "gauge",
        help: "Thinking blocks in the memory.",
        labels: &[],
        write: |series, view| series.add(&[], view.memory.total as u64),
    },
    Family {
        name: "memory_lineages",
        kind: "gauge",
        help: "Conversations in the memory.",
        labels: &[],
        write: |series, view| series.add(&[], view.memory.lineages as u64),
    },
    Family {
        name: "memory_bytes",
        kind: "gauge",
        help: "Bytes that the memory uses.",
        labels: &[],
        write: |series, view| series.add(&[], view.memory.bytes as u64),
    },
    Family {
        name: "store_write_errors_total",
        kind: "counter",
        help: "Writes to a store that failed, retries included.",
        labels: &["store"],
        write: |series, view| {
            for store in &view.stores {
                series.add(&[&store.name()], store.write_errors.get());
            }
        },
    },
    Family {
        name: "store_dropped_total",
        kind: "counter",
        help: "Items that a store never got, because it could not be written.",
        labels: &["store"],
        write: |series, view| {
            for store in &view.stores {
                series.add(&[&store.name()], store.dropped.get());
            }
        },
    },
    Family {
        name: "bus_connected",
        kind: "gauge",
        help: "1 while the bus to other instances is connected. Absent without a bus.",
        labels: &[],
        write: |series, view| {
            if view.bus.is_shared() {
                series.add(&[], u64::from(view.bus.is_live()));
            }
        },
    },
    Family {
        name: "bus_published_total",
        kind: "counter",
        help: "Pieces of logs and other news that were given to the bus.",
        labels: &[],
        write: |series, view| series.add(&[], view.bus.published.get()),
    },
    Family {
        name: "bus_heard_total",
        kind: "counter",
        help: "News that arrived from the bus for readers of this instance.",
        labels: &[],
        write: |series, view| series.add(&[], view.bus.heard.get()),
    },
    Family {
        name: "bus_dropped_total",
        kind: "counter",
        help: "News that the bus did not take, because it was not connected or too slow. Readers find \
               them in the store.",
        labels: &[],
        write: |series, view| series.add(&[], view.bus.dropped.get()),
    },
];

/// Renders all metrics.
pub fn render(app: &App) -> String {
    let gateway = &app.gateway;
    let stores = gateway.store_health().into_iter().chain([app.responses.store_health()]);
    let view = View {
        gateway,
        recorded: gateway.metrics.recorded(),
        memory: gateway.memory.statistics(None).unwrap_or_default(),
        stores: stores.collect(),
        bus: app.runs.bus.health(),
    };
    let mut text = String::new();
    for family in FAMILIES {
        let Family { name, kind, help, .. } = family;
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "# HELP throughline_{name} {help}\n# TYPE throughline_{name} {kind}");
        (family.write)(&mut Series { family, text: &mut text }, &view);
    }
    text
}

/// Writes the series of one family.
struct Series<'a> {
    family: &'a Family,
    text: &'a mut String,
}

impl Series<'_> {
    /// Writes a value. `labels` are in the order of the family's labels.
    fn add(&mut self, labels: &[&dyn Display], value: u64) {
        self.write("", labels, None, &value);
    }

    fn add_histogram(&mut self, labels: &[&dyn Display], histogram: &Histogram) {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        for (bound, count) in histogram.buckets() {
            self.write("_bucket", labels, Some(&seconds(bound)), &count);
        }
        let count = histogram.count();
        self.write("_bucket", labels, Some(&"+Inf"), &count);
        self.write("_sum", labels, None, &seconds(histogram.sum_ms()));
        self.write("_count", labels, None, &count);
    }

    fn write(
        &mut self,
        ending: &str,
        labels: &[&dyn Display],
        bound: Option<&dyn Display>,
        value: &dyn Display,
    ) {
        let Family { name, labels: names, .. } = self.family;
        debug_assert_eq!(names.len(), labels.len(), "{name}");
        let _ = write!(self.text, "throughline_{name}{ending}");
        let bound = bound.map(|bound| ("le", bound));
        let labels = names.iter().copied().zip(labels.iter().copied()).chain(bound);
        let mut separator = '{';
        for (name, value) in labels {
            let _ = write!(self.text, "{separator}{name}=\"{}\"", escape(&value.to_string()));
            separator = ',';
        }
        let end = if separator == ',' { "}" } else { "" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

/// Escapes the value of a label.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escape("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
    }

    /// Without `sum`, a ratio of metrics with different labels has no values.
    #[test]
    fn ratios_on_the_operations_page_have_the_same_labels_on_both_sides() {
        let page = include_str!("../../../docs/operations.md");
        let parts = page.split(['`', '\n']);
        let ratios: Vec<_> = parts
            .filter(|part| part.contains("rate("))
            .filter_map(|part| part.split_once(" / "))
            .collect();
        assert!(ratios.len() >= 3, "{ratios:?}");
        for (above, below) in ratios {
            let sum = |side: &str| side.split_once("(rate(").map(|(sum, _)| sum.to_owned());
            assert!(sum(above).is_some_and(|sum| sum.starts_with("sum")), "{above} / {below}");
            assert_eq!(sum(above), sum(below));
        }
    }

    #[test]
    fn operations_page_lists_every_metric() {
        let mut table =
            "| metric | kind | labels | what it counts |\n|---|---|---|---|\n".to_owned();
        for Family { name, kind, help, labels, .. } in FAMILIES {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = labels.join(", ");
            table.push_str(&format!("| `throughline_{name}` | {kind} | {labels} | {help} |\n"));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
        let page = std::fs::read_to_string(path).expect("the page");
        let (first, last) = ("<!-- metrics -->\n", "<!-- /metrics -->");
        let start = page.find(first).expect("the start of the table") + first.len();
        let end = page.find(last).expect("the end of the table");
        if std::env::var_os("BLESS").is_some() {
            let blessed = format!("{}{table}{}", &page[..start], &page[end..]);
            std::fs::write(path, blessed).expect("the page is written");
            return;
        }
        assert!(
            page[start..end] == table,
            "the table of metrics in docs/operations.md differs from the code; run with `BLESS=1` to \
             write it:\n{table}"
        );
    }
}
