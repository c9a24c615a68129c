//! Paths of the dialect other than messages, and probes of clients.

use http::Method;
use throughline_testkit::{Gateway, Simulator, ok_reply};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{BINARY, expect_gateway_error, gateway_over_raw_upstream};

#[tokio::test]
async fn other_paths_of_the_dialect_pass_unchanged() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let file = [0_u8, 255, 10, 13, 7].repeat(5000);
    let rows: [(Method, &str, &[u8]); 9] = [
        (Method::GET, "/v1/models", b""),
        (Method::GET, "/v1/models?limit=1000&after_id=%20x", b""),
        (Method::GET, "/v1/models/claude-sonnet-5", b""),
        (Method::POST, "/v1/messages/batches", br#"{ "requests":[ ] }"#),
        (Method::GET, "/v1/messages/batches/b_1/results", b""),
        (Method::DELETE, "/v1/files/file_1", b""),
        (Method::POST, "/v1/files", &file),
        (Method::PUT, "/v1/of/tomorrow?x", b"not json"),
        (Method::OPTIONS, "/v1/messages", b""),
    ];
    let body = "{\"any\" : 1.50}";
    for (method, path, sent) in rows {
        let headers = [
            ("anthropic-version", "2023-06-01"),
            ("content-type", "multipart/form-data; boundary=x"),
            ("accept-encoding", "gzip"),
        ];
        let asked = gateway.client.send(method.clone(), path, &headers, sent.to_vec());
        let (answer, seen) = tokio::join!(asked, async {
            let mut seen = upstream.next().await;
            seen.write(ok_reply("application/json", "request-id: r\r\n", body)).await;
            seen
        });
        assert_eq!(answer.expect_ok().text(), body, "{path}");
        assert_eq!((seen.method.as_str(), seen.target.as_str()), (method.as_str(), path));
        assert!(seen.body == sent, "{path}");
        for (name, value) in headers {
            assert_eq!(seen.headers_named(name), [value], "{path}");
        }
        // A request without a body stays without one.
        if sent.is_empty() {
            assert_eq!(seen.header("transfer-encoding"), None, "{path}");
        }
        seen.close().await;
    }
    // These requests are not turns.
    assert!(gateway.turns().await.is_empty());
}

#[tokio::test]
async fn head_request_passes_with_a_length_and_no_body() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let asked = gateway.client.send(Method::HEAD, "/v1/models", &[], "");
    let (answer, ()) = tokio::join!(asked, async {
        let mut seen = upstream.next().await;
        assert_eq!(seen.method, "HEAD");
        seen.write("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1234\r\nconnection: close\r\n\r\n")
            .await;
        seen.close().await;
    });
    let answer = answer.expect_ok();
    assert_eq!(answer.header("content-length"), "1234");
    assert!(answer.body.is_empty());
    assert!(answer.header("x-throughline-turn").starts_with("turn_"));
}

#[tokio::test]
async fn body_limit_does_not_apply_to_other_paths() {
    let (upstream, gateway) = gateway_over_raw_upstream("[limits]\nbody = \"1KiB\"\n", "").await;
    let file = vec![b'x'; 100_000];
    let asked = gateway.client.send(Method::POST, "/v1/files", &[], file.clone());
    let (answer, ()) = tokio::join!(asked, async {
        let seen = upstream.next().await;
        assert!(seen.body == file);
        seen.answer(&ok_reply("application/json", "", "{}")).await;
    });
    answer.expect_ok();
}

/// The backend is not at fault if its caller did not send everything.
#[tokio::test]
async fn broken_upload_is_the_callers_error() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let address = gateway.url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
        transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let upstream_connection = upstream.accept().await;
    connection.write_all(b"no length\r\n").await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("\"invalid_request_error\""), "{answer}");
    assert!(answer.contains("the request body was cut off"), "{answer}");
    drop(upstream_connection);
    let backends = gateway.client.get("/admin/backends").await.expect_ok().json();
    assert_eq!(backends["backends"][0]["healthy"], true);
}

/// The backend is not at fault if its caller disconnects.
#[tokio::test]
async fn aborted_upload_does_not_mark_the_backend_unhealthy() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let address = gateway.url.trim_start_matches("http://");
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    let head =
        format!("POST /v1/files HTTP/1.1\r\nhost: {address}\r\ncontent-length: 100\r\n\r\nhello");
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut upstream_connection = upstream.accept().await;
    drop(connection);
    // The gateway closes the connection to the backend.
    let mut rest = Vec::new();
    let _ = upstream_connection.read_to_end(&mut rest).await;
    let backends = gateway.client.get("/admin/backends").await.expect_ok().json();
    assert_eq!(backends["backends"][0]["healthy"], true);
}

#[tokio::test]
async fn client_probes_are_answered() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for (method, path, status) in [
        (Method::HEAD, "/", 200),
        (Method::GET, "/", 200),
        (Method::HEAD, "/api/hello", 200),
        (Method::GET, "/api/hello", 200),
        (Method::OPTIONS, "/", 204),
    ] {
        let answer = gateway.client.send(method.clone(), path, &[], "").await;
        assert_eq!(answer.status, status, "{method} {path}");
        let empty = method != Method::GET;
        assert_eq!(answer.body.is_empty(), empty, "{method} {path}");
    }
}

/// A backend that does not know this API could answer anything, without the conversation that the
/// API keeps.
#[tokio::test]
async fn interactions_are_refused_by_name_and_reach_no_backend() {
    let simulator = Simulator::start("one").await;
    let gateway = Gateway::over_simulators(BINARY, &[("one", &simulator)], "").await;
    for (method, path) in [
        (Method::POST, "/v1beta/interactions"),
        (Method::POST, "/v1/interactions"),
        (Method::GET, "/v1beta/interactions/i_1?stream=true"),
        (Method::POST, "/v1beta/interactions:create"),
        (Method::POST, "/b/one/v1beta/interactions"),
    ] {
        let headers = [("x-goog-api-key", "k"), ("content-type", "application/json")];
        let answer = gateway.client.send(method, path, &headers, "{}").await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
        let error = answer.json();
        assert_eq!(error["error"]["status"], "NOT_FOUND", "{path}: {error}");
        let message = error["error"]["message"].as_str().expect("a message");
        assert!(message.contains("not supported yet"), "{path}: {message}");
    }
    assert_eq!(simulator.received().await.len(), 0);
}

#[tokio::test]
async fn unknown_path_is_not_found() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for path in ["/v2/messages", "/admin", "/b/a", "/b/a/x", "/v1"] {
        let answer = gateway.client.get(path).await;
        let message = expect_gateway_error(&answer, 404, "not_found_error");
        assert!(message.contains("no such path"), "{message}");
    }
}
