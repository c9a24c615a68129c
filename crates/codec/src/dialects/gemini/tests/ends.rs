//! The details of the end of a reply.

use serde_json::json;
use throughline_canonical::{EndDetails, EndReason};

use super::*;

#[test]
fn a_refusal_keeps_its_category_and_explanation() {
    let message = "Not this.";
    let explained = |category: Option<&str>| EndDetails {
        sequence: None,
        category: category.map(str::to_owned),
        explanation: Some(message.to_owned()),
    };
    let finished = |word: &str| json!({"candidates": [{"finishReason": word, "finishMessage": message, "content": {"parts": [{"text": "a"}], "role": "model"}, "index": 0}]});
    let blocked =
        json!({"promptFeedback": {"blockReason": "BLOCKLIST", "blockReasonMessage": message}});
    for (said, details) in [
        (finished("PROHIBITED_CONTENT"), explained(Some("PROHIBITED_CONTENT"))),
        // This reason has no category of its own.
        (finished("SAFETY"), explained(None)),
        (blocked, explained(Some("BLOCKLIST"))),
        (finished("STOP"), EndDetails::default()),
    ] {
        let streamed = stream(std::slice::from_ref(&said));
        let (_, read) = events(true, "", &[streamed.as_bytes()]);
        let (_, whole) = events(false, "", &[said.to_string().as_bytes()]);
        assert_eq!(read.details, details, "{said}");
        assert_eq!(whole.details, details, "{said}");
        if read.reason == Some(EndReason::Refusal) {
            let written =
                Gemini.session().reply_writer(&Request::default(), &identity()).whole(&read);
            let (_, again) = events(false, "", &[&written]);
            assert_eq!(again.details, details, "{said}");
        }
    }
}
