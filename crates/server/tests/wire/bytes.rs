//! Bytes: the gateway changes only what it must change.

use http::Method;
use throughline_testkit::{Conversation, Gateway, Simulator, ok_reply};

use crate::support::{BINARY, REPLY, STREAM, exchange, gateway_over_raw_upstream, message_request};

const JSON_HEADERS: [(&str, &str); 2] =
    [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];

/// Checks that each body reaches the upstream unchanged.
async fn check_request_bytes(bodies: &[Vec<u8>], path: &str) {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for body in bodies {
        let sent = gateway.client.send(Method::POST, path, &JSON_HEADERS, body.clone());
        let (answer, seen) = tokio::join!(sent, async {
            let mut seen = upstream.next().await;
            seen.write(ok_reply("application/json", "", REPLY)).await;
            seen
        });
        assert_eq!(answer.expect_ok().body, REPLY);
        assert_eq!(seen.target, path);
        assert!(
            seen.body == *body,
            "changed: {}",
            String::from_utf8_lossy(&body[..body.len().min(400)])
        );
        assert_eq!(seen.header("content-length"), Some(&*body.len().to_string()));
        seen.close().await;
    }
}

/// Covers: S1-28
#[tokio::test]
async fn unedited_request_is_sent_byte_for_byte() {
    let odd = [
        // Unusual white space, order and numbers.
        "\r\n { \"messages\" :\t[ {\"content\":\"Hi\",\"role\":\"user\"} ] , \"temperature\":1.50,\"top_k\":1e2,\"max_tokens\":100 ,\"model\":\"claude-sonnet-4-5\"}\n\n",
        // Escapes that are not needed, and plain characters that could be escaped.
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"\u00e9 é \ud83d\ude00 😀 \/ \u0041 \u0000"}]}"#,
        // Unknown members on every level.
        r#"{"zz":{"b":1,"a":[null,true,-0.0,1E+2]},"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Hi","zz":{}},{"type":"new_block","deep":[[[]]]}],"zz":0}],"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}}"#,
        // A number that no float can represent.
        r#"{"model":"x","max_tokens":9,"seed":123456789012345678901234567890.12345678901234567890,"messages":[]}"#,
    ];
    let bodies: Vec<Vec<u8>> = odd.iter().map(|body| body.as_bytes().to_vec()).collect();
    check_request_bytes(&bodies, "/v1/messages").await;
}

#[tokio::test]
async fn two_megabyte_body_is_sent_byte_for_byte() {
    let text = "é😀\\n\\u00e9 ".repeat(150_000);
    let body = format!(
        "{{\"model\":\"x\",\"max_tokens\":9,\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    assert!(body.len() > 2_000_000);
    check_request_bytes(&[body.into_bytes()], "/v1/messages").await;
}

#[tokio::test]
async fn query_is_sent_unchanged() {
    let body = message_request("Hello.", false).to_string().into_bytes();
    for path in [
        "/v1/messages?beta=true&x=%20",
        "/v1/messages?",
        "/v1/messages?a=b=c&&%2F+%c3%a9",
        "/v1/messages/count_tokens?beta=true",
    ] {
        check_request_bytes(std::slice::from_ref(&body), path).await;
    }
}

/// Checks that the client gets exactly what the upstream sent.
async fn check_reply_bytes(content_type: &str, more: &str, body: &[u8]) {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let reply = ok_reply(content_type, more, body);
    let asked = message_request("Hello.", content_type.starts_with("text/event-stream"));
    let answer = exchange(&upstream, &gateway.client, &asked, &reply).await.expect_ok();
    assert!(answer.body == body, "{}\nis not\n{}", answer.text(), String::from_utf8_lossy(body));
    assert_eq!(answer.header("content-type"), content_type);
}

#[tokio::test]
async fn stream_is_returned_byte_for_byte() {
    let events = "text/event-stream; charset=utf-8";
    check_reply_bytes(events, "", STREAM.as_bytes()).await;
    // Line ends, comments, ids, empty lines, unknown events and a byte order mark.
    check_reply_bytes(events, "", STREAM.replace('\n', "\r\n").as_bytes()).await;
    check_reply_bytes(events, "", STREAM.replace('\n', "\r").as_bytes()).await;
    let odd = format!(
        "\u{feff}: hello\n\nid: 7\nretry: 3\nevent:ping\ndata:{{}}\n\n\n\n{}\n\n",
        STREAM.replacen(
            "event: message_delta\n",
            "event: of_tomorrow\ndata: not json\ndata: at all\n\nevent: message_delta\n",
            1
        )
    );
    check_reply_bytes("text/event-stream", "", odd.as_bytes()).await;
}

#[tokio::test]
async fn whole_reply_is_returned_byte_for_byte() {
    check_reply_bytes("application/json", "", REPLY.as_bytes()).await;
    check_reply_bytes("application/json; charset=utf-8", "", b"{}").await;
    check_reply_bytes("text/plain", "", b"not json \xff\xfe").await;
    check_reply_bytes("text/plain", "", b" ").await;
}

/// Every status passes with its headers and its body.
#[tokio::test]
async fn provider_error_is_returned_unchanged() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let body = "{ \"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"caf\\u00e9\"},\"request_id\":\"req_7\"}\n";
    for status in [
        "400 Bad Request",
        "401 Unauthorized",
        "403 Forbidden",
        "404 Not Found",
        "413 Too Large",
        "422 Odd",
        "429 Slow Down",
        "500 Oops",
        "503 Later",
        "529 Overloaded",
        "302 Found",
    ] {
        let head = "content-type: application/json\r\nrequest-id: req_7\r\nretry-after: 7\r\n\
            retry-after-ms: 6500\r\nx-should-retry: true\r\nlocation: /elsewhere\r\n\
            anthropic-ratelimit-requests-remaining: 0\r\nanthropic-organization-id: org\r\nconnection: close";
        let length = body.len();
        let reply =
            format!("HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        for stream in [false, true] {
            let asked = message_request("Hello.", stream);
            let answer = exchange(&upstream, &gateway.client, &asked, reply.as_bytes()).await;
            assert_eq!(answer.status.to_string(), status[..3]);
            assert_eq!(answer.text(), body);
            for (name, value) in [
                ("content-type", "application/json"),
                ("request-id", "req_7"),
                ("retry-after", "7"),
                ("retry-after-ms", "6500"),
                ("x-should-retry", "true"),
                ("location", "/elsewhere"),
                ("anthropic-ratelimit-requests-remaining", "0"),
                ("anthropic-organization-id", "org"),
                ("x-throughline-backend", "a"),
            ] {
                assert_eq!(answer.header(name), value, "{name} of {status}");
            }
            assert!(answer.header("x-throughline-turn").starts_with("turn_"));
        }
    }
}

/// Dropping a block changes no other byte.
#[tokio::test]
async fn edited_request_differs_only_in_the_edited_span() {
    let a = Simulator::start("a").await;
    let b = Simulator::start("b").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a), ("b", &b)], "").await;
    let mut conversation = Conversation::new("s");
    let (message, _) = conversation.ask(&gateway.client, "Hello.").await;
    let block = message["content"][0].to_string();
    assert_eq!(message["content"][0]["type"], "thinking");
    gateway.switch("b").await;
    let body = |content: &str| {
        format!(
            "{{ \"max_tokens\" : 4096,\t\"temperature\":1.0, \"metadata\": {{\"user_id\":\"\\u00e9\"}},\n\"model\":\"claude-sonnet-4-5\",\"system\":\"You are terse.\",\"messages\":[ {{\"role\":\"user\",\"content\":\"Hello.\"}} ,{{\"content\":[{content}{{\"text\" : \"\\u0041 reply\",\"type\":\"text\"}}],\"role\":\"assistant\"}}, {{\"role\":\"user\",\"content\":\"Again.\"}}],\"stop_sequences\":[ ]}} "
        )
    };
    let asked = body(&format!("{block} , "));
    let answer = gateway.client.post_bytes("/v1/messages", &[], asked).await.expect_ok();
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
    let sent = b.last_received().await.body;
    assert_eq!(sent, body(""));
}
