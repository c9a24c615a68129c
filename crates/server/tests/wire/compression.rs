//! Compressed bodies, both ways.

use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Client, Gateway, Simulator};

use crate::support::{
    BINARY, REPLY, STREAM, ask, ask_after, exchange, over_upstream, own_error, read_to_end,
};
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
    client.send(Method::POST, "/v1/messages", &headers, body).await
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
    let first = gateway.client.post("/v1/messages", &[], &ask("First.", false)).await.good().json();
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
        assert_eq!(seen.header("content-length"), Some(&*seen.body.len().to_string()));
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
    assert!(gateway.turns().await.iter().all(|turn| turn["status"] == 400));
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

/// Only with a name to put back is it undone.
#[tokio::test]
async fn a_compressed_reply_gets_the_clients_name_and_comes_down_plain() {
    let more = "models = { \"claude-sonnet-4-5\" = \"glm-5\", \"other\" = \"x\" }";
    for (content_type, body, stream) in
        [("application/json", REPLY, false), ("text/event-stream", STREAM, true)]
    {
        for (encoding, pack) in FORMS {
            let (upstream, gateway) = over_upstream("", more).await;
            let packed = pack(body.replacen("claude-sonnet-4-5", "glm-5", 1).as_bytes());
            let more = format!("content-encoding: {encoding}\r\n");
            let reply = whole(content_type, &more, &packed);
            let asked = ask("First.", stream);
            let answer = exchange(&upstream, &gateway.client, &asked, &reply).await;
            let answer = answer.good();
            assert_eq!(answer.text(), body, "{encoding}");
            assert!(answer.headers.get("content-encoding").is_none());
            assert!(answer.headers.get("content-length").is_none());
            assert_eq!(gateway.statistics().await["total"], 1, "{encoding}");
            assert_eq!(gateway.turns().await[0]["end"], "completed", "{encoding}");
            // A name that was not mapped is none to put back.
            let mut asked = ask("First.", stream);
            asked["model"] = "claude-opus-5".into();
            let answer = exchange(&upstream, &gateway.client, &asked, &reply).await;
            let answer = answer.good();
            assert!(answer.body == packed, "{encoding}");
            assert_eq!(answer.header("content-encoding"), encoding);
        }
    }
}

/// Several clients take a clean end for a whole answer; in a compressed one there is no room for an
/// error event, but a connection can break.
#[tokio::test]
async fn a_compressed_stream_that_ends_early_does_not_end_well() {
    let cut = STREAM.find("event: message_stop").unwrap();
    for (encoding, pack) in FORMS {
        let (upstream, gateway) = over_upstream("", "").await;
        let more = format!("content-encoding: {encoding}\r\n");
        let reply = whole("text/event-stream", &more, pack(&STREAM.as_bytes()[..cut]));
        let headers = [("content-type", "application/json")];
        let body = ask("Hello.", true).to_string();
        let opened = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
        let (mut streamed, ()) = tokio::join!(opened, async {
            upstream.next().await.answer(&reply).await;
        });
        let (bytes, broken) = read_to_end(&mut streamed).await;
        assert!(broken, "{encoding}");
        assert!(bytes == pack(&STREAM.as_bytes()[..cut]), "{encoding}");
        let turn = &gateway.turns().await[0];
        assert_eq!(turn["end"], "cut", "{encoding}");
        let error = turn["error"].as_str().unwrap();
        assert!(error.contains("before its end"), "{error}");
    }
}

/// Undone for its name, there is room for an error event again.
#[tokio::test]
async fn a_compressed_stream_that_is_undone_ends_early_in_an_error_event() {
    let (upstream, gateway) = over_upstream("", "models = { \"*\" = \"glm-5\" }").await;
    let cut = STREAM.find("event: message_stop").unwrap();
    let stream = STREAM[..cut].replacen("claude-sonnet-4-5", "glm-5", 1);
    for packed in [
        gzip(stream.as_bytes()),
        // Not what it says it is.
        [gzip(stream.as_bytes()), b"garbage".to_vec()].concat(),
    ] {
        let reply = whole("text/event-stream", "content-encoding: gzip\r\n", packed);
        let asked = ask("First.", true);
        let answer = exchange(&upstream, &gateway.client, &asked, &reply).await;
        let text = answer.good().text();
        assert!(text.contains("\nevent: error\n"), "{text}");
        assert!(text.contains("backend `a`"), "{text}");
    }
}

/// A block of a compressed reply is the same block when it comes back plain.
#[tokio::test]
async fn a_block_from_a_compressed_reply_is_known_when_it_comes_back() {
    let (upstream, gateway) = over_upstream("[thinking]\nunknown = \"drop\"\n", "").await;
    let reply = whole("application/json", "content-encoding: gzip\r\n", gzip(REPLY.as_bytes()));
    exchange(&upstream, &gateway.client, &ask("First.", false), &reply).await.good();
    let block: Value = json!({"type": "thinking", "thinking": "Hm \u{e9}.", "signature": "c2ln"});
    let body = ask_after(&block, false);
    let plain = whole("application/json", "", REPLY);
    let answer = exchange(&upstream, &gateway.client, &body, &plain).await.good();
    assert_eq!(answer.header("x-throughline-loss"), "");
    assert_eq!(gateway.turns().await[0]["blocks"][0]["fate"], "sent");
}
