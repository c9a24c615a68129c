//! The TypeScript types of the lines, for front ends. The Rust types here must read every line of the
//! corpus, and `docs/front-ends/ndjson.d.ts` is generated from them.

#![allow(dead_code, reason = "the members are only read by the generator")]

use serde::Deserialize;
use serde_json::Value;
use throughline_canonical::{EndDetails, FaultKind, Loss, Usage};
use ts_rs::{Config, TS};

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const HEAD: &str = "\
// The lines of `POST /ndjson/chat`.
// Generated from the Rust types; run `BLESS=1 cargo test -p throughline-codec typescript` to write it anew.

import type { EndDetails, FaultKind, Loss, Usage } from \"./events\";
";

/// One line of a reply. Ignore lines of an unknown type.
#[derive(Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[ts(optional_fields)]
enum Line {
    /// More reasoning. `append` is false if it starts a new block.
    Thinking { content: String, append: bool, block: u32, seq: u32 },
    /// The signature of a block. Keep it and send it back.
    ThinkingSignature { content: String, block: u32, seq: u32 },
    /// Reasoning that cannot be shown. Keep it and send it back.
    RedactedThinking { content: String, block: u32, seq: u32 },
    /// More text of the answer.
    Text { content: String, refusal: Option<bool>, block: u32, seq: u32 },
    /// The address of a source of the text.
    Source { content: String, title: Option<String>, block: u32, seq: u32 },
    /// A complete tool call. The arguments are a string if they are not valid JSON.
    ToolCall {
        id: String,
        name: String,
        #[ts(type = "unknown")]
        arguments: Value,
        signature: Option<String>,
        block: u32,
        seq: u32,
    },
    /// A failure. `done` follows.
    Error {
        message: String,
        #[ts(type = "FaultKind")]
        kind: FaultKind,
        seq: u32,
    },
    /// The last line.
    Done {
        #[ts(type = "DoneReason")]
        reason: DoneReason,
        stop_reason: String,
        model: String,
        #[ts(type = "Usage")]
        usage: Usage,
        #[ts(optional, type = "EndDetails")]
        details: Option<EndDetails>,
        #[ts(optional, type = "Array<Loss>")]
        losses: Option<Vec<Loss>>,
        seq: u32,
    },
}

/// The outcome of a turn.
#[derive(Deserialize, TS)]
#[serde(rename_all = "snake_case")]
enum DoneReason {
    Completed,
    Truncated,
    Empty,
    Timeout,
    Interrupted,
    Error,
}

#[test]
fn every_line_of_the_corpus_has_a_type() {
    let folder = std::fs::read_dir(format!("{PROJECT}/corpus/ndjson/client_reply")).unwrap();
    let mut read = 0;
    for path in folder.map(|entry| entry.unwrap().path()) {
        if path.extension().is_some_and(|extension| extension == "ndjson") {
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let parsed = serde_json::from_str::<Line>(line);
                assert!(parsed.is_ok(), "{}: {line}: {:?}", path.display(), parsed.err());
                read += 1;
            }
        }
    }
    assert!(read > 50, "only {read} lines");
}

#[test]
fn file_of_typescript_types_matches_the_rust_types() {
    let config = Config::new();
    let declare = |docs: Option<String>, declaration: String| {
        format!("\n{}export {declaration}\n", docs.unwrap_or_default())
    };
    let types = [
        HEAD.to_owned(),
        declare(Line::docs(), Line::decl(&config)),
        declare(DoneReason::docs(), DoneReason::decl(&config)),
    ]
    .concat();
    let path = format!("{PROJECT}/docs/front-ends/ndjson.d.ts");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &types).expect("the file is written");
        return;
    }
    let stored = std::fs::read_to_string(&path).expect("the file is read");
    assert!(stored == types, "`{path}` is not up to date; run with `BLESS=1` to write it");
}
