//! Reads structured reasoning of a reply: `reasoning_details`, `thinking_blocks`, and content
//! chunks.

use std::borrow::Cow;

use crate::json::{
    JsonError, Kind, Span, each_member, find_member, number, slice, text, try_each_element,
};

/// The kind of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Piece {
    /// Answer text.
    Text,
    /// Reasoning.
    #[default]
    Thinking,
    /// A summary of reasoning.
    Summary,
    /// Encrypted reasoning.
    Encrypted,
    /// Any other kind.
    Other,
}

/// One piece of a list.
#[derive(Debug, Default)]
pub(super) struct Detail<'a> {
    pub(super) piece: Piece,
    /// The name of its kind.
    pub(super) name: Cow<'a, str>,
    /// The text, or the encrypted data.
    pub(super) text: Cow<'a, str>,
    pub(super) signature: Cow<'a, str>,
    pub(super) format: Cow<'a, str>,
    pub(super) id: Cow<'a, str>,
    /// The provider's index of its block.
    pub(super) number: Option<u64>,
    /// Whether its block is complete. Only Mistral sends this.
    pub(super) closed: bool,
    /// The whole piece as raw JSON.
    pub(super) json: &'a [u8],
}

/// Emits each piece of a list.
pub(super) fn each<'a>(
    json: &'a [u8],
    list: &Span,
    mut piece: impl FnMut(Detail<'a>),
) -> Result<(), JsonError> {
    try_each_element(json, list.start, |kind, span| {
        match kind {
            Kind::Object => piece(Detail { json: slice(json, &span), ..read(json, &span)? }),
            Kind::String => {
                piece(Detail { piece: Piece::Text, text: text(json, &span), ..Detail::default() });
            }
            _ => {}
        }
        Ok(())
    })
}

fn read<'a>(json: &'a [u8], object: &Span) -> Result<Detail<'a>, JsonError> {
    let mut detail = Detail::default();
    let [mut words, mut thought, mut summary, mut data]: [Option<(Kind, Span)>; 4] =
        Default::default();
    each_member(json, object.start, |key, kind, span| match (key, kind) {
        (b"type", Kind::String) => detail.name = text(json, &span),
        (b"text", Kind::String) => words = Some((kind, span)),
        (b"thinking", Kind::String | Kind::Array) => thought = Some((kind, span)),
        (b"summary", Kind::String) => summary = Some((kind, span)),
        (b"data", Kind::String) => data = Some((kind, span)),
        (b"signature", Kind::String) => detail.signature = text(json, &span),
        (b"format", Kind::String) => detail.format = text(json, &span),
        (b"id", Kind::String) => detail.id = text(json, &span),
        (b"closed", Kind::Bool) => detail.closed = slice(json, &span) == b"true",
        (b"index", Kind::Number) => detail.number = number(json, &span),
        _ => {}
    })?;
    let (piece, value) = match detail.name.as_ref() {
        "text" | "output_text" => (Piece::Text, words),
        "reasoning.text" => (Piece::Thinking, words),
        "thinking" => (Piece::Thinking, thought),
        "reasoning.summary" => (Piece::Summary, summary),
        "reasoning.encrypted" | "redacted_thinking" => (Piece::Encrypted, data),
        _ => (Piece::Other, None),
    };
    detail.piece = piece;
    detail.text = match value {
        Some((Kind::String, span)) => text(json, &span),
        // Mistral sends a list of texts.
        Some((_, span)) => {
            let mut joined = String::new();
            let mut only = Cow::default();
            let mut count = 0;
            each_text(json, &span, |text| {
                count += 1;
                if count == 1 {
                    only = text;
                } else {
                    if count == 2 {
                        joined.push_str(&only);
                    }
                    joined.push_str(&text);
                }
            })?;
            if count < 2 { only } else { Cow::Owned(joined) }
        }
        None => Cow::default(),
    };
    Ok(detail)
}

fn each_text<'a>(
    json: &'a [u8],
    list: &Span,
    mut found: impl FnMut(Cow<'a, str>),
) -> Result<(), JsonError> {
    try_each_element(json, list.start, |kind, span| {
        if kind == Kind::Object
            && let Some(span) = find_member(json, span.start, b"text", Kind::String)?
        {
            found(text(json, &span));
        }
        Ok(())
    })
}
