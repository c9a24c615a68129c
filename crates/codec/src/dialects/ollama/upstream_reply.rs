//! Reads a provider's reply, streamed or whole. A whole reply is a single last line.

use std::borrow::Cow;

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, FaultKind, Out, Usage};

use super::errors;
use crate::dialects::ReplyReader;
use crate::dialects::shared::block_emitter::{BlockEmitter, Growing};
use crate::dialects::shared::reply_framing::ReplyFraming;
use crate::json::{
    Cursor, Found, JsonError, Kind, Span, each_element, each_member, found_text, number, slice,
    text,
};

/// More calls than any model makes at once.
const MAX_CALLS: usize = 4096;

/// Reads one reply.
pub(super) struct Reader {
    framing: ReplyFraming,
    state: ReaderState,
}

impl Reader {
    /// Creates a reader for a stream or for a whole reply.
    pub(super) fn new(streamed: bool) -> Self {
        Self { framing: ReplyFraming::lines(streamed), state: ReaderState::default() }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, bytes: &[u8], out: Out<'_>) {
        let state = &mut self.state;
        if state.blocks.ended {
            return;
        }
        if self.framing.push(bytes, |line| state.line(line.data, out)).is_err() {
            let message = "a line of the provider's reply is too long";
            state.blocks.fail(Fault::new(FaultKind::Unreachable, message), out);
        }
    }

    fn finish(&mut self, out: Out<'_>) {
        let state = &mut self.state;
        // An incomplete last line was cut; the end reports it.
        self.framing.finish(|line| {
            if crate::json::validate(line.data, usize::MAX).is_ok() {
                state.line(line.data, out);
            }
        });
        // A cut block has no end.
        state.blocks.end(EndReason::Cut, out);
    }
}

/// The state of the reader.
#[derive(Debug, Default)]
struct ReaderState {
    started: bool,
    /// Text and thinking grow. Calls arrive complete.
    blocks: BlockEmitter,
    called: usize,
}

/// The spans of the parts of a line.
#[derive(Debug, Default)]
struct Line {
    model: Found,
    error: Found,
    content: Found,
    thinking: Found,
    tool_calls: Found,
    done: bool,
    reason: Found,
    prompt: u64,
    output: u64,
}

impl Line {
    /// Reads a line in one pass.
    fn read(json: &[u8]) -> Result<Self, JsonError> {
        let mut line = Self::default();
        // The cursor does not recurse, so the depth needs no limit.
        let mut cursor = Cursor::new(json, usize::MAX);
        cursor.enter_object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            let kind = cursor.peek()?;
            if key == b"message" && kind == Kind::Object {
                line.message(&mut cursor)?;
                continue;
            }
            let span = cursor.skip()?;
            let count = || number(json, &span).unwrap_or_default();
            match (key, kind) {
                (b"model", Kind::String) => line.model = Some((kind, span)),
                (b"error", Kind::String | Kind::Object) => line.error = Some((kind, span)),
                // The text of `/api/generate`.
                (b"response", Kind::String) => line.content = Some((kind, span)),
                (b"thinking", Kind::String) => line.thinking = Some((kind, span)),
                (b"done", Kind::Bool) => line.done = slice(json, &span) == b"true",
                (b"done_reason", Kind::String) => line.reason = Some((kind, span)),
                (b"prompt_eval_count", Kind::Number) => line.prompt = count(),
                (b"eval_count", Kind::Number) => line.output = count(),
                _ => {}
            }
        }
        cursor.end()?;
        Ok(line)
    }

    fn message(&mut self, cursor: &mut Cursor<'_>) -> Result<(), JsonError> {
        cursor.enter_object()?;
        let mut first = true;
        while let Some(key) = cursor.key(&mut first)? {
            let kind = cursor.peek()?;
            let span = cursor.skip()?;
            match (key, kind) {
                (b"content", Kind::String) => self.content = Some((kind, span)),
                (b"thinking", Kind::String) => self.thinking = Some((kind, span)),
                (b"tool_calls", Kind::Array) => self.tool_calls = Some((kind, span)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl ReaderState {
    fn line(&mut self, json: &[u8], out: Out<'_>) {
        if self.blocks.ended {
            return;
        }
        if self.read(json, out).is_err() {
            let message = "the provider sent a line that is not JSON";
            self.blocks.fail(Fault::new(FaultKind::Unreachable, message), out);
        }
    }

    fn read(&mut self, json: &[u8], out: Out<'_>) -> Result<(), JsonError> {
        let line = Line::read(json)?;
        if let Some((kind, span)) = &line.error
            && let Some(fault) = errors::read_inside(json, *kind, span)
        {
            self.blocks.fail(fault, out);
            return Ok(());
        }
        if !self.started {
            self.started = true;
            out(Event::MessageStarted { id: "".into(), model: found_text(json, &line.model) });
        }
        self.blocks.grow(Growing::Thinking, found_text(json, &line.thinking), out);
        self.blocks.grow(Growing::Text, found_text(json, &line.content), out);
        if let Some((_, calls)) = &line.tool_calls {
            self.calls(json, calls, out)?;
        }
        if line.done && !self.blocks.ended {
            out(Event::Usage(Usage {
                // An absent count is zero.
                input: Some(line.prompt),
                output: Some(line.output),
                ..Usage::default()
            }));
            let reason = match &*found_text(json, &line.reason) {
                "length" => EndReason::Length,
                "" | "stop" if self.called > 0 => EndReason::ToolCalls,
                "" | "stop" => EndReason::Stop,
                other => EndReason::Other(other.to_owned()),
            };
            self.blocks.close(out);
            self.blocks.end(reason, out);
        }
        Ok(())
    }

    fn calls(&mut self, json: &[u8], calls: &Span, out: Out<'_>) -> Result<(), JsonError> {
        let mut found = Vec::new();
        each_element(json, calls.start, |kind, span| {
            if kind == Kind::Object && found.len() <= MAX_CALLS {
                found.push(span);
            }
        })?;
        if self.called + found.len() > MAX_CALLS {
            let message = "the reply holds too many tool calls";
            self.blocks.fail(Fault::new(FaultKind::Unreachable, message), out);
            return Ok(());
        }
        for call in found {
            self.called += 1;
            self.call(json, &call, out)?;
        }
        Ok(())
    }

    fn call(&mut self, json: &[u8], call: &Span, out: Out<'_>) -> Result<(), JsonError> {
        let (mut id, mut function) = (Cow::Borrowed(""), None);
        each_member(json, call.start, |key, kind, span| match (key, kind) {
            (b"id", Kind::String) => id = text(json, &span),
            (b"function", Kind::Object) => function = Some(span),
            _ => {}
        })?;
        let (mut name, mut arguments) = (Cow::Borrowed(""), Cow::Borrowed("{}"));
        if let Some(function) = function {
            each_member(json, function.start, |key, kind, span| match (key, kind) {
                (b"name", Kind::String) => name = text(json, &span),
                // The raw text keeps the order of members and the spelling of numbers.
                (b"arguments", Kind::Object) => {
                    arguments = String::from_utf8_lossy(slice(json, &span));
                }
                (b"arguments", Kind::String) => arguments = text(json, &span),
                _ => {}
            })?;
        }
        if id.is_empty() {
            id = format!("call_{}", self.called).into();
        }
        let block = BlockStart::ToolCall { id, name };
        self.blocks.whole(block, Some(Delta::ToolArguments(arguments)), out);
        Ok(())
    }
}
