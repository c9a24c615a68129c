//! Runs the matrix, and compares its table with docs/support.md.

use std::fmt::Write as _;
use std::path::PathBuf;

use throughline_codec::dialects::openai_chat::variants::VARIANTS;
use throughline_codec::dialects::{CLIENT, UPSTREAM};

use crate::scenarios::{CLIENTS, Outcome, SCENARIOS, TestBed};
use crate::upstreams::{UPSTREAMS, Upstream};

/// If set, the test writes `docs/support.md`.
const BLESS: &str = "BLESS";
/// If set, the test runs only the cells whose name contains this text.
const ONLY: &str = "MATRIX";

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
        compare_with_docs(&page);
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
        "# Who can talk to whom\n\n\
         Written by `BLESS=1 cargo test -p throughline-server --test matrix` from the dialects' rows and from what \
         the test saw; CI fails where this page is not true. Clients may speak {clients}; backends may speak \
         {upstreams}.\n\n\
         ## Variants of `openai_chat`\n\n\
         | variant | path | how much to think is said by | thinking goes back as |\n|---|---|---|---|\n"
    );
    for row in VARIANTS {
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {:?} | {:?} |",
            row.name, row.path, row.setting, row.replay
        );
    }
    page.push_str(
        "\n## The matrix\n\n\
         Each cell is played streamed and whole against strict simulators: none refuses anything, and the client \
         hears the same reasoning, text and calls whatever the pair. A cell says what the gateway reported as \
         lost, or `whole`. *Switch* changes the backend in the middle of a tool loop.\n",
    );
    for table in tables {
        let _ = write!(page, "\n{table}");
    }
    page
}

fn compare_with_docs(page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/support.md");
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, page).expect("the page is written");
        return;
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        documented == page,
        "docs/support.md does not match the matrix; run with `{BLESS}=1` to write it:\n{page}"
    );
}
