//! The readers of this process that listen to a bus, by topic. Each topic has a short queue that its
//! readers share. A reader that is too slow for it learns that it has missed something.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};

use super::{BusHealth, News, Topic};

/// How many news a reader may be behind.
const MAX_WAITING: usize = 64;

/// The readers of this process.
#[derive(Debug)]
pub struct Hub {
    topics: Mutex<Topics>,
    changed: Notify,
    health: Arc<BusHealth>,
}

#[derive(Debug, Default)]
struct Topics {
    senders: HashMap<Topic, Sender<News>>,
    /// Topics that have readers since the last look, or none any more.
    changed: HashSet<Topic>,
}

impl Hub {
    /// A hub without readers.
    pub fn new(health: Arc<BusHealth>) -> Arc<Self> {
        Arc::new(Self { topics: Mutex::default(), changed: Notify::new(), health })
    }

    /// Listens to a topic from now on.
    pub fn listen(self: &Arc<Self>, topic: Topic) -> Listener {
        let mut topics = self.topics.lock();
        let receiver = match topics.senders.get(&topic) {
            Some(sender) => sender.subscribe(),
            None => {
                let sender = Sender::new(MAX_WAITING);
                let receiver = sender.subscribe();
                topics.senders.insert(topic.clone(), sender);
                topics.changed.insert(topic.clone());
                self.changed.notify_one();
                receiver
            }
        };
        Listener { hub: self.clone(), topic, receiver: Some(receiver) }
    }

    /// Whether a topic has readers.
    pub fn has(&self, topic: &Topic) -> bool {
        self.topics.lock().senders.contains_key(topic)
    }

    /// All topics that have readers.
    pub fn topics(&self) -> Vec<Topic> {
        self.topics.lock().senders.keys().cloned().collect()
    }

    /// Gives news to the readers of a topic.
    pub fn deliver(&self, topic: &Topic, news: News) {
        if let Some(sender) = self.topics.lock().senders.get(topic) {
            // The last reader may be leaving.
            let _ = sender.send(news);
        }
    }

    /// Waits until topics have got their first reader or lost their last one, and returns them. Nothing is
    /// lost if this is cancelled.
    pub async fn changed(&self) -> Vec<Topic> {
        loop {
            let changed = std::mem::take(&mut self.topics.lock().changed);
            if !changed.is_empty() {
                return changed.into_iter().collect();
            }
            self.changed.notified().await;
        }
    }

    fn leave(&self, topic: &Topic, receiver: Option<Receiver<News>>) {
        let mut topics = self.topics.lock();
        drop(receiver);
        if topics.senders.get(topic).is_some_and(|sender| sender.receiver_count() == 0) {
            topics.senders.remove(topic);
            topics.changed.insert(topic.clone());
            self.changed.notify_one();
        }
    }
}

/// A reader that listens to a topic until it is dropped.
#[derive(Debug)]
pub struct Listener {
    hub: Arc<Hub>,
    topic: Topic,
    /// Present until the drop.
    receiver: Option<Receiver<News>>,
}

impl Listener {
    /// Waits for the next news. Nothing is lost if this is cancelled.
    pub async fn next(&mut self) -> News {
        match &mut self.receiver {
            Some(receiver) => match receiver.recv().await {
                Ok(news) => news,
                Err(RecvError::Lagged(_)) => News::Missed,
                // The sender stays as long as there is a listener.
                Err(RecvError::Closed) => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }

    /// Whether news of other instances arrive at present.
    pub fn is_live(&self) -> bool {
        self.hub.health.is_live()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hub.leave(&self.topic, self.receiver.take());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn topic() -> Topic {
        Topic::Run("r".to_owned())
    }

    #[tokio::test]
    async fn hub_reports_the_first_and_the_last_reader_of_a_topic() {
        let hub = Hub::new(Arc::default());
        let first = hub.listen(topic());
        assert_eq!(hub.changed().await, [topic()]);
        let second = hub.listen(topic());
        drop(first);
        assert!(hub.changed().now_or_never().is_none());
        assert!(hub.has(&topic()));
        drop(second);
        assert_eq!(hub.changed().await, [topic()]);
        assert!(!hub.has(&topic()));
    }

    #[tokio::test]
    async fn slow_reader_learns_that_it_has_missed_news() {
        let hub = Hub::new(Arc::default());
        let (mut slow, mut fast) = (hub.listen(topic()), hub.listen(topic()));
        for _ in 0..=MAX_WAITING {
            hub.deliver(&topic(), News::Ended);
            assert_eq!(fast.next().await, News::Ended);
        }
        assert_eq!(slow.next().await, News::Missed);
        assert_eq!(slow.next().await, News::Ended, "it goes on with what is left");
    }
}
