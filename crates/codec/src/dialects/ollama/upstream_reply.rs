//! Reads a provider's reply, streamed or whole. A whole reply is a single last line.

use std::borrow::Cow;

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, FaultKind, Usage};

use super::errors;
use crate::dialects::ReplyReader;
use crate::dialects::shared::limits::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};
use crate::dialects::shared::reply_end::fail_once;
use crate::framing::ndjson::Lines;
use crate::json::{
    Cursor, Found, JsonError, Kind, Span, each_element, each_member, found_text, number, slice,
    text,
};

/// More calls than any model makes at once.
const MAX_CALLS: usize = 4096;

/// Reads one reply.
pub(super) struct Reader {
    framing: Framing,
    state: ReaderState,
}

enum Framing {
    Lines(Lines),
    /// It may contain line breaks.
    Whole(Vec<u8>),
}

impl Reader {
    /// Creates a reader for a stream or for a whole reply.
    pub(super) fn new(streamed: bool) -> Self {
        Self {
            framing: match streamed {
                true => Framing::Lines(Lines::new(MAX_EVENT_BYTES)),
                false => Framing::Whole(Vec::new()),
            },
            state: ReaderState::default(),
        }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, bytes: &[u8], out: &mut dyn FnMut(Event<'_>)) {
        let state = &mut self.state;
        if state.ended {
            return;
        }
        let too_long = match &mut self.framing {
            Framing::Lines(lines) => {
                lines.push(bytes, |line| state.line(line, out));
                lines.is_skipping()
            }
            Framing::Whole(all) if all.len() + bytes.len() > MAX_REPLY_BYTES => {
                *all = Vec::new();
                true
            }
            Framing::Whole(all) => {
                all.extend_from_slice(bytes);
                false
            }
        };
        if too_long {
            let message = "a line of the provider's reply is too long";
            state.fail(Fault::new(FaultKind::Unreachable, message), out);
        }
    }

    fn finish(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        let state = &mut self.state;
        // An incomplete last line was cut; the end reports it.
        let mut last = |line: &[u8]| {
            if crate::json::validate(line, usize::MAX).is_ok() {
                state.line(line, out);
            }
        };
        match &mut self.framing {
            Framing::Lines(lines) => lines.finish(last),
            Framing::Whole(all) => last(&std::mem::take(all)),
        }
        state.end(EndReason::Cut, out);
    }
}

/// The growing block. Calls arrive complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum OpenBlock {
    #[default]
    Nothing,
    Text(u32),
    Thinking(u32),
}

/// The state of the reader.
#[derive(Debug, Default)]
struct ReaderState {
    started: bool,
    /// The index of the next block.
    next: u32,
    open: OpenBlock,
    called: usize,
    ended: bool,
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
    fn line(&mut self, json: &[u8], out: &mut dyn FnMut(Event<'_>)) {
        if self.ended {
            return;
        }
        if self.read(json, out).is_err() {
            let message = "the provider sent a line that is not JSON";
            self.fail(Fault::new(FaultKind::Unreachable, message), out);
        }
    }

    fn read(&mut self, json: &[u8], out: &mut dyn FnMut(Event<'_>)) -> Result<(), JsonError> {
        let line = Line::read(json)?;
        if let Some((kind, span)) = &line.error
            && let Some(fault) = errors::read_inside(json, *kind, span)
        {
            self.fail(fault, out);
            return Ok(());
        }
        if !self.started {
            self.started = true;
            out(Event::MessageStarted { id: "".into(), model: found_text(json, &line.model) });
        }
        self.emit_text(found_text(json, &line.thinking), true, out);
        self.emit_text(found_text(json, &line.content), false, out);
        if let Some((_, calls)) = &line.tool_calls {
            self.calls(json, calls, out)?;
        }
        if line.done && !self.ended {
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
            self.end(reason, out);
        }
        Ok(())
    }

    /// Emits text. An empty text neither grows nor ends a block.
    fn emit_text(&mut self, words: Cow<'_, str>, thinks: bool, out: &mut dyn FnMut(Event<'_>)) {
        if words.is_empty() {
            return;
        }
        let index = match (self.open, thinks) {
            (OpenBlock::Thinking(index), true) | (OpenBlock::Text(index), false) => index,
            _ => {
                self.close(out);
                let index = self.begin();
                let (open, block) = match thinks {
                    true => (
                        OpenBlock::Thinking(index),
                        BlockStart::Thinking { text: "".into(), signature: "".into() },
                    ),
                    false => (OpenBlock::Text(index), BlockStart::Text { text: "".into() }),
                };
                self.open = open;
                out(Event::BlockStarted { index, block });
                index
            }
        };
        let delta = match thinks {
            true => Delta::Thinking(words),
            false => Delta::Text(words),
        };
        out(Event::BlockDelta { index, delta });
    }

    fn calls(
        &mut self,
        json: &[u8],
        calls: &Span,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let mut found = Vec::new();
        each_element(json, calls.start, |kind, span| {
            if kind == Kind::Object && found.len() <= MAX_CALLS {
                found.push(span);
            }
        })?;
        if self.called + found.len() > MAX_CALLS {
            let message = "the reply holds too many tool calls";
            self.fail(Fault::new(FaultKind::Unreachable, message), out);
            return Ok(());
        }
        for call in found {
            self.close(out);
            self.called += 1;
            self.call(json, &call, out)?;
        }
        Ok(())
    }

    fn call(
        &mut self,
        json: &[u8],
        call: &Span,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
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
        let index = self.begin();
        out(Event::BlockStarted { index, block: BlockStart::ToolCall { id, name } });
        out(Event::BlockDelta { index, delta: Delta::ToolArguments(arguments) });
        out(Event::BlockEnded { index });
        Ok(())
    }

    fn begin(&mut self) -> u32 {
        let index = self.next;
        self.next += 1;
        index
    }

    fn close(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        match std::mem::take(&mut self.open) {
            OpenBlock::Nothing => {}
            OpenBlock::Text(index) | OpenBlock::Thinking(index) => out(Event::BlockEnded { index }),
        }
    }

    fn fail(&mut self, fault: Fault, out: &mut dyn FnMut(Event<'_>)) {
        fail_once(&mut self.ended, fault, out);
    }

    fn end(&mut self, reason: EndReason, out: &mut dyn FnMut(Event<'_>)) {
        if self.ended {
            return;
        }
        self.ended = true;
        // A cut block has no end.
        if reason != EndReason::Cut {
            self.close(out);
        }
        out(Event::Ended { reason });
    }
}
