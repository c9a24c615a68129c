//! The captured reply of a stored conversation.

use serde_json::Value;
use throughline_canonical::{Event, Fold};
use throughline_codec::dialects::Target;
use throughline_codec::dialects::raw_reply::{RawEnd, replay};
use throughline_gateway::reply::events::{TurnEvent, TurnEvents};

use crate::ALL;
use crate::support::{Conversation, Instance};

/// Reads events until the first one with content, or to the end.
async fn read(events: &mut TurnEvents, fold: &mut Fold, to_end: bool) {
    while let Some(batch) = events.next().await {
        for event in &batch {
            if let TurnEvent::Event(event) = event {
                fold.push(event);
            }
        }
        if !to_end && !fold.reply().content.is_empty() {
            return;
        }
    }
}

/// Covers: S4-14, S4-15, S4-16, S4-37
#[tokio::test]
async fn captured_reply_reads_back_as_the_stored_blocks() {
    for upstream in ALL {
        let simulator = upstream.start("one").await;
        let house = Instance::start(&[("a", &upstream, &simulator.url)]);
        let mut conversation = Conversation::new(&upstream);
        conversation.add_question("hidden");
        let mut unread = conversation.send(&house, "a").await;
        let raw = unread.capture_raw();
        let (head, mut events) = unread.into_events();
        let mut fold = Fold::default();
        read(&mut events, &mut fold, true).await;
        drop(events);
        let dialect = head.upstream_dialect();
        let profile = dialect.profile(upstream.variant);
        let target = Target { model: upstream.model, profile };
        let mut reader = dialect.reply_reader(&target, true);
        let mut again = Fold::default();
        let payload = raw.payload();
        let mut take = |event: Event<'_>| again.push(&event);
        replay(dialect.raw_shape(), &payload, RawEnd::Done, &mut *reader, &mut take).unwrap();
        assert_eq!(again.finish().content, fold.finish().content, "{payload}");
        assert!(!raw.is_truncated());
    }
}

#[tokio::test]
async fn raw_reply_remains_if_its_reader_leaves() {
    let upstream = crate::ANTHROPIC;
    let simulator = upstream.start("one").await;
    let house = Instance::start(&[("a", &upstream, &simulator.url)]);
    let mut conversation = Conversation::new(&upstream);
    conversation.add_question("ponder");
    let mut unread = conversation.send(&house, "a").await;
    let raw = unread.capture_raw();
    assert_eq!(raw.payload(), "[]");
    let (_, mut events) = unread.into_events();
    read(&mut events, &mut Fold::default(), false).await;
    drop(events);
    let payload: Value = serde_json::from_str(&raw.payload()).unwrap();
    assert_eq!(payload[0]["event"], "message_start", "{payload}");
    assert_eq!(payload[0]["data"]["type"], "message_start", "{payload}");
}
