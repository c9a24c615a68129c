//! Requests as each upstream dialect writes them.
//!
//! - Every shared request has a golden under its own name: `name.json`, and `name.losses.json` if it
//!   loses something. `heads.txt` has the path, query and headers of all of them.
//! - `name.jsonl` is a table of cases for this dialect alone: each row has a canonical `request`, and
//!   may have a `model` and a `variant`, and `counts_tokens`. Its golden is `name.written.jsonl`.

use std::fmt::Write;

use serde_json::{Value, json};
use throughline_canonical::{Lossy, Request};
use throughline_codec::dialects::{Outgoing, Target, UpstreamDialect, upstream};

use super::folder::{Capture, Findings, lines, pretty, root};
use super::rules::Folder;
use super::shared::{requests, target};

/// Compares the shared requests, then the tables.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    let dialect = upstream(&folder.name).unwrap();
    check_shared(dialect, &folder.path, findings);
    for capture in &folder.captures {
        let written = capture.rows().into_iter().map(|row| write_row(dialect, capture, row));
        findings.golden(capture.beside("written.jsonl"), Some(&lines(written)));
    }
}

fn check_shared(dialect: &dyn UpstreamDialect, folder: &str, findings: &mut Findings) {
    let folder = root().join(folder);
    let mut heads = String::new();
    for (Capture { name, .. }, request) in requests() {
        let Lossy { value, losses } = dialect.write_request(&request, &target(dialect, &request));
        let body = pretty(&serde_json::from_slice(&value.body).unwrap());
        findings.golden(folder.join(format!("{name}.json")), Some(&body));
        if !losses.is_empty() {
            let losses = pretty(&json!(losses));
            findings.golden(folder.join(format!("{name}.losses.json")), Some(&losses));
        }
        let _ = writeln!(heads, "{name}: {}", head(&value));
    }
    findings.golden(folder.join("heads.txt"), Some(&heads));
}

/// The path, the query and the headers.
fn head(outgoing: &Outgoing) -> String {
    let mut head = outgoing.path.clone();
    if !outgoing.query.is_empty() {
        let _ = write!(head, "?{}", outgoing.query);
    }
    for (key, value) in &outgoing.headers {
        let _ = write!(head, " {key}={value}");
    }
    head
}

fn write_row(dialect: &dyn UpstreamDialect, capture: &Capture, mut row: Value) -> Value {
    let spelled = row["request"].take();
    let request: Request = serde_json::from_value(spelled.clone())
        .unwrap_or_else(|error| panic!("{}: {error}: {spelled}", capture.name));
    // A misspelled member would be skipped silently.
    assert_eq!(serde_json::to_value(&request).unwrap(), spelled, "{}", capture.name);
    let target = Target {
        model: row["model"].as_str().unwrap_or(&request.model),
        profile: dialect.profile(row["variant"].as_str().unwrap_or_default()),
    };
    let Lossy { value, losses } = match row["counts_tokens"] == true {
        true => dialect.write_count(&request, &target).unwrap(),
        false => dialect.write_request(&request, &target),
    };
    let body: Value = serde_json::from_slice(&value.body).unwrap();
    let mut written = json!({"head": head(&value), "body": body});
    if !losses.is_empty() {
        written["losses"] = json!(losses);
    }
    written
}
