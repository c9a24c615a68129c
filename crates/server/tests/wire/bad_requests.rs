//! Requests nobody can serve: refused in the dialect's own shape, remembered nowhere, survived.

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use throughline_testkit::{Gateway, Simulator};

use crate::support::{BINARY, ask, own_error};

struct Served {
    simulator: Simulator,
    gateway: Gateway,
}

async fn served(settings: &str) -> Served {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over(BINARY, &[("a", &simulator)], settings).await;
    Served { simulator, gateway }
}

impl Served {
    /// Refused by the gateway itself: a status, a kind, and words in the message.
    async fn check(&self, body: impl Into<bytes::Bytes>, status: u16, kind: &str, words: &str) {
        let body = body.into();
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let client = &self.gateway.client;
            let answer = client.post_bytes(path, &[], body.clone()).await;
            let message = own_error(&answer, status, kind);
            assert!(message.contains(words), "{message}\nlacks: {words}");
            assert!(message.len() < 300, "{message}");
        }
    }

    /// Nothing went up, nothing is remembered, and the next request is served.
    async fn check_unharmed(&self) {
        assert!(self.simulator.seen().await.is_empty());
        let statistics = self.gateway.statistics().await;
        assert_eq!(statistics["total"], 0);
        assert_eq!(statistics["lineages"], 0);
        let client = &self.gateway.client;
        client.post("/v1/messages", &[], &ask("Hello.", false)).await.good();
    }
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused() {
    let served = served("").await;
    let whole = ask("Hello.", true).to_string();
    for broken in [
        "",
        " ",
        "hello",
        "{",
        "}",
        "{\"model\"}",
        "{\"model\":\"x\",}",
        "{'model':'x'}",
        "{\"model\":\"x\"} {}",
        "{\"model\":\"x\",\"n\":01}",
        "{\"model\":\"x\",\"n\":NaN}",
        "{\"model\":\"a\nb\"}",
        "{\"model\":\"\\x\"}",
        &whole[..whole.len() - 1],
        &whole[..whole.len() / 2],
        "\u{feff}{}",
    ] {
        served.check(broken.to_owned(), 400, "invalid_request_error", "").await;
    }
    served.check_unharmed().await;
}

#[tokio::test]
async fn bytes_that_are_not_utf8_are_refused() {
    let served = served("").await;
    for broken in [
        &b"{\"model\":\"\xff\xfe\"}"[..],
        b"{\"model\":\"\xed\xa0\x80\"}",
        b"\xff\xfe{\x00}\x00",
        b"{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"\xc3\"}]}",
    ] {
        served.check(broken.to_vec(), 400, "invalid_request_error", "UTF-8").await;
    }
    served.check_unharmed().await;
}

#[tokio::test]
async fn wrong_types_are_refused_with_their_place() {
    let served = served("").await;
    for (body, words) in [
        ("[]", "the body, found a list"),
        ("null", "the body, found null"),
        ("7", "the body, found a number"),
        ("\"text\"", "the body, found a string"),
        (r#"{"model":7,"messages":[]}"#, "model"),
        (r#"{"model":"x","messages":"Hi"}"#, "messages"),
        (r#"{"model":"x","messages":{}}"#, "messages"),
        (r#"{"model":"x","messages":["Hi"]}"#, "messages.0"),
        (r#"{"model":"x","messages":[{"role":"user"},[]]}"#, "messages.1"),
        (r#"{"model":"x","messages":[{"role":7}]}"#, "messages.0.role"),
        (r#"{"model":"x","stream":"yes","messages":[]}"#, "stream"),
        (r#"{"model":"x","max_tokens":"9","messages":[]}"#, "max_tokens"),
        (r#"{"model":"x","thinking":"on","messages":[]}"#, "thinking"),
        (r#"{"model":"x","model":"y","messages":[]}"#, "model"),
        (r#"{"messages":[{"role":"user"}],"messages":[]}"#, "messages"),
        (r#"{"thinking":{},"thinking":{}}"#, "thinking"),
    ] {
        served.check(body, 400, "invalid_request_error", words).await;
    }
    served.check_unharmed().await;
}

#[tokio::test]
async fn deep_nesting_is_refused() {
    let served = served("").await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!(
            "{{\"model\":\"x\",\"messages\":[{{\"role\":\"user\",\"content\":{}1{}}}]}}",
            open.repeat(100_000),
            close.repeat(100_000)
        );
        served.check(deep, 400, "invalid_request_error", "deep").await;
        let unclosed = open.repeat(100_000);
        served.check(unclosed, 400, "invalid_request_error", "").await;
    }
    served.check_unharmed().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_too_large() {
    let served = served("[limits]\nbody = \"2KiB\"\n").await;
    let sized = |size: usize| {
        let mut body = ask("", false).to_string();
        body.push_str(&" ".repeat(size - body.len()));
        body
    };
    served.check(sized(2049), 413, "request_too_large", "limits.body").await;
    served.check(sized(1_000_000), 413, "request_too_large", "2048 bytes").await;
    assert!(served.simulator.seen().await.is_empty());
    // The limit itself is no mistake: the provider sees it (and wants some text).
    let answer = served.gateway.client.post_bytes("/v1/messages", &[], sized(2048)).await;
    assert_eq!(served.simulator.seen().await.len(), 1, "{}", answer.text());
}

/// A sender that reads only when it has sent everything gets the answer too.
#[tokio::test]
async fn a_hundred_megabytes_are_refused_and_their_sender_is_told() {
    let served = served("").await;
    let address = served.gateway.url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let size = 100 << 20;
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
        content-type: application/json\r\ncontent-length: {size}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let piece = vec![b' '; 1 << 20];
    for sent in 0..size / piece.len() {
        let written = connection.write_all(&piece).await;
        assert!(written.is_ok(), "cut off after {sent} MiB");
    }
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\"request_too_large\""), "{answer}");
    served.check_unharmed().await;
}

/// What is no business of ours is the provider's to refuse, in its own words.
#[tokio::test]
async fn what_the_gateway_need_not_understand_goes_up() {
    let served = served("").await;
    for body in [
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":null}]}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":7}]}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":[null,7,"x",{"type":null},{"type":"thinking","thinking":null}]}]}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}"#,
        r#"{"model":null,"messages":null}"#,
        "{}",
    ] {
        let answer = served.gateway.client.post_bytes("/v1/messages", &[], body).await;
        assert_eq!(answer.status, 400, "{body}\n{}", answer.text());
        assert_eq!(answer.json()["type"], "error");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        let seen = served.simulator.seen().await;
        if answer.header("request-id").starts_with("req_") {
            assert_eq!(seen.last().unwrap().body, body);
        }
    }
    assert_eq!(served.gateway.statistics().await["total"], 0);
}

/// A body that never ends is not waited for when its sender has gone.
#[tokio::test]
async fn a_body_that_breaks_off_is_forgotten() {
    let served = served("[limits]\nstreams = 1\n").await;
    let address = served.gateway.url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000\r\n\r\n{{\"model\""
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    // A body on its way has its place, since it takes memory from its first byte on.
    crate::support::until_metric(&served.gateway, "throughline_streams_active", 1).await;
    drop(connection);
    crate::support::until_metric(&served.gateway, "throughline_streams_active", 0).await;
    served.gateway.client.post("/v1/messages", &[], &ask("Hello.", false)).await.good();
}

#[tokio::test]
async fn what_is_no_http_does_no_harm() {
    let served = served("").await;
    let address = served.gateway.url.trim_start_matches("http://");
    for noise in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"GET\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ] {
        let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
        connection.write_all(noise).await.unwrap();
        connection.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // A reset says no as well as a status does.
        let _ = connection.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 4"),
            "{noise:?}: {text}"
        );
    }
    served.check_unharmed().await;
}

/// A long address is no reason to fall over either.
#[tokio::test]
async fn an_odd_path_is_refused_or_passed_but_never_harmful() {
    let served = served("").await;
    let long = format!("/v1/models/{}", "x".repeat(30_000));
    for path in [
        "/v1/../admin/backends",
        "/v1//messages",
        "/v1/%00",
        "/b/%61/v1/models",
        "/v1/messages/../../x",
        &long,
    ] {
        let answer = served.gateway.client.send(Method::GET, path, &[], "").await;
        let status = answer.status;
        assert!((200..500).contains(&status), "{path:.40}: {status}");
    }
    served.gateway.client.get("/healthz").await.good();
}
