//! The TypeScript types of the lines, for front ends. `docs/front-ends/ndjson.d.ts` is generated from the
//! types that the writer serializes.

use ts_rs::{Config, TS};

use crate::dialects::ndjson::client_reply::line::{DoneReason, Line, WaitingCall};

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

const HEAD: &str = "\
// The lines of `POST /ndjson/chat`.
// Generated from the Rust types; run `BLESS=1 cargo test -p throughline-codec typescript` to write it anew.

import type { EndDetails, FaultKind, Loss, Usage } from \"./events\";
";

#[test]
fn file_of_typescript_types_matches_the_rust_types() {
    let config = Config::new();
    let declare = |docs: Option<String>, declaration: String| {
        format!("\n{}export {declaration}\n", docs.unwrap_or_default())
    };
    let types = [
        HEAD.to_owned(),
        declare(Line::docs(), Line::decl(&config)),
        declare(WaitingCall::docs(), WaitingCall::decl(&config)),
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
