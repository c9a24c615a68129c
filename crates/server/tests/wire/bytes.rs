//! Bytes: what the gateway does not have to change, it does not change.

use http::Method;
use throughline_testkit::{Conversation, Gateway, Simulator};

use crate::support::{BINARY, REPLY, STREAM, ask, exchange, over_upstream};
use crate::upstream::whole;

const JSON: [(&str, &str); 2] =
    [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];

/// Each body reaches the upstream as it is.
async fn check_up(bodies: &[Vec<u8>], path: &str) {
    let (upstream, gateway) = over_upstream("", "").await;
    for body in bodies {
        let sent = gateway.client.send(Method::POST, path, &JSON, body.clone());
        let (answer, seen) = tokio::join!(sent, async {
            let mut seen = upstream.next().await;
            seen.write(whole("application/json", "", REPLY)).await;
            seen
        });
        assert_eq!(answer.good().body, REPLY);
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
async fn an_unedited_request_goes_up_byte_for_byte() {
    let odd = [
        // White space, order and numbers as nobody writes them.
        "\r\n { \"messages\" :\t[ {\"content\":\"Hi\",\"role\":\"user\"} ] , \"temperature\":1.50,\"top_k\":1e2,\"max_tokens\":100 ,\"model\":\"claude-sonnet-4-5\"}\n\n",
        // Escapes that could be written plainly, and plain letters that could be escaped.
        r#"{"model":"claude-sonnet-4-5","max_tokens":9,"messages":[{"role":"user","content":"\u00e9 é \ud83d\ude00 😀 \/ \u0041 \u0000"}]}"#,
        // Fields nobody knows, on every level.
        r#"{"zz":{"b":1,"a":[null,true,-0.0,1E+2]},"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"Hi","zz":{}},{"type":"new_block","deep":[[[]]]}],"zz":0}],"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}}"#,
        // A number no float can hold.
        r#"{"model":"x","max_tokens":9,"seed":123456789012345678901234567890.12345678901234567890,"messages":[]}"#,
    ];
    let bodies: Vec<Vec<u8>> = odd.iter().map(|body| body.as_bytes().to_vec()).collect();
    check_up(&bodies, "/v1/messages").await;
}

#[tokio::test]
async fn a_body_of_two_megabytes_goes_up_byte_for_byte() {
    let text = "é😀\\n\\u00e9 ".repeat(150_000);
    let body = format!(
        "{{\"model\":\"x\",\"max_tokens\":9,\"messages\":[{{\"role\":\"user\",\"content\":\"{text}\"}}]}}"
    );
    assert!(body.len() > 2_000_000);
    check_up(&[body.into_bytes()], "/v1/messages").await;
}

#[tokio::test]
async fn a_query_goes_up_as_it_is() {
    let body = ask("Hello.", false).to_string().into_bytes();
    for path in [
        "/v1/messages?beta=true&x=%20",
        "/v1/messages?",
        "/v1/messages?a=b=c&&%2F+%c3%a9",
        "/v1/messages/count_tokens?beta=true",
    ] {
        check_up(std::slice::from_ref(&body), path).await;
    }
}

/// What the upstream answers is what the client gets.
async fn check_down(content_type: &str, more: &str, body: &[u8]) {
    let (upstream, gateway) = over_upstream("", "").await;
    let reply = whole(content_type, more, body);
    let asked = ask("Hello.", content_type.starts_with("text/event-stream"));
    let answer = exchange(&upstream, &gateway.client, &asked, &reply).await.good();
    assert!(answer.body == body, "{}\nis not\n{}", answer.text(), String::from_utf8_lossy(body));
    assert_eq!(answer.header("content-type"), content_type);
}

#[tokio::test]
async fn a_stream_comes_down_byte_for_byte() {
    let events = "text/event-stream; charset=utf-8";
    check_down(events, "", STREAM.as_bytes()).await;
    // Line ends, comments, ids, empty lines, unknown events and a byte order mark.
    check_down(events, "", STREAM.replace('\n', "\r\n").as_bytes()).await;
    check_down(events, "", STREAM.replace('\n', "\r").as_bytes()).await;
    let odd = format!(
        "\u{feff}: hello\n\nid: 7\nretry: 3\nevent:ping\ndata:{{}}\n\n\n\n{}\n\n",
        STREAM.replacen(
            "event: message_delta\n",
            "event: of_tomorrow\ndata: not json\ndata: at all\n\nevent: message_delta\n",
            1
        )
    );
    check_down("text/event-stream", "", odd.as_bytes()).await;
}

#[tokio::test]
async fn a_whole_reply_comes_down_byte_for_byte() {
    check_down("application/json", "", REPLY.as_bytes()).await;
    check_down("application/json; charset=utf-8", "", b"{}").await;
    check_down("text/plain", "", b"not json \xff\xfe").await;
    check_down("text/plain", "", b" ").await;
}

/// Every status passes with its headers and its body.
#[tokio::test]
async fn an_error_of_the_provider_comes_down_unchanged() {
    let (upstream, gateway) = over_upstream("", "").await;
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
            let asked = ask("Hello.", stream);
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

/// Where a block has to go, nothing else does.
#[tokio::test]
async fn an_edited_request_differs_in_the_edited_span_only() {
    let a = Simulator::start("a").await;
    let b = Simulator::start("b").await;
    let gateway = Gateway::over(BINARY, &[("a", &a), ("b", &b)], "").await;
    let mut talk = Conversation::new("s");
    let (message, _) = talk.say(&gateway.client, "Hello.").await;
    let block = message["content"][0].to_string();
    assert_eq!(message["content"][0]["type"], "thinking");
    gateway.switch("b").await;
    let body = |content: &str| {
        format!(
            "{{ \"max_tokens\" : 4096,\t\"temperature\":1.0, \"metadata\": {{\"user_id\":\"\\u00e9\"}},\n\"model\":\"claude-sonnet-4-5\",\"system\":\"You are terse.\",\"messages\":[ {{\"role\":\"user\",\"content\":\"Hello.\"}} ,{{\"content\":[{content}{{\"text\" : \"\\u0041 reply\",\"type\":\"text\"}}],\"role\":\"assistant\"}}, {{\"role\":\"user\",\"content\":\"Again.\"}}],\"stop_sequences\":[ ]}} "
        )
    };
    let asked = body(&format!("{block} , "));
    let answer = gateway.client.post_bytes("/v1/messages", &[], asked).await.good();
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
    let sent = b.last().await.body;
    assert_eq!(sent, body(""));
}
