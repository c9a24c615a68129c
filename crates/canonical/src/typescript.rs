//! The TypeScript types of the canonical events, for front ends. They are generated from the Rust
//! types and kept in `docs/front-ends/events.d.ts`.

use ts_rs::{Config, TS};

use crate::loss::LossReport;
use crate::{
    BlockStart, Citation, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Transformation,
    Usage, Verbatim, WaitingCall,
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/front-ends/events.d.ts");

const HEAD: &str = "\
// The canonical events: the `data` of each event of `POST /v1/stream`.
// Generated from the Rust types; run `BLESS=1 cargo test -p throughline-canonical` to write it anew.
";

/// The declaration of one type, with its documentation.
fn declare<T: TS>(config: &Config) -> String {
    let docs = T::docs().unwrap_or_default();
    format!("\n{docs}export {}\n", T::decl(config))
}

#[test]
fn file_of_typescript_types_matches_the_rust_types() {
    // Token counts are far below the limit of exact numbers in JavaScript.
    let config = Config::new().with_large_int("number");
    let types = [
        HEAD.to_owned(),
        declare::<Event<'_>>(&config),
        declare::<BlockStart<'_>>(&config),
        declare::<Delta<'_>>(&config),
        declare::<EndReason>(&config),
        declare::<EndDetails>(&config),
        declare::<Usage>(&config),
        declare::<LossReport>(&config),
        declare::<Fault>(&config),
        declare::<FaultKind>(&config),
        declare::<Citation>(&config),
        declare::<Verbatim>(&config),
        declare::<Transformation>(&config),
        declare::<WaitingCall>(&config),
    ]
    .concat();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(PATH, &types).expect("the file is written");
        return;
    }
    let stored = std::fs::read_to_string(PATH).expect("the file is read");
    assert!(stored == types, "`{PATH}` is not up to date; run with `BLESS=1` to write it");
}
