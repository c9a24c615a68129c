//! Reads the parts of reply events: blocks, deltas, citations, usage, stop reasons.

use std::borrow::Cow;

use serde_json::Value;
use throughline_canonical::{
    BlockStart, Citation, Delta, EndDetails, EndReason, Event, Transformation, Usage, Verbatim,
};

use super::super::NAME;
use super::super::errors::refusal;
use super::DEPTH;
use crate::json::{
    Cursor, JsonError, Kind, Span, each_element, each_member, find_member, inside, number, slice,
    text,
};

/// A block with the content that came with its start.
pub(super) struct StartedBlock<'a> {
    pub(super) block: BlockStart<'a>,
    /// The input of a tool call, if it came complete.
    pub(super) input: Option<Span>,
    /// The citations of a text.
    pub(super) citations: Option<Span>,
}

pub(super) fn read_block<'a>(json: &'a [u8], block: &Span) -> Result<StartedBlock<'a>, JsonError> {
    let mut kind: &[u8] = b"";
    let [mut words, mut thought, mut signature]: [Cow<'a, str>; 3] = Default::default();
    let [mut data, mut id, mut name]: [Cow<'a, str>; 3] = Default::default();
    let [mut input, mut citations] = [None, None];
    each_member(json, block.start, |key, value, span| match (key, value) {
        (b"type", Kind::String) => kind = inside(json, &span),
        (b"text", Kind::String) => words = text(json, &span),
        (b"thinking", Kind::String) => thought = text(json, &span),
        (b"signature", Kind::String) => signature = text(json, &span),
        (b"data", Kind::String) => data = text(json, &span),
        (b"id", Kind::String) => id = text(json, &span),
        (b"name", Kind::String) => name = text(json, &span),
        // A stream starts a call with an empty input and sends the rest as deltas.
        (b"input", Kind::Object) if span.len() > 2 => input = Some(span),
        (b"citations", Kind::Array) if span.len() > 2 => citations = Some(span),
        _ => {}
    })?;
    let block = match kind {
        b"thinking" => BlockStart::Thinking { text: thought, signature },
        b"redacted_thinking" => BlockStart::Redacted { data },
        b"text" => BlockStart::Text { text: words },
        b"tool_use" => BlockStart::ToolCall { id, name },
        other => BlockStart::Opaque { dialect: NAME.into(), name: String::from_utf8_lossy(other) },
    };
    Ok(StartedBlock {
        input: input.filter(|_| kind == b"tool_use"),
        citations: citations.filter(|_| kind == b"text"),
        block,
    })
}

pub(super) fn emit_citations(
    json: &[u8],
    list: &Span,
    index: u32,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    each_element(json, list.start, |_, span| {
        if let Some(delta) = read_citation(slice(json, &span)) {
            out(Event::BlockDelta { index, delta });
        }
    })
}

/// Reads a citation. They are rare, so a tree is fine.
pub(super) fn read_citation(json: &[u8]) -> Option<Delta<'static>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let text = |key: &str| {
        let found = value.get(key).and_then(Value::as_str);
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let is_address = |source: &String| source.starts_with("http");
    let citation = Citation {
        url: text("url").or_else(|| text("source").filter(is_address)),
        title: text("title").or_else(|| text("document_title")),
        quote: text("cited_text"),
        span: None,
        verbatim: value.is_object().then_some(Verbatim { dialect: NAME.to_owned(), value }),
    };
    citation.verbatim.is_some().then(|| Delta::Citation(citation.into()))
}

pub(super) fn read_delta<'a>(data: &'a [u8], delta: &Span) -> Result<Option<Delta<'a>>, JsonError> {
    let mut kind: &[u8] = b"";
    // Some servers send the fields of all kinds, and leave the unused ones empty.
    let [mut words, mut thought, mut signature, mut arguments]: [Option<Span>; 4] =
        Default::default();
    let mut citation = None;
    each_member(data, delta.start, |key, found, span| match (key, found) {
        (b"type", Kind::String) => kind = inside(data, &span),
        (b"text", Kind::String) => words = Some(span),
        (b"thinking", Kind::String) => thought = Some(span),
        (b"signature", Kind::String) => signature = Some(span),
        (b"partial_json", Kind::String) => arguments = Some(span),
        (b"citation", Kind::Object) => citation = Some(span),
        _ => {}
    })?;
    let value = |span: Option<Span>| match span {
        Some(span) => text(data, &span),
        None => "".into(),
    };
    Ok(Some(match kind {
        b"text_delta" => Delta::Text(value(words)),
        b"thinking_delta" => Delta::Thinking(value(thought)),
        b"signature_delta" => Delta::Signature(value(signature)),
        b"input_json_delta" => Delta::ToolArguments(value(arguments)),
        b"citations_delta" => {
            return Ok(citation.and_then(|span| read_citation(slice(data, &span))));
        }
        _ => return Ok(None),
    }))
}

/// Emits the members of a delta that belongs to an opaque block.
pub(super) fn emit_members(
    data: &[u8],
    delta: &Span,
    index: u32,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let mut members = String::new();
    each_member(data, delta.start, |key, _, span| {
        if key != b"type" {
            let (key, value) = (String::from_utf8_lossy(key), slice(data, &span));
            members.push_str(&format!(",\"{key}\":{}", String::from_utf8_lossy(value)));
        }
    })?;
    emit_opaque(index, members.into(), out);
    Ok(())
}

pub(super) fn read_usage(json: &[u8], usage: &Span) -> Result<Usage, JsonError> {
    let mut counts = Usage::default();
    let [mut written, mut details] = [None, None];
    each_member(json, usage.start, |key, kind, span| match (key, kind) {
        (b"input_tokens", Kind::Number) => counts.input = number(json, &span),
        (b"cache_read_input_tokens", Kind::Number) => counts.cache_read = number(json, &span),
        (b"cache_creation_input_tokens", Kind::Number) => counts.cache_write = number(json, &span),
        (b"cache_creation", Kind::Object) => written = Some(span),
        (b"output_tokens", Kind::Number) => counts.output = number(json, &span),
        (b"output_tokens_details", Kind::Object) => details = Some(span),
        _ => {}
    })?;
    if let Some(written) = written {
        each_member(json, written.start, |key, kind, span| {
            if key == b"ephemeral_1h_input_tokens" && kind == Kind::Number {
                counts.cache_write_1h = number(json, &span);
            }
        })?;
    }
    if let Some(details) = details {
        let tokens = find_member(json, details.start, b"thinking_tokens", Kind::Number)?;
        counts.thinking = tokens.and_then(|span| number(json, &span));
    }
    Ok(counts)
}

pub(super) fn transformed(
    json: &[u8],
    list: Option<Span>,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let Some(list) = list else {
        return Ok(());
    };
    let mut cursor = Cursor::at(json, list.start, DEPTH);
    cursor.enter_array()?;
    let (mut first, mut transformations) = (true, Vec::new());
    while cursor.element(&mut first)? {
        let start = cursor.start();
        let (mut action, mut at, mut reason) = (String::new(), None, String::new());
        if cursor.peek()? == Kind::Object {
            each_member(json, start, |key, kind, span| match (key, kind) {
                (b"type", Kind::String) => action = text(json, &span).into_owned(),
                (b"path", Kind::String) => at = refusal::path(&text(json, &span)),
                (b"reason", Kind::String) => reason = text(json, &span).into_owned(),
                _ => {}
            })?;
            transformations.push(Transformation { action, at, reason });
        }
        cursor.skip()?;
    }
    if !transformations.is_empty() {
        out(Event::Transformed { transformations });
    }
    Ok(())
}

pub(super) fn explain_end(
    json: &[u8],
    sequence: Option<Span>,
    details: Option<Span>,
    out: &mut impl FnMut(Event<'_>),
) -> Result<(), JsonError> {
    let owned = |span: Span| text(json, &span).into_owned();
    let mut end = EndDetails { sequence: sequence.map(owned), ..EndDetails::default() };
    if let Some(details) = details {
        each_member(json, details.start, |key, kind, span| match (key, kind) {
            (b"category", Kind::String) => end.category = Some(owned(span)),
            (b"explanation", Kind::String) => end.explanation = Some(owned(span)),
            _ => {}
        })?;
    }
    if !end.is_empty() {
        out(Event::EndExplained(end));
    }
    Ok(())
}

pub(super) fn end_reason(word: &str) -> EndReason {
    match word {
        "end_turn" => EndReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => EndReason::Length,
        "stop_sequence" => EndReason::StopSequence,
        "tool_use" => EndReason::ToolCalls,
        "pause_turn" => EndReason::Pause,
        "refusal" => EndReason::Refusal,
        other => EndReason::Other(other.to_owned()),
    }
}

pub(super) fn emit_opaque(index: u32, json: Cow<'_, str>, out: &mut impl FnMut(Event<'_>)) {
    out(Event::BlockDelta { index, delta: Delta::Opaque(json) });
}
