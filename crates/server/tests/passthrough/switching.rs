//! Two backends of one dialect that do not read each other's signatures: each gets only its own
//! thinking back.

use serde_json::json;
use throughline_testkit::{Gateway, RawUpstream, block_fates};

use crate::support::{BINARY, DialectSample, GEMINI, SAMPLES, send_to};

async fn gateway_over_pair(
    sample: &DialectSample,
    settings: &str,
) -> (RawUpstream, RawUpstream, Gateway) {
    let (a, b) = (RawUpstream::start().await, RawUpstream::start().await);
    let config =
        format!("{settings}{}{}", sample.backend("a", &a.url, ""), sample.backend("b", &b.url, ""));
    (a, b, Gateway::start(BINARY, &config).await)
}

#[tokio::test]
async fn thinking_goes_back_only_to_its_origin() {
    for sample in SAMPLES {
        let (a, b, gateway) = gateway_over_pair(&sample, "").await;
        let first = sample.first_request();
        let (_, reply) = send_to(&sample, &gateway, ("a", &a), &first, sample.whole).await;
        let request = sample.follow_up(first, &reply);
        let (body, _) = send_to(&sample, &gateway, ("a", &a), &request, sample.whole).await;
        assert_eq!(body, request.to_string(), "its own, to the byte");
        let sent = block_fates(&gateway.last_turn().await);
        assert!(!sent.is_empty() && sent.iter().all(|fate| fate == "sent"), "{sent:?}");
        let (body, answer) =
            send_to(&sample, &gateway, ("b", &b), &request, &sample.another_reply()).await;
        assert!(!body.contains("Z2VudWluZQ==") && !body.contains("Hm."), "{body}");
        assert!(body.contains("Yes."), "{body}");
        let count = sent.len();
        assert_eq!(
            answer.header("x-throughline-loss"),
            format!("thinking_omitted={count};reason=origin")
        );
        // A block that was left out for one backend still goes to the other.
        let (body, _) = send_to(&sample, &gateway, ("a", &a), &request, sample.whole).await;
        assert_eq!(body, request.to_string());
    }
}

#[tokio::test]
async fn streamed_thinking_is_remembered_across_a_restart() {
    for sample in SAMPLES {
        let (a, b, mut gateway) = gateway_over_pair(&sample, "").await;
        let first = sample.first_request();
        // The client builds the same message from the stream as from the whole reply.
        let (mut streamed, exchange) = {
            let (streamed, mut exchange) = sample.open(&a, &gateway).await;
            exchange.write(sample.stream).await;
            (streamed, exchange)
        };
        exchange.close().await;
        while streamed.next().await.is_some() {}
        gateway.signal("TERM").await;
        gateway.wait_for_exit().await;
        gateway.restart().await;
        let request = sample.follow_up(first, &sample.unseen_reply());
        let (body, _) =
            send_to(&sample, &gateway, ("b", &b), &request, &sample.another_reply()).await;
        assert!(!body.contains("Z2VudWluZQ=="), "{}: {body}", sample.dialect);
    }
}

#[tokio::test]
async fn foreign_call_gets_the_skip_validation_signature() {
    let (a, b, gateway) = gateway_over_pair(&GEMINI, "").await;
    let first = GEMINI.first_request();
    let (_, reply) = send_to(&GEMINI, &gateway, ("a", &a), &first, GEMINI.whole).await;
    let mut request = GEMINI.follow_up(first, &reply);
    // A second call in the same step has no signature and gets none.
    let parts = request["contents"][1]["parts"].as_array_mut().unwrap();
    parts.push(json!({"functionCall": {"name": "look", "args": {}}}));
    let (body, _) = send_to(&GEMINI, &gateway, ("b", &b), &request, &GEMINI.another_reply()).await;
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let parts = body["contents"][1]["parts"].as_array().unwrap();
    let skip_validation = "skip_thought_signature_validator";
    assert_eq!(parts[0]["thoughtSignature"], skip_validation, "{body}");
    assert_eq!(parts[2].get("thoughtSignature"), None, "{body}");
    // A user message ends the turn, and no model requires signatures from an earlier turn.
    let contents = request["contents"].as_array_mut().unwrap();
    contents.push(json!({"role": "user", "parts": [{"text": "And?"}]}));
    let (body, _) = send_to(&GEMINI, &gateway, ("b", &b), &request, &GEMINI.another_reply()).await;
    assert!(!body.contains("thoughtSignature"), "{body}");
}

#[tokio::test]
async fn unknown_thinking_is_tried_or_dropped_as_configured() {
    for sample in SAMPLES {
        for (setting, kept, fate) in
            [("try", true, "tried unknown"), ("drop", false, "left_out unknown")]
        {
            let settings = format!("[thinking]\nunknown = \"{setting}\"\n");
            let (a, _b, gateway) = gateway_over_pair(&sample, &settings).await;
            let request = sample.follow_up(sample.first_request(), &sample.unseen_reply());
            let (body, _) =
                send_to(&sample, &gateway, ("a", &a), &request, &sample.another_reply()).await;
            assert_eq!(body.contains("Z2VudWluZQ=="), kept, "{body}");
            let fates = block_fates(&gateway.last_turn().await);
            assert!(fates.iter().all(|found| found == fate), "{fates:?}");
            if kept {
                // The backend accepted the block, so its origin is known now.
                send_to(&sample, &gateway, ("a", &a), &request, &sample.another_reply()).await;
                let fates = block_fates(&gateway.last_turn().await);
                assert!(fates.iter().all(|found| found == "sent"), "{fates:?}");
            }
        }
    }
}
