//! What passes is what came, to the byte, and what is noted of it.

use std::io::Write;

use http::Method;

use crate::support::{ALL, CHAT, GEMINI, RESPONSES, answered, last_turn, text};
use crate::upstream::whole;

#[tokio::test]
async fn unknown_members_and_odd_spellings_arrive_byte_for_byte() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "").await;
        let at = (&upstream, &gateway);
        let (exchange, answer) = spoken.stream(at, spoken.request, spoken.stream).await;
        assert_eq!(text(&exchange), spoken.request);
        assert_eq!(answer.text(), spoken.stream, "{}", spoken.dialect);
        assert_eq!(exchange.target, spoken.stream_path);
        let (exchange, answer) = spoken.whole(at, spoken.request, spoken.whole).await;
        assert_eq!(text(&exchange), spoken.request);
        assert_eq!(answer.text(), spoken.whole, "{}", spoken.dialect);
        assert_eq!(exchange.target, spoken.whole_path);
    }
}

#[tokio::test]
async fn tokens_and_times_of_a_reply_that_passes_are_noted() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "").await;
        let at = (&upstream, &gateway);
        for stream in [true, false] {
            let (_, answer) = match stream {
                true => spoken.stream(at, spoken.request, spoken.stream).await,
                false => spoken.whole(at, spoken.request, spoken.whole).await,
            };
            let turn = last_turn(&gateway).await;
            assert_eq!(turn["id"], answer.header("x-throughline-turn"));
            assert_eq!(turn["lane"], "through", "{turn}");
            assert_eq!(turn["client_dialect"], spoken.dialect);
            assert_eq!(turn["upstream_dialect"], spoken.dialect);
            assert_eq!(turn["end"], "completed", "{turn}");
            let usage = &turn["usage"];
            let counts = [&usage["input"], &usage["output"], &usage["thinking"]];
            assert_eq!(
                counts.map(|count| count.as_u64().unwrap_or_default()),
                spoken.tokens,
                "{turn}"
            );
            assert!(turn["ms"]["first_thinking"].is_u64(), "{turn}");
            assert!(turn["ms"]["first_text"].is_u64(), "{turn}");
        }
    }
}

#[tokio::test]
async fn an_unedited_body_goes_on_compressed_as_it_came() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "").await;
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packer.write_all(spoken.request.as_bytes()).unwrap();
        let packed = packer.finish().unwrap();
        let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
        let client = &gateway.client;
        let sent = client.send(Method::POST, spoken.whole_path, &headers, packed.clone());
        let (_, exchange) = tokio::join!(sent, async {
            let mut exchange = upstream.next().await;
            let answer = whole("application/json", "", spoken.whole);
            exchange.write(&answer).await;
            exchange.end().await;
            exchange
        });
        assert_eq!(exchange.body, packed, "{}", spoken.dialect);
        assert_eq!(exchange.header("content-encoding"), Some("gzip"));
    }
}

#[tokio::test]
async fn a_caller_s_key_stays_here_where_the_backend_has_its_own() {
    for (spoken, name, expected) in [
        (RESPONSES, "authorization", "Bearer own"),
        (CHAT, "authorization", "Bearer own"),
        (GEMINI, "x-goog-api-key", "own"),
    ] {
        let (upstream, gateway) = spoken.over("", "api_key = \"own\"").await;
        let path = match spoken.whole_path.contains("models") {
            true => format!("{}?key=callers&x=1", spoken.whole_path),
            false => spoken.whole_path.to_owned(),
        };
        let answer = whole("application/json", "", spoken.whole);
        let (exchange, _) = answered(&upstream, &gateway, &path, spoken.request, &answer).await;
        assert_eq!(exchange.header(name), Some(expected));
        assert!(!exchange.target.contains("callers"), "{}", exchange.target);
        assert_eq!(exchange.target.contains("x=1"), spoken.dialect == "gemini");
    }
}

#[tokio::test]
async fn a_key_behind_the_path_goes_on_where_the_callers_key_does() {
    let (upstream, gateway) = GEMINI.over("", "auth = \"passthrough\"").await;
    let path = format!("{}?key=callers", GEMINI.whole_path);
    let answer = whole("application/json", "", GEMINI.whole);
    let (exchange, _) = answered(&upstream, &gateway, &path, GEMINI.request, &answer).await;
    assert_eq!(exchange.target, path);
}

#[tokio::test]
async fn a_count_of_tokens_passes_too() {
    for (spoken, path, reply) in [
        (GEMINI, "/v1beta/models/gemini-3-pro:countTokens", r#"{"totalTokens": 31}"#),
        (
            RESPONSES,
            "/v1/responses/input_tokens",
            r#"{"object":"response.input_tokens","input_tokens": 31}"#,
        ),
    ] {
        let (upstream, gateway) = spoken.over("", "").await;
        let bytes = whole("application/json", "", reply);
        let (exchange, answer) = answered(&upstream, &gateway, path, spoken.request, &bytes).await;
        assert_eq!(text(&exchange), spoken.request);
        assert_eq!(exchange.target, path);
        assert_eq!(answer.text(), reply);
        let turn = last_turn(&gateway).await;
        assert_eq!(
            (turn["end"].as_str(), turn["lane"].as_str()),
            (Some("completed"), Some("through"))
        );
    }
}

/// What no dialect reads is the provider's to refuse, in its own words.
#[tokio::test]
async fn a_providers_error_passes_as_it_is() {
    for spoken in ALL {
        let (upstream, gateway) = spoken.over("", "").await;
        let body = r#"{ "error":{"message":"no such mood","odd":1.0}}"#;
        let error = format!(
            "HTTP/1.1 422 Unprocessable\r\ncontent-type: application/json\r\nx-odd: yes\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (_, answer) =
            answered(&upstream, &gateway, spoken.whole_path, spoken.request, error.as_bytes())
                .await;
        assert_eq!((answer.status, answer.text()), (422, body.to_owned()));
        assert_eq!(answer.header("x-odd"), "yes");
        assert_eq!(last_turn(&gateway).await["status"], 422);
    }
}
