//! Captures that a scenario replays.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod common;

use std::time::Duration;

use common::{Answer, Server, adaptive, append, assemble, say};
use serde_json::Value;
use tempfile::TempDir;
use throughline_simulator::{Options, Scenario};

/// A stream that the simulator would not write: other line ends, a comment, odd spelling, half an
/// event.
const ODD: &[u8] =
    b": caf\xc3\xa9\n\nevent: ping\r\ndata: {\"type\" :\"ping\"}\r\n\r\ndata: \xff\n\ndata: ha";

/// A simulator that replays `bytes` to every request.
async fn replaying(name: &str, bytes: &[u8], step: &str, options: Options) -> (Server, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), bytes).unwrap();
    let scenario = folder.path().join("scenario.toml");
    let text = format!("[[step]]\ntimes = 99\nreplay = \"{name}\"\n{step}");
    std::fs::write(&scenario, text).unwrap();
    let options = Options { scenario: Some(Scenario::load(&scenario).unwrap()), ..options };
    (Server::start(options).await, folder)
}

async fn asked(name: &str, bytes: &[u8], step: &str) -> Answer {
    let (server, _folder) = replaying(name, bytes, step, Options::default()).await;
    server.post(&adaptive("claude-opus-5-5", "hello"), &[]).await
}

fn streamed(text: &str) -> Value {
    let mut body = adaptive("claude-opus-5-5", text);
    body["stream"] = true.into();
    body
}

///
#[tokio::test]
async fn capture_is_sent_unchanged() {
    let answer = asked("odd.sse", ODD, "").await;
    assert_eq!((answer.status, answer.complete), (200, true));
    assert_eq!(answer.body, ODD);
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let error = b"{ \"type\":\"error\" }\n";
    let answer = asked("error.json", error, "status = 529").await;
    assert_eq!((answer.status, answer.body.as_slice()), (529, &error[..]));
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn faults_act_on_a_capture() {
    let second = ODD.windows(8).position(|part| part == b"data: \xff\n").unwrap();
    for (fault, whole, expected) in [
        ("cut:event=2", false, ODD[..second].to_vec()),
        ("cut:bytes=5", false, ODD[..5].to_vec()),
        ("end:event=2", true, ODD[..second].to_vec()),
        ("chunk:bytes=1", true, ODD.to_vec()),
        ("no-ping", true, ODD.to_vec()),
    ] {
        let answer = asked("odd.sse", ODD, &format!("fault = \"{fault}\"")).await;
        assert_eq!(answer.complete, whole, "{fault}");
        assert_eq!(answer.body, expected, "{fault}");
    }
    let stalled = asked("odd.sse", ODD, "fault = \"stall:event=1,ms=300\"").await;
    assert_eq!(stalled.body, ODD);
    let silence = stalled.arrivals.windows(2).map(|pair| pair[1].0 - pair[0].0).max();
    assert!(silence >= Some(Duration::from_millis(200)), "{silence:?}");
    let ended = asked("odd.sse", ODD, "fault = \"crlf; end:event=2\"").await;
    assert_eq!(
        ended.body,
        b": caf\xc3\xa9\r\n\r\nevent: ping\r\ndata: {\"type\" :\"ping\"}\r\n\r\n"
    );
    let broken = asked("whole.json", b"{}", "fault = \"error:event=1\"").await;
    broken.assert_refused(529, "overloaded_error", "Overloaded");
}

/// Its thinking has a foreign signature, so only a simulator that does not verify accepts it.
#[tokio::test]
async fn replayed_thinking_is_rejected_when_it_comes_back() {
    let other = Server::start(Options { identity: "other".to_owned(), ..Options::default() }).await;
    let capture = other.post(&streamed("hello"), &[]).await.body;
    let lenient = Options { strict: false, ..Options::default() };
    for (step, options, status) in [
        ("", Options::default(), 400),
        ("signature = \"empty\"", Options::default(), 200),
        ("", lenient, 200),
    ] {
        let (server, _folder) = replaying("a.sse", &capture, step, options).await;
        let mut body = streamed("hello");
        let first = server.post(&body, &[]).await;
        assert_eq!(first.body, capture);
        append(&mut body, &assemble(&first.events()));
        say(&mut body, "go on");
        let next = server.post(&body, &[]).await;
        assert_eq!(next.status, status, "{step}: {}", next.text());
    }
}
