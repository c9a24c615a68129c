//! Limits and arbitrary input of the reply reader. Its ordinary cases are in
//! `corpus/openai_responses/upstream_reply`.

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::EndReason;

use super::{reply, stream};

const USUAL: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../corpus/openai_responses/upstream_reply/usual.sse"
));
const WITHOUT_INDEXES: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../corpus/openai_responses/upstream_reply/no-numbers-and-names.sse"
));

/// The events of a captured stream.
fn captured(stream: &str) -> Vec<Value> {
    let data = stream.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|event| serde_json::from_str(event).unwrap()).collect()
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn ends(events: &[String]) -> usize {
    let end = |event: &&String| event.contains("\"type\":\"ended\"");
    events.iter().filter(end).count()
}

#[test]
fn a_reply_over_the_limit_is_a_fault() {
    let long = vec![b'x'; 17 << 20];
    let (_, found) = reply(&[&stream(&captured(USUAL)[..1]), b"data: ", &long], true);
    assert_eq!(found.reason, Some(EndReason::Failed));
    let event = [b"data: {\"type\":\"x\",\"y\":\"", &long[..], b"\"}\n\n"].concat();
    let (_, found) = reply(&[&event], true);
    assert_eq!(found.reason, Some(EndReason::Failed));
    let pieces: Vec<&[u8]> = (0..5).map(|_| &long[..]).collect();
    let (events, found) = reply(&pieces, false);
    assert_eq!((found.reason, events.len()), (Some(EndReason::Failed), 2));
    let many: Vec<Value> =
        (0..2000).map(|index| added(index, json!({"type": "message"}))).collect();
    assert_eq!(reply(&[&stream(&many)], true).1.reason, Some(EndReason::Failed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), streamed in any::<bool>()) {
        let (events, _) = reply(&[&bytes], streamed);
        prop_assert_eq!(ends(&events), 1);
    }

    /// Events in any order, each whole or with members missing.
    #[test]
    fn shuffled_and_incomplete_streams_end_once(
        order in proptest::collection::vec((0usize..25, any::<bool>(), 0usize..8), 0..40),
        cut in 0usize..4000,
    ) {
        let (one, other) = (captured(USUAL), captured(WITHOUT_INDEXES));
        let events: Vec<Value> = order.into_iter().filter_map(|(place, which, missing)| {
            let mut event = if which { one.get(place)? } else { other.get(place)? }.clone();
            let key = event.as_object()?.keys().nth(missing)?.clone();
            if missing > 3 {
                event.as_object_mut()?.remove(&key);
            }
            Some(event)
        }).collect();
        let bytes = stream(&events);
        let cut = cut.min(bytes.len());
        let whole = reply(&[&bytes], true);
        prop_assert_eq!(ends(&whole.0), 1);
        prop_assert_eq!(reply(&[&bytes[..cut], &bytes[cut..]], true), whole);
    }
}
