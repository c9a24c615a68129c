//! A whole reply: events are folded as they are read.

use std::future::poll_fn;
use std::time::Duration;

use throughline_canonical::{Event, Fault, Fold, Loss, Reply};

use crate::reply::translated::EventSink;
use crate::reply::{Gather, Live, Output};

/// Folds events. Its output is the reply, after it has ended.
#[derive(Default)]
pub(crate) struct Folder {
    fold: Fold,
    folded: Option<Box<FoldedReply>>,
}

/// A reply that has ended.
#[derive(Default)]
pub(crate) struct FoldedReply {
    pub(crate) reply: Reply,
    /// The losses of the request and of the reply.
    pub(crate) losses: Vec<Loss>,
}

impl FoldedReply {
    /// Reads a reply to its end.
    pub(crate) async fn read(mut live: Live<Option<Box<Self>>>) -> Self {
        let mut folded = None;
        // A translated reply reports every failure as an event.
        while let Some(Ok(next)) = poll_fn(|context| live.poll_or_break(context)).await {
            folded = next.or(folded);
        }
        folded.map(|folded| *folded).unwrap_or_default()
    }
}

impl EventSink for Folder {
    type Out = Option<Box<FoldedReply>>;

    fn push(&mut self, event: &Event<'_>) {
        self.fold.push(event);
    }

    fn keep_alive(&mut self, _: Duration) {}

    fn fault(&self) -> Option<&Fault> {
        self.fold.reply().fault.as_ref()
    }

    fn close(&mut self, losses: &[Loss], summary: bool) {
        let mut reply = std::mem::take(&mut self.fold).finish();
        reply.summary = summary;
        self.folded = Some(Box::new(FoldedReply { reply, losses: losses.to_vec() }));
    }

    fn take(&mut self) -> Self::Out {
        self.folded.take()
    }
}

impl Output for Option<Box<FoldedReply>> {
    type Gathered = Self;

    fn is_empty(&self) -> bool {
        self.is_none()
    }
}

impl Gather<Self> for Option<Box<FoldedReply>> {
    fn push(&mut self, folded: Self) {
        *self = folded.or(self.take());
    }

    fn is_empty(&self) -> bool {
        self.is_none()
    }

    fn is_full(&self) -> bool {
        self.is_some()
    }

    fn finish(self) -> Self {
        self
    }
}
