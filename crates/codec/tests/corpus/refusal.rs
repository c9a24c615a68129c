//! Error replies: which of them speak of thinking blocks, and of which block.

use serde_json::json;
use throughline_codec::dialects::anthropic::refusal::classify;

use super::folder::{captures, report};

#[test]
fn refusals_are_told_as_their_goldens_say() {
    report(captures("anthropic/refusal", &["json"]).iter().map(|capture| {
        let status = capture.about("status").unwrap().parse().unwrap();
        let told = match classify(status, &capture.bytes) {
            Some(refusal) => json!({
                "kind": format!("{:?}", refusal.kind),
                "at": refusal.at,
            }),
            None => json!(null),
        };
        capture.golden("refusal.json", &format!("{told}\n"))
    }));
}

#[test]
fn any_cut_of_an_error_does_no_harm() {
    for capture in captures("anthropic/refusal", &["json"]) {
        for cut in 0..capture.bytes.len() {
            // Half an error says nothing that could be acted on.
            let told = classify(400, &capture.bytes[..cut]);
            assert!(
                told.is_none() || capture.bytes[cut..].trim_ascii().is_empty(),
                "{} cut at {cut}",
                capture.name
            );
        }
    }
}
