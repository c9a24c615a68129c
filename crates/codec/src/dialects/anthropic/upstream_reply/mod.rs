//! Reads a provider's reply, streamed or whole.

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, FaultKind, Out};

use self::parts::{
    StartedBlock, emit_citations, emit_members, emit_opaque, end_reason, explain_end, read_block,
    read_delta, read_usage, transformed,
};
use super::errors::read_error;
use crate::dialects::shared::reply_end::fail_once;
use crate::dialects::shared::reply_framing::ReplyFraming;
use crate::framing::sse::{Frame, Framer};
use crate::json::{
    Cursor, JsonError, Kind, Span, decode, each_member, inside, number, slice, text,
};

mod parts;

/// Deeper nesting is skipped.
pub(super) const DEPTH: usize = 256;

/// Reads one reply in pieces of any size.
#[derive(Debug)]
pub struct ReplyReader {
    framing: ReplyFraming,
    progress: Progress,
}

/// The state of the reader.
#[derive(Debug, Default)]
struct Progress {
    reason: Option<EndReason>,
    ended: bool,
    /// Whether unreadable input is a fault.
    complete: bool,
    /// The input that came with the start of a call, and the index of the call. It counts if no
    /// deltas follow.
    input: Option<(u32, String)>,
    /// The open opaque block.
    opaque: Option<OpaqueBlock>,
}

/// A block that the vocabulary has no type for. Its JSON is emitted as it arrives.
#[derive(Clone, Copy, Debug)]
struct OpaqueBlock {
    index: u32,
    /// Whether its input is being emitted.
    input: bool,
}

impl ReplyReader {
    /// Reads a stream of events. Events longer than `limit` bytes are skipped.
    pub fn events(limit: usize) -> Self {
        Self::new(ReplyFraming::Events(Framer::new(limit)))
    }

    /// Reads a whole reply of at most `limit` bytes.
    pub fn whole(limit: usize) -> Self {
        Self::new(ReplyFraming::whole(limit))
    }

    fn new(framing: ReplyFraming) -> Self {
        Self { framing, progress: Progress::default() }
    }

    /// Reports input that is too long or malformed as a fault instead of skipping it. For callers
    /// that only get the events.
    #[must_use]
    pub fn complete(mut self) -> Self {
        self.progress.complete = true;
        self
    }

    /// Whether the stream is between two events.
    pub fn between_events(&self) -> bool {
        match &self.framing {
            ReplyFraming::Events(framer) => framer.between_events(),
            _ => false,
        }
    }

    /// The incomplete event of a stream, if there is one.
    pub fn half_event(&self) -> Option<&[u8]> {
        match &self.framing {
            ReplyFraming::Events(framer) => framer.half_event(),
            _ => None,
        }
    }

    /// Whether the last event was read.
    pub fn ended(&self) -> bool {
        self.progress.ended
    }

    /// Reads the next bytes.
    pub fn push(&mut self, bytes: &[u8], mut out: impl FnMut(Event<'_>)) {
        let progress = &mut self.progress;
        let framed = self.framing.push(bytes, |frame| read_frame(frame, progress, &mut out));
        if framed.is_err() {
            progress.skipped("the provider's reply is longer than can be read", &mut out);
        }
    }

    /// Ends the input. Emits the end of the reply unless it was emitted.
    pub fn finish(&mut self, mut out: impl FnMut(Event<'_>)) {
        let progress = &mut self.progress;
        // An incomplete event is not malformed: the reply was cut, which is reported below.
        progress.complete = false;
        let whole = self.framing.is_whole();
        self.framing.finish(|frame| match whole {
            false => read_frame(frame, progress, &mut out),
            // A reply that is not JSON has no content; it ends as cut below.
            true => {
                if !progress.ended
                    && let Ok(true) = read_whole(frame.data, &mut out)
                {
                    progress.ended = true;
                }
            }
        });
        if !progress.ended {
            progress.ended = true;
            out(Event::Ended { reason: EndReason::Cut });
        }
    }
}

impl crate::dialects::ReplyReader for ReplyReader {
    fn push(&mut self, bytes: &[u8], out: Out<'_>) {
        Self::push(self, bytes, out);
    }

    fn finish(&mut self, out: Out<'_>) {
        Self::finish(self, out);
    }
}

impl Progress {
    /// Records unreadable input.
    fn skipped(&mut self, what: &str, out: &mut impl FnMut(Event<'_>)) {
        if self.complete {
            fail_once(&mut self.ended, Fault::new(FaultKind::Unreachable, what), out);
        }
    }
}

fn read_frame(frame: Frame<'_>, progress: &mut Progress, out: &mut impl FnMut(Event<'_>)) {
    if progress.ended {
        return;
    }
    if let Some((index, delta)) = read_usual_delta(frame.data) {
        emit_delta(index, delta, progress, out);
        return;
    }
    // Malformed data affects only its own event, unless the loss would go unnoticed.
    let read = read_event(frame, progress, out);
    if read.is_err() && frame.data.starts_with(b"{") {
        progress.skipped("the provider sent an event that is not JSON", out);
    }
}

fn emit_delta(
    index: u32,
    delta: Delta<'_>,
    progress: &mut Progress,
    out: &mut impl FnMut(Event<'_>),
) {
    if let Some(block) = &mut progress.opaque
        && block.index == index
    {
        // All other deltas are emitted where their members are known.
        if let Delta::ToolArguments(more) = delta
            && !more.is_empty()
        {
            if !std::mem::replace(&mut block.input, true) {
                emit_opaque(index, ",\"input\":".into(), out);
            }
            emit_opaque(index, more, out);
        }
        return;
    }
    if progress.input.is_some() && matches!(delta, Delta::ToolArguments(_)) {
        progress.input = None;
    }
    out(Event::BlockDelta { index, delta });
}

/// Nearly every event of a long reply is a delta with exactly this spelling. Matching the spelling
/// costs a fraction of parsing JSON. Other spellings take the general path and give the same event.
fn read_usual_delta(data: &[u8]) -> Option<(u32, Delta<'_>)> {
    let rest = data.strip_prefix(br#"{"type":"content_block_delta","index":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (index, rest) = rest.split_at_checked(digits)?;
    let index = match *index {
        [digit] => u32::from(digit - b'0'),
        _ => std::str::from_utf8(index).ok()?.parse().ok()?,
    };
    let rest = rest.strip_prefix(br#","delta":{"type":""#)?;
    let (kind, rest): (fn(_) -> _, _) =
        if let Some(rest) = rest.strip_prefix(br#"text_delta","text":""#) {
            (Delta::Text, rest)
        } else if let Some(rest) = rest.strip_prefix(br#"thinking_delta","thinking":""#) {
            (Delta::Thinking, rest)
        } else {
            let rest = rest.strip_prefix(br#"input_json_delta","partial_json":""#)?;
            (Delta::ToolArguments, rest)
        };
    // Some servers pad events with white space before the last brace.
    let rest = rest.strip_suffix(b"}")?.trim_ascii_end();
    let raw = rest.strip_suffix(br#""}"#)?;
    let mut at = 0;
    while let Some(found) = memchr::memchr2(b'"', b'\\', &raw[at..]) {
        if raw[at + found] == b'"' {
            return None;
        }
        // A backslash escapes the next byte.
        at += found + 2;
        if at > raw.len() {
            return None;
        }
    }
    Some((index, kind(decode(raw))))
}

fn read_event(
    frame: Frame<'_>,
    progress: &mut Progress,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let data = frame.data;
    // The data repeats the event name, and more reliably. The frame's name is the fallback.
    let mut kind = frame.event;
    let mut index = 0;
    let mut body: Option<Span> = None;
    let mut usage: Option<Span> = None;
    let mut transformations: Option<Span> = None;
    each_member(data, 0, |key, value, span| match (key, value) {
        (b"type", Kind::String) => kind = inside(data, &span),
        (b"index", Kind::Number) => index = number(data, &span).unwrap_or_default() as u32,
        (b"delta" | b"content_block" | b"message" | b"error", Kind::Object) => body = Some(span),
        (b"usage", Kind::Object) => usage = Some(span),
        (b"input_transformations", Kind::Array) => transformations = Some(span),
        _ => {}
    })?;
    match (kind, body) {
        (b"content_block_delta", Some(delta)) => match read_delta(data, &delta)? {
            Some(delta) => emit_delta(index, delta, progress, out),
            None => {
                let open = progress.opaque.filter(|open| open.index == index && !open.input);
                if open.is_some() {
                    emit_members(data, &delta, index, out)?;
                }
            }
        },
        (b"content_block_start", Some(span)) => start_block(data, &span, index, progress, out)?,
        (b"content_block_stop", _) => end_block(index, progress, out),
        (b"message_start", Some(message)) => {
            let head = read_message(data, &message)?;
            head.started(data, out)?;
            if let Some(content) = &head.content {
                read_content(data, content, out)?;
            }
        }
        (b"message_delta", delta) => {
            if let Some(delta) = delta {
                read_end(data, &delta, progress, out)?;
            }
            transformed(data, transformations, out)?;
            if let Some(usage) = usage {
                out(Event::Usage(read_usage(data, &usage)?));
            }
        }
        (b"message_stop", _) => {
            progress.ended = true;
            out(Event::Ended { reason: progress.reason.take().unwrap_or(EndReason::Stop) });
        }
        (b"error", error) => {
            progress.ended = true;
            out(Event::Fault(match error {
                Some(error) => read_error(data, &error)?,
                None => Fault::new(FaultKind::Internal, String::from_utf8_lossy(data)),
            }));
            out(Event::Ended { reason: EndReason::Failed });
        }
        _ => {}
    }
    Ok(())
}

fn start_block(
    data: &[u8],
    span: &Span,
    index: u32,
    progress: &mut Progress,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let StartedBlock { block, input, citations } = read_block(data, span)?;
    progress.opaque = None;
    if let BlockStart::Opaque { .. } = block {
        progress.opaque = Some(OpaqueBlock { index, input: false });
        out(Event::BlockStarted { index, block });
        // More of it may arrive; the closing brace is emitted at the end.
        let begun = slice(data, &(span.start..span.end.saturating_sub(1)));
        emit_opaque(index, String::from_utf8_lossy(begun), out);
        return Ok(());
    }
    let text = |span| String::from_utf8_lossy(slice(data, &span)).into_owned();
    progress.input = input.map(|span| (index, text(span)));
    out(Event::BlockStarted { index, block });
    match citations {
        Some(citations) => emit_citations(data, &citations, index, out),
        None => Ok(()),
    }
}

fn end_block(index: u32, progress: &mut Progress, out: &mut impl FnMut(Event<'_>)) {
    if progress.opaque.take_if(|open| open.index == index).is_some() {
        emit_opaque(index, "}".into(), out);
    }
    if let Some((_, input)) = progress.input.take_if(|(call, _)| *call == index) {
        out(Event::BlockDelta { index, delta: Delta::ToolArguments(input.into()) });
    }
    out(Event::BlockEnded { index });
}

/// Reads the end reason and its details.
fn read_end(
    data: &[u8],
    delta: &Span,
    progress: &mut Progress,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let [mut sequence, mut details] = [None, None];
    each_member(data, delta.start, |key, value, span| match (key, value) {
        (b"stop_reason", Kind::String) => progress.reason = Some(end_reason(&text(data, &span))),
        (b"stop_sequence", Kind::String) => sequence = Some(span),
        (b"stop_details", Kind::Object) => details = Some(span),
        _ => {}
    })?;
    explain_end(data, sequence, details, out)
}

/// Reads a whole reply. Returns whether it has an end.
fn read_whole(json: &[u8], out: &mut impl FnMut(Event<'_>)) -> Result<bool, JsonError> {
    let head = read_message(json, &(0..json.len()))?;
    if let Some(error) = &head.error {
        out(Event::Fault(read_error(json, error)?));
        out(Event::Ended { reason: EndReason::Failed });
        return Ok(true);
    }
    let Some(content) = &head.content else {
        return Ok(false);
    };
    head.started(json, out)?;
    read_content(json, content, out)?;
    explain_end(json, head.stop_sequence, head.stop_details, out)?;
    out(Event::Ended {
        reason: match &head.stop_reason {
            Some(span) => end_reason(&text(json, span)),
            None => EndReason::Stop,
        },
    });
    Ok(true)
}

/// Reads complete blocks.
fn read_content(
    json: &[u8],
    content: &Span,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let mut cursor = Cursor::at(json, content.start, DEPTH);
    cursor.enter_array()?;
    let (mut first, mut index) = (true, 0);
    while cursor.element(&mut first)? {
        if cursor.peek()? == Kind::Object {
            let start = cursor.start();
            let StartedBlock { block, input: arguments, citations } =
                read_block(json, &(start..json.len()))?;
            let unnamed = matches!(block, BlockStart::Opaque { .. });
            out(Event::BlockStarted { index, block });
            if unnamed {
                let whole = Cursor::at(json, start, DEPTH).skip()?;
                emit_opaque(index, String::from_utf8_lossy(slice(json, &whole)), out);
            }
            if let Some(citations) = citations {
                emit_citations(json, &citations, index, out)?;
            }
            if let Some(arguments) = arguments {
                let delta = Delta::ToolArguments(String::from_utf8_lossy(slice(json, &arguments)));
                out(Event::BlockDelta { index, delta });
            }
            out(Event::BlockEnded { index });
        }
        cursor.skip()?;
        index += 1;
    }
    Ok(())
}

/// The spans of the parts of a message.
#[derive(Default)]
struct Head {
    id: Option<Span>,
    model: Option<Span>,
    content: Option<Span>,
    usage: Option<Span>,
    stop_reason: Option<Span>,
    stop_sequence: Option<Span>,
    stop_details: Option<Span>,
    transformations: Option<Span>,
    error: Option<Span>,
}

impl Head {
    fn started(&self, json: &[u8], out: &mut impl FnMut(Event<'_>)) -> Result<(), JsonError> {
        let text = |span: &Option<Span>| match span {
            Some(span) => text(json, span),
            None => "".into(),
        };
        out(Event::MessageStarted { id: text(&self.id), model: text(&self.model) });
        transformed(json, self.transformations.clone(), out)?;
        if let Some(usage) = &self.usage {
            out(Event::Usage(read_usage(json, usage)?));
        }
        Ok(())
    }
}

fn read_message(json: &[u8], message: &Span) -> Result<Head, JsonError> {
    let mut head = Head::default();
    each_member(json, message.start, |key, kind, span| {
        let slot = match (key, kind) {
            (b"id", Kind::String) => &mut head.id,
            (b"model", Kind::String) => &mut head.model,
            (b"content", Kind::Array) => &mut head.content,
            (b"usage", Kind::Object) => &mut head.usage,
            (b"stop_reason", Kind::String) => &mut head.stop_reason,
            (b"stop_sequence", Kind::String) => &mut head.stop_sequence,
            (b"stop_details", Kind::Object) => &mut head.stop_details,
            (b"input_transformations", Kind::Array) => &mut head.transformations,
            (b"error", Kind::Object) => &mut head.error,
            _ => return,
        };
        *slot = Some(span);
    })?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The events of this data, as JSON lines.
    fn events(data: &str) -> Vec<String> {
        let mut all = Vec::new();
        let stream = format!("event: content_block_delta\ndata: {data}\n\n");
        ReplyReader::events(1 << 20).push(stream.as_bytes(), |event| {
            all.push(serde_json::to_string(&event).unwrap());
        });
        all
    }

    proptest! {
        /// A space after the first brace forces the general path.
        #[test]
        fn usual_delta_reads_like_any_other(
            kind in prop_oneof!["text", "thinking", "partial_json"],
            text in any::<String>(),
            raw in r#"[a-z"\\/ué}{ ]{0,12}"#,
            index in 0u32..400,
            fill in " {0,5}",
        ) {
            let name = if kind == "partial_json" { "input_json_delta".to_owned() } else { format!("{kind}_delta") };
            let quoted = serde_json::to_string(&text).unwrap();
            let value = format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{name}","{kind}":{quoted}}}{fill}}}"#);
            prop_assert!(read_usual_delta(value.as_bytes()).is_some());
            prop_assert_eq!(events(&value), events(&value.replacen('{', "{ ", 1)));
            // Where both paths read something, they agree.
            let odd = format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{name}","{kind}":"{raw}"}}}}"#);
            if serde_json::from_str::<serde_json::Value>(&odd).is_ok() {
                prop_assert_eq!(events(&odd), events(&odd.replacen('{', "{ ", 1)));
            }
        }
    }
}
