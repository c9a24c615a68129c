//! Metrics in the Prometheus text format.

use std::fmt::Write;

use throughline_gateway::Gateway;
use throughline_gateway::counters::Durations;

/// Renders all metrics.
pub fn render(gateway: &Gateway) -> String {
    let mut text = String::new();
    let counters = &gateway.counters;
    for (name, help, value) in [
        ("turns_total", "Turns started.", counters.turns.get()),
        ("turns_failed_total", "Turns that ended in an error.", counters.failed.get()),
        ("replies_cut_total", "Replies that the upstream cut off.", counters.cut.get()),
        (
            "blocks_filtered_total",
            "Thinking blocks dropped from requests.",
            counters.filtered.get(),
        ),
        (
            "blocks_remembered_total",
            "Thinking blocks stored in the memory.",
            counters.remembered.get(),
        ),
        (
            "requests_retried_total",
            "Requests sent again without rejected thinking blocks.",
            counters.retried.get(),
        ),
        ("keep_alives_total", "Keep-alive events sent to clients.", counters.keep_alives.get()),
        ("thinking_tokens_total", "Tokens used for thinking.", counters.thinking_tokens.get()),
        ("output_tokens_total", "Output tokens, thinking included.", counters.output_tokens.get()),
    ] {
        write_value(&mut text, name, "counter", help, value);
    }
    let statistics = gateway.memory.statistics(None).unwrap_or_default();
    for (name, help, value) in [
        (
            "blocks_tried_total",
            "Thinking blocks of unknown origin that were sent.",
            statistics.tried,
        ),
        ("blocks_refused_total", "Thinking blocks that an upstream rejected.", statistics.refused),
    ] {
        write_value(&mut text, name, "counter", help, value);
    }
    for (name, help, value) in [
        ("streams_active", "Requests in progress.", gateway.in_progress() as u64),
        ("memory_blocks", "Thinking blocks in the memory.", statistics.total as u64),
        ("memory_lineages", "Conversations in the memory.", statistics.lineages as u64),
        ("memory_bytes", "Bytes used by the memory.", statistics.bytes as u64),
    ] {
        write_value(&mut text, name, "gauge", help, value);
    }
    for (name, help, durations) in [
        ("first_byte_seconds", "Time to the response head of the upstream.", &counters.first_byte),
        ("first_thinking_seconds", "Time to the first thinking.", &counters.first_thinking),
        ("first_text_seconds", "Time to the first text.", &counters.first_text),
    ] {
        write_histogram(&mut text, name, help, durations);
    }
    text
}

fn write_header(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP throughline_{name} {help}\n# TYPE throughline_{name} {kind}");
}

fn write_value(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    write_header(text, name, kind, help);
    let _ = writeln!(text, "throughline_{name} {value}");
}

fn write_histogram(text: &mut String, name: &str, help: &str, durations: &Durations) {
    write_header(text, name, "histogram", help);
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
