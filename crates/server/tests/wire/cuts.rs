//! Replies that end early: the client gets an error event that its SDK reads.

use http::Method;
use throughline_testkit::{Gateway, Simulator, StreamedAnswer, check_cut_reply};

use crate::support::{
    BINARY, REPLY, STREAM, gateway_over_raw_upstream, message_request, metric, open_stream,
    read_exactly,
};

/// Reads a stream as the official clients do: a blank line ends an event, which has the last
/// `event:` and all data since the event before. A `ping` is skipped.
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

/// Checks that every event is complete and that the last one is the gateway's error.
fn check_ends_in_error(bytes: &[u8], case: &str) {
    let text = std::str::from_utf8(bytes).expect("whole characters");
    let mut events = read_as_sdk(text);
    let (name, data) = events.pop().unwrap_or_default();
    assert_eq!(name, "error", "{case}\n{text}");
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["type"], "error", "{case}");
    assert_eq!(data["error"]["type"], "api_error", "{case}");
    let message = data["error"]["message"].as_str().unwrap();
    assert!(message.contains("backend `a`"), "{message}");
    let whole = read_as_sdk(STREAM);
    for (at, (name, data)) in events.iter().enumerate() {
        assert!(!name.is_empty(), "{case}: an event without a name");
        let parsed = serde_json::from_str::<serde_json::Value>(data);
        let parsed = parsed.unwrap_or_else(|error| panic!("{case}: {name} has {data:?}: {error}"));
        assert_eq!(parsed["type"], name.as_str(), "{case}");
        assert_eq!((name, data), (&whole[at].0, &whole[at].1), "{case}");
    }
}

/// Checks a stream that the upstream closes in the regular way after `cut` bytes.
async fn check_cut_at(stream: &[u8], cut: usize) {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(&stream[..cut]).await;
    let mut bytes = read_exactly(&mut streamed, cut).await;
    exchange.close().await;
    let (rest, broken) = streamed.read_to_break().await;
    assert!(!broken);
    bytes.extend_from_slice(&rest);
    assert!(bytes.starts_with(&stream[..cut]), "the bytes that came stay");
    check_ends_in_error(&bytes, &format!("cut at {cut}"));
    assert_eq!(gateway.turns().await[0]["end"], "cut");
}

/// A regular close at many offsets: before anything, in and after a name, in and after data, inside
/// a character, between events, and just before the end.
#[tokio::test]
async fn stream_cut_before_its_last_event_ends_in_an_error() {
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
        check_cut_at(STREAM.as_bytes(), cut).await;
    }
}

#[tokio::test]
async fn stream_cut_inside_a_character_stays_valid_utf8() {
    let at = STREAM.find('\u{1F914}').unwrap();
    for cut in at + 1..at + 4 {
        check_cut_at(STREAM.as_bytes(), cut).await;
    }
}

#[tokio::test]
async fn stream_cut_inside_a_crlf_ends_in_an_error() {
    let stream = STREAM.replace('\n', "\r\n");
    let name = stream.find("event: content_block_delta\r").unwrap();
    let name = name + "event: content_block_delta\r".len();
    let stop = stream.find("event: content_block_stop").unwrap();
    for cut in [name, name + 1, stop - 1, stop - 2, stop - 3, stop] {
        check_cut_at(stream.as_bytes(), cut).await;
    }
}

async fn open_faulty_stream(gateway: &Gateway, fault: &str, stream: bool) -> StreamedAnswer {
    let headers = [
        ("content-type", "application/json"),
        ("anthropic-version", "2023-06-01"),
        ("x-simulator-fault", fault),
    ];
    let body = message_request("Hello.", stream).to_string();
    let client = &gateway.client;
    client.open(Method::POST, "/v1/messages", &headers, body).await
}

/// The connection breaks, or the body ends early with a regular close.
#[tokio::test]
async fn broken_connection_ends_in_an_error_event() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], "").await;
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
        let mut streamed = open_faulty_stream(&gateway, fault, true).await;
        let (bytes, broken) = streamed.read_to_break().await;
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

/// Bytes that are not events do not count as an answer.
#[tokio::test]
async fn garbage_ends_in_an_error_event() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], "").await;
    let mut streamed = open_faulty_stream(&gateway, "garbage", true).await;
    let (bytes, broken) = streamed.read_to_break().await;
    assert!(!broken);
    let events = read_as_sdk(&String::from_utf8_lossy(&bytes));
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["error"]);
    assert_eq!(gateway.turns().await[0]["end"], "cut");
}

/// An error event ends the reply, so the gateway adds nothing.
#[tokio::test]
async fn nothing_follows_an_error_event_of_the_provider() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], "").await;
    let mut streamed = open_faulty_stream(&gateway, "error:event=4", true).await;
    let (bytes, broken) = streamed.read_to_break().await;
    assert!(!broken);
    let events = read_as_sdk(std::str::from_utf8(&bytes).unwrap());
    let errors = events.iter().filter(|(name, _)| name == "error").count();
    assert_eq!(errors, 1);
    assert!(events.last().unwrap().1.contains("overloaded_error"));
    assert_eq!(gateway.turns().await[0]["end"], "failed");
}

/// A JSON body has no room for an error after its head, so the connection breaks.
#[tokio::test]
async fn cut_whole_reply_breaks_the_connection() {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::over_simulators(BINARY, &[("a", &simulator)], "").await;
    for fault in ["cut:bytes=1", "cut:bytes=300", "cut:event=2"] {
        let mut streamed = open_faulty_stream(&gateway, fault, false).await;
        assert_eq!(streamed.status, 200);
        assert!(streamed.read_to_break().await.1, "{fault}");
    }
    // The framing of the body makes no difference.
    for more in ["", "models = { \"*\" = \"other\" }"] {
        let (upstream, gateway) = gateway_over_raw_upstream("", more).await;
        let request = message_request("Hello.", false).to_string();
        for cut in [0, 1, 50, REPLY.len() - 1] {
            check_cut_reply(
                (&upstream, &gateway),
                ("/v1/messages", &request),
                (REPLY, cut),
                !more.is_empty(),
            )
            .await;
        }
    }
}

/// A block that was closed before the cut is remembered. An open block is never sent again.
///
/// Covers: case 10
#[tokio::test]
async fn block_closed_before_the_cut_is_remembered() {
    for (cut, total) in [
        (STREAM.find("event: content_block_stop").unwrap(), 0),
        (STREAM.find("\"index\":1").unwrap(), 1),
    ] {
        let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
        let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
        exchange.write(&STREAM[..cut]).await;
        exchange.close().await;
        streamed.read_to_break().await;
        assert_eq!(gateway.statistics().await["total"], total, "cut at {cut}");
    }
}
