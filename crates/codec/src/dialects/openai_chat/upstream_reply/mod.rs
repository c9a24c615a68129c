//! Reads a provider's reply, streamed or whole.

use std::borrow::Cow;

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, FaultKind};

use self::calls::Calls;
use self::chunk::{Choice, Chunk, Frame};
use self::details::{Detail, Piece};
use super::detail_meta::DetailMeta;
use super::variants::{Replay, Variant};
use super::{NAME, annotations, usage};
use crate::dialects::ReplyReader;
use crate::dialects::shared::hidden_reasoning::{NOTICE, without_notice};
use crate::dialects::shared::limits::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};
use crate::dialects::shared::reply_end::fail_once;
use crate::dialects::shared::{openai_annotations, openai_errors};
use crate::framing::sse::Framer;
use crate::json::{Found, JsonError, Kind, each_element, found_text, slice, text};

mod calls;
mod chunk;
mod details;

/// Reads one reply.
pub(super) struct Reader {
    framing: Framing,
    state: ReaderState,
}

enum Framing {
    Events(Framer),
    Whole(Vec<u8>),
}

impl Reader {
    /// Creates a reader for this kind of server.
    pub(super) fn new(variant: &'static Variant, streamed: bool) -> Self {
        Self {
            framing: if streamed {
                Framing::Events(Framer::new(MAX_EVENT_BYTES))
            } else {
                Framing::Whole(Vec::new())
            },
            state: ReaderState {
                variant,
                streamed,
                started: false,
                frame: Frame::default(),
                next: 0,
                open: OpenBlock::Nothing,
                said: 0,
                begins: 0,
                calls: Calls::default(),
                called: false,
                refused: false,
                summed_up: false,
                reason: None,
                ended: false,
            },
        }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, bytes: &[u8], out: &mut dyn FnMut(Event<'_>)) {
        let state = &mut self.state;
        if state.ended {
            return;
        }
        match &mut self.framing {
            Framing::Events(framer) => {
                framer.push(bytes, |frame, _| state.frame(frame.data, out));
                if framer.is_skipping() {
                    state.fail(too_long("an event of the provider's stream"), out);
                }
            }
            Framing::Whole(all) => {
                if all.len() + bytes.len() > MAX_REPLY_BYTES {
                    *all = Vec::new();
                    state.fail(too_long("the provider's reply"), out);
                } else {
                    all.extend_from_slice(bytes);
                }
            }
        }
    }

    fn finish(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        let state = &mut self.state;
        match &mut self.framing {
            // An incomplete last event was cut; the end reports it.
            Framing::Events(framer) => framer.finish(|frame, _| {
                if crate::json::validate(frame.data, usize::MAX).is_ok() || is_done(frame.data) {
                    state.frame(frame.data, out);
                }
            }),
            Framing::Whole(all) => {
                let all = std::mem::take(all);
                state.whole(&all, out);
            }
        }
        match state.reason.take() {
            // Not every server sends `[DONE]` after the finish reason.
            Some(reason) => state.end(reason, out),
            None => state.end(EndReason::Cut, out),
        }
    }

    fn summarizes(&self) -> Option<bool> {
        self.state.summed_up.then_some(true)
    }
}

fn is_done(data: &[u8]) -> bool {
    data.trim_ascii() == b"[DONE]"
}

fn too_long(what: &str) -> Fault {
    Fault::new(FaultKind::Unreachable, format!("{what} is too long"))
}

/// The growing block. Tool calls grow independently.
enum OpenBlock {
    Nothing,
    Text(u32),
    Refusal(u32),
    Thinking {
        index: u32,
        /// The provider's index of it.
        number: Option<u64>,
        mark: DetailMeta,
    },
}

/// The state of the reader.
struct ReaderState {
    variant: &'static Variant,
    streamed: bool,
    started: bool,
    /// The bytes around the delta of the last chunk.
    frame: Frame,
    /// Index of the next block.
    next: u32,
    open: OpenBlock,
    /// Number of characters of text so far, and before the growing block.
    said: u64,
    begins: u64,
    calls: Calls,
    /// Whether there were tool calls.
    called: bool,
    /// Whether there was a refusal.
    refused: bool,
    /// Whether some reasoning was marked as a summary.
    summed_up: bool,
    /// The finish reason, once known.
    reason: Option<EndReason>,
    ended: bool,
}

impl ReaderState {
    fn frame(&mut self, data: &[u8], out: &mut dyn FnMut(Event<'_>)) {
        if self.ended || data.is_empty() {
            return;
        }
        if is_done(data) {
            let reason = self.reason.take().unwrap_or_else(|| self.implied_end());
            return self.end(reason, out);
        }
        if self.chunk(data, out).is_err() {
            let message = "the provider sent an event that is not JSON";
            self.fail(Fault::new(FaultKind::Unreachable, message), out);
        }
    }

    fn whole(&mut self, json: &[u8], out: &mut dyn FnMut(Event<'_>)) {
        if self.ended {
            return;
        }
        // A whole reply has ended, with or without a reason. A cut one is not JSON and has no end.
        if let Ok(true) = self.chunk(json, out) {
            let unsaid = self.implied_end();
            self.reason.get_or_insert(unsaid);
        }
    }

    /// Reads a chunk. Returns whether it contained part of an answer.
    fn chunk(&mut self, json: &[u8], out: &mut dyn FnMut(Event<'_>)) -> Result<bool, JsonError> {
        if let Some(choice) = self.frame.read(json) {
            self.choice(json, &choice, out)?;
            return Ok(true);
        }
        let chunk = Chunk::read(json)?;
        let inner = chunk.choice.as_ref().and_then(|choice| choice.error.clone());
        for (kind, span) in [&chunk.error, &inner].into_iter().flatten() {
            if let Some(fault) = openai_errors::read_inside(json, *kind, span) {
                self.fail(fault, out);
                return Ok(true);
            }
        }
        if is_word(json, &chunk.object, b"error") {
            let fault = openai_errors::read_inside(json, Kind::Object, &(0..json.len()));
            self.fail(
                fault.unwrap_or_else(|| {
                    Fault::new(FaultKind::Internal, "the provider reported an error")
                }),
                out,
            );
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
            && !self.ended
        {
            out(Event::Usage(usage::read(json, usage, self.variant)?));
        }
        Ok(chunk.choice.is_some())
    }

    fn choice(
        &mut self,
        json: &[u8],
        choice: &Choice,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
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
            self.refused |= !words.is_empty();
            self.refusal(words, out);
        }
        match &choice.tool_calls {
            // An empty list neither adds nor ends anything.
            Some((Kind::Array, span)) if span.len() > 2 => {
                self.close(out);
                self.calls.read(json, span, &mut self.next, out)?;
            }
            _ => {}
        }
        if let Some((Kind::Object, span)) = &choice.function_call {
            self.close(out);
            self.calls.read_old(json, span, &mut self.next, out)?;
        }
        self.called |= self.calls.any();
        if self.calls.too_many() {
            let message = "the reply holds too many tool calls";
            self.fail(Fault::new(FaultKind::Unreachable, message), out);
        } else if let Some((Kind::String, span)) = &choice.finish_reason {
            self.finish_reason(&text(json, span), out);
        }
        Ok(())
    }

    /// Reads reasoning. Several members often repeat it; the most detailed one counts.
    fn reasoning(
        &mut self,
        json: &[u8],
        choice: &Choice,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), JsonError> {
        let (mut any, mut said, mut hidden) = (false, false, false);
        for list in [&choice.reasoning_details, &choice.thinking_blocks] {
            if let Some((Kind::Array, span)) = list
                && !any
            {
                details::each(json, span, |detail| {
                    any = true;
                    hidden |= detail.piece == Piece::Encrypted;
                    said |= detail.piece != Piece::Encrypted && !detail.text.is_empty();
                    if detail.piece != Piece::Text {
                        self.detail(detail, out);
                    }
                })?;
            }
        }
        if said {
            return Ok(());
        }
        let plain = [&choice.reasoning_content, &choice.reasoning];
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

    fn detail(&mut self, detail: Detail<'_>, out: &mut dyn FnMut(Event<'_>)) {
        match detail.piece {
            Piece::Text => self.text(detail.text, out),
            Piece::Thinking | Piece::Summary => {
                if !detail.text.is_empty() || !detail.signature.is_empty() {
                    let words = detail.text.clone();
                    self.thinking(words, Some(&detail), out);
                }
                if detail.closed && matches!(self.open, OpenBlock::Thinking { .. }) {
                    self.close(out);
                }
            }
            Piece::Encrypted => {
                self.close(out);
                let data = match self.mark_of(&detail) {
                    Some(mark) => mark.pack().unwrap_or_default().into(),
                    None => detail.text,
                };
                self.single(BlockStart::Redacted { data }, out);
            }
            Piece::Other => {
                self.close(out);
                let (index, name) = (self.begin(), detail.name);
                let dialect = NAME.into();
                out(Event::BlockStarted { index, block: BlockStart::Opaque { dialect, name } });
                let delta = Delta::Opaque(String::from_utf8_lossy(detail.json));
                out(Event::BlockDelta { index, delta });
                out(Event::BlockEnded { index });
            }
        }
    }

    /// The members of an encrypted piece, if this kind of server wants them back.
    fn mark_of(&self, detail: &Detail<'_>) -> Option<DetailMeta> {
        (self.variant.replay == Replay::Details).then(|| DetailMeta {
            signature: detail.text.clone().into_owned(),
            format: detail.format.clone().into_owned(),
            id: detail.id.clone().into_owned(),
            summary: false,
        })
    }

    /// Emits a complete block.
    fn single(&mut self, block: BlockStart<'_>, out: &mut dyn FnMut(Event<'_>)) {
        let index = self.begin();
        out(Event::BlockStarted { index, block });
        out(Event::BlockEnded { index });
    }

    fn begin(&mut self) -> u32 {
        let index = self.next;
        self.next += 1;
        index
    }

    fn text(&mut self, words: Cow<'_, str>, out: &mut dyn FnMut(Event<'_>)) {
        // An empty text between pieces of reasoning does not end it.
        if words.is_empty() {
            return;
        }
        let index = self.text_block(out);
        self.said += openai_annotations::length(&words);
        out(Event::BlockDelta { index, delta: Delta::Text(words) });
    }

    /// The block for text.
    fn text_block(&mut self, out: &mut dyn FnMut(Event<'_>)) -> u32 {
        if let OpenBlock::Text(index) = self.open {
            return index;
        }
        self.close(out);
        let index = self.begin();
        self.open = OpenBlock::Text(index);
        self.begins = self.said;
        out(Event::BlockStarted { index, block: BlockStart::Text { text: "".into() } });
        index
    }

    /// Emits a citation, with the growing text or after the last text.
    fn cite(&mut self, annotation: &[u8], out: &mut dyn FnMut(Event<'_>)) {
        let Some(delta) = annotations::read(annotation, self.begins) else {
            return;
        };
        let index = self.text_block(out);
        out(Event::BlockDelta { index, delta });
    }

    fn refusal(&mut self, words: Cow<'_, str>, out: &mut dyn FnMut(Event<'_>)) {
        if words.is_empty() {
            return;
        }
        let index = if let OpenBlock::Refusal(index) = self.open {
            index
        } else {
            self.close(out);
            let index = self.begin();
            self.open = OpenBlock::Refusal(index);
            out(Event::BlockStarted { index, block: BlockStart::Refusal { text: "".into() } });
            index
        };
        out(Event::BlockDelta { index, delta: Delta::Text(words) });
    }

    fn thinking(
        &mut self,
        words: Cow<'_, str>,
        detail: Option<&Detail<'_>>,
        out: &mut dyn FnMut(Event<'_>),
    ) {
        let summary = detail.is_some_and(|detail| detail.piece == Piece::Summary);
        self.summed_up |= summary;
        let asked = detail.and_then(|detail| detail.number);
        let goes_on = match &self.open {
            OpenBlock::Thinking { number, mark, .. } => {
                mark.summary == summary
                    && match (number, asked) {
                        (Some(number), Some(asked)) => *number == asked,
                        // Without an index, a signature ends its block.
                        _ => mark.signature.is_empty(),
                    }
            }
            _ => false,
        };
        if !goes_on {
            self.close(out);
            let index = self.begin();
            self.open = OpenBlock::Thinking {
                index,
                number: asked,
                mark: DetailMeta { summary, ..DetailMeta::default() },
            };
            let block = BlockStart::Thinking { text: "".into(), signature: "".into() };
            out(Event::BlockStarted { index, block });
        }
        let OpenBlock::Thinking { index, mark, .. } = &mut self.open else {
            return;
        };
        let index = *index;
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
            keep(&mut mark.format, &detail.format);
            keep(&mut mark.id, &detail.id);
        }
        if !detail.signature.is_empty() && mark.signature.is_empty() {
            mark.signature.push_str(&detail.signature);
            if self.variant.replay != Replay::Details {
                let delta = Delta::Signature(detail.signature.as_ref().into());
                out(Event::BlockDelta { index, delta });
            }
        }
    }

    /// Ends the growing block.
    fn close(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        match std::mem::replace(&mut self.open, OpenBlock::Nothing) {
            OpenBlock::Nothing => {}
            OpenBlock::Text(index) | OpenBlock::Refusal(index) => out(Event::BlockEnded { index }),
            OpenBlock::Thinking { index, mark, .. } => {
                if self.variant.replay == Replay::Details
                    && let Some(signature) = mark.pack()
                {
                    out(Event::BlockDelta { index, delta: Delta::Signature(signature.into()) });
                }
                out(Event::BlockEnded { index });
            }
        }
    }

    fn finish_reason(&mut self, word: &str, out: &mut dyn FnMut(Event<'_>)) {
        let reason = match word {
            "" => return,
            // Some servers send `stop` after tool calls, and some `tool_calls` without any.
            "stop" | "tool_calls" | "function_call" => self.implied_end(),
            "length" | "model_length" | "max_tokens" => EndReason::Length,
            "content_filter" => EndReason::Refusal,
            "error" => {
                let message = "the provider reported an error";
                return self.fail(Fault::new(FaultKind::Internal, message), out);
            }
            "insufficient_system_resource" => {
                let message = "the provider ran out of resources";
                return self.fail(Fault::new(FaultKind::Overloaded, message), out);
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
            self.calls.end(&mut self.next, out);
        }
        out(Event::Ended { reason });
    }
}

fn is_word(json: &[u8], found: &Found, word: &[u8]) -> bool {
    matches!(found, Some((Kind::String, span)) if crate::json::inside(json, span) == word)
}
