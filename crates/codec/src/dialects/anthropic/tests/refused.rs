//! Bodies that are not requests. Wrong members are in `corpus/anthropic/malformed`.

use serde_json::json;

use super::super::Anthropic;
use super::read_request;
use crate::dialects::{ClientDialect, RequestParts};

#[test]
fn a_token_count_needs_no_max_tokens() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}]}).to_string();
    let ask = |path| {
        Anthropic.read_request(&RequestParts {
            path,
            query: "beta=true",
            body: body.as_bytes(),
            ..Default::default()
        })
    };
    assert!(ask("/v1/messages/count_tokens").is_ok());
    let fault = ask("/v1/messages").unwrap_err();
    assert_eq!(fault.message, "max_tokens: is required");
}

#[test]
fn rejects_a_body_that_is_not_an_object() {
    for odd in ["", "{", "[]", "null", "\"\u{0}\"", "{} {}"] {
        assert!(read_request(odd.as_bytes()).is_err(), "{odd}");
    }
}
