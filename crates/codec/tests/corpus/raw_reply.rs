//! Payloads of stored conversations: every recorded reply is captured as one JSON text, which is
//! read back as the provider sent it.

use serde_json::value::RawValue;
use throughline_canonical::Event;
use throughline_codec::dialects::raw_reply::{RawEnd, RawReply, RawShape, replay};

use super::upstream_reply::{Incoming, replies};

fn capture<'a>(reply: &Incoming, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut raw = RawReply::new(reply.dialect.raw_shape(), reply.streamed);
    for piece in pieces {
        raw.push(piece);
    }
    raw.finish()
}

/// The events of a payload. `bytes` are those that it was captured from.
fn replayed(reply: &Incoming, payload: &str, bytes: &[u8]) -> Vec<String> {
    let is_done = String::from_utf8_lossy(bytes).contains("data: [DONE]");
    let end = match (reply.streamed, is_done) {
        (false, _) => RawEnd::Whole,
        (true, true) => RawEnd::Done,
        (true, false) => RawEnd::Open,
    };
    let mut events = Vec::new();
    let mut take = |event: Event<'_>| events.push(serde_json::to_string(&event).unwrap());
    let shape = reply.dialect.raw_shape();
    replay(shape, payload, end, &mut *reply.reader(), &mut take).unwrap();
    events
}

/// Covers: S4-14, S4-15, S4-16, S4-37, S4-44
#[test]
fn captured_reply_reads_like_the_original() {
    let mut wrong = Vec::new();
    for reply in replies() {
        let bytes = &reply.bytes[..];
        let payload = capture(&reply, [bytes]);
        serde_json::from_str::<&RawValue>(&payload).unwrap();
        let (expected, found) = (reply.events([bytes]), replayed(&reply, &payload, bytes));
        if found != expected {
            wrong.push(format!("{}:\n{payload}\n{expected:#?}\n{found:#?}", reply.name));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

/// A stream that is cut anywhere has a payload, and it reads like the cut stream.
#[test]
fn cut_reply_reads_like_the_cut_original() {
    let mut wrong = Vec::new();
    for reply in replies() {
        for cut in (0..reply.bytes.len()).step_by(reply.bytes.len() / 400 + 1) {
            let bytes = &reply.bytes[..cut];
            let payload = capture(&reply, [bytes]);
            serde_json::from_str::<&RawValue>(&payload).unwrap();
            let (expected, found) = (reply.events([bytes]), replayed(&reply, &payload, bytes));
            if found != expected {
                let at = format!("{} cut at {cut}", reply.name);
                wrong.push(format!("{at}:\n{payload}\n{expected:#?}\n{found:#?}"));
                break;
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn any_split_gives_the_same_payload() {
    for reply in replies() {
        let bytes = &reply.bytes[..];
        let expected = capture(&reply, [bytes]);
        for cut in (0..=bytes.len()).step_by(bytes.len() / 1000 + 1) {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(capture(&reply, [head, tail]), expected, "{} at {cut}", reply.name);
        }
        for size in [1, 2, 3, 7, 64] {
            assert_eq!(capture(&reply, bytes.chunks(size)), expected, "{} by {size}", reply.name);
        }
    }
}

/// Every JSON value of a stream is in the payload as the provider wrote it.
#[test]
fn payload_has_the_bytes_of_every_event() {
    for reply in replies().filter(|reply| reply.streamed) {
        let payload = capture(&reply, [&reply.bytes[..]]);
        let text = String::from_utf8_lossy(&reply.bytes);
        let is_lines = reply.dialect.raw_shape() == RawShape::Lines;
        for line in text.split(['\n', '\r']) {
            let data = if is_lines { Some(line) } else { line.strip_prefix("data:") };
            let Some(data) = data.map(str::trim).filter(|data| data.starts_with('{')) else {
                continue;
            };
            if serde_json::from_str::<&RawValue>(data).is_ok() {
                assert!(payload.contains(data), "{}: {data} in {payload}", reply.name);
            }
        }
    }
}
