//! Writes the entries of all runs to the store. While one batch is being written the next one
//! collects. Many runs at once cost about as many writes as one run.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::store::{LogPiece, Store};

/// Pieces that may wait for the next batch.
const MAX_WAITING_PIECES: usize = 4096;
/// Pieces of one batch. A batch is one transaction.
const MAX_BATCH_PIECES: usize = 512;

/// The result of writing a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is in the store.
    Yes,
    /// Another process writes this run now, or the run has ended.
    Fenced,
    /// The store failed. It has logged and counted that.
    Failed,
}

/// Writes pieces in batches.
#[derive(Debug)]
pub(super) struct LogWriter {
    queue: mpsc::Sender<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    piece: LogPiece,
    done: oneshot::Sender<Written>,
}

impl LogWriter {
    /// Starts the task that writes. Must be called inside a Tokio runtime.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        let (queue, waiting) = mpsc::channel(MAX_WAITING_PIECES);
        tokio::spawn(write_batches(store, waiting));
        Self { queue }
    }

    /// Writes a piece, and waits until it is in the store.
    pub(super) async fn write(&self, piece: LogPiece) -> Written {
        let (done, written) = oneshot::channel();
        match self.queue.send(Waiting { piece, done }).await {
            Ok(()) => written.await.unwrap_or(Written::Failed),
            Err(_) => Written::Failed,
        }
    }
}

async fn write_batches(store: Arc<dyn Store>, mut queue: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, MAX_BATCH_PIECES).await > 0 {
        let (pieces, waiting): (Vec<_>, Vec<_>) =
            batch.drain(..).map(|Waiting { piece, done }| (piece, done)).unzip();
        let results = match store.log(pieces).await {
            Ok(written) => written
                .into_iter()
                .map(|written| if written { Written::Yes } else { Written::Fenced })
                .collect(),
            Err(_) => vec![Written::Failed; waiting.len()],
        };
        for (done, result) in waiting.into_iter().zip(results) {
            // A run that was dropped does not wait for its result.
            let _ = done.send(result);
        }
    }
}
