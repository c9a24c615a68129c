//! Records one reply while it passes, on either lane: its blocks, token counts, times and end.

use std::sync::Arc;
use std::time::Instant;

use throughline_canonical::{
    BlockStart, Delta, EndReason, Event, Fault, Origin, Transformation, Usage,
};
use tracing::Span;

use crate::thinking::capture::CapturedBlock;
use crate::thinking::lineage::Lineage;
use crate::thinking::memory::{Memory, NewBlock};
use crate::turn::log::{SharedTurn, Turn, TurnEnd, TurnError};
use crate::turn::record::TurnRecord;
use crate::unix_ms;

/// How many bytes of a reply are recorded if `full_body` is on.
const MAX_RECEIVED_BYTES: usize = 1 << 20;

/// Records one reply while it passes.
#[derive(Debug)]
pub struct Ledger {
    /// Remembers the blocks.
    pub memory: Arc<Memory>,
    /// Where the end of the turn is recorded.
    pub record: TurnRecord,
    /// The turn that this reply belongs to.
    pub turn: SharedTurn,
    /// The span of the turn. A reply is relayed outside of it.
    pub span: Span,
    /// The conversation that the turn belongs to.
    pub lineage: Lineage,
    /// The session in which the request began.
    pub session: u64,
    /// The maker of the blocks.
    pub origin: Arc<Origin>,
    /// When the request arrived.
    pub began: Instant,
    /// How many bytes the memory may use.
    pub memory_limit: usize,
    /// Whether request and reply bodies may be recorded.
    pub full_body: bool,
    /// Whether nothing of the turn may be recorded but shapes and counts.
    pub private: bool,
    /// The reply so far.
    pub progress: ReplyProgress,
}

/// How a reply ended, apart from what its events say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closing {
    /// Its bytes have ended.
    Ended,
    /// The client disconnected.
    ClientGone,
    /// It failed for this reason.
    Failed(String),
    /// The server stops. This is the error that the client gets.
    Stopped(String),
}

impl Closing {
    /// The error, if there is one.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(error) | Self::Stopped(error) => Some(error),
            Self::Ended | Self::ClientGone => None,
        }
    }
}

/// The reply so far.
#[derive(Debug, Default)]
pub struct ReplyProgress {
    thinking: Option<u64>,
    text: Option<u64>,
    call: Option<u64>,
    usage: Usage,
    fault: Option<Fault>,
    /// Why the reply ended, if it has.
    pub end: Option<EndReason>,
    /// Whether a block has started.
    pub begun: bool,
    /// What the provider reports it did to the blocks it received.
    pub transformations: Vec<Transformation>,
    received: Vec<u8>,
}

impl Ledger {
    /// Records the next event of the reply.
    pub fn record_event(&mut self, event: &Event<'_>) {
        let progress = &mut self.progress;
        match event {
            Event::BlockStarted { block, .. } => {
                progress.begun = true;
                match block {
                    BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => {
                        progress.thinking.get_or_insert_with(|| milliseconds(self.began));
                    }
                    BlockStart::ToolCall { .. } => {
                        progress.call.get_or_insert_with(|| milliseconds(self.began));
                    }
                    BlockStart::Text { text } if !text.is_empty() => {
                        progress.text.get_or_insert_with(|| milliseconds(self.began));
                    }
                    _ => {}
                }
            }
            Event::BlockDelta { delta: Delta::Text(_), .. } if progress.text.is_none() => {
                progress.text = Some(milliseconds(self.began));
            }
            Event::Usage(usage) => progress.usage.update(*usage),
            Event::Transformed { transformations } => {
                progress.transformations.clone_from(transformations);
            }
            Event::Fault(fault) => progress.fault = Some(fault.clone()),
            Event::Ended { reason } => progress.end = Some(reason.clone()),
            _ => {}
        }
    }

    /// Records raw bytes of the reply, if `full_body` is on.
    pub fn record_bytes(&mut self, bytes: &[u8]) {
        if self.full_body {
            let room = MAX_RECEIVED_BYTES.saturating_sub(self.progress.received.len());
            let kept = bytes.get(..room).unwrap_or(bytes);
            self.progress.received.extend_from_slice(kept);
        }
    }

    /// Remembers a block.
    pub fn register(&self, block: &CapturedBlock, cut: bool) {
        let _entered = self.span.enter();
        self.memory.register(&NewBlock {
            lineage: self.lineage,
            session: self.session,
            origin: &self.origin,
            key: block.key,
            prefix: block.prefix,
            cut,
            now: unix_ms(),
            memory_limit: self.memory_limit,
        });
        self.record.metrics.remembered.increment();
        // The preview is left out unless contents may be logged.
        tracing::debug!(
            hash = block.key.short(),
            session = self.session,
            length = block.length,
            content_preview = self.full_body.then_some(block.preview.as_str()),
            cut,
            "Registered new thinking block"
        );
    }

    /// Records the end of the reply. `last` adds the facts about the turn that only the lane knows.
    pub fn close(&mut self, closing: Closing, last: impl FnOnce(&mut Turn)) {
        let end = match (&self.progress.end, &closing) {
            (Some(EndReason::Cut) | None, Closing::Stopped(_)) => TurnEnd::Stopped,
            (Some(EndReason::Cut), Closing::ClientGone) => TurnEnd::ClientGone,
            (Some(EndReason::Cut) | None, _) => TurnEnd::Cut,
            (Some(EndReason::Failed), _) => TurnEnd::Failed,
            _ => TurnEnd::Completed,
        };
        let Self { progress, full_body, span, .. } = self;
        let _entered = span.enter();
        let error = match closing {
            Closing::Failed(error) | Closing::Stopped(error) => Some(TurnError::new(error)),
            Closing::Ended | Closing::ClientGone => None,
        };
        let error = error.or_else(|| progress.fault.take().map(TurnError::of_backend));
        let error = match self.private {
            true => error.map(TurnError::without_contents),
            false => error,
        };
        self.record.end(&self.turn, self.began, |turn| {
            turn.end = end;
            turn.usage = progress.usage;
            turn.ms.first_thinking = progress.thinking;
            turn.ms.first_text = progress.text;
            let first = [progress.thinking, progress.text, progress.call];
            turn.ms.first_token = first.into_iter().flatten().min();
            turn.error = error;
            if *full_body {
                turn.received = Some(String::from_utf8_lossy(&progress.received).into_owned());
            }
            last(turn);
        });
    }
}

/// Milliseconds since an instant.
pub fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
