//! Writes the lines of a reply. Each line is a numbered object. The lines of a block share the
//! number of the block, so interleaved blocks can be reassembled.

use serde_json::json;
use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Reply, Request, Show, WaitingCall,
};

use crate::dialects::content_blocks::result_content;
use crate::dialects::shared::arguments::or_empty_object;
use crate::dialects::shared::number::write_number;
use crate::dialects::shared::open_blocks::OpenBlocks;
use crate::dialects::shared::reply_end::{EndReport, fault_of_end};
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{OneLine, escape_bytes, quote_bytes};

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
    lines: u64,
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

    /// Ends a line with its number.
    fn close(&mut self, out: &mut Vec<u8>) {
        self.lines += 1;
        out.extend_from_slice(b",\"seq\":");
        write_number(self.lines, out);
        out.extend_from_slice(b"}\n");
    }

    /// Writes a line with content.
    fn line(&mut self, kind: &str, content: &str, more: &[u8], block: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"content\":\"");
        escape_bytes(content, out);
        out.push(b'"');
        out.extend_from_slice(more);
        out.extend_from_slice(b",\"block\":");
        write_number(block, out);
        self.close(out);
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
                self.line("redacted_thinking", data, b"", self.blocks, out);
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
                    let number = open.number;
                    self.line("text", "", b"", number, out);
                }
            }
            (BlockKind::Text { .. }, Delta::Citation(citation)) => {
                let number = open.number;
                let Some(url) = &citation.url else { return };
                let title = citation.title.as_deref();
                let title = title.map_or_else(Vec::new, |title| {
                    let mut member = b",\"title\":".to_vec();
                    quote_bytes(title, &mut member);
                    member
                });
                self.line("source", url, &title, number, out);
            }
            _ => {}
        }
    }

    fn grow(&mut self, index: u32, text: &str, out: &mut Vec<u8>) {
        let Some(open) = self.open.get_mut(index).filter(|_| !text.is_empty()) else {
            return;
        };
        let (kind, more): (_, &[u8]) = match open.kind {
            BlockKind::Text { refusal: false } => ("text", b""),
            BlockKind::Text { refusal: true } => ("text", b",\"refusal\":true"),
            BlockKind::Thinking if self.hidden => return,
            BlockKind::Thinking if open.begun => ("thinking", b",\"append\":true"),
            BlockKind::Thinking => ("thinking", b",\"append\":false"),
            BlockKind::Call(_) => return,
        };
        open.begun = true;
        let number = open.number;
        self.answered |= kind == "text";
        self.line(kind, text, more, number, out);
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
        self.line("thinking_signature", &open.signature, b"", open.number, out);
    }

    fn call(&mut self, call: &Call, open: &OpenBlock, out: &mut Vec<u8>) {
        self.answered = true;
        out.extend_from_slice(b"{\"type\":\"tool_call\",\"id\":");
        quote_bytes(&call.id, out);
        out.extend_from_slice(b",\"name\":");
        quote_bytes(&call.name, out);
        out.extend_from_slice(b",\"arguments\":");
        write_arguments(&call.arguments, out);
        if !open.signature.is_empty() {
            out.extend_from_slice(b",\"signature\":");
            quote_bytes(&open.signature, out);
        }
        out.extend_from_slice(b",\"block\":");
        write_number(open.number, out);
        self.close(out);
    }

    /// Writes calls that wait for a person.
    fn waiting(&mut self, calls: &[WaitingCall], out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"approval_needed\",\"calls\":[");
        for (number, call) in calls.iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"id\":");
            quote_bytes(&call.id, out);
            out.extend_from_slice(b",\"name\":");
            quote_bytes(&call.name, out);
            out.extend_from_slice(b",\"arguments\":");
            write_arguments(&call.arguments, out);
            if let Some(message) = &call.message {
                out.extend_from_slice(b",\"message\":");
                quote_bytes(message, out);
            }
            if let Some(schema) = &call.schema {
                out.extend_from_slice(b",\"schema\":");
                out.extend_from_slice(schema.to_string().as_bytes());
            }
            out.push(b'}');
        }
        out.push(b']');
        self.close(out);
    }

    /// Writes the result of a call that the server ran.
    fn result(&mut self, id: &str, name: &str, result: (&[Block], bool), out: &mut Vec<u8>) {
        let (content, is_error) = result;
        out.extend_from_slice(b"{\"type\":\"tool_result\",\"id\":");
        quote_bytes(id, out);
        out.extend_from_slice(b",\"name\":");
        quote_bytes(name, out);
        out.extend_from_slice(b",\"content\":");
        out.extend_from_slice(result_content(content).to_string().as_bytes());
        out.extend_from_slice(b",\"isError\":");
        out.extend_from_slice(if is_error { b"true" } else { b"false" });
        out.extend_from_slice(b",\"block\":");
        write_number(self.blocks, out);
        self.blocks += 1;
        self.close(out);
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(fault.kind);
        // Incomplete blocks are dropped.
        self.open = OpenBlocks::default();
        out.extend_from_slice(b"{\"type\":\"error\",\"message\":");
        quote_bytes(&fault.message, out);
        out.extend_from_slice(b",\"kind\":");
        out.extend_from_slice(json!(fault.kind).to_string().as_bytes());
        self.close(out);
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
        out.extend_from_slice(b"{\"type\":\"done\",\"reason\":\"");
        out.extend_from_slice(done_word(reason, self.answered, self.failed).as_bytes());
        out.extend_from_slice(b"\",\"stop_reason\":");
        quote_bytes(stop_word(reason), out);
        out.extend_from_slice(b",\"model\":");
        quote_bytes(&self.model, out);
        out.extend_from_slice(b",\"usage\":");
        out.extend_from_slice(json!(self.report.usage).to_string().as_bytes());
        if !self.report.details.is_empty() {
            out.extend_from_slice(b",\"details\":");
            out.extend_from_slice(json!(self.report.details).to_string().as_bytes());
        }
        if !self.report.losses.is_empty() {
            out.extend_from_slice(b",\"losses\":");
            out.extend_from_slice(json!(self.report.losses).to_string().as_bytes());
        }
        self.close(out);
    }
}

/// Writes the arguments of a call: as JSON, or as a string if they are malformed.
fn write_arguments(arguments: &str, out: &mut Vec<u8>) {
    let arguments = or_empty_object(arguments);
    match OneLine::of(arguments) {
        Some(line) => line.write(out),
        None => quote_bytes(arguments, out),
    }
}

/// The outcome of a run.
pub(super) fn done_word(
    reason: &EndReason,
    answered: bool,
    failed: Option<FaultKind>,
) -> &'static str {
    match (failed, reason) {
        (_, EndReason::Cut) => "interrupted",
        (Some(FaultKind::TimedOut), _) => "timeout",
        (Some(FaultKind::Unreachable), _) => "interrupted",
        (Some(_), _) | (None, EndReason::Failed) => "error",
        (None, EndReason::Length) => "truncated",
        (None, EndReason::Refusal) => "completed",
        (None, reason) if reason.is_cancelled() => "cancelled",
        (None, reason) if let Some(limit) = reason.limit() => limit,
        (None, _) if !answered => "empty",
        (None, _) => "completed",
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
        self.lines = number.saturating_sub(1);
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
