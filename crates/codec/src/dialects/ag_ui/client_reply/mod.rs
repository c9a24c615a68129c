//! Writes the events of a run.
//!
//! Clients build messages from the events, each at the position of its first event, and send them
//! back. So that a turn can be reassembled, each reasoning block and each text is a message of its
//! own. Calls belong to the last assistant message before them, or to a new one after reasoning.

use std::time::Duration;

use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Reply, Request, Show, WaitingCall,
};

use self::activity::Activity;
use self::frames::{About, border, delta, event};
use super::interrupts::RunCall;
use super::run::{ReasoningForm, Run};
use super::{METADATA, REDACTED, REFUSAL};
use crate::dialects::content_blocks::{self, result_text};
use crate::dialects::shared::arguments::EMPTY_OBJECT;
use crate::dialects::shared::hidden_reasoning::NOTICE;
use crate::dialects::shared::keep_alive;
use crate::dialects::shared::reply_end::{EndReport, may_cut_a_call};
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{EndDetector, escape};

mod activity;
pub(super) mod frames;

/// Writes the events of one run.
#[derive(Debug, Default)]
pub(super) struct Writer {
    run: Run,
    identity: String,
    /// The model that the client named, else the one that answers.
    model: String,
    /// Whether the client wants no reasoning text.
    hidden: bool,
    open: Vec<OpenBlock>,
    /// Number of messages so far.
    messages: usize,
    /// The message that calls belong to.
    assistant: Option<String>,
    calls: Vec<RunCall>,
    /// A call that ended without arguments. The next event shows whether it was cut.
    held: Option<OpenBlock>,
    /// Number of blocks in the single reasoning of the old events.
    thinking: usize,
    report: EndReport,
    activity: Activity,
    started: bool,
    ended: bool,
}

/// An open block.
#[derive(Debug)]
struct OpenBlock {
    index: u32,
    kind: BlockKind,
    /// The id of its message, or of the call as escaped JSON.
    id: String,
    /// Whether its start was written; for a call, whether it has arguments.
    begun: bool,
    /// The signature; a later one replaces an earlier one.
    signature: String,
    /// Index of the call in the run.
    call: usize,
    /// Detects the end of the arguments.
    arguments: EndDetector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Refusal,
    Thinking,
    Call,
    Other,
}

impl Writer {
    pub(super) fn new(run: Run, request: &Request, identity: &ReplyIdentity) -> Self {
        Self {
            run,
            identity: identity.id.clone(),
            model: identity.model(request).to_owned(),
            hidden: request.thinking.show == Some(Show::Hidden),
            activity: Activity::new(format!("waiting_{}", identity.id)),
            ..Self::default()
        }
    }

    /// Creates a unique message id.
    fn message_id(&mut self, kind: &str) -> String {
        self.messages += 1;
        format!("{kind}{}_{}", self.identity, self.messages)
    }

    fn position(&self, index: u32) -> Option<usize> {
        self.open.iter().rposition(|block| block.index == index)
    }

    fn start(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        // Otherwise their messages would come after the one that starts now.
        for position in 0..self.open.len() {
            self.begin_text(position, out);
        }
        let (kind, id, signature) = match block {
            BlockStart::Text { .. } => (BlockKind::Text, String::new(), ""),
            BlockStart::Refusal { .. } => (BlockKind::Refusal, String::new(), ""),
            BlockStart::Thinking { signature, .. } => {
                let id = self.begin_reasoning("reasoning_", out);
                (BlockKind::Thinking, id, &**signature)
            }
            BlockStart::Redacted { data } => {
                self.redacted(data, out);
                (BlockKind::Other, String::new(), "")
            }
            BlockStart::ToolCall { id, name } => (BlockKind::Call, self.call(id, name, out), ""),
            BlockStart::Opaque { .. } => (BlockKind::Other, String::new(), ""),
        };
        self.open.push(OpenBlock {
            index,
            kind,
            id,
            begun: false,
            signature: signature.to_owned(),
            call: self.calls.len().saturating_sub(1),
            arguments: EndDetector::default(),
        });
        if let BlockStart::Text { text }
        | BlockStart::Refusal { text }
        | BlockStart::Thinking { text, .. } = block
        {
            self.grow(self.open.len() - 1, text, out);
        }
    }

    /// Writes the growth of a block.
    fn grow(&mut self, position: usize, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        match self.open.get(position).map(|block| block.kind) {
            Some(BlockKind::Text | BlockKind::Refusal) => {
                self.begin_text(position, out);
                if let Some(block) = self.open.get(position) {
                    delta("TEXT_MESSAGE_CONTENT", About::Message(&block.id), text, out);
                }
            }
            Some(BlockKind::Thinking) if !self.hidden => self.think(position, text, out),
            Some(BlockKind::Call) => {
                if let Some(block) = self.open.get_mut(position) {
                    block.begun = true;
                    block.arguments.push(text.as_bytes());
                    delta("TOOL_CALL_ARGS", About::Call(&block.id), text, out);
                }
            }
            _ => {}
        }
    }

    /// Starts the message of a text unless it has started.
    fn begin_text(&mut self, position: usize, out: &mut Vec<u8>) {
        let refuses = match self.open.get(position) {
            Some(OpenBlock {
                kind: kind @ (BlockKind::Text | BlockKind::Refusal),
                begun: false,
                ..
            }) => *kind == BlockKind::Refusal,
            _ => return,
        };
        let id = self.message_id("message_");
        event(out, |event| {
            event
                .text("type", "TEXT_MESSAGE_START")
                .text("messageId", &id)
                .text("role", "assistant");
            if refuses && self.run.modern {
                let mut metadata = event.object("metadata");
                metadata.object(METADATA).raw(REFUSAL, b"true").end();
                metadata.end();
            }
        });
        self.assistant = Some(id.clone());
        if let Some(block) = self.open.get_mut(position) {
            (block.id, block.begun) = (id, true);
        }
    }

    /// Starts a reasoning message. Later output belongs to a new assistant message.
    fn begin_reasoning(&mut self, kind: &str, out: &mut Vec<u8>) -> String {
        self.assistant = None;
        if self.run.reasoning != ReasoningForm::Reasoning {
            return String::new();
        }
        let id = self.message_id(kind);
        border("REASONING_START", About::Message(&id), out);
        event(out, |event| {
            event
                .text("type", "REASONING_MESSAGE_START")
                .text("messageId", &id)
                .text("role", "reasoning");
        });
        id
    }

    fn end_reasoning(&self, id: &str, signature: &str, out: &mut Vec<u8>) {
        border("REASONING_MESSAGE_END", About::Message(id), out);
        self.seal("message", id, signature, out);
        border("REASONING_END", About::Message(id), out);
    }

    /// Writes the encrypted value of a message or call, which must be known to the client by now.
    fn seal(&self, subtype: &str, id: &str, signature: &str, out: &mut Vec<u8>) {
        if signature.is_empty() || self.run.reasoning != ReasoningForm::Reasoning {
            return;
        }
        event(out, |event| {
            event.text("type", "REASONING_ENCRYPTED_VALUE").text("subtype", subtype);
            // The id is escaped already.
            event.key("entityId").extend_from_slice(format!("\"{id}\"").as_bytes());
            event.text("encryptedValue", signature);
        });
    }

    fn redacted(&mut self, data: &str, out: &mut Vec<u8>) {
        let id = self.begin_reasoning(REDACTED, out);
        match self.run.reasoning {
            ReasoningForm::Reasoning => self.end_reasoning(&id, data, out),
            ReasoningForm::Thinking if !self.hidden => {
                self.begin_thinking(out);
                delta("THINKING_TEXT_MESSAGE_CONTENT", About::Thinking, NOTICE, out);
                self.end_thinking(out);
            }
            ReasoningForm::Thinking | ReasoningForm::None => {}
        }
    }

    fn think(&mut self, position: usize, text: &str, out: &mut Vec<u8>) {
        match self.run.reasoning {
            ReasoningForm::Reasoning => {
                if let Some(block) = self.open.get(position) {
                    delta("REASONING_MESSAGE_CONTENT", About::Message(&block.id), text, out);
                }
            }
            ReasoningForm::Thinking => {
                let block = self.open.get_mut(position);
                if block.is_some_and(|block| !std::mem::replace(&mut block.begun, true)) {
                    self.begin_thinking(out);
                }
                delta("THINKING_TEXT_MESSAGE_CONTENT", About::Thinking, text, out);
            }
            ReasoningForm::None => {}
        }
    }

    /// The old events have no ids. So there is one reasoning at a time, and blocks share it.
    fn begin_thinking(&mut self, out: &mut Vec<u8>) {
        self.thinking += 1;
        if self.thinking == 1 {
            border("THINKING_START", About::Thinking, out);
            border("THINKING_TEXT_MESSAGE_START", About::Thinking, out);
        }
    }

    fn end_thinking(&mut self, out: &mut Vec<u8>) {
        self.thinking = self.thinking.saturating_sub(1);
        if self.thinking == 0 {
            border("THINKING_TEXT_MESSAGE_END", About::Thinking, out);
            border("THINKING_END", About::Thinking, out);
        }
    }

    /// Starts a call. Returns its escaped id.
    fn call(&mut self, id: &str, name: &str, out: &mut Vec<u8>) -> String {
        let parent = match self.assistant.take() {
            Some(parent) => parent,
            None => self.message_id("message_"),
        };
        event(out, |event| {
            event
                .text("type", "TOOL_CALL_START")
                .text("toolCallId", id)
                .text("toolCallName", name)
                .text("parentMessageId", &parent);
        });
        self.assistant = Some(parent);
        self.calls.push(RunCall {
            id: id.to_owned(),
            name: name.to_owned(),
            waits: self.run.approvals.contains(name),
            whole: false,
        });
        let mut quoted = String::new();
        escape(id, &mut quoted);
        quoted
    }

    /// Ends a call. `cut` means that it ended before its arguments started.
    fn end_call(&mut self, block: &OpenBlock, cut: bool, out: &mut Vec<u8>) {
        let empty = !block.begun && !cut;
        if empty {
            delta("TOOL_CALL_ARGS", About::Call(&block.id), EMPTY_OBJECT, out);
        }
        if let Some(call) = self.calls.get_mut(block.call) {
            call.whole = empty || block.arguments.is_complete();
        }
        border("TOOL_CALL_END", About::Call(&block.id), out);
        self.seal("tool-call", &block.id, &block.signature, out);
    }

    /// Ends a call that was held back.
    fn release(&mut self, reason: Option<&EndReason>, out: &mut Vec<u8>) {
        if let Some(call) = self.held.take() {
            self.end_call(&call, reason.is_some_and(may_cut_a_call), out);
        }
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        let Some(position) = self.position(index) else {
            return;
        };
        let Some(block) = self.open.get_mut(position) else {
            return;
        };
        match (block.kind, delta) {
            (_, Delta::Signature(value)) => value.as_ref().clone_into(&mut block.signature),
            (BlockKind::Text | BlockKind::Refusal, Delta::Text(text))
            // Providers may send plain text inside a reasoning block.
            | (BlockKind::Thinking, Delta::Thinking(text) | Delta::Text(text))
            | (BlockKind::Call, Delta::ToolArguments(text)) => self.grow(position, text, out),
            _ => {}
        }
    }

    fn stop(&mut self, position: usize, out: &mut Vec<u8>) {
        let sealed = self.run.reasoning == ReasoningForm::Reasoning;
        if self.open.get(position).is_some_and(|block| sealed && !block.signature.is_empty()) {
            // An empty text may have a signature.
            self.begin_text(position, out);
        }
        if position >= self.open.len() {
            return;
        }
        let block = self.open.remove(position);
        match block.kind {
            BlockKind::Text | BlockKind::Refusal if block.begun => {
                border("TEXT_MESSAGE_END", About::Message(&block.id), out);
                self.seal("message", &block.id, &block.signature, out);
            }
            BlockKind::Thinking if sealed => self.end_reasoning(&block.id, &block.signature, out),
            BlockKind::Thinking if block.begun => self.end_thinking(out),
            BlockKind::Call => {
                self.release(None, out);
                if block.begun {
                    self.end_call(&block, false, out);
                } else {
                    self.held = Some(block);
                }
            }
            _ => {}
        }
    }

    /// Ends the run with interrupts, as the protocol wants. What comes later is a run of its own for
    /// the client, with the same id.
    fn interrupt(&mut self, waiting: &[WaitingCall], out: &mut Vec<u8>) {
        if !self.run.modern {
            return;
        }
        self.run.interrupt(waiting, &self.report, &self.model, out);
        self.started = false;
    }

    /// Writes the result of a call that the server ran. It is a message, and what follows belongs to
    /// a new assistant message.
    fn result(&mut self, id: &str, content: &[Block], out: &mut Vec<u8>) {
        self.calls.retain(|call| call.id != id);
        self.assistant = None;
        let message = self.message_id("result_");
        let content = result_text(content)
            .unwrap_or_else(|| content_blocks::result_content(content).to_string());
        event(out, |event| {
            event
                .text("type", "TOOL_CALL_RESULT")
                .text("messageId", &message)
                .text("toolCallId", id)
                .text("content", &content)
                .text("role", "tool");
        });
    }

    fn fail(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.ended = true;
        self.run.fail(fault, &self.report, &self.model, out);
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        let missing = match reason {
            EndReason::Cut => "the provider's reply ended before it was complete",
            EndReason::Failed => "the provider reported an error",
            _ => {
                while !self.open.is_empty() {
                    self.stop(0, out);
                }
                self.release(Some(reason), out);
                self.ended = true;
                if may_cut_a_call(reason) {
                    // Incomplete calls must not run or ask for approval.
                    self.calls.retain(|call| call.whole);
                }
                return self.run.finish(reason, &self.calls, &self.report, &self.model, out);
            }
        };
        // Clients take a plain end for success.
        self.fail(&Fault::new(FaultKind::Unreachable, missing), out);
    }

    /// What the provider is writing.
    fn within(&self) -> &'static str {
        match self.open.last().map(|block| block.kind) {
            Some(BlockKind::Thinking) => "reasoning",
            Some(BlockKind::Text | BlockKind::Refusal) => "text",
            Some(BlockKind::Call) => "tool_call",
            Some(BlockKind::Other) | None => "answer",
        }
    }
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.ended || self.report.record(event) {
            return;
        }
        self.begin(out);
        self.settle(out);
        if let Event::Ended { reason } = event {
            return self.end(reason, out);
        }
        self.release(None, out);
        match event {
            Event::MessageStarted { model, .. } if self.model.is_empty() => {
                model.as_ref().clone_into(&mut self.model);
            }
            Event::BlockStarted { index, block } => self.start(*index, block, out),
            Event::BlockDelta { index, delta } => self.delta(*index, delta, out),
            Event::BlockEnded { index } => {
                if let Some(position) = self.position(*index) {
                    self.stop(position, out);
                }
            }
            Event::ApprovalNeeded { calls } => self.interrupt(calls, out),
            Event::ToolResult { id, content, .. } => self.result(id, content, out),
            Event::Fault(fault) => self.fail(fault, out),
            Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::MessageStarted { .. }
            | Event::Transformed { .. }
            | Event::Usage(_)
            | Event::EndExplained(_)
            | Event::Lost { .. }
            | Event::Ended { .. } => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if !self.ended {
            out.extend_from_slice(keep_alive::COMMENT);
        }
    }

    fn wait(&mut self, silent: Duration, out: &mut Vec<u8>) {
        if !self.run.modern {
            return self.keep_alive(out);
        }
        if !self.ended {
            self.begin(out);
            self.activity.wait(silent, self.within(), out);
        }
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.started, true) {
            self.run.start(&self.identity, out);
        }
    }

    fn settle(&mut self, out: &mut Vec<u8>) {
        if self.activity.waits() {
            self.activity.go_on(out);
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        // Clients read streams only, so a whole reply is a stream in one piece.
        let mut writer = Self {
            run: self.run.clone(),
            identity: self.identity.clone(),
            model: self.model.clone(),
            activity: Activity::default(),
            open: Vec::new(),
            assistant: None,
            calls: Vec::new(),
            held: None,
            report: EndReport::default(),
            ..*self
        };
        let mut out = Vec::new();
        reply.emit_events(&mut |event| writer.push(event, &mut out));
        out
    }
}
