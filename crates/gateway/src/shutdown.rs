//! Ends what is in progress when the server stops. Until then, streams have time to end by
//! themselves.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use throughline_canonical::{Fault, FaultKind};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Says once that everything in progress has to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    begun: Arc<AtomicBool>,
    waiting: Arc<Notify>,
}

impl Shutdown {
    /// Ends everything in progress.
    pub(crate) fn begin(&self) {
        self.begun.store(true, Ordering::Release);
        self.waiting.notify_waiters();
    }

    /// Waits until the shutdown begins.
    pub(crate) async fn begun(&self) {
        let waiting = self.waiting.notified();
        if !self.begun.load(Ordering::Acquire) {
            waiting.await;
        }
    }

    /// A view for one reply.
    pub(crate) fn watch(&self) -> ShutdownWatch {
        ShutdownWatch {
            waiting: Box::pin(self.waiting.clone().notified_owned()),
            begun: self.begun.clone(),
            waker: None,
        }
    }
}

/// Tells one reply that it has to end.
#[derive(Debug)]
pub(crate) struct ShutdownWatch {
    begun: Arc<AtomicBool>,
    waiting: Pin<Box<OwnedNotified>>,
    /// The waker that is registered.
    waker: Option<Waker>,
}

impl ShutdownWatch {
    /// Whether the reply has to end.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    /// Whether the reply has to end. If not, the task is woken when it has to.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        // To register takes a lock that all replies share, so do it once.
        if self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            return self.has_begun();
        }
        self.waker = Some(context.waker().clone());
        self.waiting.as_mut().poll(context).is_ready() || self.has_begun()
    }
}

/// The error of a request that a stopping server does not finish.
pub fn fault() -> Fault {
    Fault::new(FaultKind::Overloaded, "the server is stopping; send the request again")
}

/// Whether a reply broke off because the server stops.
pub fn is_of_shutdown(reported: &Fault) -> bool {
    *reported == fault()
}
