//! Replies of providers, streamed and whole, and their events.

use std::collections::HashSet;

use throughline_canonical::Event;
use throughline_codec::dialects::anthropic::upstream_reply::ReplyReader;
use throughline_codec::framing::sse::Framer;

use super::folder::{Capture, captures, report};

/// Larger than any capture, so that no event is skipped.
const LIMIT: usize = 1 << 20;
const FOLDER: &str = "anthropic/upstream_reply";
const ENDED: &str = r#"{"type":"ended""#;

pub(crate) fn replies() -> Vec<Capture> {
    captures(FOLDER, &["sse", "json"])
}

/// Reads a reply that arrives in these pieces. Passes each event on, and returns them as lines.
pub(crate) fn read<'a>(
    capture: &Capture,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    mut each: impl FnMut(&Event<'_>),
) -> String {
    let mut reader = match capture.ending.as_str() {
        "sse" => ReplyReader::events(LIMIT),
        _ => ReplyReader::whole(LIMIT),
    };
    let mut lines = Vec::new();
    let mut line = |event: Event<'_>| {
        each(&event);
        serde_json::to_writer(&mut lines, &event).unwrap();
        lines.push(b'\n');
    };
    for piece in pieces {
        reader.push(piece, &mut line);
    }
    reader.finish(&mut line);
    assert!(reader.ended());
    String::from_utf8(lines).unwrap()
}

fn lines<'a>(capture: &Capture, pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    read(capture, pieces, |_| {})
}

/// Covers: S1-25, S1-26, case 8
#[test]
fn replies_give_the_events_of_their_goldens() {
    report(replies().iter().map(|capture| {
        let events = lines(capture, [&capture.bytes[..]]);
        capture.golden("events.jsonl", &events)
    }));
}

/// Covers: S1-25
#[test]
fn splits_do_not_change_the_events() {
    for capture in replies() {
        let (name, bytes) = (&capture.name, &capture.bytes[..]);
        let expected = lines(&capture, [bytes]);
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(lines(&capture, [head, tail]), expected, "{name} split at {cut}");
        }
        for size in (1..=16).chain([64]) {
            assert_eq!(lines(&capture, bytes.chunks(size)), expected, "{name} by {size}");
        }
        let with_empty_reads = bytes.chunks(3).flat_map(|chunk| [&[][..], chunk, &[]]);
        assert_eq!(lines(&capture, with_empty_reads), expected, "{name}");
    }
}

#[test]
fn any_cut_gives_a_prefix_and_one_end() {
    for capture in replies() {
        let whole = lines(&capture, [&capture.bytes[..]]);
        for cut in 0..=capture.bytes.len() {
            let found = lines(&capture, [&capture.bytes[..cut]]);
            let at = format!("{} cut at {cut}:\n{found}", capture.name);
            let (before, last) = match found.trim_end().rsplit_once('\n') {
                Some((before, last)) => (before, last),
                None => ("", found.trim_end()),
            };
            assert!(last.starts_with(ENDED), "{at}");
            assert!(!before.lines().any(|line| line.starts_with(ENDED)), "{at}");
            assert!(whole.starts_with(before), "{at}");
        }
    }
}

/// An event over the limit is skipped, and the events around it are read.
#[test]
fn an_event_over_the_limit_is_skipped_alone() {
    for capture in replies().iter().filter(|capture| capture.ending == "sse") {
        let expected = lines(capture, [&capture.bytes[..]]);
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
                    // Deltas have no meaning if the start of their block was skipped.
                    Event::BlockDelta { index, .. } if !begun.contains(&index) => return,
                    _ => {}
                }
                found.push(serde_json::to_string(&event).unwrap());
            };
            for piece in capture.bytes.chunks(7) {
                reader.push(piece, &mut line);
            }
            reader.finish(&mut line);
            let mut rest = expected.lines();
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

/// Every event, and whether the stream ended between two events.
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

/// A name must stay with its data: clients skip events without a name.
#[test]
fn events_keep_their_names_with_every_line_ending() {
    for capture in replies().iter().filter(|capture| capture.ending == "sse") {
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
