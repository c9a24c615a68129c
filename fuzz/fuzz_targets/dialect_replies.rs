//! Reads a provider's reply in every dialect: every split gives the same events, every cut ends in one
//! end, and every dialect can write the reply.
#![no_main]

use libfuzzer_sys::fuzz_target;
use throughline_canonical::{Event, Fold, Request};
use throughline_codec::dialects::{CLIENT, ReplyIdentity, Target, UPSTREAM, UpstreamDialect};
use throughline_fuzz::splits;

fuzz_target!(|input: &[u8]| {
    for upstream in UPSTREAM {
        for streamed in [true, false] {
            let whole = read(*upstream, &[input], streamed);
            let split = read(*upstream, &splits(input), streamed);
            assert_eq!(split, whole, "{} {streamed}", upstream.name());
            let (cut, _) = input.split_at(input.len() / 2);
            read(*upstream, &splits(cut), streamed);
        }
    }
});

/// Returns the events as text, after checking that only the last one is an end. Also writes each event
/// in every client dialect.
fn read(upstream: &dyn UpstreamDialect, pieces: &[&[u8]], streamed: bool) -> Vec<String> {
    let target = Target { model: "m", profile: upstream.profile("") };
    let request = Request::default();
    let identity = ReplyIdentity::new("0", 0);
    let mut writers: Vec<_> =
        CLIENT.iter().map(|client| client.session().reply_writer(&request, &identity)).collect();
    let (mut events, mut ends) = (Vec::new(), 0);
    let (mut fold, mut written) = (Fold::default(), Vec::new());
    let mut take = |event: Event<'_>| {
        assert_eq!(ends, 0, "an event after the end");
        ends += usize::from(matches!(event, Event::Ended { .. }));
        for writer in &mut writers {
            writer.push(&event, &mut written);
        }
        written.clear();
        fold.push(&event);
        // A split may cut deltas elsewhere: only the folded reply is compared.
        if !matches!(event, Event::BlockDelta { .. }) {
            events.push(format!("{event:?}"));
        }
    };
    let mut reader = upstream.reply_reader(&target, streamed);
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(&mut take);
    assert_eq!(ends, 1);
    let reply = fold.finish();
    for writer in &writers {
        writer.whole(&reply);
    }
    events.push(format!("{reply:?}"));
    events
}
