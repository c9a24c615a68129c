//! Writes a streamed reply. Nearly all chunks are written by hand: only the text changes between
//! them.

use serde_json::Value;
use throughline_canonical::{
    BlockStart, Citation, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Reply, Request,
    Usage,
};

use self::form::Form;
use super::{CUSTOM, ChatSession, NAME, annotations, errors, usage};
use crate::dialects::shared::arguments::EMPTY_OBJECT;
use crate::dialects::shared::hidden_reasoning::{BREAK, NOTICE};
use crate::dialects::shared::number::write_number;
use crate::dialects::shared::open_blocks::OpenBlocks;
use crate::dialects::shared::reply_end::fault_of_end;
use crate::dialects::shared::{keep_alive, openai_annotations};
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{escape, escape_bytes};

mod calls;
mod form;
mod whole;

/// Writes one reply. Many fields: the content of a chunk depends on everything that was written
/// before.
#[derive(Default)]
pub(super) struct Writer {
    /// Members that identify the reply.
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) form: Form,
    /// All bytes before the content of a delta.
    head: Vec<u8>,
    /// All bytes after it.
    tail: &'static [u8],
    /// Whether the role was sent. It is sent once, in the first delta, because clients concatenate
    /// repeated values.
    role_said: bool,
    blocks: OpenBlocks<OpenBlock>,
    /// Annotations of ended texts.
    annotations: Vec<Value>,
    details: EndDetails,
    /// Number of characters of the answer so far.
    answer_length: u64,
    /// Numbers of reasoning pieces and calls so far.
    reasoned: usize,
    shown: Shown,
    called: usize,
    /// Whether the model declined in words.
    refused: bool,
    usage: Usage,
    failed: bool,
    ended: bool,
    /// Buffer for escaped text.
    pub(super) escaped: String,
}

/// The kind of reasoning shown last.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Nothing,
    Reasoning,
    Notice,
}

/// An open block.
struct OpenBlock {
    kind: BlockKind,
    /// A later signature replaces an earlier one, but clients concatenate repeated values. So it is
    /// sent at the end of the block.
    signature: String,
    /// The JSON of a custom call so far.
    custom: String,
    citations: Vec<Citation>,
}

/// The kind of an open block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text {
        /// Number of characters of the answer before it.
        begins: u64,
    },
    Refusal,
    Thinking {
        /// Index of the reasoning piece.
        number: usize,
        /// Whether some of it was written.
        begun: bool,
    },
    Call {
        /// Index of the call.
        number: usize,
        /// Whether it has arguments.
        argued: bool,
    },
    /// A custom call.
    Custom {
        /// Index of the call.
        number: usize,
    },
    Other,
}

impl Writer {
    pub(super) fn new(request: &Request, session: ChatSession, identity: &ReplyIdentity) -> Self {
        let form = Form::new(request, session, identity);
        let model = identity.model(request);
        let id = format!("chatcmpl-{}", identity.id);
        let mut head = String::from("data: {\"id\":\"");
        escape(&id, &mut head);
        head.push_str("\",\"object\":\"chat.completion.chunk\",\"created\":");
        head.push_str(&identity.created.to_string());
        head.push_str(",\"model\":\"");
        escape(model, &mut head);
        head.push_str("\",\"choices\":[{\"index\":0,\"delta\":{");
        // With `include_usage`, every chunk but the last has a null usage.
        let tail: &[u8] = if form.include_usage {
            b"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n"
        } else {
            b"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
        };
        Self {
            id,
            created: identity.created,
            model: model.to_owned(),
            form,
            head: head.into_bytes(),
            tail,
            ..Self::default()
        }
    }

    pub(super) fn open(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        if !self.role_said {
            self.role_said = true;
            out.extend_from_slice(b"\"role\":\"assistant\",");
        }
    }

    pub(super) fn close(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.tail);
    }

    pub(super) fn escape(&mut self, text: &str) {
        self.escaped.clear();
        escape(text, &mut self.escaped);
    }

    fn start(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        let mut signed = "";
        let kind = match block {
            BlockStart::Text { text } => {
                let begins = self.answer_length;
                self.content(text, out);
                BlockKind::Text { begins }
            }
            BlockStart::Refusal { text } => {
                self.refused = true;
                self.text("refusal", text, out);
                BlockKind::Refusal
            }
            BlockStart::Thinking { text, signature } => {
                let number = self.reasoned;
                self.reasoned += 1;
                self.thinking(text, number, true, out);
                let begun = !text.is_empty() && !self.form.hidden;
                signed = signature;
                BlockKind::Thinking { number, begun }
            }
            BlockStart::Redacted { data } => {
                self.redacted(data, out);
                BlockKind::Other
            }
            BlockStart::ToolCall { id, name } => {
                let number = self.called;
                self.called += 1;
                self.call(id, name, number, out);
                BlockKind::Call { number, argued: false }
            }
            BlockStart::Opaque { dialect, name } if dialect == NAME && name == CUSTOM => {
                let number = self.called;
                self.called += 1;
                BlockKind::Custom { number }
            }
            BlockStart::Opaque { .. } => BlockKind::Other,
        };
        let (signature, custom) = (signed.to_owned(), String::new());
        self.blocks.push(index, OpenBlock { kind, signature, custom, citations: Vec::new() });
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        let Some(open) = self.blocks.get_mut(index) else {
            return;
        };
        match (&mut open.kind, delta) {
            (BlockKind::Text { .. }, Delta::Text(text)) => self.content(text, out),
            (BlockKind::Text { .. }, Delta::Citation(citation)) => {
                open.citations.push((**citation).clone());
            }
            (BlockKind::Refusal, Delta::Text(text)) => self.text("refusal", text, out),
            (
                BlockKind::Thinking { number, begun },
                // Providers may send plain text inside a reasoning block.
                Delta::Thinking(text) | Delta::Text(text),
            ) => {
                let (number, first) = (*number, !*begun);
                *begun |= !text.is_empty() && !self.form.hidden;
                self.thinking(text, number, first, out);
            }
            (BlockKind::Thinking { .. } | BlockKind::Call { .. }, Delta::Signature(signature)) => {
                signature.as_ref().clone_into(&mut open.signature);
            }
            (BlockKind::Call { number, argued }, Delta::ToolArguments(text))
                if !text.is_empty() =>
            {
                *argued = true;
                let number = *number;
                self.arguments(text, number, out);
            }
            (BlockKind::Custom { .. }, Delta::Opaque(more)) => open.custom.push_str(more),
            _ => {}
        }
    }

    fn stop(&mut self, index: u32, out: &mut Vec<u8>) {
        let Some(open) = self.blocks.remove(index) else {
            return;
        };
        match open.kind {
            BlockKind::Call { number, argued: false } => self.arguments(EMPTY_OBJECT, number, out),
            // The length of the text is known now.
            BlockKind::Text { begins } => {
                self.annotations
                    .extend(annotations::write(&open.citations, (begins, self.answer_length)));
            }
            BlockKind::Custom { number } => self.custom(&open.custom, number, out),
            _ => {}
        }
        match open.kind {
            _ if open.signature.is_empty() => {}
            BlockKind::Thinking { number, begun } => {
                self.signature(&open.signature, number, !begun, out);
            }
            BlockKind::Call { number, .. } => self.call_signature(&open.signature, number, out),
            _ => {}
        }
    }

    fn content(&mut self, text: &str, out: &mut Vec<u8>) {
        self.answer_length += openai_annotations::length(text);
        self.text("content", text, out);
    }

    /// Writes all annotations. The official Python client fails if they are sent twice.
    fn annotations(&mut self, out: &mut Vec<u8>) {
        let annotations = std::mem::take(&mut self.annotations);
        if !annotations.is_empty() {
            self.open(out);
            out.extend_from_slice(b"\"annotations\":");
            out.extend_from_slice(Value::from(annotations).to_string().as_bytes());
            self.close(out);
        }
    }

    fn text(&mut self, member: &str, text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        self.escape(text);
        self.open(out);
        out.push(b'"');
        out.extend_from_slice(member.as_bytes());
        out.extend_from_slice(b"\":\"");
        out.extend_from_slice(self.escaped.as_bytes());
        out.push(b'"');
        self.close(out);
    }

    /// Writes reasoning, or the notice, as plain text in the members that the client reads. A
    /// separator between them belongs to neither.
    fn plain(&mut self, escaped: &str, shown: Shown, out: &mut Vec<u8>) {
        self.open(out);
        let breaks = match (self.shown, shown) {
            (Shown::Nothing, _) | (Shown::Reasoning, Shown::Reasoning) => "",
            _ => BREAK,
        };
        self.shown = shown;
        for field in &self.form.fields {
            out.push(b'"');
            out.extend_from_slice(field.as_bytes());
            out.extend_from_slice(b"\":\"");
            if !breaks.is_empty() {
                escape_bytes(breaks, out);
            }
            out.extend_from_slice(escaped.as_bytes());
            out.extend_from_slice(b"\",");
        }
    }

    fn thinking(&mut self, text: &str, number: usize, first: bool, out: &mut Vec<u8>) {
        if text.is_empty() || self.form.hidden {
            return;
        }
        self.escape(text);
        let escaped = std::mem::take(&mut self.escaped);
        self.plain(&escaped, Shown::Reasoning, out);
        self.detail("reasoning.text", number, first, out);
        out.extend_from_slice(b",\"text\":\"");
        out.extend_from_slice(escaped.as_bytes());
        out.extend_from_slice(b"\"}]");
        self.escaped = escaped;
        self.close(out);
    }

    /// Starts a piece of `reasoning_details`. Clients concatenate repeated values, except for the
    /// type and the index.
    fn detail(&self, kind: &str, number: usize, first: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"reasoning_details\":[{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"index\":");
        write_number(number, out);
        if first {
            out.extend_from_slice(b",\"format\":\"unknown\"");
        }
    }

    fn signature(&mut self, signature: &str, number: usize, first: bool, out: &mut Vec<u8>) {
        if self.form.hidden {
            return;
        }
        self.escape(signature);
        self.open(out);
        self.detail("reasoning.text", number, first, out);
        out.extend_from_slice(b",\"signature\":\"");
        out.extend_from_slice(self.escaped.as_bytes());
        out.extend_from_slice(b"\"}]");
        self.close(out);
    }

    fn redacted(&mut self, data: &str, out: &mut Vec<u8>) {
        let number = self.reasoned;
        self.reasoned += 1;
        if self.form.hidden {
            return;
        }
        self.plain(NOTICE, Shown::Notice, out);
        self.escape(data);
        self.detail("reasoning.encrypted", number, true, out);
        out.extend_from_slice(b",\"data\":\"");
        out.extend_from_slice(self.escaped.as_bytes());
        out.extend_from_slice(b"\"}]");
        self.close(out);
    }

    /// Writes the chunk with the finish reason.
    fn finish(&mut self, word: &str, error: Option<&Fault>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        if !self.role_said {
            self.role_said = true;
            out.extend_from_slice(b"\"role\":\"assistant\"");
        }
        out.extend_from_slice(b"},\"logprobs\":null,\"finish_reason\":\"");
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(b"\"}]");
        if self.form.include_usage {
            out.extend_from_slice(b",\"usage\":null");
        }
        if let Some(fault) = error {
            out.extend_from_slice(b",\"error\":");
            out.extend_from_slice(errors::object(fault).to_string().as_bytes());
        }
        out.extend_from_slice(b"}\n\n");
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        if self.failed {
            return;
        }
        self.failed = true;
        if fault.kind == FaultKind::ToolCallUnreadable {
            self.finish("error", Some(fault), out);
        } else {
            out.extend_from_slice(b"data: {\"error\":");
            out.extend_from_slice(errors::object(fault).to_string().as_bytes());
            out.extend_from_slice(b"}\n\n");
        }
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        self.ended = true;
        if let Some(fault) = fault_of_end(reason) {
            self.fault(&fault, out);
        }
        if !self.failed {
            self.annotations(out);
            // The explanation of a refusal takes the place of the model's own words.
            if let (EndReason::Refusal, false, Some(words)) =
                (reason, self.refused, self.details.explanation.take())
            {
                self.text("refusal", &words, out);
            }
            let word = finish_word(reason, (self.called > 0, self.refused), self.form.legacy);
            self.finish(word, None, out);
            if self.form.include_usage {
                self.usage_chunk(out);
            }
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn usage_chunk(&self, out: &mut Vec<u8>) {
        let chunk = serde_json::json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [],
            "usage": usage::write(&self.usage),
        });
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(chunk.to_string().as_bytes());
        out.extend_from_slice(b"\n\n");
    }
}

/// The finish reason. Clients look here for calls.
pub(super) fn finish_word(
    reason: &EndReason,
    (called, refused): (bool, bool),
    legacy: bool,
) -> &'static str {
    match reason {
        EndReason::Length => "length",
        // A refusal in words ends like an answer.
        EndReason::Refusal if refused => "stop",
        EndReason::Refusal => "content_filter",
        EndReason::Failed | EndReason::Cut => "error",
        _ if called && legacy => "function_call",
        _ if called => "tool_calls",
        _ => "stop",
    }
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        match event {
            Event::Usage(usage) => self.usage.update(*usage),
            Event::Ended { reason } => self.end(reason, out),
            // After an error, only the end matters.
            _ if self.failed => {}
            Event::BlockStarted { index, block } => self.start(*index, block, out),
            Event::BlockDelta { index, delta } => self.delta(*index, delta, out),
            Event::BlockEnded { index } => self.stop(*index, out),
            Event::EndExplained(details) => self.details.clone_from(details),
            Event::Fault(fault) => self.fault(fault, out),
            Event::MessageStarted { .. }
            | Event::Transformed { .. }
            | Event::Lost { .. }
            // Only conversations run tools.
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. }
            | Event::ToolResult { .. } => {}
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if !self.ended {
            out.extend_from_slice(keep_alive::COMMENT);
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        whole::write(self, reply)
    }
}
