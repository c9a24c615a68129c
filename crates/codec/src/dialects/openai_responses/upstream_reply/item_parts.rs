//! One item of a provider's reply, as spans.

use std::borrow::Cow;

use super::ItemPosition;
use crate::json::{JsonError, Kind as Json, Span, each_member, inside, text, try_each_element};

/// The kind of growing content, which also identifies the kind of item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Refusal,
    Summary,
    Reasoning,
    Call,
    #[default]
    Opaque,
}

impl ItemKind {
    /// Whether both belong to the same kind of item.
    pub(super) fn shares_item(self, other: Self) -> bool {
        let item = |kind| match kind {
            Self::Refusal => Self::Message,
            Self::Summary => Self::Reasoning,
            kind => kind,
        };
        item(self) == item(other)
    }
}

/// The members of an item.
#[derive(Default)]
pub(super) struct ItemParts<'a> {
    pub(super) kind: ItemKind,
    pub(super) word: &'a [u8],
    pub(super) id: Option<Span>,
    pub(super) call_id: Option<Span>,
    pub(super) name: Option<Span>,
    pub(super) arguments: Option<Span>,
    pub(super) phase: Option<Span>,
    pub(super) encrypted: Option<Span>,
    pub(super) summary: Option<Span>,
    pub(super) content: Option<Span>,
}

impl<'a> ItemParts<'a> {
    pub(super) fn read(data: &'a [u8], item: &Span) -> Result<Self, JsonError> {
        let mut parts = Self::default();
        each_member(data, item.start, |key, kind, span| {
            let slot = match (key, kind) {
                (b"type", Json::String) => {
                    parts.word = inside(data, &span);
                    return;
                }
                (b"id", Json::String) => &mut parts.id,
                (b"call_id", Json::String) => &mut parts.call_id,
                (b"name", Json::String) => &mut parts.name,
                (b"arguments", Json::String) => &mut parts.arguments,
                (b"phase", Json::String) => &mut parts.phase,
                (b"encrypted_content", Json::String) => &mut parts.encrypted,
                (b"summary", Json::Array) => &mut parts.summary,
                (b"content", Json::Array) => &mut parts.content,
                _ => return,
            };
            *slot = Some(span);
        })?;
        parts.kind = match parts.word {
            b"message" => ItemKind::Message,
            b"reasoning" => ItemKind::Reasoning,
            b"function_call" => ItemKind::Call,
            _ => ItemKind::Opaque,
        };
        Ok(parts)
    }

    pub(super) fn position(&self, data: &'a [u8], output_index: Option<u64>) -> ItemPosition<'a> {
        let bytes = |span: &Option<Span>| span.as_ref().map(|span| inside(data, span));
        ItemPosition {
            output_index,
            item_id: bytes(&self.id),
            call_id: bytes(&self.call_id),
            part: 0,
        }
    }

    pub(super) fn name_of_kind(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.word)
    }
}

pub(super) fn member<'a>(data: &'a [u8], span: Option<&Span>) -> Cow<'a, str> {
    span.map(|span| text(data, span)).unwrap_or_default()
}

/// A part of an item.
#[derive(Default)]
pub(super) struct Part<'a> {
    /// Its type.
    pub(super) word: &'a [u8],
    /// Its text.
    pub(super) words: Cow<'a, str>,
    /// The annotations of the text.
    pub(super) annotations: Option<Span>,
}

/// Visits a list of parts with their indexes.
pub(super) fn each_part<'a>(
    data: &'a [u8],
    list: &Span,
    mut part: impl FnMut(u64, Part<'a>),
) -> Result<(), JsonError> {
    let mut index = 0;
    try_each_element(data, list.start, |kind, span| {
        if kind != Json::Object {
            return Ok(());
        }
        let mut found = Part::default();
        each_member(data, span.start, |key, kind, span| match (key, kind) {
            (b"type", Json::String) => found.word = inside(data, &span),
            (b"text" | b"refusal", Json::String) => found.words = text(data, &span),
            (b"annotations", Json::Array) if span.len() > 2 => found.annotations = Some(span),
            _ => {}
        })?;
        part(index, found);
        index += 1;
        Ok(())
    })
}

/// Joins the texts of parts with blank lines.
pub(super) fn joined<'a>(data: &'a [u8], list: Option<&Span>) -> Result<Cow<'a, str>, JsonError> {
    let mut all: Cow<'a, str> = Cow::default();
    if let Some(list) = list {
        each_part(data, list, |index, Part { words, .. }| {
            if index == 0 {
                all = words;
            } else {
                let all = all.to_mut();
                all.push_str("\n\n");
                all.push_str(&words);
            }
        })?;
    }
    Ok(all)
}
