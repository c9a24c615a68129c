//! Turns canonical events into entries of a log: joins deltas, numbers the entries, folds the reply
//! and completes the end.

use throughline_canonical::{Block, EndReason, Event, Fault, FaultKind, Fold, RoundFacts};
use throughline_codec::dialects::fault_of_end;
use throughline_codec::dialects::resumable::LogOutline;
use throughline_codec::pacing::{Pacer, Pacing};
use throughline_gateway::reply::events::TurnEvent;
use throughline_gateway::shutdown;
use tokio::time::Instant;

use super::canonical::Driven;
use super::log::Entry;
use crate::store::RunStatus;

/// The code of the fault of a reply without content.
pub const EMPTY_REPLY: &str = "empty_reply";

/// Events on their way into a log, with joined deltas.
pub(super) struct PacedLog {
    pacer: Pacer,
    began: Instant,
    pub(super) log: EventLog,
}

impl PacedLog {
    /// `needs_content`: a reply without content is a fault.
    pub(super) fn new(pacing: Pacing, needs_content: bool) -> Self {
        let log = EventLog { needs_content, ..EventLog::default() };
        Self { pacer: Pacer::new(pacing), began: Instant::now(), log }
    }

    /// Takes an event of a turn.
    pub(super) fn take(&mut self, event: TurnEvent) {
        match event {
            TurnEvent::Event(Event::Ended { reason }) => self.end(reason),
            TurnEvent::Event(event) => self.push(event),
            // Each reader has its own keep-alives.
            TurnEvent::Silence(_) => {}
        }
    }

    pub(super) fn push(&mut self, event: Event<'_>) {
        let log = &mut self.log;
        self.pacer.push(event, self.began.elapsed(), &mut |event| log.add(&event));
    }

    pub(super) fn end(&mut self, reason: EndReason) {
        let log = &mut self.log;
        self.pacer.finish(&mut |event| log.add(&event));
        log.end(reason);
    }

    pub(super) fn tick(&mut self) {
        let log = &mut self.log;
        self.pacer.tick(self.began.elapsed(), &mut |event| log.add(&event));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pacer.deadline().map(|due| self.began + due)
    }
}

/// The words for a call whose result is not known.
const MAY_HAVE_RUN: &str = "this call was interrupted; it may have run, and it was not run again";
/// The words for a call that was never made.
const NOT_RUN: &str = "the run ended before this call was made; it was not run";

/// A round of a tool loop that the model has finished.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedRound {
    /// The position of its first block in the reply.
    pub start: usize,
    /// What is known about it.
    pub facts: RoundFacts,
}

/// A call that the server runs and that has no result yet.
struct OpenCall {
    id: String,
    /// Whether it was made.
    is_started: bool,
}

/// The canonical events of a run as entries, and the reply that they form.
#[derive(Default)]
pub(super) struct EventLog {
    fold: Fold,
    /// Open blocks: index in the stream, position in the reply.
    open: Vec<(u32, usize)>,
    /// Calls of a tool loop without a result.
    calls: Vec<OpenCall>,
    rounds: Vec<FinishedRound>,
    /// The position of the first block of the present round.
    round_start: usize,
    /// Which entries every reader needs.
    outline: LogOutline,
    /// The number of the last entry.
    last_number: u64,
    /// Entries that are not in the log of the run yet.
    entries: Vec<Entry>,
    pub(super) has_ended: bool,
    needs_content: bool,
}

impl EventLog {
    /// A log that another process has begun.
    pub(super) fn restored(entries: &[Entry]) -> Self {
        let mut log = Self::default();
        for entry in entries {
            log.last_number = entry.number;
            // An event of a newer version is skipped.
            if let Ok(event) = serde_json::from_str(&entry.text) {
                log.record(&event);
            }
        }
        log
    }

    /// Adds an event, unless the reply has ended.
    pub(super) fn add(&mut self, event: &Event<'_>) {
        if self.has_ended {
            return;
        }
        if matches!(event, Event::Fault(_) | Event::Ended { .. }) {
            self.close_calls();
        }
        if let Event::BlockStarted { index, .. } = event
            && self.open.iter().any(|(open, _)| open == index)
        {
            // Writers would end the block before it, and one event must not end and start a block.
            self.write(&Event::BlockEnded { index: *index });
        }
        self.write(event);
    }

    /// Gives every call of the tool loop its result, however the run ends: history must say that a call
    /// may have run, and no call may be run again.
    fn close_calls(&mut self) {
        for OpenCall { id, is_started } in std::mem::take(&mut self.calls) {
            let name = self.fold.reply().content.iter().find_map(|block| match block {
                Block::ToolCall { id: own, name, .. } if *own == id => Some(name.clone()),
                _ => None,
            });
            let text = if is_started { MAY_HAVE_RUN } else { NOT_RUN };
            self.write(&Event::ToolResult {
                id: id.into(),
                name: name.unwrap_or_default().into(),
                content: vec![Block::text(text)],
                is_error: true,
            });
        }
    }

    fn write(&mut self, event: &Event<'_>) {
        self.record(event);
        self.last_number += 1;
        // Events have only strings as keys, so writing them cannot fail.
        let text = serde_json::to_string(event).unwrap_or_default();
        let continues = !self.outline.needs(event);
        self.entries.push(Entry { continues, ..Entry::new(self.last_number, text) });
    }

    fn record(&mut self, event: &Event<'_>) {
        match event {
            Event::RoundEnded(facts) => {
                let open = |id: &String| OpenCall { id: id.clone(), is_started: false };
                self.calls = facts.calls.iter().map(open).collect();
                self.rounds
                    .push(FinishedRound { start: self.round_start, facts: (**facts).clone() });
            }
            Event::ToolStarted { id } => {
                for call in self.calls.iter_mut().filter(|call| call.id == **id) {
                    call.is_started = true;
                }
            }
            Event::ToolResult { id, .. } => {
                self.calls.retain(|call| call.id != **id);
                self.round_start = self.fold.reply().content.len() + 1;
            }
            Event::BlockStarted { index, .. } => {
                self.open.push((*index, self.fold.reply().content.len()));
            }
            Event::BlockEnded { index } => self.open.retain(|(open, _)| open != index),
            Event::Ended { .. } => self.has_ended = true,
            _ => {}
        }
        self.fold.push(event);
    }

    /// Adds the end, with what has to come before it.
    pub(super) fn end(&mut self, reason: EndReason) {
        if self.has_ended {
            return;
        }
        let reason = match &self.fold.reply().fault {
            Some(fault) if shutdown::is_of_shutdown(fault) => EndReason::Cut,
            Some(_) => reason,
            None => {
                let fault = fault_of_end(&reason).or_else(|| self.fault_of_content(&reason));
                if let Some(fault) = fault {
                    self.add(&Event::Fault(fault));
                }
                reason
            }
        };
        let broken = matches!(reason, EndReason::Failed | EndReason::Cut)
            || reason.is_cancelled()
            || reason.is_timeout();
        if !broken {
            for (index, _) in std::mem::take(&mut self.open) {
                self.add(&Event::BlockEnded { index });
            }
        }
        self.add(&Event::Ended { reason });
    }

    /// The fault of a reply that needs content and has none.
    fn fault_of_content(&self, reason: &EndReason) -> Option<Fault> {
        let is_wrong = self.needs_content
            && !reason.is_cancelled()
            && !has_content(&self.fold.reply().content);
        is_wrong.then(|| {
            Fault::new(FaultKind::Unreachable, "the provider returned nothing")
                .with_code(EMPTY_REPLY)
        })
    }

    /// The new entries except the end, and the end.
    pub(super) fn take_entries(&mut self) -> (Vec<Entry>, Option<Entry>) {
        let mut entries = std::mem::take(&mut self.entries);
        let end = if self.has_ended { entries.pop() } else { None };
        (entries, end)
    }

    /// The result of the run.
    pub(super) fn into_driven(self) -> Driven {
        let cut_blocks = self.open.into_iter().map(|(_, position)| position).collect();
        let reply = self.fold.finish();
        Driven {
            status: status_of(reply.fault.as_ref(), reply.reason.as_ref()),
            reply,
            cut_blocks,
            rounds: self.rounds,
        }
    }
}

/// Whether an entry is the end of a log of canonical events.
pub(super) fn is_end(entry: &Entry) -> bool {
    matches!(serde_json::from_str(&entry.text), Ok(Event::Ended { .. }))
}

/// Whether anything arrived that is worth a node.
pub(crate) fn has_content(blocks: &[Block]) -> bool {
    blocks.iter().any(|block| match block {
        Block::Text { text, .. } | Block::Refusal { text } => !text.is_empty(),
        Block::Thinking { text, signature } => !text.is_empty() || signature.is_some(),
        _ => true,
    })
}

/// How a run ended, by the fault and the reason of its reply.
pub(crate) fn status_of(fault: Option<&Fault>, reason: Option<&EndReason>) -> RunStatus {
    match (fault, reason) {
        (_, None | Some(EndReason::Cut)) => RunStatus::Interrupted,
        (Some(fault), _) if fault.code.as_deref() == Some(EMPTY_REPLY) => RunStatus::Error,
        (Some(fault), _) if fault.kind == FaultKind::Unreachable => RunStatus::Interrupted,
        (Some(_), _) | (_, Some(EndReason::Failed)) => RunStatus::Error,
        (None, Some(reason)) if reason.is_cancelled() => RunStatus::Cancelled,
        (None, Some(reason)) if reason.is_timeout() => RunStatus::Interrupted,
        (None, Some(_)) => RunStatus::Completed,
    }
}
