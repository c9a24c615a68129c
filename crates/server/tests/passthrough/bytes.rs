//! The passthrough lane keeps every byte, and the turn log records what passed.

use std::io::Write;

use http::Method;
use throughline_testkit::ok_reply;

use crate::support::{CHAT, GEMINI, RESPONSES, SAMPLES, body_text, send_and_answer};

#[tokio::test]
async fn unknown_members_and_formatting_arrive_byte_for_byte() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "").await;
        let at = (&upstream, &gateway);
        let (exchange, answer) = sample.stream(at, sample.request, sample.stream).await;
        assert_eq!(body_text(&exchange), sample.request);
        assert_eq!(answer.text(), sample.stream, "{}", sample.dialect);
        assert_eq!(exchange.target, sample.stream_path);
        let (exchange, answer) = sample.whole(at, sample.request, sample.whole).await;
        assert_eq!(body_text(&exchange), sample.request);
        assert_eq!(answer.text(), sample.whole, "{}", sample.dialect);
        assert_eq!(exchange.target, sample.whole_path);
    }
}

#[tokio::test]
async fn turn_records_tokens_and_times_of_a_passthrough_reply() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "").await;
        let at = (&upstream, &gateway);
        for stream in [true, false] {
            let (_, answer) = match stream {
                true => sample.stream(at, sample.request, sample.stream).await,
                false => sample.whole(at, sample.request, sample.whole).await,
            };
            let turn = gateway.last_turn().await;
            assert_eq!(turn["id"], answer.header("x-throughline-turn"));
            assert_eq!(turn["lane"], "through", "{turn}");
            assert_eq!(turn["client_dialect"], sample.dialect);
            assert_eq!(turn["upstream_dialect"], sample.dialect);
            assert_eq!(turn["end"], "completed", "{turn}");
            let usage = &turn["usage"];
            let counts = [&usage["input"], &usage["output"], &usage["thinking"]];
            assert_eq!(
                counts.map(|count| count.as_u64().unwrap_or_default()),
                sample.tokens,
                "{turn}"
            );
            assert!(turn["ms"]["first_thinking"].is_u64(), "{turn}");
            assert!(turn["ms"]["first_text"].is_u64(), "{turn}");
        }
    }
}

#[tokio::test]
async fn unedited_body_stays_compressed() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "").await;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(sample.request.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        let client = &gateway.client;
        let sent = client.send(Method::POST, sample.whole_path, &headers, packed.clone());
        let (_, exchange) = tokio::join!(sent, async {
            let mut exchange = upstream.next().await;
            let answer = ok_reply("application/json", "", sample.whole);
            exchange.write(&answer).await;
            exchange.shut_down().await;
            exchange
        });
        assert_eq!(exchange.body, packed, "{}", sample.dialect);
        assert_eq!(exchange.header("content-encoding"), Some("gzip"));
    }
}

#[tokio::test]
async fn backend_key_replaces_the_callers_key() {
    for (sample, name, expected) in [
        (RESPONSES, "authorization", "Bearer own"),
        (CHAT, "authorization", "Bearer own"),
        (GEMINI, "x-goog-api-key", "own"),
    ] {
        let (upstream, gateway) = sample.over("", "api_key = \"own\"").await;
        let path = match sample.whole_path.contains("models") {
            true => format!("{}?key=callers&x=1", sample.whole_path),
            false => sample.whole_path.to_owned(),
        };
        let answer = ok_reply("application/json", "", sample.whole);
        let (exchange, _) =
            send_and_answer(&upstream, &gateway, &path, sample.request, &answer).await;
        assert_eq!(exchange.header(name), Some(expected));
        assert!(!exchange.target.contains("callers"), "{}", exchange.target);
        assert_eq!(exchange.target.contains("x=1"), sample.dialect == "gemini");
    }
}

#[tokio::test]
async fn passthrough_auth_keeps_a_key_in_the_query() {
    let (upstream, gateway) = GEMINI.over("", "auth = \"passthrough\"").await;
    let path = format!("{}?key=callers", GEMINI.whole_path);
    let answer = ok_reply("application/json", "", GEMINI.whole);
    let (exchange, _) = send_and_answer(&upstream, &gateway, &path, GEMINI.request, &answer).await;
    assert_eq!(exchange.target, path);
}

#[tokio::test]
async fn token_count_uses_the_passthrough_lane() {
    for (sample, path, reply) in [
        (GEMINI, "/v1beta/models/gemini-3-pro:countTokens", r#"{"totalTokens": 31}"#),
        (
            RESPONSES,
            "/v1/responses/input_tokens",
            r#"{"object":"response.input_tokens","input_tokens": 31}"#,
        ),
    ] {
        let (upstream, gateway) = sample.over("", "").await;
        let bytes = ok_reply("application/json", "", reply);
        let (exchange, answer) =
            send_and_answer(&upstream, &gateway, path, sample.request, &bytes).await;
        assert_eq!(body_text(&exchange), sample.request);
        assert_eq!(exchange.target, path);
        assert_eq!(answer.text(), reply);
        let turn = gateway.last_turn().await;
        assert_eq!(
            (turn["end"].as_str(), turn["lane"].as_str()),
            (Some("completed"), Some("through"))
        );
    }
}

/// The gateway does not read this error. The client gets it in the provider's form.
#[tokio::test]
async fn provider_error_passes_unchanged() {
    for sample in SAMPLES {
        let (upstream, gateway) = sample.over("", "").await;
        let body = r#"{ "error":{"message":"no such mood","odd":1.0}}"#;
        let error = format!(
            "HTTP/1.1 422 Unprocessable\r\ncontent-type: application/json\r\nx-odd: yes\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (_, answer) = send_and_answer(
            &upstream,
            &gateway,
            sample.whole_path,
            sample.request,
            error.as_bytes(),
        )
        .await;
        assert_eq!((answer.status, answer.text()), (422, body.to_owned()));
        assert_eq!(answer.header("x-odd"), "yes");
        assert_eq!(gateway.last_turn().await["status"], 422);
    }
}
