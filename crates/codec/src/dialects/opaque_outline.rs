//! A request as places in its bytes, for dialects whose requests pass in place: where the model's name
//! stands, and where everything stands that only its maker reads. All else is copied as it came.

use std::borrow::Cow;

use throughline_canonical::Block;

use super::anthropic::rewrite::PLACEHOLDER;
use crate::json::{
    Cursor, Edits, JsonError, Kind, Span, append_member, decode, each_element, quote,
    remove_elements, slice, text,
};

/// A request, as places in its bytes.
#[derive(Clone, Debug, Default)]
pub struct OpaqueOutline {
    /// The whole object.
    pub body: Span,
    /// Where the body names the model, quotes included.
    pub model: Option<Span>,
    /// The model, where the path names it instead.
    pub model_in_path: Option<String>,
    /// What stands before the model's name in the body.
    pub(super) model_prefix: &'static str,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Whether the model has spoken before.
    pub has_assistant: bool,
    /// The messages, or items, that are the model's.
    pub said: Vec<usize>,
    /// The first message behind the last words of the user.
    pub turn: usize,
    /// What only its maker reads, in order.
    pub marks: Vec<OpaquePart>,
    /// Tool-call ids that stand in the conversation more than once.
    pub repeated_tool_ids: usize,
    holders: Vec<Holder>,
    bare: Vec<Bare>,
    /// The ids of calls, quotes included.
    calls: Vec<Span>,
}

/// A message that says nothing but its marks.
#[derive(Clone, Debug)]
pub(super) struct Bare {
    /// The whole object.
    pub(super) object: Span,
    /// Where its content is said to be nothing.
    pub(super) content: Option<Span>,
    /// Which message it is.
    pub(super) at: usize,
}

/// Something only its maker reads.
#[derive(Clone, Debug)]
pub struct OpaquePart {
    /// Its message, and its place there.
    pub at: (usize, usize),
    /// What it is.
    pub kind: OpaqueKind,
    /// Where its text stands, in pieces, quotes included.
    pub texts: Vec<Span>,
    /// What stands between the pieces.
    pub joint: &'static str,
    /// Its signature, or the whole of it if it is encrypted.
    pub signature: Option<Signature>,
    /// What goes if it may not go. Of calls and texts the signature alone goes.
    pub whole: Vec<Part>,
    /// Of the first call of a message: where a signature may be put.
    pub room: Option<Room>,
    /// It stands beside what the message says, and not among it.
    pub beside: bool,
}

/// What a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpaqueKind {
    /// Reasoning that can be read, signed or not.
    Thinking,
    /// Reasoning its maker encrypted.
    Redacted,
    /// The signature of a call; absent, if the mark only shows where one may be put.
    Call,
    /// The signature of a text, or of anything else that is neither reasoning nor a call.
    Text,
}

/// A signature.
#[derive(Clone, Debug)]
pub struct Signature {
    /// Its value, quotes included.
    pub value: Span,
    /// The member it is.
    pub part: Part,
}

/// Where a signature may be put that is not there.
#[derive(Clone, Debug)]
pub struct Room {
    /// The object it is put into.
    pub object: Span,
    /// The member it becomes.
    pub key: &'static str,
    /// What stands around it there.
    pub around: (&'static str, &'static str),
}

/// One element of a list, or one member of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    holder: usize,
    at: usize,
}

/// A list or an object, some of which may have to go.
#[derive(Clone, Debug)]
struct Holder {
    parts: Vec<Span>,
    /// What it is a part of; that one goes with it where nothing is left.
    within: Option<Part>,
    /// What it holds instead where nothing is left.
    filler: Option<&'static str>,
}

/// What becomes of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpaqueEdit {
    /// It stays as it is.
    Keep,
    /// It goes: reasoning as a whole, of calls and texts the signature.
    Remove,
    /// It gets this signature.
    Sign(String),
    /// It stays without a signature.
    Unsign,
}

/// A member of an object.
pub(super) struct Member<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) kind: Kind,
    /// From its key to the end of its value.
    pub(super) whole: Span,
    pub(super) value: Span,
}

/// The members of the object that stands at `start`.
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

/// A member that is no null.
pub(super) fn find<'m, 'a>(
    members: &'m [Member<'a>],
    name: &str,
) -> Option<(usize, &'m Member<'a>)> {
    members.iter().enumerate().find(|(_, member)| member.key == name && member.kind != Kind::Null)
}

/// A member that is a string and not empty.
pub(super) fn find_text<'m, 'a>(
    members: &'m [Member<'a>],
    name: &str,
) -> Option<(usize, &'m Member<'a>)> {
    find(members, name).filter(|(_, member)| member.is_text())
}

impl Member<'_> {
    /// The elements of a list; none of anything else.
    pub(super) fn elements(&self, body: &[u8]) -> Result<Vec<(Kind, Span)>, JsonError> {
        let mut all = Vec::new();
        if self.kind == Kind::Array {
            each_element(body, self.value.start, |kind, span| all.push((kind, span)))?;
        }
        Ok(all)
    }

    /// Whether it is a string that is not empty.
    pub(super) fn is_text(&self) -> bool {
        self.kind == Kind::String && self.value.len() > 2
    }
}

/// The places of members.
pub(super) fn wholes(members: &[Member<'_>]) -> Vec<Span> {
    members.iter().map(|member| member.whole.clone()).collect()
}

/// The places of elements.
pub(super) fn spans(elements: &[(Kind, Span)]) -> Vec<Span> {
    elements.iter().map(|(_, span)| span.clone()).collect()
}

impl OpaquePart {
    /// A mark of which nothing is known but where it stands.
    pub(super) fn new(at: (usize, usize), kind: OpaqueKind) -> Self {
        Self {
            at,
            kind,
            texts: Vec::new(),
            joint: "",
            signature: None,
            whole: Vec::new(),
            room: None,
            beside: false,
        }
    }

    /// What the client sent, as a block.
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
    /// A message of the model.
    pub(super) fn spoke(&mut self, at: usize) {
        self.has_assistant = true;
        self.said.push(at);
    }

    /// Nothing yet, in a body that is one object.
    pub(super) fn of(body: &[u8]) -> Self {
        let start = body.len() - body.trim_ascii_start().len();
        Self { body: start..body.trim_ascii_end().len(), ..Self::default() }
    }

    /// The model that is asked for.
    pub fn model_name(&self, body: &[u8]) -> Option<String> {
        let in_body = || Some(text(body, self.model.as_ref()?).into_owned());
        let name = self.model_in_path.clone().or_else(in_body);
        name.filter(|name| !name.is_empty())
    }

    /// Takes in a list or an object. What it is part of has to be there already.
    pub(super) fn hold(
        &mut self,
        parts: Vec<Span>,
        within: Option<Part>,
        filler: Option<&'static str>,
    ) -> usize {
        self.holders.push(Holder { parts, within, filler });
        self.holders.len() - 1
    }

    /// Takes in the id of a call.
    pub(super) fn called(&mut self, id: Option<&Member<'_>>) {
        let id = id.filter(|id| id.is_text());
        self.calls.extend(id.map(|id| id.value.clone()));
    }

    /// Takes in a message that says nothing but its marks.
    pub(super) fn bare(&mut self, bare: Bare) {
        self.bare.push(bare);
    }

    /// All of the request has been read.
    pub(super) fn finish(mut self, body: &[u8]) -> Self {
        let mut ids: Vec<&[u8]> = self.calls.drain(..).map(|id| slice(body, &id)).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        self.repeated_tool_ids = all - ids.len();
        self.forget_old_room();
        self
    }

    /// Only the calls of the present turn are asked for their signatures.
    fn forget_old_room(&mut self) {
        let turn = self.turn;
        for mark in &mut self.marks {
            mark.room = mark.room.take().filter(|_| mark.at.0 >= turn);
        }
        self.marks.retain(|mark| {
            mark.kind != OpaqueKind::Call || mark.signature.is_some() || mark.room.is_some()
        });
    }

    /// The body with these changes, one for each mark, and with another name of the model where one
    /// is given; none if nothing changes. Answers too how many messages had to be filled.
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
        for (mark, change) in self.marks.iter().zip(changes) {
            let unsigned = mark.signature.as_ref().map(|signature| signature.part);
            match (change, &mark.signature, &mark.room) {
                (OpaqueEdit::Keep, ..) => {}
                (OpaqueEdit::Remove, ..) if !mark.whole.is_empty() => gone.extend(&mark.whole),
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
            let first = self.marks.partition_point(|mark| mark.at.0 < bare.at);
            let end = self.marks.partition_point(|mark| mark.at.0 <= bare.at);
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

    /// Takes parts out, and with them what would be left empty. Answers how many lists were filled.
    fn take_out(&self, edits: &mut Edits, gone: &[Part]) -> usize {
        if gone.is_empty() {
            return 0;
        }
        let mut keep: Vec<Vec<bool>> =
            self.holders.iter().map(|holder| vec![true; holder.parts.len()]).collect();
        for part in gone {
            keep[part.holder][part.at] = false;
        }
        let emptied = |kept: &[bool]| !kept.is_empty() && !kept.contains(&true);
        // What holds others comes before them.
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

impl Part {
    pub(super) fn new(holder: usize, at: usize) -> Self {
        Self { holder, at }
    }
}
