//! Reads a reply beside the stream: remembers its thinking, counts its tokens, notes its times.
//! It never holds up a byte.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use throughline_canonical::{
    BlockStart, Delta, EndReason, Event, Fate, Fault, Origin, Reason, Transformation,
};
use throughline_codec::dialects::anthropic::upstream_reply::ReplyReader;

use crate::counters::Counters;
use crate::plan::Plan;
use crate::thinking::capture::{Capture, Captured};
use crate::thinking::lineage::Lineage;
use crate::thinking::memory::{Made, Memory, Outcome, Target};
use crate::turns::{SharedTurn, Turns};
use crate::unix_ms;

/// The longest event, and the longest whole reply, that is read.
const LONGEST: usize = 64 << 20;
/// How much of a reply is kept where contents may be kept.
const KEPT: usize = 1 << 20;

/// What a tap needs of the gateway.
#[derive(Debug)]
pub struct Notes {
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
    /// Where the request went.
    pub target: Target,
    /// Whether the request is part of its conversation.
    pub counts: bool,
    /// What was sent.
    pub plan: Plan,
    /// When the request came.
    pub began: Instant,
    /// Bytes the memory may take.
    pub memory_limit: usize,
    /// Whether contents may be kept.
    pub full_body: bool,
}

/// Reads one reply.
#[derive(Debug)]
pub struct Tap {
    reader: ReplyReader,
    capture: Capture,
    notes: Notes,
    seen: Seen,
    learnt: bool,
    finished: bool,
}

/// What has been seen so far.
#[derive(Debug, Default)]
struct Seen {
    thinking: Option<u64>,
    text: Option<u64>,
    usage: throughline_canonical::Usage,
    fault: Option<Fault>,
    end: Option<EndReason>,
    begun: bool,
    transformations: Vec<Transformation>,
    received: Vec<u8>,
}

impl Tap {
    /// A tap on a stream of events, or on a whole reply.
    pub fn new(notes: Notes, events: bool) -> Self {
        let preview = if notes.full_body { 48 } else { 0 };
        Self {
            reader: if events {
                ReplyReader::events(LONGEST)
            } else {
                ReplyReader::whole(LONGEST)
            },
            capture: Capture::new(notes.plan.prefix, preview),
            notes,
            seen: Seen::default(),
            learnt: false,
            finished: false,
        }
    }

    /// Whether a stream stands between two events.
    pub fn between_events(&self) -> bool {
        self.reader.between_events()
    }

    /// The event of a stream whose end has not arrived, if it stands in one.
    pub fn half_event(&self) -> Option<&[u8]> {
        self.reader.half_event()
    }

    /// Whether the reply has come to its end.
    pub fn ended(&self) -> bool {
        self.reader.ended()
    }

    /// A sign of life was sent to the client.
    pub fn sign_of_life(&self) {
        self.notes.counters.keep_alives.add(1);
    }

    /// Takes the next bytes of the reply.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.notes.full_body {
            let room = KEPT.saturating_sub(self.seen.received.len());
            self.seen
                .received
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
        let (capture, notes, seen) = (&mut self.capture, &self.notes, &mut self.seen);
        self.reader
            .push(bytes, |event| take(&event, capture, notes, seen));
        if self.seen.begun || self.seen.end.is_some() {
            self.learn();
        }
    }

    /// Once the answer has begun, the provider has said what it did with the blocks it got.
    fn learn(&mut self) {
        if std::mem::replace(&mut self.learnt, true) {
            return;
        }
        let notes = &mut self.notes;
        let outcomes = settle(&mut notes.plan, &self.seen.transformations);
        if notes.counts && !outcomes.is_empty() {
            notes.memory.outcome(
                notes.lineage,
                notes.session,
                &notes.target,
                &outcomes,
                unix_ms(),
            );
        }
    }

    /// The reply is over. `client_gone` says that nobody waits for it any more.
    pub fn finish(&mut self, client_gone: bool, error: Option<String>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let (capture, notes, seen) = (&mut self.capture, &self.notes, &mut self.seen);
        self.reader
            .finish(|event| take(&event, capture, notes, seen));
        if self.seen.begun {
            self.learn();
        }
        for block in self.capture.cut() {
            register(&self.notes, &block, true);
        }
        let end = match (&self.seen.end, client_gone) {
            (Some(EndReason::Cut), true) => "client_gone",
            (Some(EndReason::Cut), false) | (None, _) => "cut",
            (Some(EndReason::Failed), _) => "failed",
            _ => "completed",
        };
        self.tell(end, error);
    }

    fn tell(&mut self, end: &'static str, error: Option<String>) {
        let notes = &mut self.notes;
        let counters = &notes.counters;
        match end {
            "cut" => counters.cut.add(1),
            "failed" => counters.failed.add(1),
            _ => {}
        }
        counters
            .output_tokens
            .add(self.seen.usage.output.unwrap_or_default() as usize);
        counters
            .thinking_tokens
            .add(self.seen.usage.thinking.unwrap_or_default() as usize);
        for (time, histogram) in [
            (self.seen.thinking, &counters.first_thinking),
            (self.seen.text, &counters.first_text),
        ] {
            if let Some(time) = time {
                histogram.observe(time);
            }
        }
        let total = milliseconds(notes.began);
        {
            let mut turn = notes.turn.lock();
            turn.end = end;
            turn.usage = self.seen.usage;
            turn.ms.first_thinking = self.seen.thinking;
            turn.ms.first_text = self.seen.text;
            turn.ms.total = Some(total);
            turn.keep_blocks(&notes.plan.blocks);
            turn.losses.clone_from(&notes.plan.losses);
            turn.error = error.or_else(|| self.seen.fault.take().map(|fault| fault.message));
            if notes.full_body {
                turn.received = Some(String::from_utf8_lossy(&self.seen.received).into_owned());
            }
            tracing::info!(
                turn = turn.id,
                backend = turn.backend,
                model = turn.upstream_model,
                status = turn.status,
                end,
                first_byte_ms = turn.ms.first_byte,
                total_ms = total,
                output_tokens = turn.usage.output,
                "Turn ended"
            );
        }
        notes.turns.ended(&notes.turn);
    }
}

fn take(event: &Event<'_>, capture: &mut Capture, notes: &Notes, seen: &mut Seen) {
    seen.begun |= matches!(event, Event::BlockStarted { .. });
    match event {
        Event::BlockStarted { block, .. } => match block {
            BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => {
                seen.thinking
                    .get_or_insert_with(|| milliseconds(notes.began));
            }
            BlockStart::Text { text } if !text.is_empty() => {
                seen.text.get_or_insert_with(|| milliseconds(notes.began));
            }
            _ => {}
        },
        Event::BlockDelta {
            delta: Delta::Text(_),
            ..
        } if seen.text.is_none() => seen.text = Some(milliseconds(notes.began)),
        Event::Usage(usage) => seen.usage.update(*usage),
        Event::Transformed { transformations } => seen.transformations.clone_from(transformations),
        Event::Fault(fault) => seen.fault = Some(fault.clone()),
        Event::Ended { reason } => seen.end = Some(reason.clone()),
        _ => {}
    }
    if let Some(block) = capture.event(event) {
        register(notes, &block, false);
    }
}

fn register(notes: &Notes, block: &Captured, cut: bool) {
    notes.memory.register(&Made {
        lineage: notes.lineage,
        session: notes.session,
        origin: &notes.origin,
        key: block.key,
        prefix: block.prefix,
        cut,
        now: unix_ms(),
        memory_limit: notes.memory_limit,
    });
    notes.counters.remembered.add(1);
    if notes.full_body {
        tracing::debug!(
            hash = block.key.short(),
            session = notes.session,
            length = block.length,
            content_preview = block.preview,
            cut,
            "Registered new thinking block"
        );
    } else {
        tracing::debug!(
            hash = block.key.short(),
            session = notes.session,
            length = block.length,
            cut,
            "Registered new thinking block"
        );
    }
}

/// Brings the report in line with what the provider says it did, and tells what is worth
/// remembering of it.
fn settle(plan: &mut Plan, transformations: &[Transformation]) -> Vec<Outcome> {
    let dropped: HashMap<(usize, usize), Reason> = transformations
        .iter()
        .filter(|transformation| transformation.action == "thinking_dropped")
        .filter_map(|transformation| {
            // Bound to another model, organisation or user: not readable by this target.
            let reason = match transformation.reason.as_str() {
                "prefix_binding_mismatch" => Reason::Prefix,
                _ => Reason::Origin,
            };
            Some((transformation.at?, reason))
        })
        .collect();
    let sent: Vec<(usize, (usize, usize))> = plan.sent().collect();
    let mut outcomes = Vec::new();
    for (at, place) in sent {
        let block = &mut plan.blocks[at];
        let dropped = dropped.get(&place).copied();
        let tried = block.fate == Fate::Tried;
        match dropped {
            Some(reason) => (block.fate, block.reason) = (Fate::LeftOut, Some(reason)),
            // It was expected to fail and held.
            None if block.fate == Fate::LeftOut => (block.fate, block.reason) = (Fate::Sent, None),
            None => {}
        }
        let tells = tried || dropped.is_some() || block.stands_under.is_some();
        if let Some(key) = block.key.filter(|_| tells) {
            outcomes.push(Outcome {
                key,
                tried,
                stands_under: block.stands_under,
                dropped,
            });
        }
    }
    plan.tell_again();
    outcomes
}

/// Milliseconds since a moment.
pub fn milliseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
