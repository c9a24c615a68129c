//! Requests that are wrong: each is refused with the place of what is wrong.
//!
//! `corpus/<dialect>/malformed/requests.jsonl` has one case a line: the request, the place of its
//! mistake (empty for the body itself) and what is said of it. The server's tests send the same
//! cases over HTTP. No golden is written here: a message is a promise, made by hand.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use throughline_canonical::Fault;
use throughline_codec::dialects::{CLIENT, RequestParts};

use super::folder::root;

#[test]
fn a_wrong_request_is_refused_with_the_place_of_its_mistake() {
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
