//! Envelopes: clients keep the signatures of another dialect in envelopes, and no provider receives
//! an envelope.

use throughline_testkit::{Gateway, RawUpstream, block_fates};

use crate::support::{ANTHROPIC_REPLY, BINARY, DialectSample, SAMPLES, send_to};

/// Starts a gateway over backend `a` of a dialect and the Anthropic backend `b`. They read each
/// other's signatures if `shared`.
async fn gateway_over_pair(
    sample: &DialectSample,
    shared: bool,
) -> (RawUpstream, RawUpstream, Gateway) {
    let (a, b) = (RawUpstream::start().await, RawUpstream::start().await);
    let domain = if shared { "signature_domain = \"one\"" } else { "" };
    let config = format!(
        "{}\n[[backend]]\nname = \"b\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n{domain}\n",
        sample.backend("a", &a.url, domain),
        b.url
    );
    (a, b, Gateway::start(BINARY, &config).await)
}

/// The prefix of every envelope.
const ENVELOPE: &str = "TLine1";

/// Covers: C-2
#[tokio::test]
async fn foreign_envelope_is_not_sent() {
    for sample in SAMPLES {
        let (a, b, gateway) = gateway_over_pair(&sample, false).await;
        let first = sample.first_request();
        let (_, reply) = send_to(&sample, &gateway, ("b", &b), &first, ANTHROPIC_REPLY).await;
        assert!(reply.text().contains(ENVELOPE), "{}", reply.text());
        let request = sample.follow_up(first, &reply);
        let (body, answer) = send_to(&sample, &gateway, ("a", &a), &request, sample.whole).await;
        assert!(!body.contains(ENVELOPE), "{body}");
        assert!(!body.contains("Elsewhere."), "{body}");
        assert!(body.contains("I look.") && body.contains("look"), "{body}");
        serde_json::from_str::<serde_json::Value>(&body).unwrap();
        assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
        let turn = gateway.last_turn().await;
        assert_eq!(turn["lane"], "through");
        assert_eq!(block_fates(&turn), ["left_out origin"]);
        assert_eq!(turn["blocks"][0]["origin"]["backend"], "b");
    }
}

#[tokio::test]
async fn envelope_of_the_targets_domain_becomes_the_original_signature() {
    for sample in SAMPLES {
        let (a, b, gateway) = gateway_over_pair(&sample, true).await;
        let first = sample.first_request();
        let (_, reply) = send_to(&sample, &gateway, ("b", &b), &first, ANTHROPIC_REPLY).await;
        let request = sample.follow_up(first, &reply);
        let (body, answer) = send_to(&sample, &gateway, ("a", &a), &request, sample.whole).await;
        assert!(!body.contains(ENVELOPE), "{body}");
        assert!(body.contains("\"ZWxzZXdoZXJl\"") && body.contains("Elsewhere."), "{body}");
        assert_eq!(answer.header("x-throughline-loss"), "");
        assert_eq!(block_fates(&gateway.last_turn().await), ["sent"]);
        // Apart from the signature, the body is what the client sent.
        let sent = request.to_string();
        let start = sent.find(ENVELOPE).unwrap();
        let end = start + sent[start..].find('"').unwrap();
        let native = format!("{}ZWxzZXdoZXJl{}", &sent[..start], &sent[end..]);
        if sample.dialect != "gemini" {
            assert_eq!(body, native);
        }
    }
}

#[tokio::test]
async fn altered_envelope_is_not_sent() {
    for sample in SAMPLES {
        let (a, b, gateway) = gateway_over_pair(&sample, true).await;
        let first = sample.first_request();
        let (_, reply) = send_to(&sample, &gateway, ("b", &b), &first, ANTHROPIC_REPLY).await;
        let request = sample.follow_up(first, &reply).to_string();
        let at = request.find(ENVELOPE).unwrap() + 20;
        let replacement = if &request[at..=at] == "A" { "B" } else { "A" };
        let altered = format!("{}{replacement}{}", &request[..at], &request[at + 1..]);
        let altered = serde_json::from_str(&altered).unwrap();
        let (body, _) = send_to(&sample, &gateway, ("a", &a), &altered, sample.whole).await;
        assert!(!body.contains(ENVELOPE), "{body}");
        assert_eq!(block_fates(&gateway.last_turn().await), ["left_out origin"]);
    }
}

/// The plan reports the same fates without sending anything.
#[tokio::test]
async fn plan_reports_the_left_out_envelope() {
    for sample in SAMPLES {
        let (_a, b, gateway) = gateway_over_pair(&sample, false).await;
        let first = sample.first_request();
        let (_, reply) = send_to(&sample, &gateway, ("b", &b), &first, ANTHROPIC_REPLY).await;
        let request = sample.follow_up(first, &reply);
        let model = "model=gemini-3-pro";
        let path = format!("/v1/plan?dialect={}&backend=a&{model}", sample.dialect);
        let plan = gateway.client.post(&path, &[], &request).await.expect_ok().json();
        assert_eq!(plan["lane"], "through", "{plan}");
        assert_eq!(block_fates(&plan), ["left_out origin"], "{plan}");
        assert_eq!(plan["losses"].as_array().unwrap().len(), 1);
    }
}
