//! Reads a provider's reply: every split gives the same events, and every cut ends in one end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_canonical::Event;
use throughline_codec::dialects::anthropic::upstream_reply::ReplyReader;
use throughline_fuzz::splits;

fuzz_target!(|input: &[u8]| {
    for reader in [ReplyReader::events, ReplyReader::whole] {
        let whole = read(reader(usize::MAX), &[input]);
        let split = read(reader(usize::MAX), &splits(input));
        assert_eq!(split, whole);
        // A limit may drop events, but never the end.
        read(reader(32), &splits(input));
        let (cut, _) = input.split_at(input.len() / 2);
        read(reader(usize::MAX), &splits(cut));
    }
});

/// Returns the events as text, after checking that only the last one is an end.
fn read(mut reader: ReplyReader, pieces: &[&[u8]]) -> Vec<String> {
    let mut events = Vec::new();
    let mut ends = Vec::new();
    let mut keep = |event: Event<'_>| {
        if matches!(event, Event::Ended { .. }) {
            ends.push(events.len());
        }
        events.push(format!("{event:?}"));
    };
    for piece in pieces {
        reader.push(piece, &mut keep);
    }
    reader.finish(&mut keep);
    assert!(reader.ended());
    assert_eq!(ends, [events.len() - 1], "{events:?}");
    events
}
