//! The bus of a single process.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};

use super::chat_stream::ChatMessage;
use super::hub::{Hub, Listener};
use super::{Bus, BusHealth, News, Topic};
use crate::store::Piece;

/// Brings news from one part of a process to another. It keeps nothing.
#[derive(Debug)]
pub struct InProcess {
    hub: Arc<Hub>,
    health: Arc<BusHealth>,
}

impl Default for InProcess {
    fn default() -> Self {
        let health: Arc<BusHealth> = Arc::default();
        Self { hub: Hub::new(health.clone()), health }
    }
}

impl Bus for InProcess {
    fn wants(&self, topic: &Topic) -> bool {
        self.hub.has(topic)
    }

    fn publish(&self, topic: &Topic, news: News) {
        self.health.published.increment();
        self.hub.deliver(topic, news);
    }

    fn listen(&self, topic: Topic) -> Listener {
        self.hub.listen(topic)
    }

    fn logged<'a>(&'a self, _: &'a str, _: u64) -> BoxFuture<'a, Vec<Piece>> {
        ready(Vec::new()).boxed()
    }

    fn send(&self, _: ChatMessage) {}

    fn health(&self) -> &Arc<BusHealth> {
        &self.health
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bus::suite;

    #[tokio::test]
    async fn bus_of_a_process_passes_the_suite() {
        let bus = InProcess::default();
        suite::check(&bus, &bus).await;
    }
}
