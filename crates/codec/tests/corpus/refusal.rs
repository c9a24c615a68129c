//! Error replies: whether they name thinking blocks, and which.

use serde_json::json;
use throughline_codec::dialects::anthropic::refusal::classify;

use super::folder::{captures, report};

#[test]
fn refusals_match_their_goldens() {
    report(captures("anthropic/refusal", &["json"]).iter().map(|capture| {
        let status = capture.about("status").unwrap().parse().unwrap();
        let refusal = match classify(status, &capture.bytes) {
            Some(refusal) => json!({
                "kind": format!("{:?}", refusal.kind),
                "at": refusal.at,
            }),
            None => json!(null),
        };
        capture.golden("refusal.json", &format!("{refusal}\n"))
    }));
}

#[test]
fn a_cut_error_names_no_blocks() {
    for capture in captures("anthropic/refusal", &["json"]) {
        for cut in 0..capture.bytes.len() {
            // A cut error contains nothing to act on.
            let refusal = classify(400, &capture.bytes[..cut]);
            assert!(
                refusal.is_none() || capture.bytes[cut..].trim_ascii().is_empty(),
                "{} cut at {cut}",
                capture.name
            );
        }
    }
}
