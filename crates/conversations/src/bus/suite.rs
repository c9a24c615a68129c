//! The tests that every bus must pass.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::hub::Listener;
use super::{Bus, News, Topic};
use crate::store::Piece;

/// How long news may take.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// A piece of a log with these entries.
pub fn piece(first: u64, last: u64) -> Piece {
    let sealed = format!("\0\r\n{first} to {last}\u{ff}").into_bytes();
    Piece { first, last, continues: first > 1, sealed }
}

/// Waits for the next news of a listener that tells something.
///
/// # Panics
/// If there are none.
pub async fn hear(listener: &mut Listener) -> News {
    loop {
        let news = timeout(MAX_WAIT, listener.next()).await.expect("news arrive");
        // A bus says this when it is connected, too.
        if news != News::Missed {
            return news;
        }
    }
}

/// Waits until a listener hears what is published.
async fn connect(bus: &dyn Bus, listener: &mut Listener, topic: &Topic) {
    let instance: Arc<str> = "trial".into();
    for _ in 0..100 {
        bus.publish(topic, News::Changed { instance: instance.clone() });
        if timeout(MAX_WAIT / 100, async { while listener.next().await == News::Missed {} })
            .await
            .is_ok()
        {
            return;
        }
    }
    panic!("a listener hears nothing of {topic:?}");
}

/// Checks a bus, as two instances see it: `writer` publishes, `reader` listens.
///
/// # Panics
/// If the bus is wrong.
pub async fn check(writer: &dyn Bus, reader: &dyn Bus) {
    let (one, other) = (Topic::Run("run_1".to_owned()), Topic::Run("run_2".to_owned()));
    let room = Topic::Room("run_1".to_owned());
    let mut listeners = [&one, &other, &room].map(|topic| reader.listen(topic.clone()));
    let mut second = reader.listen(one.clone());
    for (listener, topic) in listeners.iter_mut().zip([&other, &other, &room]).skip(1) {
        connect(writer, listener, topic).await;
    }
    let [first, unrelated, changes] = &mut listeners;
    // Every listener hears all news of its topic, in order, and of no other one.
    let pieces = [(1, 3), (4, 4), (5, 80)].map(|(first, last)| Arc::new(piece(first, last)));
    for piece in &pieces {
        assert!(writer.wants(&one), "it has listeners");
        writer.publish(&one, News::Piece(piece.clone()));
    }
    writer.publish(&one, News::Ended);
    for listener in [first, &mut second] {
        for piece in &pieces {
            assert_eq!(hear(listener).await, News::Piece(piece.clone()));
        }
        assert_eq!(hear(listener).await, News::Ended);
    }
    let changed = News::Changed { instance: "instance_7".into() };
    writer.publish(&room, changed.clone());
    while hear(changes).await != changed {}
    writer.publish(&other, News::Piece(Arc::new(piece(9, 9))));
    loop {
        match hear(unrelated).await {
            News::Changed { .. } => {}
            news => break assert_eq!(news, News::Piece(Arc::new(piece(9, 9)))),
        }
    }
    // A topic without listeners is forgotten, and can be listened to again.
    drop(second);
    drop(listeners);
    let mut again = reader.listen(one.clone());
    connect(writer, &mut again, &one).await;
}
