//! Writes the reply for a client, line by line. Text lines are written by hand: only the text
//! changes.

use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Reply, Request, Usage,
};

use super::{OllamaSession, errors};
use crate::dialects::shared::arguments::or_empty_object;
use crate::dialects::shared::extensions;
use crate::dialects::shared::hidden_reasoning::NOTICE;
use crate::dialects::shared::open_blocks::OpenBlocks;
use crate::dialects::shared::timestamp;
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::{Kind, escape, escape_bytes, quote_bytes, validate};

/// Writes one reply.
pub(super) struct Writer {
    /// The model name and the time, which start every line.
    head: Vec<u8>,
    /// The form of its lines.
    form: &'static LineForm,
    blocks: OpenBlocks<OpenBlock>,
    /// Number of calls so far.
    called: usize,
    usage: Usage,
    ended: bool,
}

/// The kind of an open block.
enum OpenBlock {
    Text,
    Thinking,
    /// Calls are sent complete, so they are collected first.
    Call {
        id: String,
        name: String,
        arguments: String,
    },
    Other,
}

/// The JSON around the text of a line.
#[derive(Debug)]
struct LineForm {
    text: (&'static [u8], &'static [u8]),
    thinking: (&'static [u8], &'static [u8]),
    /// A line without text, up to `done`.
    nothing: &'static [u8],
    /// The form of a whole reply.
    whole: WholeForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WholeForm {
    Message,
    Response,
}

static CHAT: LineForm = LineForm {
    text: (b"\"message\":{\"role\":\"assistant\",\"content\":\"", b"\"},\"done\":false}\n"),
    thinking: (
        b"\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"",
        b"\"},\"done\":false}\n",
    ),
    nothing: b"\"message\":{\"role\":\"assistant\",\"content\":\"\"}",
    whole: WholeForm::Message,
};

static GENERATE: LineForm = LineForm {
    text: (b"\"response\":\"", b"\",\"done\":false}\n"),
    thinking: (b"\"response\":\"\",\"thinking\":\"", b"\",\"done\":false}\n"),
    nothing: b"\"response\":\"\"",
    whole: WholeForm::Response,
};

impl Writer {
    pub(super) fn new(
        request: &Request,
        session: &OllamaSession,
        identity: &ReplyIdentity,
    ) -> Self {
        let model = session.tagged_model.as_deref().unwrap_or(identity.model(request));
        let mut head = String::from("{\"model\":\"");
        escape(model, &mut head);
        head.push_str("\",\"created_at\":\"");
        head.push_str(&timestamp::write(identity.created));
        head.push_str("\",");
        Self {
            head: head.into_bytes(),
            form: match session.generates {
                true => &GENERATE,
                false => &CHAT,
            },
            blocks: OpenBlocks::default(),
            called: 0,
            usage: Usage::default(),
            ended: false,
        }
    }

    fn line(&self, around: (&[u8], &[u8]), text: &str, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        out.extend_from_slice(&self.head);
        out.extend_from_slice(around.0);
        escape_bytes(text, out);
        out.extend_from_slice(around.1);
    }

    fn start(&mut self, index: u32, block: &BlockStart<'_>, out: &mut Vec<u8>) {
        let open = match block {
            BlockStart::Text { text } | BlockStart::Refusal { text } => {
                self.line(self.form.text, text, out);
                OpenBlock::Text
            }
            BlockStart::Thinking { text, .. } => {
                self.line(self.form.thinking, text, out);
                OpenBlock::Thinking
            }
            BlockStart::Redacted { .. } => {
                self.line(self.form.thinking, NOTICE, out);
                OpenBlock::Other
            }
            BlockStart::ToolCall { id, name } => OpenBlock::Call {
                id: id.clone().into_owned(),
                name: name.clone().into_owned(),
                arguments: String::new(),
            },
            BlockStart::Opaque { .. } => OpenBlock::Other,
        };
        self.blocks.push(index, open);
    }

    fn delta(&mut self, index: u32, delta: &Delta<'_>, out: &mut Vec<u8>) {
        let Some(open) = self.blocks.get_mut(index) else {
            return;
        };
        match (open, delta) {
            (OpenBlock::Text, Delta::Text(text)) => self.line(self.form.text, text, out),
            // Providers may send plain text inside a reasoning block.
            (OpenBlock::Thinking, Delta::Thinking(text) | Delta::Text(text)) => {
                self.line(self.form.thinking, text, out);
            }
            (OpenBlock::Call { arguments, .. }, Delta::ToolArguments(more)) => {
                arguments.push_str(more);
            }
            _ => {}
        }
    }

    fn stop(&mut self, index: u32, out: &mut Vec<u8>) {
        if let Some(OpenBlock::Call { id, name, arguments }) = self.blocks.remove(index) {
            let number = self.called;
            self.called += 1;
            // `/api/generate` has no tools.
            if self.form.whole == WholeForm::Message {
                out.extend_from_slice(&self.head);
                out.extend_from_slice(
                    b"\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[",
                );
                write_call(&id, &name, &arguments, number, out);
                out.extend_from_slice(b"]},\"done\":false}\n");
            }
        }
    }

    fn fault(&mut self, fault: &Fault, out: &mut Vec<u8>) {
        self.ended = true;
        out.extend_from_slice(&errors::body(fault));
        out.push(b'\n');
    }

    fn end(&mut self, reason: &EndReason, out: &mut Vec<u8>) {
        let message = match reason {
            EndReason::Cut => "the provider's reply ended before it was complete",
            EndReason::Failed => "the provider reported an error",
            _ => {
                self.ended = true;
                out.extend_from_slice(&self.head);
                out.extend_from_slice(self.form.nothing);
                done(reason, &self.usage, out);
                out.push(b'\n');
                return;
            }
        };
        self.fault(&Fault::new(FaultKind::Unreachable, message), out);
    }
}

/// Writes the end of the last line or of a whole reply. Durations are unknown here, and servers
/// omit zero values.
fn done(reason: &EndReason, usage: &Usage, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"done\":true,\"done_reason\":");
    let word = match reason {
        EndReason::Length => "length",
        EndReason::Other(word) if matches!(word.as_str(), "load" | "unload") => word,
        _ => "stop",
    };
    quote_bytes(word, out);
    let parts = [usage.input, usage.cache_read, usage.cache_write];
    let prompt = parts.into_iter().flatten().fold(0, u64::saturating_add);
    let counts = [("prompt_eval_count", prompt), ("eval_count", usage.output.unwrap_or_default())];
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        out.extend_from_slice(format!(",\"{name}\":{count}").as_bytes());
    }
    out.push(b'}');
}

/// Writes a call. Malformed arguments are wrapped in an object as text.
fn write_call(id: &str, name: &str, arguments: &str, number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"id\":");
    quote_bytes(id, out);
    out.extend_from_slice(format!(",\"function\":{{\"index\":{number},\"name\":").as_bytes());
    quote_bytes(name, out);
    out.extend_from_slice(b",\"arguments\":");
    match or_empty_object(arguments).trim() {
        text if matches!(validate(text.as_bytes(), usize::MAX), Ok(Kind::Object)) => {
            // A line break would end the line; in JSON it is only white space.
            out.extend(text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        }
        _ => {
            out.extend_from_slice(b"{\"arguments\":");
            quote_bytes(arguments, out);
            out.push(b'}');
        }
    }
    out.extend_from_slice(b"}}");
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        match event {
            Event::Usage(usage) => self.usage.update(*usage),
            Event::BlockStarted { index, block } => self.start(*index, block, out),
            Event::BlockDelta { index, delta } => self.delta(*index, delta, out),
            Event::BlockEnded { index } => self.stop(*index, out),
            Event::Fault(fault) => self.fault(fault, out),
            Event::Ended { reason } => self.end(reason, out),
            // The only place for the explanation of a refusal is the text.
            Event::EndExplained(details) => {
                let why = details.explanation.as_deref().unwrap_or_default();
                self.line(self.form.text, why, out);
            }
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
            // Libraries parse every line as JSON, even empty ones.
            out.extend_from_slice(&self.head);
            out.extend_from_slice(self.form.nothing);
            out.extend_from_slice(b",\"done\":false}\n");
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let (mut text, mut thinking, mut calls) = (String::new(), String::new(), Vec::new());
        let mut called = 0;
        for block in &reply.content {
            match block {
                Block::Text { text: more, .. } | Block::Refusal { text: more } => {
                    text.push_str(more);
                }
                Block::Thinking { text: more, .. } => thinking.push_str(more),
                Block::Redacted { .. } => thinking.push_str(NOTICE),
                Block::ToolCall { id, name, arguments, .. } => {
                    if called > 0 {
                        calls.push(b',');
                    }
                    write_call(id, name, arguments, called, &mut calls);
                    called += 1;
                }
                Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque { .. } => {}
            }
        }
        text.extend(reply.details.explanation.as_deref());
        let mut out = self.head.clone();
        let write_texts = |out: &mut Vec<u8>, name: &str| {
            out.extend_from_slice(format!("\"{name}\":").as_bytes());
            quote_bytes(&text, out);
            if !thinking.is_empty() {
                out.extend_from_slice(b",\"thinking\":");
                quote_bytes(&thinking, out);
            }
        };
        match self.form.whole {
            WholeForm::Response => write_texts(&mut out, "response"),
            WholeForm::Message => {
                out.extend_from_slice(b"\"message\":{\"role\":\"assistant\",");
                write_texts(&mut out, "content");
                if called > 0 {
                    out.extend_from_slice(b",\"tool_calls\":[");
                    out.extend_from_slice(&calls);
                    out.push(b']');
                }
                out.push(b'}');
            }
        }
        if let Some(extensions) = extensions::write(reply, false) {
            out.extend_from_slice(b",\"extensions\":");
            out.extend_from_slice(extensions.to_string().as_bytes());
        }
        let reason = reply.reason.as_ref().unwrap_or(&EndReason::Stop);
        done(reason, &reply.usage, &mut out);
        out
    }
}
