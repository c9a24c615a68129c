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
        assert!(
            told.iter().all(|fate| fate == "left_out origin"),
            "{told:?}"
        );
        assert!(
            answer
                .header("x-throughline-loss")
                .starts_with("thinking_omitted=")
        );
        // It is known now, and not tried again.
        let sent = client.send(Method::POST, spoken.whole_path, &[JSON], request.clone());
        let (_, third) = tokio::join!(sent, next(&upstream, &good));
        assert_eq!(third, second);
    }
}

#[tokio::test]
async fn a_second_refusal_passes_on() {
    let (upstream, gateway) = RESPONSES.over("", "").await;
    let request = RESPONSES
        .go_on(RESPONSES.begin(), &RESPONSES.unseen())
        .to_string();
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
