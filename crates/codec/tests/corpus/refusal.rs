//! Errors of providers: the fault that clients get, and what they say about thinking.
//!
//! - `name.json` is a body; the `about.toml` has its `status`. Its golden is `name.refusal.json`.
//! - `name.jsonl` is a table: each row has a `status` and a `body`, or a `text` if the body is no JSON.
//!   Its golden is `name.refusal.jsonl`.

use serde_json::{Value, json};
use throughline_codec::dialects::{UPSTREAM, UpstreamDialect, upstream};

use super::folder::{Capture, Findings, captures, lines, pretty};
use super::rules::Folder;

/// The errors of a capture: the status and the body.
fn errors(capture: &Capture) -> Vec<(u16, Vec<u8>)> {
    if !capture.is_table() {
        let status = capture.about("status").unwrap().parse().unwrap();
        return vec![(status, capture.bytes.clone())];
    }
    let row = |row: &Value| {
        let body = match row["text"].as_str() {
            Some(text) => text.to_owned(),
            None => row["body"].to_string(),
        };
        let status = row["status"].as_u64().unwrap();
        (u16::try_from(status).unwrap(), body.into_bytes())
    };
    capture.rows().iter().map(row).collect()
}

/// The fault, and what the error says about thinking, if anything.
fn classified(dialect: &dyn UpstreamDialect, status: u16, body: &[u8]) -> Value {
    let mut found = json!({"fault": dialect.read_fault(status, body)});
    if let Some(refusal) = dialect.refusal(status, body) {
        found["refusal"] = json!({"kind": format!("{:?}", refusal.kind), "at": refusal.at});
    }
    if let Some(refused) = dialect.refused_setting(status, body) {
        found["refused_setting"] = json!(format!("{refused:?}"));
    }
    found
}

/// Compares each error with what its golden says about it.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    let dialect = upstream(&folder.name).unwrap();
    for capture in &folder.captures {
        let errors = errors(capture);
        let mut found = errors.iter().map(|(status, body)| classified(dialect, *status, body));
        let (ending, golden) = match capture.is_table() {
            true => ("refusal.jsonl", lines(found)),
            false => ("refusal.json", pretty(&found.next().unwrap())),
        };
        findings.golden(capture.beside(ending), Some(&golden));
    }
}

/// Half an error of the Anthropic dialect says nothing that the gateway could act on. Other dialects
/// read a body that is no JSON as the message itself.
#[test]
fn a_cut_error_is_never_a_refusal_of_thinking() {
    for dialect in UPSTREAM {
        let folder = format!("{}/refusal", dialect.name());
        for capture in captures(&folder, &["json", "jsonl"]) {
            for (_, body) in errors(&capture).iter().filter(|(_, body)| body.starts_with(b"{")) {
                for cut in 0..body.trim_ascii_end().len() {
                    let found = classified(*dialect, 400, &body[..cut]);
                    let at = format!("{folder}/{} cut at {cut}", capture.name);
                    assert!(dialect.name() != "anthropic" || found["refusal"].is_null(), "{at}");
                }
            }
        }
    }
}
