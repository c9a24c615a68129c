//! Reads a provider's reply, streamed or whole.
//!
//! Servers that imitate OpenAI omit things: sequence numbers, indexes, ids, the model, whole
//! events. The reader does without them where possible.

use throughline_canonical::{EndReason, Event, Fault, FaultKind, Out, Usage};

use self::item_parts::ItemKind;
use self::items::{Deltas, Items};
use super::errors::kind_of_code;
use crate::dialects::ReplyReader;
use crate::dialects::shared::error_codes;
use crate::dialects::shared::reply_framing::ReplyFraming;
use crate::framing::sse::Frame;
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};
use crate::json::{
    JsonError, Kind, Span, each_member, find_member, inside, number, slice, text, try_each_element,
    validate,
};

mod item_parts;
mod items;

/// Reads one reply.
pub(super) struct Reader {
    framing: ReplyFraming,
    /// Number of bytes so far.
    received: usize,
    reply: ReplyState,
}

/// The state of the reader.
struct ReplyState {
    /// The requested model, in case the reply does not name it.
    model: String,
    started: bool,
    /// Whether the reply says `store: true`.
    is_stored: bool,
    items: Items,
}

impl Reader {
    pub(super) fn new(model: &str, streamed: bool) -> Self {
        Self {
            framing: ReplyFraming::events(streamed),
            received: 0,
            reply: ReplyState {
                model: model.to_owned(),
                started: false,
                is_stored: false,
                items: Items::default(),
            },
        }
    }
}

impl ReplyReader for Reader {
    fn push(&mut self, bytes: &[u8], out: Out<'_>) {
        // Cut at the limit, so that the result does not depend on the pieces.
        let room = MAX_REPLY_BYTES - self.received;
        let taken = &bytes[..bytes.len().min(room)];
        self.received += taken.len();
        let reply = &mut self.reply;
        if self.framing.push(taken, |frame| reply.frame(frame, out)).is_err() {
            reply.fail(too_long("an event", MAX_EVENT_BYTES), out);
        }
        if bytes.len() > room {
            reply.fail(too_long("the reply", MAX_REPLY_BYTES), out);
        }
    }

    fn finish(&mut self, out: Out<'_>) {
        let reply = &mut self.reply;
        let whole = self.framing.is_whole();
        self.framing.finish(|frame| match whole {
            false => reply.frame(frame, out),
            // A malformed or incomplete reply has no end; it gets one below.
            true => {
                if !reply.ended() && validate(frame.data, usize::MAX).is_ok() {
                    let _ = reply.whole(frame.data, out);
                }
            }
        });
        reply.end(EndReason::Cut, out);
    }

    fn is_stored(&self) -> bool {
        self.reply.is_stored
    }

    fn summarizes(&self) -> Option<bool> {
        Some(!self.reply.items.in_full())
    }
}

fn too_long(what: &str, limit: usize) -> Fault {
    let message = format!("{what} of the provider exceeds the limit of {limit} bytes");
    Fault::new(FaultKind::Unreachable, message)
}

impl ReplyState {
    fn frame(&mut self, frame: Frame<'_>, out: Out<'_>) {
        if self.ended() {
            return;
        }
        if frame.data.len() > MAX_EVENT_BYTES {
            return self.fail(too_long("an event", MAX_EVENT_BYTES), out);
        }
        // Malformed data affects only its own event.
        let _ = self.event(frame, out);
    }

    fn event(&mut self, frame: Frame<'_>, out: Out<'_>) -> Result<(), JsonError> {
        let data = frame.data;
        let event = EventParts::read(frame)?;
        let (kind, deltas) = match event.kind {
            b"response.output_text.delta" => (ItemKind::Message, Deltas::More),
            b"response.reasoning_summary_text.delta" => (ItemKind::Summary, Deltas::More),
            b"response.reasoning_text.delta" => (ItemKind::Reasoning, Deltas::More),
            b"response.function_call_arguments.delta" => (ItemKind::Call, Deltas::More),
            b"response.refusal.delta" => (ItemKind::Refusal, Deltas::More),
            // These repeat the whole text; they count if no deltas came before.
            b"response.output_text.done" => (ItemKind::Message, Deltas::All),
            b"response.reasoning_summary_text.done" => (ItemKind::Summary, Deltas::All),
            b"response.reasoning_text.done" => (ItemKind::Reasoning, Deltas::All),
            b"response.function_call_arguments.done" => (ItemKind::Call, Deltas::All),
            b"response.refusal.done" => (ItemKind::Refusal, Deltas::All),
            _ => return self.rare_event(&event, data, out),
        };
        if let Some(span) = &event.text {
            self.start(None, data, out);
            self.items.grow(kind, deltas, &event.position(data), text(data, span), out);
        }
        Ok(())
    }

    fn rare_event(
        &mut self,
        event: &EventParts<'_>,
        data: &[u8],
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        match event.kind {
            b"response.created" | b"response.queued" | b"response.in_progress" => {
                let head = match &event.response {
                    Some(response) => Some(Head::read(data, response)?),
                    None => None,
                };
                self.start(head.as_ref(), data, out);
            }
            b"response.output_item.added" => {
                if let Some(item) = &event.item {
                    self.start(None, data, out);
                    if !self.items.added(data, item, event.output_index, out)? {
                        let fault = "the provider's reply has too many items at once";
                        self.fail(Fault::new(FaultKind::Unreachable, fault), out);
                    }
                }
            }
            b"response.output_item.done" => {
                if let Some(item) = &event.item {
                    self.start(None, data, out);
                    self.items.done(data, item, event.output_index, out)?;
                }
            }
            b"response.output_text.annotation.added" => {
                if let Some(span) = &event.annotation {
                    self.start(None, data, out);
                    self.items.cited(&event.position(data), slice(data, span), out);
                }
            }
            b"response.content_part.added" => {
                self.start(None, data, out);
                self.items.part_added(&event.position(data), out);
            }
            b"response.completed"
            | b"response.incomplete"
            | b"response.failed"
            | b"response.cancelled" => {
                let Some(response) = &event.response else {
                    self.start(None, data, out);
                    self.conclude(event.kind, &Head::default(), data, out)?;
                    return Ok(());
                };
                let head = Head::read(data, response)?;
                self.start(Some(&head), data, out);
                if let Some(output) = &head.output {
                    self.repeated(data, output, out)?;
                }
                self.conclude(event.kind, &head, data, out)?;
            }
            // Errors of a proxy before the provider have no type.
            b"error" | b"" if event.kind == b"error" || event.error.is_some() => {
                let fault = read_error(data, event.error.as_ref().unwrap_or(&(0..data.len())))?;
                self.fail(fault, out);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads a whole reply.
    fn whole(&mut self, json: &[u8], out: Out<'_>) -> Result<(), JsonError> {
        let head = Head::read(json, &(0..json.len()))?;
        if head.output.is_none() && head.status.is_none() {
            if let Some(error) = &head.error {
                let fault = read_error(json, error)?;
                self.fail(fault, out);
            }
            return Ok(());
        }
        self.start(Some(&head), json, out);
        if let Some(output) = &head.output {
            self.output(json, output, out)?;
        }
        self.conclude(b"", &head, json, out)
    }

    /// Reads the items that the last event repeats. They count if a server did not send them
    /// before, or did not complete them.
    fn repeated(&mut self, json: &[u8], output: &Span, out: Out<'_>) -> Result<(), JsonError> {
        if self.items.blocks.next == 0 {
            return self.output(json, output, out);
        }
        if !self.items.any_open() {
            return Ok(());
        }
        each_item(json, output, |index, item| self.items.done_if_open(json, item, index, out))
    }

    fn output(&mut self, json: &[u8], output: &Span, out: Out<'_>) -> Result<(), JsonError> {
        each_item(json, output, |index, item| self.items.done(json, item, Some(index), out))
    }

    fn start(&mut self, head: Option<&Head>, json: &[u8], out: Out<'_>) {
        self.is_stored |= head.is_some_and(|head| head.is_stored);
        if self.started {
            return;
        }
        self.started = true;
        let member = |span: Option<&Span>| span.map(|span| text(json, span)).unwrap_or_default();
        let id = member(head.and_then(|head| head.id.as_ref()));
        let model = member(head.and_then(|head| head.model.as_ref()));
        out(Event::MessageStarted {
            id,
            model: if model.is_empty() { self.model.as_str().into() } else { model },
        });
    }

    /// Ends the reply.
    fn conclude(
        &mut self,
        event: &[u8],
        head: &Head,
        json: &[u8],
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let status = match (event, &head.status) {
            (b"response.completed", _) => &b"completed"[..],
            (b"response.incomplete", _) => b"incomplete",
            (b"response.failed", _) => b"failed",
            (b"response.cancelled", _) => b"cancelled",
            (_, Some(status)) => inside(json, status),
            (_, None) => b"completed",
        };
        if let Some(usage) = &head.usage {
            out(Event::Usage(read_usage(json, usage)?));
        }
        match (status, &head.error) {
            (b"failed", Some(error)) => {
                let fault = read_error(json, error)?;
                self.fail(fault, out);
                return Ok(());
            }
            (b"failed" | b"cancelled", _) => {
                let word = String::from_utf8_lossy(status);
                let fault = format!("the provider's reply {word}, without a reason");
                self.fail(Fault::new(FaultKind::Internal, fault), out);
                return Ok(());
            }
            // The provider continues in the background; this stream ends.
            (b"in_progress" | b"queued", _) => {
                self.end(EndReason::Cut, out);
                return Ok(());
            }
            _ => {}
        }
        self.items.close(out);
        let reason = match (status, &head.incomplete) {
            (b"incomplete", Some(details)) => {
                let reason = find_member(json, details.start, b"reason", Kind::String)?;
                match reason.map(|span| text(json, &span)).as_deref() {
                    None | Some("max_output_tokens") => EndReason::Length,
                    Some("content_filter") => EndReason::Refusal,
                    Some(other) => EndReason::Other(other.to_owned()),
                }
            }
            (b"incomplete", None) => EndReason::Length,
            _ if self.items.refused() => EndReason::Refusal,
            _ if self.items.called() => EndReason::ToolCalls,
            _ => EndReason::Stop,
        };
        self.end(reason, out);
        Ok(())
    }

    fn ended(&self) -> bool {
        self.items.blocks.ended
    }

    fn fail(&mut self, fault: Fault, out: Out<'_>) {
        self.items.blocks.fail(fault, out);
    }

    fn end(&mut self, reason: EndReason, out: Out<'_>) {
        self.items.blocks.end(reason, out);
    }
}

/// Visits a list of items with their indexes and spans.
fn each_item(
    json: &[u8],
    list: &Span,
    mut each: impl FnMut(u64, &Span) -> Result<(), JsonError>,
) -> Result<(), JsonError> {
    let mut index = 0;
    try_each_element(json, list.start, |kind, item| {
        if kind == Kind::Object {
            each(index, &item)?;
        }
        index += 1;
        Ok(())
    })
}

/// The members of an event.
#[derive(Default)]
struct EventParts<'a> {
    kind: &'a [u8],
    output_index: Option<u64>,
    /// Index of the part in its item.
    part: Option<u64>,
    item_id: Option<Span>,
    /// The added text, or the whole text.
    text: Option<Span>,
    item: Option<Span>,
    annotation: Option<Span>,
    response: Option<Span>,
    error: Option<Span>,
}

impl<'a> EventParts<'a> {
    fn read(frame: Frame<'a>) -> Result<Self, JsonError> {
        let data = frame.data;
        let mut parts = Self::default();
        each_member(data, 0, |key, kind, span| match (key, kind) {
            (b"type", Kind::String) => parts.kind = inside(data, &span),
            (b"output_index", Kind::Number) => parts.output_index = number(data, &span),
            (b"content_index" | b"summary_index", Kind::Number) => {
                parts.part = number(data, &span);
            }
            (b"item_id", Kind::String) => parts.item_id = Some(span),
            (b"delta" | b"text" | b"arguments" | b"refusal", Kind::String) => {
                parts.text = Some(span);
            }
            (b"item", Kind::Object) => parts.item = Some(span),
            (b"annotation", Kind::Object) => parts.annotation = Some(span),
            (b"response", Kind::Object) => parts.response = Some(span),
            (b"error", Kind::Object | Kind::String) => parts.error = Some(span),
            _ => {}
        })?;
        if parts.kind.is_empty() {
            parts.kind = frame.event;
        }
        Ok(parts)
    }

    fn position<'d>(&self, data: &'d [u8]) -> ItemPosition<'d> {
        ItemPosition {
            output_index: self.output_index,
            item_id: self.item_id.as_ref().map(|span| inside(data, span)),
            call_id: None,
            part: self.part.unwrap_or_default(),
        }
    }
}

/// The position that an event names.
pub(super) struct ItemPosition<'d> {
    pub(super) output_index: Option<u64>,
    pub(super) item_id: Option<&'d [u8]>,
    pub(super) call_id: Option<&'d [u8]>,
    pub(super) part: u64,
}

/// The members of a response.
#[derive(Default)]
struct Head {
    id: Option<Span>,
    model: Option<Span>,
    status: Option<Span>,
    output: Option<Span>,
    usage: Option<Span>,
    incomplete: Option<Span>,
    error: Option<Span>,
    /// Whether it says `store: true`.
    is_stored: bool,
}

impl Head {
    fn read(json: &[u8], response: &Span) -> Result<Self, JsonError> {
        let mut head = Self::default();
        each_member(json, response.start, |key, kind, span| {
            let slot = match (key, kind) {
                (b"id", Kind::String) => &mut head.id,
                (b"model", Kind::String) => &mut head.model,
                (b"status", Kind::String) => &mut head.status,
                (b"output", Kind::Array) => &mut head.output,
                (b"usage", Kind::Object) => &mut head.usage,
                (b"incomplete_details", Kind::Object) => &mut head.incomplete,
                (b"error", Kind::Object | Kind::String) => &mut head.error,
                (b"store", Kind::Bool) => {
                    head.is_stored = slice(json, &span) == b"true";
                    return;
                }
                _ => return,
            };
            *slot = Some(span);
        })?;
        Ok(head)
    }
}

fn read_usage(json: &[u8], usage: &Span) -> Result<Usage, JsonError> {
    let mut counts = Usage::default();
    let [mut input, mut output] = [None, None];
    each_member(json, usage.start, |key, kind, span| match (key, kind) {
        (b"input_tokens", Kind::Number) => counts.input = number(json, &span),
        (b"output_tokens", Kind::Number) => counts.output = number(json, &span),
        (b"input_tokens_details", Kind::Object) => input = Some(span),
        (b"output_tokens_details", Kind::Object) => output = Some(span),
        _ => {}
    })?;
    for details in [input, output].into_iter().flatten() {
        each_member(json, details.start, |key, kind, span| match (key, kind) {
            (b"cached_tokens", Kind::Number) => counts.cache_read = number(json, &span),
            (b"cache_write_tokens", Kind::Number) => counts.cache_write = number(json, &span),
            (b"reasoning_tokens", Kind::Number) => counts.thinking = number(json, &span),
            _ => {}
        })?;
    }
    // The input includes tokens read from or written to the cache.
    let cached = [counts.cache_read, counts.cache_write];
    counts.input = counts.input.map(|all| {
        let cached = cached.into_iter().flatten();
        cached.fold(all, u64::saturating_sub)
    });
    Ok(counts)
}

/// Reads an error: an object or a string.
fn read_error(json: &[u8], error: &Span) -> Result<Fault, JsonError> {
    if json.get(error.start) == Some(&b'"') {
        return Ok(Fault::new(FaultKind::Internal, text(json, error)));
    }
    let (mut code, mut kind, mut message) = (None, None, String::new());
    each_member(json, error.start, |key, value, span| match (key, value) {
        (b"code", Kind::String) => code = Some(text(json, &span)),
        (b"type", Kind::String) => kind = Some(text(json, &span)),
        (b"message", Kind::String) => message = text(json, &span).into_owned(),
        _ => {}
    })?;
    let known = |word: &Option<_>| word.as_deref().and_then(kind_of_code);
    let fault_kind = known(&code).or_else(|| known(&kind)).unwrap_or(FaultKind::Internal);
    if message.is_empty() {
        message = match &code {
            Some(code) => format!("the provider failed with `{code}`"),
            None => "the provider failed without a reason".to_owned(),
        };
    }
    Ok(error_codes::with_code(Fault::new(fault_kind, message), code.as_deref()))
}
