//! Requests of clients: the canonical request that each of them is read as.
//!
//! - `name.json` is a body; its golden is `name.canonical.json`. The `about.toml` may name a `path`
//!   and a `query`.
//! - `name.jsonl` is a table: each row has a `body` and may have a `path` and a `query`. Its golden is
//!   `name.canonical.jsonl`.
//!
//! A golden has the `request`, its `losses`, and the dialect's `session` if it is not the default
//! one; or the `fault` if the request is refused.

use serde_json::{Value, json};
use throughline_canonical::{Fault, Loss};
use throughline_codec::dialects::{Accepted, ClientDialect, RequestParts, client};

use super::folder::{Capture, Findings, captures, lines, pretty};
use super::rules::Folder;
use super::shared::{conversation, pairs, read_back, target, tool_names};

/// A request as it arrives.
struct Incoming {
    path: String,
    query: String,
    body: Vec<u8>,
}

impl Incoming {
    fn read(&self, dialect: &dyn ClientDialect) -> Result<Accepted, Fault> {
        let Self { path, query, body } = self;
        dialect.read_request(&RequestParts { path, query, body, ..Default::default() })
    }
}

/// The requests of a capture: one, or one for each row.
fn requests(dialect: &dyn ClientDialect, capture: &Capture) -> Vec<Incoming> {
    let path = |path: Option<String>| path.unwrap_or_else(|| dialect.path_for("m"));
    if !capture.is_table() {
        return vec![Incoming {
            path: path(capture.about("path")),
            query: capture.about("query").unwrap_or_default(),
            body: capture.bytes.clone(),
        }];
    }
    let row = |row: &Value| {
        let text = |member: &str| row[member].as_str().map(str::to_owned);
        Incoming {
            path: path(text("path")),
            query: text("query").unwrap_or_default(),
            body: row["body"].to_string().into_bytes(),
        }
    };
    capture.rows().iter().map(row).collect()
}

fn canonical(dialect: &dyn ClientDialect, read: Result<Accepted, Fault>) -> Value {
    let Accepted { request, losses, session, .. } = match read {
        Ok(accepted) => accepted,
        Err(fault) => return json!({"fault": fault}),
    };
    let mut golden = json!({"request": request});
    if !losses.is_empty() {
        golden["losses"] = json!(losses);
    }
    let session = format!("{session:?}");
    if session != format!("{:?}", dialect.session()) {
        golden["session"] = json!(session);
    }
    golden
}

/// Compares each request with the canonical request of its golden.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    let dialect = client(&folder.name).unwrap();
    for capture in &folder.captures {
        let requests = requests(dialect, capture);
        let mut read = requests.iter().map(|request| canonical(dialect, request.read(dialect)));
        let (ending, golden) = match capture.is_table() {
            true => ("canonical.jsonl", lines(read)),
            false => ("canonical.json", pretty(&read.next().unwrap())),
        };
        findings.golden(capture.beside(ending), Some(&golden));
    }
}

/// A request that is written and read back in its own dialect is the same, up to its reported losses;
/// written a second time it does not change at all.
#[test]
fn requests_survive_a_round_trip_in_their_dialect() {
    for (upstream, client) in pairs() {
        let folder = format!("{}/client_request", client.name());
        for capture in captures(&folder, &["json", "jsonl"]) {
            for (row, incoming) in requests(client, &capture).iter().enumerate() {
                let at = format!("{folder}/{}, case {}", capture.name, row + 1);
                let Ok(Accepted { request, .. }) = incoming.read(client) else {
                    continue;
                };
                let first = upstream.write_request(&request, &target(upstream, &request));
                // A request that lost all its messages is no request.
                let Ok(Accepted { request: read, .. }) = read_back(client, &first.value) else {
                    assert_ne!(first.losses, [], "{at}");
                    continue;
                };
                let second = upstream.write_request(&read, &target(upstream, &read));
                let body = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
                assert_eq!(body(&second.value.body), body(&first.value.body), "{at}");
                let new: Vec<&Loss> =
                    second.losses.iter().filter(|loss| !first.losses.contains(loss)).collect();
                assert!(new.is_empty(), "{at}: {new:?}");
                if first.losses.is_empty() {
                    assert_eq!(conversation(&read), conversation(&request), "{at}");
                    assert_eq!(tool_names(&read), tool_names(&request), "{at}");
                    assert_eq!(read.stop, request.stop, "{at}");
                }
            }
        }
    }
}

/// Half a request is refused, never read as a shorter one.
#[test]
fn a_cut_request_is_refused() {
    for dialect in throughline_codec::dialects::CLIENT {
        let folder = format!("{}/client_request", dialect.name());
        for capture in captures(&folder, &["json"]) {
            let length = capture.bytes.trim_ascii_end().len();
            // Every cut of a short request, some of a long one.
            for cut in (0..length).step_by(length / 500 + 1) {
                let mut request = requests(*dialect, &capture).remove(0);
                request.body.truncate(cut);
                assert!(request.read(*dialect).is_err(), "{folder}/{} cut at {cut}", capture.name);
            }
        }
    }
}
