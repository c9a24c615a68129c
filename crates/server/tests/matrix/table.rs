//! Runs the matrix, and compares its table with docs/support.md.

use std::any::Any;
use std::fmt::Write as _;
use std::path::PathBuf;

use throughline_codec::dialects::openai_chat::variants::{Replay, Setting, VARIANTS};
use throughline_codec::dialects::{CLIENT, UPSTREAM};

use crate::scenarios::{CLIENTS, Outcome, SCENARIOS, TestBed};
use crate::upstreams::{UPSTREAMS, Upstream};

/// If set, the tests write their pages.
pub(crate) const BLESS: &str = "BLESS";
/// If set, the test runs only the cells whose name contains this text.
pub(crate) const ONLY: &str = "MATRIX";

/// Runs every client over every upstream in every scenario, streamed and whole.
///
/// Covers: S0-65, C-3, C-17, C-20, C-21, X-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_works_with_every_upstream_without_refusals() {
    // Panics are collected and reported together at the end.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut mismatches = String::new();
    let mut tables: Vec<String> = CLIENTS.iter().map(|client| table_head(client)).collect();
    for upstream in UPSTREAMS {
        let bed = TestBed::start(*upstream, switch_target(upstream)).await;
        if upstream.template_opens {
            // Such a model always thinks. The first reply shows the gateway that the server
            // separates the reasoning.
            bed.run_cell(CLIENTS[0], "thinking", true).await;
        }
        for (client, table) in CLIENTS.iter().zip(&mut tables) {
            let mut line = format!("| {} |", upstream.name);
            let to = switch_target(upstream).name;
            for scenario in SCENARIOS {
                let cell = format!("{client} > {}: {scenario}", upstream.name);
                if !cell.contains(&only) {
                    continue;
                }
                let outcome =
                    run_streamed_and_whole(&bed, client, scenario, &cell, &mut mismatches).await;
                let _ = write!(line, " {} |", cell_text(&outcome));
            }
            let _ = writeln!(table, "{line} {to} |");
        }
    }
    let _ = std::panic::take_hook();
    let page = page(&tables);
    println!("{page}");
    assert!(mismatches.is_empty(), "{mismatches}");
    if only.is_empty() {
        compare_with_docs("support.md", |_| page);
    }
}

/// Runs a cell streamed and whole. Both must give the same result.
async fn run_streamed_and_whole(
    bed: &TestBed,
    client: &str,
    scenario: &str,
    cell: &str,
    mismatches: &mut String,
) -> Outcome {
    let streamed = bed.run_cell(client, scenario, true).await;
    let whole = bed.run_cell(client, scenario, false).await;
    for (way, outcome) in [("streamed", &streamed), ("whole", &whole)] {
        for mismatch in &outcome.mismatches {
            let _ = writeln!(mismatches, "{cell} ({way}): {mismatch}");
        }
    }
    if streamed.losses != whole.losses {
        let (streamed, whole) = (&streamed.losses, &whole.losses);
        let _ = writeln!(mismatches, "{cell}: streamed {streamed:?}, whole {whole:?}");
    }
    streamed
}

/// Returns the upstream that a conversation switches to. It reads none of the first one's
/// signatures. It is the next row, and for every second row the strictest upstream.
fn switch_target(upstream: &Upstream) -> Upstream {
    let at = UPSTREAMS.iter().position(|row| row.name == upstream.name);
    match at.unwrap_or_default() {
        at if at % 2 == 0 && at + 1 < UPSTREAMS.len() => UPSTREAMS[at + 1],
        _ => UPSTREAMS[0],
    }
}

/// Returns what a panic said.
pub(crate) fn panic_text(panic: Box<dyn Any + Send>) -> String {
    panic.downcast::<String>().map_or_else(|_| "panicked".to_owned(), |text| *text)
}

fn cell_text(outcome: &Outcome) -> String {
    match outcome.losses.as_slice() {
        [] => "whole".to_owned(),
        losses => losses.iter().map(|loss| format!("`{loss}`")).collect::<Vec<_>>().join("<br>"),
    }
}

fn table_head(client: &str) -> String {
    let scenarios = SCENARIOS.join(" | ");
    let lines = "---|".repeat(SCENARIOS.len() + 2);
    format!("### Client: {client}\n\n| upstream | {scenarios} | switched to |\n|{lines}\n")
}

fn page(tables: &[String]) -> String {
    let names = |names: Vec<&str>| {
        let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        quoted.join(", ")
    };
    let clients = names(CLIENT.iter().map(|dialect| dialect.name()).collect());
    let upstreams = names(UPSTREAM.iter().map(|dialect| dialect.name()).collect());
    let mut page = format!(
        "# Support matrix\n\n\
         The test `matrix` generates this page: `BLESS=1 cargo test -p throughline-server --test matrix`. CI fails \
         if the page does not match what the test observes.\n\n\
         Client dialects: {clients}.\n\n\
         Upstream dialects: {upstreams}.\n\n\
         ## Variants of `openai_chat`\n\n\
         | variant | path | thinking is requested with | earlier thinking is sent as |\n|---|---|---|---|\n"
    );
    for row in VARIANTS {
        let (setting, replay) = (setting_words(row.setting), replay_words(row.replay));
        let _ = writeln!(page, "| `{}` | `{}` | {setting} | {replay} |", row.name, row.path);
    }
    page.push_str(
        "\n## The matrix\n\n\
         The test runs each cell with a streamed and with a whole reply, against strict simulators. No simulator \
         refuses a request, and every client gets the same reasoning, text and tool calls from every upstream. A \
         cell shows the losses that the gateway reports, or `whole` if nothing is lost. The scenario *switch* \
         changes the backend in the middle of a tool loop, to the upstream in the last column. In the scenario \
         *cache* the second request reads a long system text from the upstream's prompt cache, except over \
         `ollama`; [caching.md](caching.md) has hit rates.\n",
    );
    for table in tables {
        let _ = write!(page, "\n{table}");
    }
    page
}

/// Returns the request members that carry the thinking setting.
fn setting_words(setting: Setting) -> &'static str {
    match setting {
        Setting::Effort => "`reasoning_effort`",
        Setting::Switch => "`thinking.type` and `reasoning_effort`",
        Setting::Enable => "`enable_thinking` and `thinking_budget`",
        Setting::Template => "`chat_template_kwargs.enable_thinking` and `reasoning_effort`",
        Setting::Object => "`reasoning`, an object",
        Setting::Blocks => "`reasoning_effort`, or `thinking` with a budget",
        Setting::Format => "`reasoning_effort` and `reasoning_format`",
        Setting::Config => "`reasoning_effort`, or `extra_body.google.thinking_config`",
        Setting::Always => "nothing: the model always thinks",
    }
}

/// Returns the form in which earlier thinking goes back to the server.
fn replay_words(replay: Replay) -> &'static str {
    match replay {
        Replay::Nothing => "not sent",
        Replay::ReasoningContent => "`reasoning_content`",
        Replay::ReasoningContentAlways => {
            "`reasoning_content` in every assistant message, empty if unknown"
        }
        Replay::Reasoning => "`reasoning`",
        Replay::BothMembers => {
            "`reasoning` and `reasoning_content`, until a reply shows which one the server knows"
        }
        Replay::Details => "`reasoning_details`",
        Replay::Chunks => "`thinking` parts of the content",
        Replay::Tags => "`<think>` tags in the text",
        Replay::Blocks => "`thinking_blocks`",
    }
}

/// Compares a page of the docs with what it must be, given what it is now. Writes it if [`BLESS`] is set.
pub(crate) fn compare_with_docs(name: &str, page: impl FnOnce(&str) -> String) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    let page = page(&documented);
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, page).expect("the page is written");
        return;
    }
    assert!(
        documented == page,
        "docs/{name} does not match the matrix; run with `{BLESS}=1` to write it:\n{page}"
    );
}
