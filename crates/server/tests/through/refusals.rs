//! Thinking a provider refuses: once more without it, learnt, and told.

use http::Method;

use crate::support::{GEMINI, JSON, RESPONSES, fates, last_turn, text};
use crate::upstream::{Upstream, whole};

fn refusal(body: &str) -> String {
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn next(upstream: &Upstream, answer: &[u8]) -> String {
    let mut exchange = upstream.next().await;
    exchange.write(answer).await;
    exchange.end().await;
    text(&exchange)
}

#[tokio::test]
async fn refused_thinking_stays_behind_and_is_not_sent_again() {
    for (spoken, error) in [
        (
            RESPONSES,
            r#"{"error":{"message":"The encrypted content for item rs_1 could not be verified.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}"#,
        ),
        (
            GEMINI,
            r#"{"error":{"code":400,"message":"Thought signature is not valid.","status":"INVALID_ARGUMENT"}}"#,
        ),
    ] {
        let (upstream, gateway) = spoken.over("", "").await;
        let request = spoken.go_on(spoken.begin(), &spoken.unseen()).to_string();
        let refusal = refusal(error);
        let good = whole("application/json", "", spoken.another());
        let client = &gateway.client;
        let sent = client.send(Method::POST, spoken.whole_path, &[JSON], request.clone());
        let (answer, (first, second)) = tokio::join!(sent, async {
            let first = next(&upstream, refusal.as_bytes()).await;
            (first, next(&upstream, &good).await)
        });
        assert_eq!(first, request);
        assert!(!second.contains("Z2VudWluZQ=="), "{second}");
        assert_eq!(answer.status, 200);
        let turn = last_turn(&gateway).await;
        let told = fates(&turn);
        assert!(told.iter().all(|fate| fate == "left_out origin"), "{told:?}");
        assert!(answer.header("x-throughline-loss").starts_with("thinking_omitted="));
        // It is known now, and not tried again.
        let sent = client.send(Method::POST, spoken.whole_path, &[JSON], request.clone());
        let (_, third) = tokio::join!(sent, next(&upstream, &good));
        assert_eq!(third, second);
    }
}

#[tokio::test]
async fn a_second_refusal_passes_on() {
    let (upstream, gateway) = RESPONSES.over("", "").await;
    let request = RESPONSES.go_on(RESPONSES.begin(), &RESPONSES.unseen()).to_string();
    let body = r#"{"error":{"message":"no","code":"invalid_encrypted_content"}}"#;
    let refusal = refusal(body);
    let client = &gateway.client;
    let sent = client.send(Method::POST, RESPONSES.whole_path, &[JSON], request);
    let (answer, ()) = tokio::join!(sent, async {
        next(&upstream, refusal.as_bytes()).await;
        next(&upstream, refusal.as_bytes()).await;
    });
    assert_eq!((answer.status, answer.text()), (400, body.to_owned()));
}

/// A call that bears no signature and that nobody has seen was made elsewhere, as far as anybody knows.
#[tokio::test]
async fn an_unsigned_call_that_nobody_knows_is_marked_as_made_elsewhere() {
    let skip = "skip_thought_signature_validator";
    let error = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;
    let request = GEMINI.go_on(GEMINI.begin(), &GEMINI.unseen()).to_string();
    let request = request.replace(r#","thoughtSignature":"Z2VudWluZQ==""#, "");
    assert!(!request.contains("thoughtSignature"), "{request}");
    let good = whole("application/json", "", GEMINI.another());
    // Of the first model it is known that it wants signatures, of the other only when it says so.
    for (more, refusals) in [("", 0), ("models = { \"*\" = \"house-model\" }", 1)] {
        let (upstream, gateway) = GEMINI.over("", more).await;
        let client = &gateway.client;
        let sent = client.send(Method::POST, GEMINI.whole_path, &[JSON], request.clone());
        let (answer, last) = tokio::join!(sent, async {
            for _ in 0..refusals {
                let first = next(&upstream, refusal(error).as_bytes()).await;
                assert!(!first.contains(skip), "{first}");
            }
            next(&upstream, &good).await
        });
        assert_eq!(last.matches(skip).count(), 1, "{last}");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let told = answer.header("x-throughline-loss").to_owned();
        assert_eq!(told, "part_omitted=tool_call.signature;reason=unknown");
    }
}

/// What a model misses says nothing of what it got.
#[tokio::test]
async fn a_signature_that_is_missed_condemns_none_that_is_there() {
    let (upstream, gateway) = GEMINI.over("", "models = { \"*\" = \"house-model\" }").await;
    let error = r#"{"error":{"code":400,"message":"Function call is missing a thought_signature in functionCall parts.","status":"INVALID_ARGUMENT"}}"#;
    let request = GEMINI.go_on(GEMINI.begin(), &GEMINI.unseen()).to_string();
    let client = &gateway.client;
    let sent = client.send(Method::POST, GEMINI.whole_path, &[JSON], request.clone());
    let refusal = refusal(error);
    let (answer, _) = tokio::join!(sent, next(&upstream, refusal.as_bytes()));
    // There is nothing to make good, so it passes on.
    assert_eq!((answer.status, answer.text()), (400, error.to_owned()));
    let good = whole("application/json", "", GEMINI.another());
    let sent = client.send(Method::POST, GEMINI.whole_path, &[JSON], request);
    let (_, again) = tokio::join!(sent, next(&upstream, &good));
    assert!(again.contains("Z2VudWluZQ=="), "{again}");
}
