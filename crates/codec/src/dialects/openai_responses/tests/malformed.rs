//! Bodies that are no requests at all. What is said of a wrong member stands in
//! `corpus/openai_responses/malformed`.

use super::read_bytes;

#[test]
fn a_body_that_is_no_object_is_refused() {
    for (body, message) in [
        ("", "the body is not JSON"),
        ("{\"model\":", "the body is not JSON"),
        ("[]", "expected a JSON object as the body, found a list"),
    ] {
        let found = read_bytes(body.as_bytes()).unwrap_err().message;
        assert!(found.starts_with(message), "{body}: {found}");
    }
}
