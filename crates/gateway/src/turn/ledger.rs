//! What is noted of a reply while it passes, whichever lane it takes: its blocks, its tokens, its
//! times, its end.

use std::sync::Arc;
use std::time::Instant;

use throughline_canonical::{
    BlockStart, Delta, EndReason, Event, Fault, Origin, Transformation, Usage,
};

use crate::counters::Counters;
use crate::thinking::capture::Captured;
use crate::thinking::lineage::Lineage;
use crate::thinking::memory::{Made, Memory};
use crate::turn::log::{SharedTurn, Turn, TurnEnd, Turns};
use crate::unix_ms;

/// How much of a reply is kept where contents may be kept.
const KEPT: usize = 1 << 20;

/// What is noted of one reply.
#[derive(Debug)]
pub struct Ledger {
    /// Where blocks are remembered.
    pub memory: Arc<Memory>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Where turns are told.
    pub turns: Arc<Turns>,
    /// The turn itself.
    pub turn: SharedTurn,
    /// The conversation it belongs to.
    pub lineage: Lineage,
    /// The session its request began in.
    pub session: u64,
    /// Who makes the blocks.
    pub origin: Arc<Origin>,
    /// When the request came.
    pub began: Instant,
    /// Bytes the memory may take.
    pub memory_limit: usize,
    /// Whether contents may be kept.
    pub full_body: bool,
    /// What has been seen so far.
    pub seen: Seen,
}

/// What has been seen of a reply so far.
#[derive(Debug, Default)]
pub struct Seen {
    thinking: Option<u64>,
    text: Option<u64>,
    usage: Usage,
    fault: Option<Fault>,
    /// Why it ended, if it has.
    pub end: Option<EndReason>,
    /// Whether a block has begun.
    pub begun: bool,
    /// What the provider says it did to the blocks it got.
    pub transformations: Vec<Transformation>,
    received: Vec<u8>,
}

impl Ledger {
    /// Takes the next event of the reply.
    pub fn see(&mut self, event: &Event<'_>) {
        let seen = &mut self.seen;
        match event {
            Event::BlockStarted { block, .. } => {
                seen.begun = true;
                match block {
                    BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => {
                        seen.thinking.get_or_insert_with(|| milliseconds(self.began));
                    }
                    BlockStart::Text { text } if !text.is_empty() => {
                        seen.text.get_or_insert_with(|| milliseconds(self.began));
                    }
                    _ => {}
                }
            }
            Event::BlockDelta { delta: Delta::Text(_), .. } if seen.text.is_none() => {
                seen.text = Some(milliseconds(self.began))
            }
            Event::Usage(usage) => seen.usage.update(*usage),
            Event::Transformed { transformations } => {
                seen.transformations.clone_from(transformations);
            }
            Event::Fault(fault) => seen.fault = Some(fault.clone()),
            Event::Ended { reason } => seen.end = Some(reason.clone()),
            _ => {}
        }
    }

    /// Keeps the bytes of the reply, where contents may be kept.
    pub fn receive(&mut self, bytes: &[u8]) {
        if self.full_body {
            let room = KEPT.saturating_sub(self.seen.received.len());
            let kept = bytes.get(..room).unwrap_or(bytes);
            self.seen.received.extend_from_slice(kept);
        }
    }

    /// Remembers a block.
    pub fn register(&self, block: &Captured, cut: bool) {
        self.memory.register(&Made {
            lineage: self.lineage,
            session: self.session,
            origin: &self.origin,
            key: block.key,
            prefix: block.prefix,
            cut,
            now: unix_ms(),
            memory_limit: self.memory_limit,
        });
        self.counters.remembered.add(1);
        // An empty preview is what a log without contents has.
        tracing::debug!(
            hash = block.key.short(),
            session = self.session,
            length = block.length,
            content_preview = self.full_body.then_some(block.preview.as_str()),
            cut,
            "Registered new thinking block"
        );
    }

    /// The reply is over. `client_gone` says that nobody waits for it any more; `last` adds what only
    /// the lane knows of the turn.
    pub fn close(
        &mut self,
        client_gone: bool,
        error: Option<String>,
        last: impl FnOnce(&mut Turn),
    ) {
        let end = match (&self.seen.end, client_gone) {
            (Some(EndReason::Cut), true) => TurnEnd::ClientGone,
            (Some(EndReason::Cut), false) | (None, _) => TurnEnd::Cut,
            (Some(EndReason::Failed), _) => TurnEnd::Failed,
            _ => TurnEnd::Completed,
        };
        let counters = &self.counters;
        match end {
            TurnEnd::Cut => counters.cut.add(1),
            TurnEnd::Failed => counters.failed.add(1),
            _ => {}
        }
        let tokens = |count: Option<u64>| count.unwrap_or_default() as usize;
        counters.output_tokens.add(tokens(self.seen.usage.output));
        counters.thinking_tokens.add(tokens(self.seen.usage.thinking));
        for (time, histogram) in
            [(self.seen.thinking, &counters.first_thinking), (self.seen.text, &counters.first_text)]
        {
            if let Some(time) = time {
                histogram.observe(time);
            }
        }
        let total = milliseconds(self.began);
        {
            let mut turn = self.turn.lock();
            turn.end = end;
            turn.usage = self.seen.usage;
            turn.ms.first_thinking = self.seen.thinking;
            turn.ms.first_text = self.seen.text;
            turn.ms.total = Some(total);
            turn.error = error.or_else(|| self.seen.fault.take().map(|fault| fault.message));
            if self.full_body {
                turn.received = Some(String::from_utf8_lossy(&self.seen.received).into_owned());
            }
            last(&mut turn);
            tracing::info!(
                turn = turn.id,
                backend = turn.backend,
                model = turn.upstream_model,
                status = turn.status,
                end = end.as_str(),
                first_byte_ms = turn.ms.first_byte,
                total_ms = total,
                output_tokens = turn.usage.output,
                "Turn ended"
            );
        }
        self.turns.ended(&self.turn);
    }
}

/// Milliseconds since a moment.
pub fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
