//! Reads server-sent events: every split gives the events of a simple second reader.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_codec::framing::sse::{Frame, Framer};
use throughline_fuzz::splits;

type Event = (Vec<u8>, Vec<u8>);

fuzz_target!(|input: &[u8]| {
    let expected = read_simply(input);
    assert_eq!(read(&[input], usize::MAX), expected, "in one piece");
    assert_eq!(read(&splits(input), usize::MAX), expected, "in pieces");
    // With a small limit events may be skipped, but never invented.
    for event in read(&splits(input), 16) {
        assert!(expected.contains(&event), "invented {event:?}");
    }
});

fn read(pieces: &[&[u8]], limit: usize) -> Vec<Event> {
    let mut framer = Framer::new(limit);
    let mut events = Vec::new();
    for piece in pieces {
        framer.push(piece, |frame, end| {
            assert!(end <= piece.len());
            events.push(owned(frame));
        });
    }
    framer.finish(|frame, _| events.push(owned(frame)));
    events
}

fn owned(frame: Frame<'_>) -> Event {
    (frame.event.to_vec(), frame.data.to_vec())
}

/// The same rules on the whole input: split it into lines, then into events.
fn read_simply(input: &[u8]) -> Vec<Event> {
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut bytes = input.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if(|next| **next == b'\n');
                lines.push(Vec::new());
            }
            b'\n' => lines.push(Vec::new()),
            other => lines.last_mut().unwrap().push(*other),
        }
    }
    // The end of the input closes the last event as an empty line would.
    lines.push(Vec::new());
    let mut events = Vec::new();
    let (mut event, mut data) = (None, None);
    for line in lines {
        if line.is_empty() {
            if event.is_some() || data.is_some() {
                events.push((event.unwrap_or_default(), data.unwrap_or_default()));
            }
            (event, data) = (None, None);
        } else if let Some(value) = value(&line, b"data:") {
            data = data.or(Some(value));
        } else if let Some(value) = value(&line, b"event:") {
            event = Some(value);
        }
    }
    events
}

fn value(line: &[u8], field: &[u8]) -> Option<Vec<u8>> {
    let value = line.strip_prefix(field)?;
    Some(value.strip_prefix(b" ").unwrap_or(value).to_vec())
}
