//! The numbers, in the Prometheus text form.

use std::fmt::Write;

use throughline_gateway::Gateway;
use throughline_gateway::counters::Durations;

/// All of them.
pub fn render(gateway: &Gateway) -> String {
    let mut text = String::new();
    let counters = &gateway.counters;
    for (name, help, value) in [
        ("turns_total", "turns begun", counters.turns.get()),
        ("turns_failed_total", "turns that ended in an error", counters.failed.get()),
        ("replies_cut_total", "replies that ended before their end", counters.cut.get()),
        ("blocks_filtered_total", "thinking blocks left out", counters.filtered.get()),
        ("blocks_remembered_total", "thinking blocks remembered", counters.remembered.get()),
        (
            "requests_retried_total",
            "requests sent again without refused thinking",
            counters.retried.get(),
        ),
        ("keep_alives_total", "signs of life sent", counters.keep_alives.get()),
        ("thinking_tokens_total", "tokens spent on thinking", counters.thinking_tokens.get()),
        ("output_tokens_total", "tokens written", counters.output_tokens.get()),
    ] {
        one(&mut text, name, "counter", help, value);
    }
    let statistics = gateway.memory.statistics(None).unwrap_or_default();
    for (name, help, value) in [
        ("blocks_tried_total", "unknown thinking blocks sent", statistics.tried),
        ("blocks_refused_total", "thinking blocks refused", statistics.refused),
    ] {
        one(&mut text, name, "counter", help, value);
    }
    for (name, help, value) in [
        ("streams_active", "requests in progress", gateway.in_progress() as u64),
        ("memory_blocks", "thinking blocks in use", statistics.total as u64),
        ("memory_lineages", "conversations remembered", statistics.lineages as u64),
        ("memory_bytes", "bytes of thinking memory", statistics.bytes as u64),
    ] {
        one(&mut text, name, "gauge", help, value);
    }
    for (name, help, durations) in [
        ("first_byte_seconds", "time to the head of the reply", &counters.first_byte),
        ("first_thinking_seconds", "time to the first thinking", &counters.first_thinking),
        ("first_text_seconds", "time to the first text", &counters.first_text),
    ] {
        histogram(&mut text, name, help, durations);
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP throughline_{name} {help}\n# TYPE throughline_{name} {kind}");
}

fn one(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    head(text, name, kind, help);
    let _ = writeln!(text, "throughline_{name} {value}");
}

fn histogram(text: &mut String, name: &str, help: &str, durations: &Durations) {
    head(text, name, "histogram", help);
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let (buckets, count, sum) = durations.read();
    for (bound, value) in buckets {
        let _ = writeln!(text, "throughline_{name}_bucket{{le=\"{}\"}} {value}", seconds(bound));
    }
    let _ = writeln!(
        text,
        "throughline_{name}_bucket{{le=\"+Inf\"}} {count}\nthroughline_{name}_sum {}\nthroughline_{name}_count {count}",
        seconds(sum)
    );
}
