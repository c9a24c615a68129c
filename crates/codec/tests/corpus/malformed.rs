//! Invalid requests. Each one is rejected with the path of the error.
//!
//! `corpus/<dialect>/malformed/requests.jsonl` has one case per line: the request, the path of the
//! error (empty for the body itself) and the message. The server's tests send the same cases over
//! HTTP. `BLESS` does not write these: a message is a promise, so a person writes it.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use throughline_canonical::Fault;
use throughline_codec::dialects::{CLIENT, RequestParts};

use super::folder::root;

#[test]
fn rejects_an_invalid_request_with_the_path_of_the_error() {
    for dialect in CLIENT {
        let name = dialect.name();
        let table = fs::read_to_string(root().join(name).join("malformed/requests.jsonl")).unwrap();
        let mut bodies = BTreeSet::new();
        for line in table.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let [at, says] = ["at", "says"].map(|member| case[member].as_str().unwrap());
            let body = case["body"].to_string();
            let read = dialect.read_request(&RequestParts {
                path: &dialect.path_for("m"),
                query: "",
                body: body.as_bytes(),
            });
            let expected = match at {
                "" => Fault::invalid(says),
                _ => Fault::invalid(format!("{at}: {says}")),
            };
            let fault = read.err();
            let place = fault.as_ref().and_then(Fault::place).unwrap_or_default();
            assert_eq!(place, at, "{name}: {body}");
            assert_eq!(fault, Some(expected), "{name}: {body}");
            assert!(bodies.insert(body), "{name}: twice {line}");
        }
        assert!(bodies.len() >= 30, "{name}: only {} cases", bodies.len());
    }
}
