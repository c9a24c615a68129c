//! The outline of a request for passthrough: the spans of the model name and of all opaque parts,
//! which only their provider can read. All other bytes are copied unchanged.

use std::borrow::Cow;

use throughline_canonical::Block;

use super::passthrough::PLACEHOLDER;
use crate::json::{
    Cursor, Edits, JsonError, Kind, Span, append_member, decode, each_element, quote,
    remove_elements, slice, text,
};

/// The outline of a request, as spans in its bytes.
#[derive(Clone, Debug, Default)]
pub struct OpaqueOutline {
    /// The whole object.
    pub body: Span,
    /// The model name in the body, with quotes.
    pub model: Option<Span>,
    /// The model name, if the path carries it.
    pub model_in_path: Option<String>,
    /// Prefix of the model name in the body.
    pub(super) model_prefix: &'static str,
    /// Whether the client asks for a stream.
    pub stream: bool,
    /// Whether the conversation contains a message of the model.
    pub has_assistant: bool,
    /// Indexes of the messages, or items, of the model.
    pub assistant_messages: Vec<usize>,
    /// Index of the first message after the last user message.
    pub turn: usize,
    /// All opaque parts, in order.
    pub parts: Vec<OpaquePart>,
    /// Number of repeated tool-call ids in the conversation.
    pub repeated_tool_ids: usize,
    holders: Vec<Holder>,
    bare: Vec<Bare>,
    /// The call ids, with quotes.
    calls: Vec<Span>,
}

/// A message that contains nothing but opaque parts.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    /// The whole object.
    pub(super) object: Span,
    /// The span of its empty content, if it has that member.
    pub(super) content: Option<Span>,
    /// Index of the message.
    pub(super) at: usize,
}

/// A part that only its provider can read.
#[derive(Clone, Debug, Default)]
pub struct OpaquePart {
    /// Indexes of its message and of the part in it.
    pub at: (usize, usize),
    /// What it is.
    pub kind: OpaqueKind,
    /// Its text in pieces, with quotes.
    pub texts: Vec<Span>,
    /// Separator between the pieces.
    pub joint: &'static str,
    /// Its signature, or all its data if it is encrypted.
    pub signature: Option<Signature>,
    /// What to remove if the part must not be sent. For calls and texts it is only the signature.
    pub whole: Vec<RemovablePart>,
    /// For the first call of a message: where a signature can be inserted.
    pub room: Option<Room>,
    /// Whether the part is outside of the message content.
    pub beside: bool,
}

/// The kinds of opaque parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpaqueKind {
    /// Readable reasoning, signed or not.
    #[default]
    Thinking,
    /// Encrypted reasoning.
    Redacted,
    /// The signature of a call. Without one, the part only shows where to insert it.
    Call,
    /// The signature of a text or of another part that is neither reasoning nor a call.
    Text,
}

/// A signature in the bytes of a request.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Its value, with quotes.
    pub value: Span,
    /// The member that holds it.
    pub part: RemovablePart,
}

/// Where a missing signature can be inserted.
#[derive(Clone, Debug)]
pub struct Room {
    /// The object that gets the signature.
    pub object: Span,
    /// The name of the new member.
    pub key: &'static str,
    /// The text before and after the signature in that member.
    pub around: (&'static str, &'static str),
}

/// One element of a list, or one member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovablePart {
    holder: usize,
    at: usize,
}

/// A list or an object from which parts may be removed.
#[derive(Clone, Debug)]
struct Holder {
    parts: Vec<Span>,
    /// The part that contains it. It is removed too if nothing is left.
    within: Option<RemovablePart>,
    /// The replacement if nothing is left.
    filler: Option<&'static str>,
}

/// The edit of one opaque part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpaqueEdit {
    /// Leave it unchanged.
    Keep,
    /// Remove it: reasoning completely, from calls and texts the signature.
    Remove,
    /// Set this signature.
    Sign(String),
    /// Remove the signature only.
    Unsign,
}

/// A member of an object.
pub(super) struct Member<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) kind: Kind,
    /// From the key to the end of the value.
    pub(super) whole: Span,
    pub(super) value: Span,
}

/// The members of the object that starts at `start`.
pub(super) fn members(body: &[u8], start: usize) -> Result<Vec<Member<'_>>, JsonError> {
    let mut cursor = Cursor::at(body, start, usize::MAX);
    cursor.enter_object()?;
    let (mut first, mut members) = (true, Vec::new());
    while let Some(key) = cursor.key_span(&mut first)? {
        let kind = cursor.peek()?;
        let value = cursor.skip()?;
        members.push(Member {
            key: decode(slice(body, &key)),
            kind,
            // The key's opening quote belongs to the member.
            whole: key.start - 1..value.end,
            value,
        });
    }
    Ok(members)
}

/// Finds a member that is not null.
pub(super) fn find<'m, 'a>(
    members: &'m [Member<'a>],
    name: &str,
) -> Option<(usize, &'m Member<'a>)> {
    members.iter().enumerate().find(|(_, member)| member.key == name && member.kind != Kind::Null)
}

/// Finds a member that is a non-empty string.
pub(super) fn find_text<'m, 'a>(
    members: &'m [Member<'a>],
    name: &str,
) -> Option<(usize, &'m Member<'a>)> {
    find(members, name).filter(|(_, member)| member.is_text())
}

impl Member<'_> {
    /// The elements of a list; empty for other values.
    pub(super) fn elements(&self, body: &[u8]) -> Result<Vec<(Kind, Span)>, JsonError> {
        let mut all = Vec::new();
        if self.kind == Kind::Array {
            each_element(body, self.value.start, |kind, span| all.push((kind, span)))?;
        }
        Ok(all)
    }

    /// Whether it is a non-empty string.
    pub(super) fn is_text(&self) -> bool {
        self.kind == Kind::String && self.value.len() > 2
    }
}

/// The spans of members.
pub(super) fn wholes(members: &[Member<'_>]) -> Vec<Span> {
    members.iter().map(|member| member.whole.clone()).collect()
}

/// The spans of elements.
pub(super) fn spans(elements: &[(Kind, Span)]) -> Vec<Span> {
    elements.iter().map(|(_, span)| span.clone()).collect()
}

impl OpaquePart {
    /// A part with nothing but its position.
    pub(super) fn new(at: (usize, usize), kind: OpaqueKind) -> Self {
        Self { at, kind, ..Self::default() }
    }

    /// The part as a canonical block.
    pub fn block(&self, body: &[u8]) -> Block {
        let signature = self.signature(body).map(Cow::into_owned);
        match self.kind {
            OpaqueKind::Redacted => Block::Redacted { data: signature.unwrap_or_default() },
            OpaqueKind::Thinking | OpaqueKind::Call | OpaqueKind::Text => {
                Block::Thinking { text: self.text(body), signature }
            }
        }
    }

    /// The signature, if there is one.
    pub fn signature<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        let signature = self.signature.as_ref()?;
        Some(text(body, &signature.value))
    }

    fn text(&self, body: &[u8]) -> String {
        let pieces: Vec<_> = self.texts.iter().map(|piece| text(body, piece)).collect();
        pieces.join(self.joint)
    }
}

impl OpaqueOutline {
    /// Records a message of the model.
    pub(super) fn add_assistant(&mut self, at: usize) {
        self.has_assistant = true;
        self.assistant_messages.push(at);
    }

    /// An empty outline of a body that is one object.
    pub(super) fn of(body: &[u8]) -> Self {
        let start = body.len() - body.trim_ascii_start().len();
        Self { body: start..body.trim_ascii_end().len(), ..Self::default() }
    }

    /// As [`OpaqueOutline::of`], with the members `model` and `stream`.
    pub(super) fn with_settings(body: &[u8], top: &[Member<'_>]) -> Self {
        let model = find(top, "model").filter(|(_, member)| member.kind == Kind::String);
        let stream = find(top, "stream");
        Self {
            model: model.map(|(_, member)| member.value.clone()),
            stream: stream.is_some_and(|(_, member)| slice(body, &member.value) == b"true"),
            ..Self::of(body)
        }
    }

    /// The requested model.
    pub fn model_name(&self, body: &[u8]) -> Option<String> {
        let in_body = || Some(text(body, self.model.as_ref()?).into_owned());
        let name = self.model_in_path.clone().or_else(in_body);
        name.filter(|name| !name.is_empty())
    }

    /// Records a list or an object. Its container must be recorded first.
    pub(super) fn add_container(
        &mut self,
        parts: Vec<Span>,
        within: Option<RemovablePart>,
        filler: Option<&'static str>,
    ) -> usize {
        self.holders.push(Holder { parts, within, filler });
        self.holders.len() - 1
    }

    /// Records the id of a call.
    pub(super) fn add_call_id(&mut self, id: Option<&Member<'_>>) {
        let id = id.filter(|id| id.is_text());
        self.calls.extend(id.map(|id| id.value.clone()));
    }

    /// Records a message that contains nothing but opaque parts.
    pub(super) fn add_bare_message(&mut self, bare: Bare) {
        self.bare.push(bare);
    }

    /// Completes the outline after the whole request was read.
    pub(super) fn finish(mut self, body: &[u8]) -> Self {
        let mut ids: Vec<&[u8]> = self.calls.drain(..).map(|id| slice(body, &id)).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        self.repeated_tool_ids = all - ids.len();
        self.forget_old_room();
        self
    }

    /// Providers demand signatures for calls of the current turn only.
    fn forget_old_room(&mut self) {
        let turn = self.turn;
        for part in &mut self.parts {
            part.room = part.room.take().filter(|_| part.at.0 >= turn);
        }
        self.parts.retain(|part| {
            part.kind != OpaqueKind::Call || part.signature.is_some() || part.room.is_some()
        });
    }

    /// Rewrites the body: one edit per opaque part, and a new model name if given. Returns `None`
    /// if nothing changes, and the number of messages that got a placeholder.
    pub fn rewrite(
        &self,
        body: &[u8],
        model: Option<&str>,
        changes: &[OpaqueEdit],
    ) -> (Option<Vec<u8>>, usize) {
        let mut edits = Edits::default();
        if let Some(model) = model.filter(|_| self.model_in_path.is_none() || self.model.is_some())
        {
            let name = quote(&[self.model_prefix, model].concat());
            match &self.model {
                Some(span) => edits.replace(span.clone(), name),
                None => append_member(&mut edits, body, &self.body, "model", &name),
            }
        }
        let mut gone = Vec::new();
        for (part, change) in self.parts.iter().zip(changes) {
            let unsigned = part.signature.as_ref().map(|signature| signature.part);
            match (change, &part.signature, &part.room) {
                (OpaqueEdit::Keep, ..) => {}
                (OpaqueEdit::Remove, ..) if !part.whole.is_empty() => gone.extend(&part.whole),
                (OpaqueEdit::Remove | OpaqueEdit::Unsign, ..) => gone.extend(unsigned),
                (OpaqueEdit::Sign(with), Some(signature), _) => {
                    edits.replace(signature.value.clone(), quote(with));
                }
                (OpaqueEdit::Sign(with), None, Some(room)) => {
                    let (before, after) = room.around;
                    let value = [before.as_bytes(), &quote(with), after.as_bytes()].concat();
                    append_member(&mut edits, body, &room.object, room.key, &value);
                }
                (OpaqueEdit::Sign(_), None, None) => {}
            }
        }
        let mut filled = self.take_out(&mut edits, &gone);
        for bare in &self.bare {
            let first = self.parts.partition_point(|part| part.at.0 < bare.at);
            let end = self.parts.partition_point(|part| part.at.0 <= bare.at);
            let changes = changes.get(first..end).unwrap_or_default();
            if changes.iter().any(|change| *change != OpaqueEdit::Remove) {
                continue;
            }
            filled += 1;
            let text = quote(PLACEHOLDER);
            match &bare.content {
                Some(content) => edits.replace(content.clone(), text),
                None => append_member(&mut edits, body, &bare.object, "content", &text),
            }
        }
        let changed = !edits.is_empty();
        (changed.then(|| edits.apply(body)), filled)
    }

    /// Removes parts, and containers that would become empty. Returns the number of lists that got
    /// a filler.
    fn take_out(&self, edits: &mut Edits, gone: &[RemovablePart]) -> usize {
        if gone.is_empty() {
            return 0;
        }
        let mut keep: Vec<Vec<bool>> =
            self.holders.iter().map(|holder| vec![true; holder.parts.len()]).collect();
        for part in gone {
            keep[part.holder][part.at] = false;
        }
        let emptied = |kept: &[bool]| !kept.is_empty() && !kept.contains(&true);
        // Containers come before their contents.
        for (at, holder) in self.holders.iter().enumerate().rev() {
            if let (None, Some(part)) = (holder.filler, holder.within)
                && emptied(&keep[at])
            {
                keep[part.holder][part.at] = false;
            }
        }
        let (mut buried, mut filled) = (vec![false; keep.len()], 0);
        for (at, holder) in self.holders.iter().enumerate() {
            buried[at] = holder
                .within
                .is_some_and(|part| buried[part.holder] || !keep[part.holder][part.at]);
            if buried[at] || remove_elements(edits, &holder.parts, &keep[at]) {
                continue;
            }
            if let (Some(first), Some(last)) = (holder.parts.first(), holder.parts.last()) {
                let filler = holder.filler.unwrap_or_default();
                filled += usize::from(!filler.is_empty());
                edits.replace(first.start..last.end, filler);
            }
        }
        filled
    }
}

impl RemovablePart {
    pub(super) fn new(holder: usize, at: usize) -> Self {
        Self { holder, at }
    }
}
