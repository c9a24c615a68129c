//! Requests that cannot be served: each gets an error in the client's dialect and changes no state.

use http::Method;
use throughline_testkit::{Gateway, Simulator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{BINARY, expect_gateway_error, message_request};

struct TestServer {
    simulator: Simulator,
    gateway: Gateway,
}

async fn server(settings: &str) -> TestServer {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], settings).await;
    TestServer { simulator, gateway }
}

impl TestServer {
    /// Checks that the gateway itself rejects the body with this status, this kind and these words.
    async fn check(&self, body: impl Into<bytes::Bytes>, status: u16, kind: &str, words: &str) {
        let body = body.into();
        for path in ["/v1/messages", "/v1/messages/count_tokens"] {
            let client = &self.gateway.client;
            let answer = client.post_bytes(path, &[], body.clone()).await;
            let message = expect_gateway_error(&answer, status, kind);
            assert!(message.contains(words), "{message}\nlacks: {words}");
            assert!(message.len() < 300, "{message}");
        }
    }

    /// Checks that nothing was sent or remembered, and that the next request is served.
    async fn check_unharmed(&self) {
        assert!(self.simulator.received().await.is_empty());
        let statistics = self.gateway.statistics().await;
        assert_eq!(statistics["total"], 0);
        assert_eq!(statistics["lineages"], 0);
        let client = &self.gateway.client;
        client.post("/v1/messages", &[], &message_request("Hello.", false)).await.expect_ok();
    }
}

#[tokio::test]
async fn rejects_a_body_that_is_not_json() {
    let server = server("").await;
    let whole = message_request("Hello.", true).to_string();
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
        server.check(broken.to_owned(), 400, "invalid_request_error", "").await;
    }
    server.check_unharmed().await;
}

#[tokio::test]
async fn rejects_a_body_that_is_not_utf8() {
    let server = server("").await;
    for broken in [
        &b"{\"model\":\"\xff\xfe\"}"[..],
        b"{\"model\":\"\xed\xa0\x80\"}",
        b"\xff\xfe{\x00}\x00",
        b"{\"model\":\"x\",\"messages\":[{\"role\":\"user\",\"content\":\"\xc3\"}]}",
    ] {
        server.check(broken.to_vec(), 400, "invalid_request_error", "UTF-8").await;
    }
    server.check_unharmed().await;
}

#[tokio::test]
async fn rejects_wrong_types_with_their_path() {
    let server = server("").await;
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
        server.check(body, 400, "invalid_request_error", words).await;
    }
    server.check_unharmed().await;
}

#[tokio::test]
async fn rejects_deep_nesting() {
    let server = server("").await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!(
            "{{\"model\":\"x\",\"messages\":[{{\"role\":\"user\",\"content\":{}1{}}}]}}",
            open.repeat(100_000),
            close.repeat(100_000)
        );
        server.check(deep, 400, "invalid_request_error", "deep").await;
        let unclosed = open.repeat(100_000);
        server.check(unclosed, 400, "invalid_request_error", "").await;
    }
    server.check_unharmed().await;
}

#[tokio::test]
async fn rejects_a_body_over_the_limit() {
    let server = server("[limits]\nbody = \"2KiB\"\n").await;
    let sized = |size: usize| {
        let mut body = message_request("", false).to_string();
        body.push_str(&" ".repeat(size - body.len()));
        body
    };
    server.check(sized(2049), 413, "request_too_large", "limits.body").await;
    server.check(sized(1_000_000), 413, "request_too_large", "2048 bytes").await;
    assert!(server.simulator.received().await.is_empty());
    // A body of exactly the limit is allowed: it reaches the provider, which requires some text.
    let answer = server.gateway.client.post_bytes("/v1/messages", &[], sized(2048)).await;
    assert_eq!(server.simulator.received().await.len(), 1, "{}", answer.text());
}

/// A client that reads only after it has sent everything also gets the answer.
#[tokio::test]
async fn rejected_large_upload_gets_its_answer() {
    let server = server("").await;
    let address = server.gateway.url.trim_start_matches("http://");
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
    server.check_unharmed().await;
}

/// The gateway does not need these members, so the provider decides about them.
#[tokio::test]
async fn unknown_members_are_left_to_the_provider() {
    let server = server("").await;
    for body in [
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":null}]}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":7}]}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":[null,7,"x",{"type":null},{"type":"thinking","thinking":null}]}]}"#,
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[]}"#,
        r#"{"model":null,"messages":null}"#,
        "{}",
    ] {
        let answer = server.gateway.client.post_bytes("/v1/messages", &[], body).await;
        assert_eq!(answer.status, 400, "{body}\n{}", answer.text());
        assert_eq!(answer.json()["type"], "error");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
        let seen = server.simulator.received().await;
        if answer.header("request-id").starts_with("req_") {
            assert_eq!(seen.last().unwrap().body, body);
        }
    }
    assert_eq!(server.gateway.statistics().await["total"], 0);
}

/// The gateway does not wait for the rest of a body whose sender is gone.
#[tokio::test]
async fn aborted_body_frees_its_slot() {
    let server = server("[limits]\nstreams = 1\n").await;
    let address = server.gateway.url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000\r\n\r\n{{\"model\""
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    // A body counts as a stream from its first byte, because it takes memory.
    crate::support::wait_until_metric(&server.gateway, "throughline_streams_active", 1).await;
    drop(connection);
    crate::support::wait_until_metric(&server.gateway, "throughline_streams_active", 0).await;
    server
        .gateway
        .client
        .post("/v1/messages", &[], &message_request("Hello.", false))
        .await
        .expect_ok();
}

#[tokio::test]
async fn malformed_http_does_no_harm() {
    let server = server("").await;
    let address = server.gateway.url.trim_start_matches("http://");
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
        // A connection reset is as good an answer as a status.
        let _ = connection.read_to_end(&mut answer).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(
            text.is_empty() || text.starts_with("HTTP/1.1 4"),
            "{noise:?}: {text}"
        );
    }
    server.check_unharmed().await;
}

/// A very long path must do no harm either.
#[tokio::test]
async fn unusual_path_is_rejected_or_passed_without_harm() {
    let server = server("").await;
    let long = format!("/v1/models/{}", "x".repeat(30_000));
    for path in [
        "/v1/../admin/backends",
        "/v1//messages",
        "/v1/%00",
        "/b/%61/v1/models",
        "/v1/messages/../../x",
        &long,
    ] {
        let answer = server.gateway.client.send(Method::GET, path, &[], "").await;
        let status = answer.status;
        assert!((200..500).contains(&status), "{path:.40}: {status}");
    }
    server.gateway.client.get("/healthz").await.expect_ok();
}
