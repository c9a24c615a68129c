//! Writes the lines of a reply. Each line is a numbered object. The lines of a block share the
//! number of the block, so interleaved blocks can be reassembled.

use throughline_canonical::{
    self as canonical, Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Reply,
    Request, Show,
};

use self::line::{Arguments, DoneReason, Line, WaitingCall};
use crate::dialects::content_blocks::result_content;
use crate::dialects::shared::open_blocks::OpenBlocks;
use crate::dialects::shared::reply_end::{EndReport, fault_of_end};
use crate::dialects::{ReplyIdentity, ReplyWriter};

pub(super) mod line;
mod whole;

/// White space before an object is ignored by line readers and JSON readers.
const KEEP_ALIVE: &[u8] = b" ";

/// Writes one reply.
#[derive(Default)]
pub(super) struct Writer {
    /// The client's name of the model, else the provider's.
    pub(super) model: String,
    /// Whether the client wants no reasoning, only signatures.
    pub(super) hidden: bool,
    open: OpenBlocks<OpenBlock>,
    /// The number of blocks so far.
    blocks: usize,
    /// The number of the last line.
    lines: usize,
    /// Whether there was text or a call.
    answered: bool,
    report: EndReport,
    failed: Option<FaultKind>,
    ended: bool,
}

/// An open block.
struct OpenBlock {
    number: usize,
    kind: BlockKind,
    /// Whether a line of it was written.
    begun: bool,
    signature: String,
}

enum BlockKind {
    Text { refusal: bool },
    Thinking,
    Call(Call),
}

struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Writer {
    pub(super) fn new(request: &Request, identity: &ReplyIdentity) -> Self {
        Self {
            model: identity.model(request).to_owned(),
            hidden: request.thinking.show == Some(Show::Hidden),
            ..Self::default()
        }
    }

    /// The number of the next line.
    fn next(&mut self) -> usize {
        self.lines += 1;
        self.lines
    }

    fn start(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        self.stop(index, out);
        let (kind, text, signature) = match block {
            BlockStart::Text { text } => (BlockKind::Text { refusal: false }, &**text, ""),
            BlockStart::Refusal { text } => (BlockKind::Text { refusal: true }, &**text, ""),
            BlockStart::Thinking { text, signature } => {
                (BlockKind::Thinking, &**text, &**signature)
            }
            BlockStart::Redacted { data } => {
                let (block, seq) = (self.blocks, self.next());
                Line::RedactedThinking { content: data, block, seq }.write(out);
                self.blocks += 1;
                return;
            }
            BlockStart::ToolCall { id, name } => {
                let call = Call {
                    id: id.clone().into_owned(),
                    name: name.clone().into_owned(),
                    arguments: String::new(),
                };
                (BlockKind::Call(call), "", "")
            }
            // Only its provider can read it.
            BlockStart::Opaque { .. } => return,
        };
        let signature = signature.to_owned();
        self.open.push(index, OpenBlock { number: self.blocks, kind, begun: false, signature });
        self.blocks += 1;
        self.grow(index, text, out);
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        let Some(open) = self.open.get_mut(index) else {
            return;
        };
        match (&mut open.kind, delta) {
            (BlockKind::Text { .. }, Delta::Text(text))
            // Providers may send plain text inside a reasoning block.
            | (BlockKind::Thinking, Delta::Thinking(text) | Delta::Text(text)) => {
                self.grow(index, text, out);
            }
            (BlockKind::Call(call), Delta::ToolArguments(text)) => call.arguments.push_str(text),
            (kind, Delta::Signature(value)) => {
                value.as_ref().clone_into(&mut open.signature);
                if matches!(kind, BlockKind::Text { .. }) && !open.begun && !value.is_empty() {
                    // Otherwise the client could not know that the signature belongs to a text.
                    open.begun = true;
                    let block = open.number;
                    Line::Text { content: "", refusal: None, block, seq: self.next() }.write(out);
                }
            }
            (BlockKind::Text { .. }, Delta::Citation(citation)) => {
                let block = open.number;
                let Some(content) = citation.url.as_deref() else { return };
                let (title, seq) = (citation.title.as_deref(), self.next());
                Line::Source { content, title, block, seq }.write(out);
            }
            _ => {}
        }
    }

    fn grow(&mut self, index: u32, content: &str, out: &mut Vec<u8>) {
        let Some(open) = self.open.get_mut(index).filter(|_| !content.is_empty()) else {
            return;
        };
        let (block, append) = (open.number, open.begun);
        let refuses = match open.kind {
            BlockKind::Text { refusal } => Some(refusal),
            BlockKind::Thinking if self.hidden => return,
            BlockKind::Thinking => None,
            BlockKind::Call(_) => return,
        };
        open.begun = true;
        self.answered |= refuses.is_some();
        let seq = self.next();
        let line = match refuses {
            Some(refuses) => Line::Text { content, refusal: refuses.then_some(true), block, seq },
            None => Line::Thinking { content, append, block, seq },
        };
        line.write(out);
    }

    fn stop(&mut self, index: u32, out: &mut Vec<u8>) {
        if let Some(open) = self.open.remove(index) {
            self.finish(&open, out);
        }
    }

    fn finish(&mut self, open: &OpenBlock, out: &mut Vec<u8>) {
        if let BlockKind::Call(call) = &open.kind {
            return self.call(call, open, out);
        }
        if open.signature.is_empty() {
            return;
        }
        let seq = self.next();
        Line::ThinkingSignature { content: &open.signature, block: open.number, seq }.write(out);
    }

    fn call(&mut self, call: &Call, open: &OpenBlock, out: &mut Vec<u8>) {
        self.answered = true;
        let line = Line::ToolCall {
            id: &call.id,
            name: &call.name,
            arguments: Arguments(&call.arguments),
            signature: Some(open.signature.as_str()).filter(|signature| !signature.is_empty()),
            block: open.number,
            seq: self.next(),
        };
        line.write(out);
    }

    /// Writes calls that wait for a person.
    fn waiting(&mut self, calls: &[canonical::WaitingCall], out: &mut Vec<u8>) {
        let calls = calls.iter().map(|call| WaitingCall {
            id: &call.id,
            name: &call.name,
            arguments: Arguments(&call.arguments),
            message: call.message.as_deref(),
            schema: call.schema.as_ref(),
        });
        Line::ApprovalNeeded { calls: calls.collect(), seq: self.next() }.write(out);
    }

    /// Writes the result of a call that the server ran.
    fn result(&mut self, id: &str, name: &str, result: (&[Block], bool), out: &mut Vec<u8>) {
        let (content, is_error) = (result_content(result.0), result.1);
        let (block, seq) = (self.blocks, self.next());
        Line::ToolResult { id, name, content, is_error, block, seq }.write(out);
        self.blocks += 1;
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(fault.kind);
        // Incomplete blocks are dropped.
        self.open = OpenBlocks::default();
        Line::Error { message: &fault.message, kind: fault.kind, seq: self.next() }.write(out);
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        if let Some(fault) = fault_of_end(reason) {
            self.fault(&fault, out);
        }
        let open = self.open.take();
        if !reason.is_cancelled() {
            open.for_each(|open| self.finish(&open, out));
        }
        self.ended = true;
        let seq = self.next();
        let line = Line::Done {
            reason: DoneReason::of(reason, self.answered, self.failed),
            stop_reason: stop_word(reason),
            model: &self.model,
            usage: &self.report.usage,
            details: Some(&self.report.details).filter(|details| !details.is_empty()),
            losses: &self.report.losses,
            seq,
        };
        line.write(out);
    }
}

/// The canonical stop reason, else the provider's.
pub(super) fn stop_word(reason: &EndReason) -> &str {
    match reason {
        EndReason::Stop => "stop",
        EndReason::Length => "length",
        EndReason::StopSequence => "stop_sequence",
        EndReason::ToolCalls => "tool_calls",
        EndReason::Pause => "pause",
        EndReason::Refusal => "refusal",
        EndReason::Other(word) => word,
        EndReason::Failed => "failed",
        EndReason::Cut => "cut",
    }
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.ended || self.report.record(event) {
            return;
        }
        match event {
            Event::Ended { reason } => self.end(reason, out),
            // After an error, only the end matters.
            _ if self.failed.is_some() => {}
            Event::MessageStarted { model, .. } => {
                if self.model.is_empty() {
                    self.model = model.clone().into_owned();
                }
            }
            Event::BlockStarted { index, block } => self.start(*index, block, out),
            Event::BlockDelta { index, delta } => self.delta(*index, delta, out),
            Event::BlockEnded { index } => self.stop(*index, out),
            Event::ApprovalNeeded { calls } => self.waiting(calls, out),
            Event::ToolResult { id, name, content, is_error } => {
                self.result(id, name, (content, *is_error), out);
            }
            Event::Fault(fault) => self.fault(fault, out),
            Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::Transformed { .. }
            | Event::Usage(_)
            | Event::EndExplained(_)
            | Event::Lost { .. } => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if !self.ended {
            out.extend_from_slice(KEEP_ALIVE);
        }
    }

    fn number(&mut self, number: u64) {
        self.lines = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
    }

    /// The blocks keep their numbers, and the reply is not empty.
    fn omit(&mut self, event: &Event<'_>) {
        self.blocks += usize::from(matches!(event, Event::ToolResult { .. }));
        if let Event::BlockStarted { block, .. } = event {
            self.blocks += usize::from(!matches!(block, BlockStart::Opaque { .. }));
            self.answered |= matches!(block, BlockStart::ToolCall { .. });
        }
        if let Event::BlockStarted { block: BlockStart::Text { text }, .. }
        | Event::BlockDelta { delta: Delta::Text(text), .. } = event
        {
            self.answered |= !text.is_empty();
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        whole::write(self, reply)
    }
}
