//! Refused thinking: the gateway retries without it, remembers the refusal and reports the loss.

use http::Method;
use throughline_testkit::{RawUpstream, block_fates, ok_reply};

use crate::support::{GEMINI, JSON, RESPONSES, body_text};

fn refusal(body: &str) -> String {
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn answer_next(upstream: &RawUpstream, answer: &[u8]) -> String {
    let mut exchange = upstream.next().await;
    exchange.write(answer).await;
    exchange.shut_down().await;
    body_text(&exchange)
}

#[tokio::test]
async fn refused_thinking_is_dropped_and_not_sent_again() {
    for (sample, error) in [
        (
            RESPONSES,
            r#"{"error":{"message":"The encrypted content for item rs_1 could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#,
        ),
        (
            GEMINI,
            r#"{"error":{"code":400,"message":"Thought signature is not valid.","status":"INVALID_ARGUMENT"}}"#,
        ),
    ] {
        let (upstream, gateway) = sample.over("", "").await;
        let request = sample.follow_up(sample.first_request(), &sample.unseen_reply()).to_string();
        let refusal = refusal(error);
        let accepted = ok_reply("application/json", "", sample.another_reply());
        let client = &gateway.client;
        let sent = client.send(Method::POST, sample.whole_path, &[JSON], request.clone());
        let (answer, (first, second)) = tokio::join!(sent, async {
            let first = answer_next(&upstream, refusal.as_bytes()).await;
            (first, answer_next(&upstream, &accepted).await)
        });
        assert_eq!(first, request);
        assert!(!second.contains("Z2VudWluZQ=="), "{second}");
        assert_eq!(answer.status, 200);
        let turn = gateway.last_turn().await;
        let fates = block_fates(&turn);
        assert!(fates.iter().all(|fate| fate == "left_out origin"), "{fates:?}");
        assert!(answer.header("x-throughline-loss").starts_with("thinking_omitted="));
        // The refusal is remembered, so the block is not tried again.
        let sent = client.send(Method::POST, sample.whole_path, &[JSON], request.clone());
        let (_, third) = tokio::join!(sent, answer_next(&upstream, &accepted));
        assert_eq!(third, second);
    }
}

#[tokio::test]
async fn second_refusal_passes_to_the_client() {
    let (upstream, gateway) = RESPONSES.over("", "").await;
    let request =
        RESPONSES.follow_up(RESPONSES.first_request(), &RESPONSES.unseen_reply()).to_string();
    let body = r#"{"error":{"message":"no","code":"invalid_encrypted_content"}}"#;
    let refusal = refusal(body);
    let client = &gateway.client;
    let sent = client.send(Method::POST, RESPONSES.whole_path, &[JSON], request);
    let (answer, ()) = tokio::join!(sent, async {
        answer_next(&upstream, refusal.as_bytes()).await;
        answer_next(&upstream, refusal.as_bytes()).await;
    });
    assert_eq!((answer.status, answer.text()), (400, body.to_owned()));
}

/// A call without a signature that the gateway has never seen counts as made by another backend.
#[tokio::test]
async fn unknown_unsigned_call_gets_the_skip_validation_signature() {
    let skip = "skip_thought_signature_validator";
    let error = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;
    let request = GEMINI.follow_up(GEMINI.first_request(), &GEMINI.unseen_reply()).to_string();
    let request = request.replace(r#","thoughtSignature":"Z2VudWluZQ==""#, "");
    assert!(!request.contains("thoughtSignature"), "{request}");
    let accepted = ok_reply("application/json", "", GEMINI.another_reply());
    // The first model is known to require signatures. For the other the gateway learns it from the
    // refusal.
    for (more, refusals) in [("", 0), ("models = { \"*\" = \"house-model\" }", 1)] {
        let (upstream, gateway) = GEMINI.over("", more).await;
        let client = &gateway.client;
        let sent = client.send(Method::POST, GEMINI.whole_path, &[JSON], request.clone());
        let (answer, last) = tokio::join!(sent, async {
            for _ in 0..refusals {
                let first = answer_next(&upstream, refusal(error).as_bytes()).await;
                assert!(!first.contains(skip), "{first}");
            }
            answer_next(&upstream, &accepted).await
        });
        assert_eq!(last.matches(skip).count(), 1, "{last}");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let fates = answer.header("x-throughline-loss").to_owned();
        assert_eq!(fates, "part_omitted=tool_call.signature;reason=unknown");
    }
}

/// A refusal about a missing signature says nothing about the signatures that were sent.
#[tokio::test]
async fn missing_signature_refusal_keeps_existing_signatures() {
    let (upstream, gateway) = GEMINI.over("", "models = { \"*\" = \"house-model\" }").await;
    let error = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;
    let request = GEMINI.follow_up(GEMINI.first_request(), &GEMINI.unseen_reply()).to_string();
    let client = &gateway.client;
    let sent = client.send(Method::POST, GEMINI.whole_path, &[JSON], request.clone());
    let refusal = refusal(error);
    let (answer, _) = tokio::join!(sent, answer_next(&upstream, refusal.as_bytes()));
    // The gateway cannot repair this request, so the refusal passes to the client.
    assert_eq!((answer.status, answer.text()), (400, error.to_owned()));
    let accepted = ok_reply("application/json", "", GEMINI.another_reply());
    let sent = client.send(Method::POST, GEMINI.whole_path, &[JSON], request);
    let (_, again) = tokio::join!(sent, answer_next(&upstream, &accepted));
    assert!(again.contains("Z2VudWluZQ=="), "{again}");
}
