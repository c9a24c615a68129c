//! Reads a passthrough reply of Anthropic's dialect while it passes: remembers its thinking, and
//! records its tokens and times. Other dialects are read by `opaque_tap`.

use bytes::Bytes;
use throughline_canonical::{Event, Fault, Transformation};
use throughline_codec::dialects::blocks::ReplyReader;
use throughline_codec::dialects::blocks::{PING, error_event};
use throughline_codec::framing::MAX_REPLY_BYTES;

use crate::plan::outlined::OutlinedPlan;
use crate::relay::settle::Dropped;
use crate::relay::turn_recorder::TurnRecorder;
use crate::reply::passthrough::Tap;
use crate::thinking::capture::Capture;
use crate::thinking::memory::BlockOutcome;
use crate::turn::ledger::{Closing, Ledger};
use crate::unix_ms;

/// Reads one reply while it passes.
#[derive(Debug)]
pub(crate) struct BlockTap {
    reader: ReplyReader,
    capture: Capture,
    ledger: Ledger,
    sent: SentPlan,
    learnt: bool,
    finished: bool,
}

/// The plan that the reply answers.
#[derive(Debug)]
pub(crate) struct SentPlan {
    pub(crate) plan: OutlinedPlan,
    /// Whether the request is part of the conversation.
    pub(crate) in_conversation: bool,
    /// Stores the turn, if the model may call tools in it.
    pub(crate) recorder: Option<TurnRecorder>,
}

impl BlockTap {
    /// A tap for a stream of events, or for a whole reply.
    pub(crate) fn new(ledger: Ledger, sent: SentPlan, events: bool) -> Self {
        let preview = if ledger.full_body { 48 } else { 0 };
        Self {
            // One event may carry a whole document that the provider fetched.
            reader: match events {
                true => ReplyReader::events(MAX_REPLY_BYTES),
                false => ReplyReader::whole(MAX_REPLY_BYTES),
            },
            capture: Capture::new(sent.plan.prefix, preview),
            ledger,
            sent,
            learnt: false,
            finished: false,
        }
    }

    /// Learns what the provider did with the sent blocks. It reports that before the answer begins.
    fn learn(&mut self) {
        if std::mem::replace(&mut self.learnt, true) {
            return;
        }
        let (ledger, sent) = (&self.ledger, &mut self.sent);
        let outcomes = settle(&mut sent.plan, &ledger.progress.transformations);
        if sent.in_conversation && !outcomes.is_empty() {
            ledger.memory.outcome(
                ledger.lineage,
                ledger.session,
                &sent.plan.decision.target,
                &outcomes,
                unix_ms(),
            );
        }
    }
}

impl Tap for BlockTap {
    fn push(&mut self, bytes: &[u8]) {
        self.ledger.record_bytes(bytes);
        let (capture, ledger) = (&mut self.capture, &mut self.ledger);
        let recorder = &mut self.sent.recorder;
        self.reader.push(bytes, |event| observe(&event, capture, recorder, ledger));
        if self.ledger.progress.begun || self.ledger.progress.end.is_some() {
            self.learn();
        }
    }

    fn ended(&self) -> bool {
        self.reader.ended()
    }

    fn keep_alive(&mut self) -> Bytes {
        if !self.reader.between_events() {
            return Bytes::new();
        }
        self.ledger.record.metrics.keep_alives.increment();
        Bytes::from_static(PING)
    }

    fn error(&self, fault: &Fault) -> Vec<u8> {
        error_event(fault, self.reader.half_event())
    }

    fn finish(&mut self, closing: Closing) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let (capture, ledger) = (&mut self.capture, &mut self.ledger);
        let recorder = &mut self.sent.recorder;
        self.reader.finish(|event| observe(&event, capture, recorder, ledger));
        if self.ledger.progress.begun {
            self.learn();
        }
        for block in self.capture.cut() {
            self.ledger.register(&block, true);
        }
        let plan = &self.sent.plan;
        self.ledger.close(closing, |turn| {
            turn.record_blocks(plan.records());
            turn.losses.clone_from(&plan.decision.losses);
        });
    }
}

fn observe(
    event: &Event<'_>,
    capture: &mut Capture,
    recorder: &mut Option<TurnRecorder>,
    ledger: &mut Ledger,
) {
    ledger.record_event(event);
    if let Some(block) = capture.event(event) {
        ledger.register(&block, false);
    }
    if let Some(recorder) = recorder {
        recorder.record(event, ledger);
    }
}

/// Updates the plan with what the provider reports, and returns the outcomes to remember.
fn settle(plan: &mut OutlinedPlan, transformations: &[Transformation]) -> Vec<BlockOutcome> {
    let dropped = Dropped::read(transformations);
    let mut outcomes = Vec::new();
    for (at, sent) in plan.sent_blocks() {
        let (fate, reason, outcome) = dropped.settle(&sent);
        let block = &mut plan.blocks[at];
        (block.fate, block.reason) = (fate, reason);
        outcomes.extend(outcome);
    }
    plan.recount_losses();
    outcomes
}
