//! Replies that end before their end: the client is told, in a form its SDK reads.

use http::Method;
use throughline_testkit::{Gateway, Simulator, Streamed};

use crate::support::{
    BINARY, REPLY, STREAM, ask, metric, open_stream, over_upstream, read_exactly, read_to_end,
};
use crate::upstream::framings;

/// A stream as the official clients read it: on each blank line the last `event:` and all data
/// since the one before are an event; a `ping` is skipped unread.
fn read_as_sdk(text: &str) -> Vec<(String, String)> {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut name, mut data) = (Vec::new(), String::new(), Vec::new());
    for line in text.split('\n') {
        if line.is_empty() {
            if !name.is_empty() || !data.is_empty() {
                let data = std::mem::take(&mut data).join("\n");
                events.push((std::mem::take(&mut name), data));
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value.to_owned()),
            _ => {}
        }
    }
    events.retain(|(name, _)| name != "ping");
    events
}

/// Everything but the last event is whole, and the last one is our error.
fn check_cut(bytes: &[u8], what: &str) {
    let text = std::str::from_utf8(bytes).expect("whole characters");
    let mut events = read_as_sdk(text);
    let (name, data) = events.pop().unwrap_or_default();
    assert_eq!(name, "error", "{what}\n{text}");
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["type"], "error", "{what}");
    assert_eq!(data["error"]["type"], "api_error", "{what}");
    let message = data["error"]["message"].as_str().unwrap();
    assert!(message.contains("backend `a`"), "{message}");
    let whole = read_as_sdk(STREAM);
    for (at, (name, data)) in events.iter().enumerate() {
        assert!(!name.is_empty(), "{what}: an event without a name");
        let parsed = serde_json::from_str::<serde_json::Value>(data);
        let parsed = parsed.unwrap_or_else(|error| panic!("{what}: {name} has {data:?}: {error}"));
        assert_eq!(parsed["type"], name.as_str(), "{what}");
        assert_eq!((name, data), (&whole[at].0, &whole[at].1), "{what}");
    }
}

/// The upstream's bytes end here, by a clean close.
async fn check_end_at(stream: &[u8], cut: usize) {
    let (upstream, gateway) = over_upstream("", "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(&stream[..cut]).await;
    let mut bytes = read_exactly(&mut streamed, cut).await;
    exchange.close().await;
    let (rest, broken) = read_to_end(&mut streamed).await;
    assert!(!broken);
    bytes.extend_from_slice(&rest);
    assert!(bytes.starts_with(&stream[..cut]), "the bytes that came stay");
    check_cut(&bytes, &format!("cut at {cut}"));
    assert_eq!(gateway.turns().await[0]["end"], "cut");
}

/// A clean close at every kind of place: before anything, in and after a name, in and after data,
/// in a character, between events, and just before the end.
#[tokio::test]
async fn an_end_before_the_last_event_is_told_wherever_it_falls() {
    let at = |words: &str| STREAM.find(words).unwrap();
    let delta = at("event: content_block_delta");
    for cut in [
        0,
        3,
        "event: message_start".len(),
        "event: message_start\n".len(),
        "event: message_start\ndata".len(),
        "event: message_start\ndata: ".len(),
        100,
        delta,
        delta + 2,
        delta + "event: content_block".len(),
        delta + "event: content_block_delta\n".len(),
        at("Hm "),
        at("event: content_block_stop") - 1,
        at("event: content_block_stop"),
        at("event: message_stop"),
        at("event: message_stop") + "event: message_stop\n".len(),
        STREAM.len() - 4,
    ] {
        check_end_at(STREAM.as_bytes(), cut).await;
    }
}

#[tokio::test]
async fn an_end_within_a_character_is_told_in_whole_characters() {
    let at = STREAM.find('\u{1F914}').unwrap();
    for cut in at + 1..at + 4 {
        check_end_at(STREAM.as_bytes(), cut).await;
    }
}

#[tokio::test]
async fn an_end_within_a_line_end_of_two_characters_is_told() {
    let stream = STREAM.replace('\n', "\r\n");
    let name = stream.find("event: content_block_delta\r").unwrap();
    let name = name + "event: content_block_delta\r".len();
    let stop = stream.find("event: content_block_stop").unwrap();
    for cut in [name, name + 1, stop - 1, stop - 2, stop - 3, stop] {
        check_end_at(stream.as_bytes(), cut).await;
    }
}

async fn open(gateway: &Gateway, fault: &str, stream: bool) -> Streamed {
    let headers = [
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("x-simulator-fault", fault),
    ];
    let body = ask("Hello.", stream).to_string();
    let client = &gateway.client;
    client.open(Method::POST, "/v1/messages", &headers, body).await
}

/// The connection breaks, or the body ends cleanly but early.
#[tokio::test]
async fn a_broken_connection_is_told_as_an_error_event() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over(BINARY, &[("a", &simulator)], "").await;
    let faults = [
        "cut:bytes=1",
        "cut:bytes=21",
        "cut:bytes=200",
        "cut:bytes=777",
        "cut:bytes=1001",
        "cut:event=0",
        "cut:event=3",
        "cut:event=5;crlf",
        "cut:bytes=801;crlf",
        "end:event=0",
        "end:event=1",
        "end:event=4",
        "end:event=4;chunk:bytes=7",
    ];
    for fault in faults {
        let mut streamed = open(&gateway, fault, true).await;
        let (bytes, broken) = read_to_end(&mut streamed).await;
        assert!(!broken, "{fault}");
        let events = read_as_sdk(std::str::from_utf8(&bytes).unwrap());
        let (name, _) = events.last().unwrap();
        assert_eq!(name, "error", "{fault}");
        for (name, data) in &events {
            let parsed = serde_json::from_str::<serde_json::Value>(data);
            assert!(parsed.is_ok(), "{fault}: {name} has {data:?}");
        }
        assert_eq!(gateway.turns().await[0]["end"], "cut", "{fault}");
    }
    let cut = metric(&gateway, "throughline_replies_cut_total").await;
    assert_eq!(cut, faults.len() as u64);
}

/// Bytes that are no events are no answer either.
#[tokio::test]
async fn garbage_ends_in_an_error_event() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over(BINARY, &[("a", &simulator)], "").await;
    let mut streamed = open(&gateway, "garbage", true).await;
    let (bytes, broken) = read_to_end(&mut streamed).await;
    assert!(!broken);
    let events = read_as_sdk(&String::from_utf8_lossy(&bytes));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["error"]);
    assert_eq!(gateway.turns().await[0]["end"], "cut");
}

/// An error of the provider in mid-stream is an end; nothing is added to it.
#[tokio::test]
async fn an_error_event_of_the_provider_is_the_last_word() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over(BINARY, &[("a", &simulator)], "").await;
    let mut streamed = open(&gateway, "error:event=4", true).await;
    let (bytes, broken) = read_to_end(&mut streamed).await;
    assert!(!broken);
    let events = read_as_sdk(std::str::from_utf8(&bytes).unwrap());
    let errors = events.iter().filter(|(name, _)| name == "error").count();
    assert_eq!(errors, 1);
    assert!(events.last().unwrap().1.contains("overloaded_error"));
    assert_eq!(gateway.turns().await[0]["end"], "failed");
}

/// There is no place for an error in JSON: the connection says it.
#[tokio::test]
async fn a_cut_whole_reply_breaks_the_connection() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over(BINARY, &[("a", &simulator)], "").await;
    for fault in ["cut:bytes=1", "cut:bytes=300", "cut:event=2"] {
        let mut streamed = open(&gateway, fault, false).await;
        assert_eq!(streamed.status, 200);
        assert!(read_to_end(&mut streamed).await.1, "{fault}");
    }
    // However the body was framed.
    for more in ["", "models = { \"*\" = \"other\" }"] {
        let (upstream, gateway) = over_upstream("", more).await;
        for cut in [0, 1, 50, REPLY.len() - 1] {
            let half = &REPLY.as_bytes()[..cut];
            for (framing, answer) in framings(half, REPLY.len()) {
                let what = format!("{framing} {cut} {more}");
                let body = ask("Hello.", false).to_string();
                let headers = [("content-type", "application/json")];
                let client = &gateway.client;
                let opened = client.open(Method::POST, "/v1/messages", &headers, body);
                let (mut streamed, ()) = tokio::join!(opened, async {
                    upstream.next().await.answer(&answer).await;
                });
                let (bytes, broken) = read_to_end(&mut streamed).await;
                // Where the head tells that nothing follows, there still is a status to say so.
                if (cut, framing) == (0, "own length") {
                    assert_eq!((streamed.status, broken), (502, false), "{what}");
                    let said = String::from_utf8(bytes).unwrap();
                    assert!(said.contains("empty body"), "{what}: {said}");
                    continue;
                }
                assert!(broken, "{what}");
                assert!(half.starts_with(&bytes), "{what}");
                let lost = half.len() - bytes.len();
                // Of a body that promised to be no longer, the last byte stays behind.
                assert!(!more.is_empty() || lost <= 1, "{what}: {lost} bytes lost");
                assert_eq!(gateway.turns().await[0]["end"], "cut", "{what}");
            }
        }
    }
}

/// A block that was closed before the cut is remembered, one that was not is never sent again.
///
/// Covers: case 10
#[tokio::test]
async fn a_block_closed_before_the_cut_is_remembered() {
    for (cut, total) in [
        (STREAM.find("event: content_block_stop").unwrap(), 0),
        (STREAM.find("\"index\":1").unwrap(), 1),
    ] {
        let (upstream, gateway) = over_upstream("", "").await;
        let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
        exchange.write(&STREAM[..cut]).await;
        exchange.close().await;
        read_to_end(&mut streamed).await;
        assert_eq!(gateway.statistics().await["total"], total, "cut at {cut}");
    }
}
