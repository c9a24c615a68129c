//! The tables of `throughline turns` and `throughline plan`: turns, blocks and losses in words.

use serde_json::Value;
use throughline_codec::dialects::timestamp;

use super::remote::{list, table, text};

/// The turns, newest first. With `blocks`, each is followed by the fates of its thinking blocks.
pub(super) fn turns(answer: &Value, blocks: bool) -> String {
    let turns: Vec<&Value> = list(&answer["turns"]).collect();
    let head = [
        "time",
        "turn",
        "lineage",
        "client > backend",
        "model",
        "status",
        "end",
        "tokens",
        "ms",
        "blocks",
        "losses",
        "error",
    ];
    let lines = table(&head, turns.iter().map(|turn| row(turn)));
    if !blocks {
        return lines;
    }
    let mut lines = lines.lines().map(str::to_owned);
    let mut shown: Vec<String> = lines.next().into_iter().collect();
    for (line, turn) in lines.zip(turns) {
        shown.push(line);
        let omitted = turn["blocks_omitted"].as_u64().filter(|omitted| *omitted > 0);
        shown.extend(omitted.map(|omitted| format!("    {omitted} earlier blocks are not kept")));
        shown.extend(block_rows(turn));
    }
    shown.join("\n")
}

fn row(turn: &Value) -> Vec<String> {
    let time = turn["time"].as_u64().unwrap_or_default() / 1000;
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let backend = dash(text(&turn["backend"]));
    let fallback = if turn["fallback"].is_null() { "" } else { " (fallback)" };
    vec![
        timestamp::write(time),
        text(&turn["id"]),
        dash(text(&turn["lineage"])),
        format!("{} > {backend}{fallback}", text(&turn["client_dialect"])),
        dash(text(&turn["model"])),
        text(&turn["status"]),
        dash(text(&turn["end"])),
        tokens(&turn["usage"]),
        format!("{}/{}", text(&turn["ms"]["first_byte"]), text(&turn["ms"]["total"])),
        block_count(turn).to_string(),
        dash(losses(&turn["losses"], false)),
        turn["error"].as_str().unwrap_or_default().replace(['\n', '\r'], " "),
    ]
}

/// Input and output tokens; cached input is part of the first number.
fn tokens(usage: &Value) -> String {
    let count = |name: &str| usage[name].as_u64();
    let cached = count("cache_read").unwrap_or_default();
    let written = count("cache_write").unwrap_or_default();
    let input = count("input").map(|input| input + cached + written);
    let shown = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    let cache = if cached > 0 { format!(" ({cached} cached)") } else { String::new() };
    format!("{}{cache} > {}", shown(input), shown(count("output")))
}

/// The losses as in the header, with or without their reasons.
pub(super) fn losses(losses: &Value, with_reasons: bool) -> String {
    let losses = list(losses).map(|loss| {
        let value = ["count", "setting", "part"].map(|member| &loss[member]);
        let value = value.into_iter().find(|value| !value.is_null());
        let loss_text = format!("{}={}", text(&loss["kind"]), value.map(text).unwrap_or_default());
        match loss["reason"].as_str().filter(|_| with_reasons) {
            Some(reason) => format!("{loss_text};reason={reason}"),
            None => loss_text,
        }
    });
    losses.collect::<Vec<_>>().join(if with_reasons { ", " } else { " " })
}

/// Counts the thinking blocks of a turn, including those that its report leaves out.
fn block_count(turn: &Value) -> u64 {
    list(&turn["blocks"]).count() as u64 + turn["blocks_omitted"].as_u64().unwrap_or_default()
}

/// One line for each block of a turn or a plan: where it is, what it is, and its fate.
pub(super) fn block_rows(report: &Value) -> Vec<String> {
    let rows = list(&report["blocks"]).map(|block| {
        let fate = match block["reason"].as_str() {
            Some(reason) => format!("{} ({reason})", text(&block["fate"])),
            None => text(&block["fate"]),
        };
        let origin = &block["origin"];
        let maker = match origin.is_null() {
            true => "of unknown origin".to_owned(),
            false => format!("made by {} at {}", text(&origin["model"]), text(&origin["backend"])),
        };
        vec![format!("    {}", text(&block["path"])), text(&block["kind"]), fate, maker]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let head = ["    block", "kind", "fate", "origin"];
    table(&head, rows.into_iter()).lines().map(str::to_owned).collect()
}
