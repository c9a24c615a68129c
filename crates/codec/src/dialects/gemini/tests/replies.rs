//! Framings, limits and arbitrary input of the reply reader. Its ordinary cases are in
//! `corpus/gemini/upstream_reply`.

use proptest::prelude::*;
use serde_json::json;
use throughline_canonical::{EndReason, FaultKind};

use super::*;
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};

fn candidate(parts: impl Into<Value>) -> Value {
    let parts = parts.into();
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

#[test]
fn an_error_ends_a_reply_in_every_framing() {
    let error = json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}});
    let begun = stream(&[candidate(json!([{"text": "a"}]))]);
    for stream in [
        format!("{begun}data: {error}\n\n"),
        format!("{begun}{error}\n"),
        format!("{begun}{error:#}"),
        format!("{begun}[{error:#}]"),
        format!("{}\n{error}", begun.trim_end()),
        format!("[{},\n{error}]", candidate(json!([{"text": "a"}]))),
    ] {
        for at in 0..stream.len() {
            let (one, two) = stream.as_bytes().split_at(at);
            let (_, reply) = events(true, "", &[one, two]);
            assert_eq!(
                reply.fault,
                Some(Fault::new(FaultKind::Overloaded, "overloaded")),
                "{stream}"
            );
            assert_eq!((reply.reason, reply.content.len()), (Some(EndReason::Failed), 1));
        }
    }
    for whole in [error.to_string(), json!([error]).to_string()] {
        let (lines, reply) = events(false, "", &[whole.as_bytes()]);
        assert_eq!((lines.len(), reply.reason), (2, Some(EndReason::Failed)));
    }
}

#[test]
fn a_cut_reply_leaves_its_last_block_open() {
    let stream = stream(&[
        candidate(json!([{"text": "a", "thought": true}])),
        candidate(json!([{"text": "b"}])),
    ]);
    let (lines, reply) = events(true, "", &[stream.as_bytes()]);
    assert_eq!(reply.reason, Some(EndReason::Cut));
    let ended = lines.iter().filter(|line| line.contains("block_ended")).count();
    assert_eq!(ended, 1, "{lines:?}");
    for nothing in
        ["", "\n\n", "<html>no</html>", "data: [DONE]\n\n", ": ping\n\n", "[", "[]", "{}"]
    {
        for streamed in [true, false] {
            let (_, reply) = events(streamed, "", &[nothing.as_bytes()]);
            assert_eq!(reply.reason, Some(EndReason::Cut), "{nothing}");
        }
    }
}

#[test]
fn a_reply_over_the_limit_is_a_fault() {
    let piece = "x".repeat(1 << 20);
    for streamed in [true, false] {
        for head in ["data: {\"a\":\"", "{\"a\":\"", "[{\"a\":\""] {
            let limit = if streamed { MAX_EVENT_BYTES } else { MAX_REPLY_BYTES };
            let mut pieces = vec![head.as_bytes()];
            pieces.resize(2 + (limit >> 20), piece.as_bytes());
            let (lines, reply) = events(streamed, "", &pieces);
            assert_eq!(reply.reason, Some(EndReason::Failed), "{head}");
            assert_eq!(lines.len(), 2);
        }
    }
    let whole = format!("data: {{\"a\":\"{}\"}}\n\n", "x".repeat(MAX_EVENT_BYTES));
    assert_eq!(events(true, "", &[whole.as_bytes()]).1.reason, Some(EndReason::Failed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                r#"(data: |\n\n|\{"candidates":\[|\{"content":|\{"parts":\[|\{"text":"a"|\{"functionCall":|"partialArgs":\[|\}|\]|,|"error":|"b":1){0,12}"#.prop_map(String::into_bytes),
            ],
            0..8,
        ),
        streamed: bool,
        variant in "(vertex|cumulative|vertex cumulative)?",
    ) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let (lines, reply) = events(streamed, &variant, &pieces);
        prop_assert!(reply.reason.is_some());
        prop_assert_eq!(lines.iter().filter(|line| line.contains(r#""type":"ended""#)).count(), 1);
        prop_assert!(lines.last().is_some_and(|line| line.contains(r#""type":"ended""#)));
        // The same bytes in one piece give the same events.
        prop_assert_eq!(events(streamed, &variant, &[&pieces.concat()]).0, lines);
        let _ = Gemini.read_fault(400, &pieces.concat());
        let _ = Gemini.read_request(&RequestParts { path: super::PATH, query: "", body: &pieces.concat(), ..Default::default() });
    }
}
