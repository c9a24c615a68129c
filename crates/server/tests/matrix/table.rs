//! The matrix as a table: printed, and compared with the one that is documented.

use std::fmt::Write as _;
use std::path::PathBuf;

use throughline_codec::dialects::openai_chat::variants::VARIANTS;
use throughline_codec::dialects::{CLIENT, UPSTREAM};

use crate::scenarios::{CLIENTS, Outcome, SCENARIOS, Stage};
use crate::upstreams::{UPSTREAMS, Upstream};

/// Set to write `docs/support.md` anew.
const BLESS: &str = "BLESS";
/// Set to play only the cells whose name holds this.
const ONLY: &str = "MATRIX";

/// Every client over every upstream, in every scenario, streamed and whole.
///
/// Covers: S0-65, C-3, C-17, C-20, C-21, X-6
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_hears_every_upstream_alike_and_nothing_is_refused() {
    // Cells that break off are told in the end, all of them.
    std::panic::set_hook(Box::new(|_| {}));
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut wrong = String::new();
    let mut tables: Vec<String> = CLIENTS.iter().map(|client| head(client)).collect();
    for upstream in UPSTREAMS {
        let stage = Stage::set(*upstream, other(upstream)).await;
        if upstream.template_opens {
            // Such a model always thinks. The gateway learns from the first reply that its server separates
            // the reasoning.
            stage.play(CLIENTS[0], "thinking", true).await;
        }
        for (client, table) in CLIENTS.iter().zip(&mut tables) {
            let mut line = format!("| {} |", upstream.name);
            let to = other(upstream).name;
            for scenario in SCENARIOS {
                let cell = format!("{client} > {}: {scenario}", upstream.name);
                if !cell.contains(&only) {
                    continue;
                }
                let outcome = both_ways(&stage, client, scenario, &cell, &mut wrong).await;
                let _ = write!(line, " {} |", told(&outcome));
            }
            let _ = writeln!(table, "{line} {to} |");
        }
    }
    let _ = std::panic::take_hook();
    let page = page(&tables);
    println!("{page}");
    assert!(wrong.is_empty(), "{wrong}");
    if only.is_empty() {
        compare(&page);
    }
}

/// Plays a cell streamed and whole; both must come to the same.
async fn both_ways(
    stage: &Stage,
    client: &str,
    scenario: &str,
    cell: &str,
    wrong: &mut String,
) -> Outcome {
    let streamed = stage.play(client, scenario, true).await;
    let whole = stage.play(client, scenario, false).await;
    for (way, outcome) in [("streamed", &streamed), ("whole", &whole)] {
        for what in &outcome.wrong {
            let _ = writeln!(wrong, "{cell} ({way}): {what}");
        }
    }
    if streamed.losses != whole.losses {
        let (streamed, whole) = (&streamed.losses, &whole.losses);
        let _ = writeln!(wrong, "{cell}: streamed {streamed:?}, whole {whole:?}");
    }
    streamed
}

/// The upstream a conversation switches to, which reads none of its signatures: the next one, and from
/// every other line the strictest.
fn other(upstream: &Upstream) -> Upstream {
    let at = UPSTREAMS.iter().position(|row| row.name == upstream.name);
    match at.unwrap_or_default() {
        at if at % 2 == 0 && at + 1 < UPSTREAMS.len() => UPSTREAMS[at + 1],
        _ => UPSTREAMS[0],
    }
}

fn told(outcome: &Outcome) -> String {
    match outcome.losses.as_slice() {
        [] => "whole".to_owned(),
        losses => losses.iter().map(|loss| format!("`{loss}`")).collect::<Vec<_>>().join("<br>"),
    }
}

fn head(client: &str) -> String {
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

fn compare(page: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/support.md");
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(&path, page).expect("the page is written");
        return;
    }
    let documented = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        documented == page,
        "docs/support.md is not what the matrix shows; `{BLESS}=1` writes it anew:\n{page}"
    );
}
