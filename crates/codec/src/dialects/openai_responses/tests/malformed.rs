//! Bodies that are not requests. Wrong members are in `corpus/openai_responses/malformed`.

use super::read_bytes;

#[test]
fn rejects_a_body_that_is_not_an_object() {
    for (body, message) in [
        ("", "the body is not JSON"),
        ("{\"model\":", "the body is not JSON"),
        ("[]", "expected a JSON object as the body, found a list"),
    ] {
        let found = read_bytes(body.as_bytes()).unwrap_err().message;
        assert!(found.starts_with(message), "{body}: {found}");
    }
}
