//! Reads a provider's reply, streamed or whole.

use std::borrow::Cow;

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, FaultKind, Out};

use self::calls::Calls;
use self::chunk::{Choice, Chunk, Frame};
use self::details::{Detail, Piece};
use super::detail_meta::DetailMeta;
use super::variants::{REASONING, REASONING_CONTENT, Replay, Variant};
use super::{NAME, annotations, usage};
use crate::dialects::ReplyReader;
use crate::dialects::shared::block_emitter::{BlockEmitter, Growing};
use crate::dialects::shared::hidden_reasoning::{NOTICE, without_notice};
use crate::dialects::shared::reply_framing::ReplyFraming;
use crate::dialects::shared::{openai_annotations, openai_errors};
use crate::json::{Found, JsonError, Kind, each_element, found_text, slice, text};

mod calls;
mod chunk;
mod details;

/// Reads one reply.
pub(super) struct Reader {
    framing: ReplyFraming,
    state: ReaderState,
}

impl Reader {
    /// Creates a reader for this kind of server.
    pub(super) fn new(variant: &'static Variant, streamed: bool) -> Self {
        Self {
            framing: ReplyFraming::events(streamed),
            state: ReaderState {
                variant,
                streamed,
                started: false,
                frame: Frame::default(),
                blocks: BlockEmitter::default(),
                thought: None,
                length: 0,
                begins: 0,
                calls: Calls::default(),
                called: false,
                refused: false,
                summed_up: false,
                named: [false; 2],
                reason: None,
            },
        }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, bytes: &[u8], out: Out<'_>) {
        let state = &mut self.state;
        if state.blocks.ended {
            return;
        }
        if self.framing.push(bytes, |frame| state.frame(frame.data, out)).is_err() {
            let message = match state.streamed {
                true => "an event of the provider's stream is too long",
                false => "the provider's reply is too long",
            };
            state.fail(FaultKind::Unreachable, message, out);
        }
    }

    fn finish(&mut self, out: Out<'_>) {
        let state = &mut self.state;
        self.framing.finish(|frame| match state.streamed {
            false => state.whole(frame.data, out),
            // An incomplete last event was cut; the end reports it.
            true => {
                if crate::json::validate(frame.data, usize::MAX).is_ok() || is_done(frame.data) {
                    state.frame(frame.data, out);
                }
            }
        });
        match state.reason.take() {
            // Not every server sends `[DONE]` after the finish reason.
            Some(reason) => state.end(reason, out),
            None => state.end(EndReason::Cut, out),
        }
    }

    fn summarizes(&self) -> Option<bool> {
        self.state.summed_up.then_some(true)
    }

    fn reasoning_member(&self) -> Option<&'static str> {
        match self.state.named {
            [true, false] => Some(REASONING_CONTENT),
            [false, true] => Some(REASONING),
            _ => None,
        }
    }
}

fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]"
}

/// Details of the growing reasoning.
struct Thought {
    /// The provider's index of it.
    number: Option<u64>,
    meta: DetailMeta,
}

/// The state of the reader.
struct ReaderState {
    variant: &'static Variant,
    streamed: bool,
    started: bool,
    /// The bytes around the delta of the last chunk.
    frame: Frame,
    /// Text, refusals and reasoning grow. Tool calls grow independently.
    blocks: BlockEmitter,
    /// Set while reasoning grows.
    thought: Option<Thought>,
    /// Number of characters of text so far, and before the growing block.
    length: u64,
    begins: u64,
    calls: Calls,
    /// Whether there were tool calls.
    called: bool,
    /// Whether there was a refusal.
    refused: bool,
    /// Whether some reasoning was marked as a summary.
    summed_up: bool,
    /// Whether reasoning came as `reasoning_content`, and as `reasoning`.
    named: [bool; 2],
    /// The finish reason, once known.
    reason: Option<EndReason>,
}

impl ReaderState {
    fn frame(&mut self, data: &[u8], out: Out<'_>) {
        if self.blocks.ended || data.is_empty() {
            return;
        }
        if is_done(data) {
            let reason = self.reason.take().unwrap_or_else(|| self.implied_end());
            return self.end(reason, out);
        }
        if self.chunk(data, out).is_err() {
            let message = "the provider sent an event that is not JSON";
            self.fail(FaultKind::Unreachable, message, out);
        }
    }

    fn whole(&mut self, json: &[u8], out: Out<'_>) {
        if self.blocks.ended {
            return;
        }
        // A whole reply has ended, with or without a reason. A cut one is not JSON and has no end.
        if let Ok(true) = self.chunk(json, out) {
            let unsaid = self.implied_end();
            self.reason.get_or_insert(unsaid);
        }
    }

    /// Reads a chunk. Returns whether it contained part of an answer.
    fn chunk(&mut self, json: &[u8], out: Out<'_>) -> Result<bool, JsonError> {
        if let Some(choice) = self.frame.read(json) {
            self.choice(json, &choice, out)?;
            return Ok(true);
        }
        let chunk = Chunk::read(json)?;
        let inner = chunk.choice.as_ref().and_then(|choice| choice.error.clone());
        for (kind, span) in [&chunk.error, &inner].into_iter().flatten() {
            if let Some(fault) = openai_errors::read_inside(json, *kind, span) {
                self.blocks.fail(fault, out);
                return Ok(true);
            }
        }
        if is_word(json, &chunk.object, b"error") {
            let fault = openai_errors::read_inside(json, Kind::Object, &(0..json.len()));
            match fault {
                Some(fault) => self.blocks.fail(fault, out),
                None => self.fail(FaultKind::Internal, "the provider reported an error", out),
            }
            return Ok(true);
        }
        // Azure starts with a chunk without an answer and without a model.
        if !self.started && chunk.choice.is_some() {
            self.started = true;
            out(Event::MessageStarted {
                id: found_text(json, &chunk.id),
                model: found_text(json, &chunk.model),
            });
        }
        if let Some(choice) = &chunk.choice {
            self.choice(json, choice, out)?;
            if self.streamed {
                self.frame.keep(json, &chunk);
            }
        }
        if let Some((Kind::Object, usage)) = &chunk.usage
            && !self.blocks.ended
        {
            out(Event::Usage(usage::read(json, usage, self.variant)?));
        }
        Ok(chunk.choice.is_some())
    }

    fn choice(&mut self, json: &[u8], choice: &Choice, out: Out<'_>) -> Result<(), JsonError> {
        self.reasoning(json, choice, out)?;
        match &choice.content {
            Some((Kind::String, span)) => self.text(text(json, span), out),
            Some((Kind::Array, span)) => {
                details::each(json, span, |detail| {
                    self.detail(detail, out);
                    // In a whole reply every part is a block; in a stream, parts of one kind
                    // continue a block.
                    if !self.streamed {
                        self.close(out);
                    }
                })?;
            }
            _ => {}
        }
        if let Some((Kind::Array, span)) = &choice.annotations {
            each_element(json, span.start, |_, span| {
                self.cite(slice(json, &span), out);
            })?;
        }
        if let Some((Kind::String, span)) = &choice.refusal {
            let words = text(json, span);
            if !words.is_empty() {
                self.refused = true;
                self.end_thought(out);
                self.blocks.grow(Growing::Refusal, words, out);
            }
        }
        match &choice.tool_calls {
            // An empty list neither adds nor ends anything.
            Some((Kind::Array, span)) if span.len() > 2 => {
                self.close(out);
                self.calls.read(json, span, &mut self.blocks, out)?;
            }
            _ => {}
        }
        if let Some((Kind::Object, span)) = &choice.function_call {
            self.close(out);
            self.calls.read_old(json, span, &mut self.blocks, out)?;
        }
        self.called |= self.calls.any();
        if self.calls.too_many() {
            self.fail(FaultKind::Unreachable, "the reply holds too many tool calls", out);
        } else if let Some((Kind::String, span)) = &choice.finish_reason {
            self.finish_reason(&text(json, span), out);
        }
        Ok(())
    }

    /// Reads reasoning. Several members often repeat it; the most detailed one counts.
    fn reasoning(&mut self, json: &[u8], choice: &Choice, out: Out<'_>) -> Result<(), JsonError> {
        let plain = [&choice.reasoning_content, &choice.reasoning];
        for (named, found) in self.named.iter_mut().zip(plain) {
            *named |= matches!(found, Some((Kind::String, span)) if span.len() > 2);
        }
        let (mut any, mut has_text, mut hidden) = (false, false, false);
        for list in [&choice.reasoning_details, &choice.thinking_blocks] {
            if let Some((Kind::Array, span)) = list
                && !any
            {
                details::each(json, span, |detail| {
                    any = true;
                    hidden |= detail.piece == Piece::Encrypted;
                    has_text |= detail.piece != Piece::Encrypted && !detail.text.is_empty();
                    if detail.piece != Piece::Text {
                        self.detail(detail, out);
                    }
                })?;
            }
        }
        if has_text {
            return Ok(());
        }
        for found in plain {
            if let Some((Kind::String, span)) = found {
                let words = text(json, span);
                if words.is_empty() {
                    continue;
                }
                // The notice was for display only.
                let words = match words.contains(NOTICE) && hidden {
                    true => without_notice(&words).into(),
                    false => words,
                };
                if !words.is_empty() {
                    self.thinking(words, None, out);
                }
                break;
            }
        }
        Ok(())
    }

    fn detail(&mut self, detail: Detail<'_>, out: Out<'_>) {
        match detail.piece {
            Piece::Text => self.text(detail.text, out),
            Piece::Thinking | Piece::Summary => {
                if !detail.text.is_empty() || !detail.signature.is_empty() {
                    let words = detail.text.clone();
                    self.thinking(words, Some(&detail), out);
                }
                if detail.closed && self.thought.is_some() {
                    self.close(out);
                }
            }
            Piece::Encrypted => {
                self.close(out);
                let data = match self.meta_of(&detail) {
                    Some(meta) => meta.pack().unwrap_or_default().into(),
                    None => detail.text,
                };
                self.blocks.whole(BlockStart::Redacted { data }, None, out);
            }
            Piece::Other => {
                self.close(out);
                let block = BlockStart::Opaque { dialect: NAME.into(), name: detail.name };
                let delta = Delta::Opaque(String::from_utf8_lossy(detail.json));
                self.blocks.whole(block, Some(delta), out);
            }
        }
    }

    /// The members of an encrypted piece, if this kind of server wants them back.
    fn meta_of(&self, detail: &Detail<'_>) -> Option<DetailMeta> {
        (self.variant.replay == Replay::Details).then(|| DetailMeta {
            signature: detail.text.clone().into_owned(),
            format: detail.format.clone().into_owned(),
            id: detail.id.clone().into_owned(),
            summary: false,
        })
    }

    fn text(&mut self, words: Cow<'_, str>, out: Out<'_>) {
        // An empty text between pieces of reasoning does not end it.
        if words.is_empty() {
            return;
        }
        let index = self.text_block(out);
        self.length += openai_annotations::length(&words);
        out(Event::BlockDelta { index, delta: Delta::Text(words) });
    }

    /// The block for text.
    fn text_block(&mut self, out: Out<'_>) -> u32 {
        if self.blocks.index_of(Growing::Text).is_none() {
            self.close(out);
            self.begins = self.length;
        }
        self.blocks.block_of(Growing::Text, out)
    }

    /// Emits a citation, with the growing text or after the last text.
    fn cite(&mut self, annotation: &[u8], out: Out<'_>) {
        let Some(delta) = annotations::read(annotation, self.begins) else {
            return;
        };
        let index = self.text_block(out);
        out(Event::BlockDelta { index, delta });
    }

    fn thinking(&mut self, words: Cow<'_, str>, detail: Option<&Detail<'_>>, out: Out<'_>) {
        let summary = detail.is_some_and(|detail| detail.piece == Piece::Summary);
        self.summed_up |= summary;
        let number = detail.and_then(|detail| detail.number);
        let goes_on = self.thought.as_ref().is_some_and(|thought| {
            thought.meta.summary == summary
                && match (thought.number, number) {
                    (Some(open), Some(number)) => open == number,
                    // Without an index, a signature ends its block.
                    _ => thought.meta.signature.is_empty(),
                }
        });
        if !goes_on {
            self.close(out);
        }
        let index = self.blocks.block_of(Growing::Thinking, out);
        let thought = self.thought.get_or_insert_with(|| Thought {
            number,
            meta: DetailMeta { summary, ..DetailMeta::default() },
        });
        if !words.is_empty() {
            out(Event::BlockDelta { index, delta: Delta::Thinking(words) });
        }
        let Some(detail) = detail else {
            return;
        };
        let keep = |slot: &mut String, value: &str| {
            if slot.is_empty() {
                slot.push_str(value);
            }
        };
        if self.variant.replay == Replay::Details {
            keep(&mut thought.meta.format, &detail.format);
            keep(&mut thought.meta.id, &detail.id);
        }
        if !detail.signature.is_empty() && thought.meta.signature.is_empty() {
            thought.meta.signature.push_str(&detail.signature);
            if self.variant.replay != Replay::Details {
                let delta = Delta::Signature(detail.signature.as_ref().into());
                out(Event::BlockDelta { index, delta });
            }
        }
    }

    /// Ends the growing block.
    fn close(&mut self, out: Out<'_>) {
        self.end_thought(out);
        self.blocks.close(out);
    }

    /// Emits the signature of reasoning that ends, in the form that this kind of server wants back.
    fn end_thought(&mut self, out: Out<'_>) {
        if let Some(thought) = self.thought.take()
            && self.variant.replay == Replay::Details
            && let Some(signature) = thought.meta.pack()
            && let Some(index) = self.blocks.index_of(Growing::Thinking)
        {
            out(Event::BlockDelta { index, delta: Delta::Signature(signature.into()) });
        }
    }

    fn finish_reason(&mut self, word: &str, out: Out<'_>) {
        let reason = match word {
            "" => return,
            // Some servers send `stop` after tool calls, and some `tool_calls` without any.
            "stop" | "tool_calls" | "function_call" => self.implied_end(),
            "length" | "model_length" | "max_tokens" => EndReason::Length,
            "content_filter" => EndReason::Refusal,
            "error" => {
                let message = "the provider reported an error";
                return self.fail(FaultKind::Internal, message, out);
            }
            "insufficient_system_resource" => {
                let message = "the provider ran out of resources";
                return self.fail(FaultKind::Overloaded, message, out);
            }
            other => EndReason::Other(other.to_owned()),
        };
        self.close(out);
        self.reason = Some(reason);
    }

    /// The end reason that the content implies.
    fn implied_end(&self) -> EndReason {
        match (self.refused, self.called) {
            (true, _) => EndReason::Refusal,
            (_, true) => EndReason::ToolCalls,
            _ => EndReason::Stop,
        }
    }

    fn fail(&mut self, kind: FaultKind, message: &str, out: Out<'_>) {
        self.blocks.fail(Fault::new(kind, message), out);
    }

    fn end(&mut self, reason: EndReason, out: Out<'_>) {
        // A cut block has no end.
        if !self.blocks.ended && reason != EndReason::Cut {
            self.close(out);
            self.calls.end(&mut self.blocks, out);
        }
        self.blocks.end(reason, out);
    }
}

fn is_word(json: &[u8], found: &Found, word: &[u8]) -> bool {
    matches!(found, Some((Kind::String, span)) if crate::json::inside(json, span) == word)
}
