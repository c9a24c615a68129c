//! Replies of providers, streamed and whole: their events, however the bytes arrive.
//!
//! - `name.sse` and `name.ndjson` are streams, `name.json` is a whole reply. The golden is
//!   `name.events.jsonl`. The `about.toml` may name a `variant` of the dialect.
//! - `name.jsonl` is a table of short replies: each row has the `events` of a stream (JSON values, or
//!   text that is no JSON) or a `whole` reply, and may have a `variant`. The runner frames the events
//!   as the dialect does. The golden has one line for each row.

use std::collections::HashSet;

use serde_json::{Value, json};
use throughline_canonical::{Block, Event, Reply};
use throughline_codec::dialects::anthropic::upstream_reply::ReplyReader;
use throughline_codec::dialects::{self, Target, UPSTREAM, UpstreamDialect, client, upstream};
use throughline_codec::framing::sse::Framer;

use super::client_reply::{fold, stream_ending};
use super::folder::{Capture, Findings, captures, lines};
use super::rules::Folder;

/// The endings of replies.
pub(crate) const INPUTS: &[&str] = &["sse", "ndjson", "json", "jsonl"];
/// Larger than any capture, so that nothing is skipped for its length.
const LIMIT: usize = 1 << 20;
const ENDED: &str = r#"{"type":"ended""#;

/// A reply as it arrives.
pub(crate) struct Incoming {
    /// Where it comes from, for messages.
    pub(crate) name: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    pub(crate) dialect: &'static dyn UpstreamDialect,
    variant: String,
    pub(crate) streamed: bool,
}

impl Incoming {
    /// Reads the reply in these pieces, passes on each event, and returns the events.
    pub(crate) fn read<'a>(
        &self,
        pieces: impl IntoIterator<Item = &'a [u8]>,
        mut each: impl FnMut(&Event<'_>),
    ) -> Vec<String> {
        let mut reader = self.reader();
        let mut events = Vec::new();
        let mut take = |event: Event<'_>| {
            each(&event);
            events.push(serde_json::to_string(&event).unwrap());
        };
        for piece in pieces {
            reader.push(piece, &mut take);
        }
        reader.finish(&mut take);
        events
    }

    /// A reader of this dialect and variant.
    pub(crate) fn reader(&self) -> Box<dyn dialects::ReplyReader> {
        let target = Target { model: "m", profile: self.dialect.profile(&self.variant) };
        self.dialect.reply_reader(&target, self.streamed)
    }

    pub(crate) fn events<'a>(&self, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<String> {
        self.read(pieces, |_| {})
    }
}

/// The replies of a capture: one, or one for each row.
fn incoming(dialect: &'static dyn UpstreamDialect, capture: &Capture) -> Vec<Incoming> {
    let name = format!("{}/{}", dialect.name(), capture.name);
    if !capture.is_table() {
        return vec![Incoming {
            name,
            bytes: capture.bytes.clone(),
            dialect,
            variant: capture.about("variant").unwrap_or_default(),
            streamed: capture.ending != "json",
        }];
    }
    let row = |(at, row): (usize, &Value)| Incoming {
        name: format!("{name}, line {}", at + 1),
        bytes: row_bytes(dialect, row).into_bytes(),
        dialect,
        variant: row["variant"].as_str().unwrap_or_default().to_owned(),
        streamed: row["whole"].is_null(),
    };
    capture.rows().iter().enumerate().map(row).collect()
}

/// The bytes of a row of a table.
fn row_bytes(dialect: &dyn UpstreamDialect, row: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if !row["whole"].is_null() {
        return text(&row["whole"]);
    }
    let sse = client(dialect.name()).is_none_or(|client| stream_ending(client) == "sse");
    let frame = |event: &Value| match sse {
        true => format!("data: {}\n\n", text(event)),
        false => format!("{}\n", text(event)),
    };
    row["events"].as_array().unwrap().iter().map(frame).collect()
}

/// Every reply of a dialect.
pub(crate) fn replies_of(dialect: &str) -> Vec<Incoming> {
    let folder = format!("{dialect}/upstream_reply");
    let dialect = upstream(dialect).unwrap();
    captures(&folder, INPUTS).iter().flat_map(|capture| incoming(dialect, capture)).collect()
}

/// Every reply of every dialect.
pub(crate) fn replies() -> impl Iterator<Item = Incoming> {
    UPSTREAM.iter().flat_map(|dialect| replies_of(dialect.name()))
}

/// Compares the events of each reply with its golden.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    let dialect = upstream(&folder.name).unwrap();
    for capture in &folder.captures {
        let replies = incoming(dialect, capture);
        let mut read = replies.iter().map(|reply| reply.read([&reply.bytes[..]], |_| {}));
        if capture.is_table() {
            let rows = read.map(|events| {
                let parse = |event: &String| serde_json::from_str(event).unwrap();
                let events: Vec<Value> = events.iter().map(parse).collect();
                json!({"events": events})
            });
            findings.golden(capture.beside("events.jsonl"), Some(&lines(rows)));
        } else {
            let events = read.next().unwrap();
            let events = format!("{}\n", events.join("\n"));
            findings.golden(capture.beside("events.jsonl"), Some(&events));
        }
    }
}

/// Covers: S1-25
#[test]
fn any_split_gives_the_same_events() {
    for reply in replies() {
        let (name, bytes) = (&reply.name, &reply.bytes[..]);
        let expected = reply.events([bytes]);
        // Every cut of a short reply, some of a long one.
        for cut in (0..=bytes.len()).step_by(bytes.len() / 5000 + 1) {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(reply.events([head, tail]), expected, "{name} split at {cut}");
        }
        for size in (1..=16).chain([64]) {
            assert_eq!(reply.events(bytes.chunks(size)), expected, "{name} by {size}");
        }
        let with_empty_reads = bytes.chunks(3).flat_map(|chunk| [&[][..], chunk, &[]]);
        assert_eq!(reply.events(with_empty_reads), expected, "{name}");
    }
}

/// A cut reply is a beginning of the whole one, then exactly one end.
#[test]
fn any_cut_ends_in_exactly_one_end() {
    for reply in replies() {
        let whole = reply.events([&reply.bytes[..]]);
        for cut in (0..=reply.bytes.len()).step_by(reply.bytes.len() / 5000 + 1) {
            let events = reply.events([&reply.bytes[..cut]]);
            let at = format!("{} cut at {cut}:\n{events:#?}", reply.name);
            let (last, before) = events.split_last().unwrap();
            assert!(last.starts_with(ENDED), "{at}");
            assert!(!before.iter().any(|event| event.starts_with(ENDED)), "{at}");
            let same = before.iter().zip(&whole).take_while(|(one, other)| one == other).count();
            let is_new = |kind: &str| before[same..].iter().all(|event| event.contains(kind));
            if last.contains(r#""reason":"cut""#) {
                // A Gemini call is complete when it comes, but stays open for a late signature.
                let held = reply.dialect.name() == "gemini" && is_new(r#""type":"block_ended""#);
                assert!(same == before.len() || held, "{at}");
            } else if last.contains(r#""reason":"failed""#) {
                assert!(is_new(r#""type":"fault""#), "{at}");
            } else {
                // The reason of the end came before the cut. Later events could only add to it.
                assert!(is_new(r#""type":"block_ended""#), "{at}");
            }
        }
    }
}

/// The chat reader compares each chunk with the one before it. White space must not change what it
/// reads.
#[test]
fn chat_chunks_read_the_same_with_other_white_space() {
    for reply in replies_of("openai_chat").iter().filter(|reply| reply.streamed) {
        let text = std::str::from_utf8(&reply.bytes).unwrap();
        let spaced: String = text
            .split_inclusive("\n\n")
            .enumerate()
            .map(|(at, event)| event.replacen('{', if at % 2 == 0 { "{ " } else { "{" }, 1))
            .collect();
        let expected = reply.events([text.as_bytes()]);
        assert_eq!(reply.events([spaced.as_bytes()]), expected, "{}", reply.name);
    }
}

/// Gemini streams events with any line ending, or one JSON list.
#[test]
fn gemini_events_and_lists_give_the_same_reply() {
    for reply in replies_of("gemini").iter().filter(|reply| reply.streamed) {
        let text = std::str::from_utf8(&reply.bytes).unwrap();
        let chunk = |event: &str| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok();
        let chunks: Option<Vec<Value>> = text.split_terminator("\n\n").map(chunk).collect();
        let Some(chunks) = chunks.filter(|chunks| !chunks.is_empty()) else {
            continue;
        };
        let expected = reply.events([text.as_bytes()]);
        let crlf = text.replace('\n', "\r\n");
        assert_eq!(reply.events([crlf.as_bytes()]), expected, "{}", reply.name);
        let list = format!("{:#}", Value::from(chunks));
        for size in [1, 7, list.len()] {
            let found = reply.events(list.as_bytes().chunks(size));
            assert_eq!(folded(&found), folded(&expected), "{} as a list by {size}", reply.name);
        }
    }
}

/// The reply of these events. A list spells the arguments of a call with its own white space, so they
/// are compared as values.
fn folded(events: &[String]) -> Reply {
    let events: Vec<Event<'_>> =
        events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let mut reply = fold(&events);
    for block in &mut reply.content {
        if let Block::ToolCall { arguments, .. } = block {
            *arguments = serde_json::from_str::<Value>(arguments).unwrap().to_string();
        }
    }
    reply
}

/// The Anthropic streams, whose framing has proofs of its own below.
fn anthropic_streams() -> Vec<Capture> {
    captures("anthropic/upstream_reply", &["sse"])
}

/// The events around it are read.
#[test]
fn an_event_over_the_limit_is_skipped_alone() {
    for capture in &anthropic_streams() {
        let dialect = upstream("anthropic").unwrap();
        let expected = incoming(dialect, capture)[0].events([&capture.bytes[..]]);
        // Small reads, so that the framer has to collect.
        for limit in [0, 40, 150, 400] {
            let mut reader = ReplyReader::events(limit);
            let mut found = Vec::new();
            let mut begun = HashSet::new();
            let mut line = |event: Event<'_>| {
                match event {
                    Event::BlockStarted { index, .. } => {
                        begun.insert(index);
                    }
                    // A delta means nothing if the start of its block was skipped.
                    Event::BlockDelta { index, .. } if !begun.contains(&index) => return,
                    _ => {}
                }
                found.push(serde_json::to_string(&event).unwrap());
            };
            for piece in capture.bytes.chunks(7) {
                reader.push(piece, &mut line);
            }
            reader.finish(&mut line);
            let mut rest = expected.iter();
            for event in &found[..found.len() - 1] {
                assert!(
                    rest.any(|line| line == event),
                    "{} with limit {limit}: {event}",
                    capture.name
                );
            }
        }
    }
}

/// The name and the data of an event.
type Named = (Vec<u8>, Vec<u8>);

/// Every event, and whether the stream ends between two events.
fn frames<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Named>, bool) {
    let mut framer = Framer::new(LIMIT);
    let mut all = Vec::new();
    for piece in pieces {
        framer.push(piece, |frame, _| {
            all.push((frame.event.to_vec(), frame.data.to_vec()));
        });
    }
    (all, framer.between_events())
}

/// Clients skip events without a name, so a name must stay with its data.
#[test]
fn events_keep_their_names_with_any_line_ending() {
    for capture in &anthropic_streams() {
        let text = String::from_utf8(capture.bytes.clone()).unwrap();
        let lines = text.replace("\r\n", "\n").replace('\r', "\n");
        let expected = frames([lines.as_bytes()]);
        for end in ["\n", "\r\n", "\r"] {
            let stream = lines.replace('\n', end);
            let bytes = stream.as_bytes();
            for size in [1, 2, 3, 7, 64, LIMIT] {
                let with_empty_reads = bytes.chunks(size).flat_map(|chunk| [chunk, &[]]);
                let name = &capture.name;
                assert_eq!(frames(with_empty_reads), expected, "{name} with {end:?} by {size}");
            }
        }
        assert_eq!(frames([&capture.bytes[..]]).0, expected.0, "{}", capture.name);
    }
}
