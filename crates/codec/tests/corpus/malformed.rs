//! Requests that are refused, with the path of their mistake.
//!
//! `corpus/<dialect>/malformed/requests.jsonl` has one case a line: the request (`body`), the path of
//! its mistake (`at`, empty for the body itself) and the message (`says`). The server's tests send the
//! same cases over HTTP. No golden is written here: the message is part of the case.

use std::collections::BTreeSet;

use throughline_canonical::Fault;
use throughline_codec::dialects::{RequestParts, client};

use super::folder::Findings;
use super::rules::Folder;

/// The cases that a dialect has at least.
const MIN_CASES: usize = 30;

/// Checks that each request is refused with its path and its message.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    let dialect = client(&folder.name).unwrap();
    let mut bodies = BTreeSet::new();
    for (at, case) in folder.captures.iter().flat_map(|capture| {
        let rows = capture.rows().into_iter().enumerate();
        rows.map(move |(row, case)| {
            (format!("{}/{}, line {}", folder.path, capture.name, row + 1), case)
        })
    }) {
        let [path, says] = ["at", "says"].map(|member| case[member].as_str().unwrap());
        let body = case["body"].to_string();
        let read = dialect.read_request(&RequestParts {
            path: &dialect.path_for("m"),
            query: "",
            body: body.as_bytes(),
            ..Default::default()
        });
        let expected = match path {
            "" => Fault::invalid(says),
            _ => Fault::at(path, says),
        };
        let fault = read.err();
        if fault.as_ref().and_then(|fault| fault.path.as_deref()).unwrap_or_default() != path {
            findings.fail(format!("{at}: the path is not `{path}`: {fault:?}"));
        }
        if fault.as_ref() != Some(&expected) {
            findings.fail(format!("{at}: expected `{expected}`, found {fault:?}"));
        }
        if !bodies.insert(body) {
            findings.fail(format!("{at}: an earlier line has the same body"));
        }
    }
    if bodies.len() < MIN_CASES {
        findings.fail(format!("{}: only {} cases", folder.path, bodies.len()));
    }
}
