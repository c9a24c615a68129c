//! Compressed bodies, both ways.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Client, Gateway, Simulator};

use crate::support::{BINARY, REPLY, STREAM, ask, ask_after, exchange, over_upstream, own_error};
use crate::upstream::whole;

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

const FORMS: [(&str, Pack); 3] = [("gzip", gzip), ("deflate", deflate), ("zstd", zstd)];

async fn post(client: &Client, encoding: &str, body: Vec<u8>) -> Answer {
    let headers = [
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("content-encoding", encoding),
    ];
    client
        .send(Method::POST, "/v1/messages", &headers, body)
        .await
}

#[tokio::test]
async fn an_unedited_compressed_request_goes_up_as_it_came() {
    let (upstream, gateway) = over_upstream("", "").await;
    for (encoding, pack) in FORMS {
        let packed = pack(ask("Hello.", false).to_string().as_bytes());
        let sent = post(&gateway.client, encoding, packed.clone());
        let (answer, seen) = tokio::join!(sent, async {
            let mut seen = upstream.next().await;
            seen.write(whole("application/json", "", REPLY)).await;
            seen
        });
        answer.good();
        assert!(seen.body == packed, "{encoding}");
        assert_eq!(seen.all("content-encoding"), [encoding]);
        seen.close().await;
    }
}

#[tokio::test]
async fn a_compressed_request_is_filtered() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over(BINARY, &[("a", &a), ("b", &b)], "").await;
    let first = gateway
        .client
        .post("/v1/messages", &[], &ask("First.", false))
        .await
        .good()
        .json();
    gateway.switch("b").await;
    for (encoding, pack) in FORMS {
        let body = ask_after(&first["content"][0], false).to_string();
        let answer = post(&gateway.client, encoding, pack(body.as_bytes())).await;
        assert_eq!(
            answer.good().header("x-throughline-loss"),
            "thinking_omitted=1;reason=origin",
            "{encoding}"
        );
        let seen = b.last().await;
        assert!(seen.thinking().is_empty());
        // The edited body is plain, and says so.
        assert_eq!(seen.header("content-encoding"), None, "{encoding}");
        assert_eq!(
            seen.header("content-length"),
            Some(&*seen.body.len().to_string())
        );
    }
}

#[tokio::test]
async fn a_bomb_is_too_large() {
    let (_upstream, gateway) = over_upstream("[limits]\nbody = \"1MiB\"\n", "").await;
    let bomb = vec![b' '; 50_000_000];
    for (encoding, pack) in FORMS {
        let packed = pack(&bomb);
        // What came is no bomb; what it unpacks to is.
        assert!(packed.len() < 1 << 20, "{encoding}: {}", packed.len());
        let answer = post(&gateway.client, encoding, packed).await;
        own_error(&answer, 413, "request_too_large");
    }
    gateway.client.get("/healthz").await.good();
}

#[tokio::test]
async fn a_body_that_is_not_what_its_encoding_says_is_refused() {
    let (_upstream, gateway) = over_upstream("", "").await;
    let body = ask("Hello.", false).to_string().into_bytes();
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
        // Unknown, and stacked.
        ("lzma", body.clone()),
        ("gzip, gzip", gzip(&gzip(&body))),
    ] {
        let answer = post(&gateway.client, encoding, sent).await;
        own_error(&answer, 400, "invalid_request_error");
    }
    assert!(
        gateway
            .turns()
            .await
            .iter()
            .all(|turn| turn["status"] == 400)
    );
}

/// An upstream may compress although it was asked not to; the client gets it as it is, and the
/// thinking in it is remembered.
async fn check_reply(content_type: &str, body: &str, stream: bool) {
    for (encoding, pack) in FORMS {
        let (upstream, gateway) = over_upstream("", "").await;
        let packed = pack(body.as_bytes());
        let more = format!("content-encoding: {encoding}\r\n");
        let reply = whole(content_type, &more, &packed);
        let answer = exchange(&upstream, &gateway.client, &ask("First.", stream), &reply).await;
        let answer = answer.good();
        assert!(answer.body == packed, "{encoding}");
        assert_eq!(answer.header("content-encoding"), encoding);
        let statistics = gateway.statistics().await;
        assert_eq!(statistics["total"], 1, "{encoding}");
        assert_eq!(gateway.turns().await[0]["end"], "completed", "{encoding}");
        assert_eq!(gateway.turns().await[0]["usage"]["output"], 5);
    }
}

#[tokio::test]
async fn a_compressed_reply_comes_down_as_it_is_and_is_remembered() {
    check_reply("application/json", REPLY, false).await;
    check_reply("text/event-stream", STREAM, true).await;
}

/// A block of a compressed reply is the same block when it comes back plain.
#[tokio::test]
async fn a_block_from_a_compressed_reply_is_known_when_it_comes_back() {
    let (upstream, gateway) = over_upstream("[thinking]\nunknown = \"drop\"\n", "").await;
    let reply = whole(
        "application/json",
        "content-encoding: gzip\r\n",
        gzip(REPLY.as_bytes()),
    );
    exchange(&upstream, &gateway.client, &ask("First.", false), &reply)
        .await
        .good();
    let block: Value = json!({"type": "thinking", "thinking": "Hm \u{e9}.", "signature": "c2ln"});
    let body = ask_after(&block, false);
    let plain = whole("application/json", "", REPLY);
    let answer = exchange(&upstream, &gateway.client, &body, &plain)
        .await
        .good();
    assert_eq!(answer.header("x-throughline-loss"), "");
    assert_eq!(gateway.turns().await[0]["blocks"][0]["fate"], "sent");
}
