//! Compressed requests and replies.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Client, Gateway, Simulator, ok_reply};

use crate::support::{
    BINARY, REPLY, STREAM, exchange, expect_gateway_error, gateway_over_raw_upstream,
    message_request, request_after,
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

type Pack = fn(&[u8]) -> Vec<u8>;

const ENCODINGS: [(&str, Pack); 3] = [("gzip", gzip), ("deflate", deflate), ("zstd", zstd)];

async fn post(client: &Client, encoding: &str, body: Vec<u8>) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("content-encoding", encoding),
    ];
    client.send(Method::POST, "/v1/messages", &headers, body).await
}

#[tokio::test]
async fn unedited_request_stays_compressed() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for (encoding, pack) in ENCODINGS {
        let packed = pack(message_request("Hello.", false).to_string().as_bytes());
        let sent = post(&gateway.client, encoding, packed.clone());
        let (answer, seen) = tokio::join!(sent, async {
            let mut seen = upstream.next().await;
            seen.write(ok_reply("application/json", "", REPLY)).await;
            seen
        });
        answer.expect_ok();
        assert!(seen.body == packed, "{encoding}");
        assert_eq!(seen.headers_named("content-encoding"), [encoding]);
        seen.close().await;
    }
}

#[tokio::test]
async fn foreign_block_is_dropped_from_a_compressed_request() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a), ("b", &b)], "").await;
    let first = gateway
        .client
        .post("/v1/messages", &[], &message_request("First.", false))
        .await
        .expect_ok()
        .json();
    gateway.switch("b").await;
    for (encoding, pack) in ENCODINGS {
        let body = request_after(&first["content"][0], false).to_string();
        let answer = post(&gateway.client, encoding, pack(body.as_bytes())).await;
        assert_eq!(
            answer.expect_ok().header("x-throughline-loss"),
            "thinking_omitted=1;reason=origin",
            "{encoding}"
        );
        let seen = b.last_received().await;
        assert!(seen.thinking().is_empty());
        // The edited body is sent without compression.
        assert_eq!(seen.header("content-encoding"), None, "{encoding}");
        assert_eq!(seen.header("content-length"), Some(&*seen.body.len().to_string()));
    }
}

#[tokio::test]
async fn rejects_a_decompression_bomb() {
    let (_upstream, gateway) = gateway_over_raw_upstream("[limits]\nbody = \"1MiB\"\n", "").await;
    let bomb = vec![b' '; 50_000_000];
    for (encoding, pack) in ENCODINGS {
        let packed = pack(&bomb);
        // The compressed body is within the limit, the decompressed body is not.
        assert!(packed.len() < 1 << 20, "{encoding}: {}", packed.len());
        let answer = post(&gateway.client, encoding, packed).await;
        expect_gateway_error(&answer, 413, "request_too_large");
    }
    gateway.client.get("/healthz").await.expect_ok();
}

#[tokio::test]
async fn rejects_a_body_that_does_not_match_its_encoding() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let body = message_request("Hello.", false).to_string().into_bytes();
    let half = |pack: Pack| {
        let mut packed = pack(&body);
        packed.truncate(packed.len() / 2);
        packed
    };
    for (encoding, sent) in [
        ("gzip", body.clone()),
        ("zstd", body.clone()),
        ("br", body.clone()),
        ("deflate", body.clone()),
        ("gzip", half(gzip)),
        ("zstd", half(zstd)),
        ("deflate", half(deflate)),
        ("gzip", Vec::new()),
        // An unknown encoding, and two encodings at once.
        ("lzma", body.clone()),
        ("gzip, gzip", gzip(&gzip(&body))),
    ] {
        let answer = post(&gateway.client, encoding, sent).await;
        expect_gateway_error(&answer, 400, "invalid_request_error");
    }
    assert!(gateway.turns().await.iter().all(|turn| turn["status"] == 400));
}

/// Checks a reply that is compressed although the gateway asked for `identity`: the client gets it
/// unchanged, and its thinking is remembered.
async fn check_compressed_reply(content_type: &str, body: &str, stream: bool) {
    for (encoding, pack) in ENCODINGS {
        let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
        let packed = pack(body.as_bytes());
        let more = format!("content-encoding: {encoding}\r\n");
        let reply = ok_reply(content_type, &more, &packed);
        let answer =
            exchange(&upstream, &gateway.client, &message_request("First.", stream), &reply).await;
        let answer = answer.expect_ok();
        assert!(answer.body == packed, "{encoding}");
        assert_eq!(answer.header("content-encoding"), encoding);
        let statistics = gateway.statistics().await;
        assert_eq!(statistics["total"], 1, "{encoding}");
        assert_eq!(gateway.turns().await[0]["end"], "completed", "{encoding}");
        assert_eq!(gateway.turns().await[0]["usage"]["output"], 5);
    }
}

#[tokio::test]
async fn compressed_reply_stays_compressed_and_is_remembered() {
    check_compressed_reply("application/json", REPLY, false).await;
    check_compressed_reply("text/event-stream", STREAM, true).await;
}

/// The gateway decompresses only to replace the model name.
#[tokio::test]
async fn mapped_model_name_decompresses_the_reply() {
    let more = "models = { \"claude-sonnet-4-5\" = \"glm-5\", \"other\" = \"x\" }";
    for (content_type, body, stream) in
        [("application/json", REPLY, false), ("text/event-stream", STREAM, true)]
    {
        for (encoding, pack) in ENCODINGS {
            let (upstream, gateway) = gateway_over_raw_upstream("", more).await;
            let packed = pack(body.replacen("claude-sonnet-4-5", "glm-5", 1).as_bytes());
            let more = format!("content-encoding: {encoding}\r\n");
            let reply = ok_reply(content_type, &more, &packed);
            let asked = message_request("First.", stream);
            let answer = exchange(&upstream, &gateway.client, &asked, &reply).await;
            let answer = answer.expect_ok();
            assert_eq!(answer.text(), body, "{encoding}");
            assert!(answer.headers.get("content-encoding").is_none());
            assert!(answer.headers.get("content-length").is_none());
            assert_eq!(gateway.statistics().await["total"], 1, "{encoding}");
            assert_eq!(gateway.turns().await[0]["end"], "completed", "{encoding}");
            // Without a mapping there is no name to replace.
            let mut asked = message_request("First.", stream);
            asked["model"] = "claude-opus-5".into();
            let answer = exchange(&upstream, &gateway.client, &asked, &reply).await;
            let answer = answer.expect_ok();
            assert!(answer.body == packed, "{encoding}");
            assert_eq!(answer.header("content-encoding"), encoding);
        }
    }
}

/// Some clients take a regular end for a complete answer. A compressed stream has no room for an
/// error event, so the connection breaks.
#[tokio::test]
async fn cut_compressed_stream_breaks_the_connection() {
    let cut = STREAM.find("event: message_stop").unwrap();
    for (encoding, pack) in ENCODINGS {
        let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
        let more = format!("content-encoding: {encoding}\r\n");
        let reply = ok_reply("text/event-stream", &more, pack(&STREAM.as_bytes()[..cut]));
        let headers = [("content-type", "application/json")];
        let body = message_request("Hello.", true).to_string();
        let opened = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
        let (mut streamed, ()) = tokio::join!(opened, async {
            upstream.next().await.answer(&reply).await;
        });
        let (bytes, broken) = streamed.read_to_break().await;
        assert!(broken, "{encoding}");
        assert!(bytes == pack(&STREAM.as_bytes()[..cut]), "{encoding}");
        let turn = &gateway.turns().await[0];
        assert_eq!(turn["end"], "cut", "{encoding}");
        let error = turn["error"].as_str().unwrap();
        assert!(error.contains("ended its reply early"), "{error}");
    }
}

/// A decompressed stream has room for an error event.
#[tokio::test]
async fn cut_decompressed_stream_ends_in_an_error_event() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "models = { \"*\" = \"glm-5\" }").await;
    let cut = STREAM.find("event: message_stop").unwrap();
    let stream = STREAM[..cut].replacen("claude-sonnet-4-5", "glm-5", 1);
    for packed in [
        gzip(stream.as_bytes()),
        // The bytes do not match their encoding.
        [gzip(stream.as_bytes()), b"garbage".to_vec()].concat(),
    ] {
        let reply = ok_reply("text/event-stream", "content-encoding: gzip\r\n", packed);
        let asked = message_request("First.", true);
        let answer = exchange(&upstream, &gateway.client, &asked, &reply).await;
        let text = answer.expect_ok().text();
        assert!(text.contains("\nevent: error\n"), "{text}");
        assert!(text.contains("backend `a`"), "{text}");
    }
}

/// The block is recognised although it comes back without compression.
#[tokio::test]
async fn block_from_a_compressed_reply_is_recognised() {
    let (upstream, gateway) =
        gateway_over_raw_upstream("[thinking]\nunknown = \"drop\"\n", "").await;
    let reply = ok_reply("application/json", "content-encoding: gzip\r\n", gzip(REPLY.as_bytes()));
    exchange(&upstream, &gateway.client, &message_request("First.", false), &reply)
        .await
        .expect_ok();
    let block: Value = json!({"type": "thinking", "thinking": "Hm \u{e9}.", "signature": "c2ln"});
    let body = request_after(&block, false);
    let plain = ok_reply("application/json", "", REPLY);
    let answer = exchange(&upstream, &gateway.client, &body, &plain).await.expect_ok();
    assert_eq!(answer.header("x-throughline-loss"), "");
    assert_eq!(gateway.turns().await[0]["blocks"][0]["fate"], "sent");
}
