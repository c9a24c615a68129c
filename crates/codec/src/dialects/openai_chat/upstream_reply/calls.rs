//! Collects the tool calls of a reply from their fragments.

use std::borrow::Cow;
use std::collections::BTreeMap;

use throughline_canonical::{BlockStart, Delta, Event, Out};

use super::super::{CUSTOM, NAME};
use crate::dialects::shared::block_emitter::BlockEmitter;
use crate::json::{
    Cursor, JsonError, Kind, Span, each_member, escape, find_member, number, slice, text,
};

/// One call.
#[derive(Debug, Default)]
struct Call {
    id: String,
    /// Index of its block, once the name is known.
    block: Option<u32>,
    /// Arguments that arrived before the name.
    held: String,
    /// A custom call, which is opaque: its JSON is emitted.
    custom: bool,
}

/// The calls so far. They stay open until the reply ends because fragments may alternate.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
    /// Position of a call by the provider's index.
    numbered: BTreeMap<u64, usize>,
    /// Number of calls before the current list. Two entries of one list are two calls, even if a
    /// server gives both the same id.
    before: usize,
}

/// More calls than any model makes at once.
const MAX_CALLS: usize = 4096;

/// One fragment of a call.
#[derive(Default)]
struct Fragment<'a> {
    number: Option<u64>,
    id: Cow<'a, str>,
    kind: Cow<'a, str>,
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
    signature: Option<Cow<'a, str>>,
}

/// The index of the single call in the legacy form.
const OLD_FORM: u64 = u64::MAX;

impl Calls {
    /// Whether there are more calls than plausible.
    pub(super) fn too_many(&self) -> bool {
        self.calls.len() > MAX_CALLS
    }

    /// Whether there are calls.
    pub(super) fn any(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Reads the list in one delta.
    pub(super) fn read(
        &mut self,
        json: &[u8],
        list: &Span,
        blocks: &mut BlockEmitter,
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let mut cursor = Cursor::at(json, list.start, usize::MAX);
        cursor.enter_array()?;
        self.before = self.calls.len();
        let mut first = true;
        while cursor.element(&mut first)? {
            let object = cursor.peek()? == Kind::Object;
            let span = cursor.skip()?;
            if object {
                let fragment = read_fragment(json, &span)?;
                self.take(fragment, blocks, out);
            }
            if self.too_many() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the single call of the legacy form.
    pub(super) fn read_old(
        &mut self,
        json: &[u8],
        call: &Span,
        blocks: &mut BlockEmitter,
        out: Out<'_>,
    ) -> Result<(), JsonError> {
        let mut fragment = Fragment { number: Some(OLD_FORM), ..Fragment::default() };
        read_function(json, call, &mut fragment)?;
        self.take(fragment, blocks, out);
        Ok(())
    }

    fn take(&mut self, fragment: Fragment<'_>, blocks: &mut BlockEmitter, out: Out<'_>) {
        let position = self.position(&fragment);
        let order = position + 1;
        let Some(call) = self.calls.get_mut(position) else {
            return;
        };
        if call.id.is_empty() && call.block.is_none() {
            call.id = fragment.id.into_owned();
        }
        if call.block.is_none() && !fragment.name.is_empty() {
            call.begin(&fragment.name, &fragment.kind, order, blocks, out);
        }
        match call.block {
            Some(index) => {
                if let Some(signature) = fragment.signature {
                    out(Event::BlockDelta { index, delta: Delta::Signature(signature) });
                }
                if !fragment.arguments.is_empty() {
                    let delta = match call.custom {
                        true => Delta::Opaque(escaped(&fragment.arguments).into()),
                        false => Delta::ToolArguments(fragment.arguments),
                    };
                    out(Event::BlockDelta { index, delta });
                }
            }
            None => call.held.push_str(&fragment.arguments),
        }
    }

    /// The call that a fragment belongs to; possibly a new one.
    fn position(&mut self, fragment: &Fragment<'_>) -> usize {
        let names_another = |call: &Call| {
            // Some servers give every parallel call the index 0, or none.
            !fragment.id.is_empty()
                && !call.id.is_empty()
                && fragment.id != call.id.as_str()
                && !fragment.name.is_empty()
        };
        let found = match fragment.number {
            Some(number) => self.numbered.get(&number).copied(),
            None if fragment.id.is_empty() && fragment.name.is_empty() => {
                self.calls.len().checked_sub(1)
            }
            None if fragment.id.is_empty() => None,
            None => self
                .calls
                .iter()
                .take(self.before)
                .rposition(|call| fragment.id == call.id.as_str()),
        };
        let found = found
            .filter(|position| self.calls.get(*position).is_some_and(|call| !names_another(call)));
        found.unwrap_or_else(|| {
            let position = self.calls.len();
            if let Some(number) = fragment.number {
                self.numbered.insert(number, position);
            }
            self.calls.push(Call::default());
            position
        })
    }

    /// Ends all calls with the reply.
    pub(super) fn end(&mut self, blocks: &mut BlockEmitter, out: Out<'_>) {
        for (position, call) in self.calls.iter_mut().enumerate() {
            if call.block.is_none() && !(call.id.is_empty() && call.held.is_empty()) {
                // It never got a name; its content is emitted anyway.
                call.begin("", "", position + 1, blocks, out);
            }
            if let Some(index) = call.block {
                if call.custom {
                    out(Event::BlockDelta { index, delta: Delta::Opaque("\"}}".into()) });
                }
                out(Event::BlockEnded { index });
            }
        }
        self.calls.clear();
        self.numbered.clear();
        self.before = 0;
    }
}

impl Call {
    fn begin(
        &mut self,
        name: &str,
        kind: &str,
        order: usize,
        blocks: &mut BlockEmitter,
        out: Out<'_>,
    ) {
        if self.id.is_empty() {
            self.id = format!("call_{order}");
        }
        self.custom = kind == CUSTOM;
        let held = std::mem::take(&mut self.held);
        if self.custom {
            let block = BlockStart::Opaque { dialect: NAME.into(), name: kind.into() };
            let index = *self.block.insert(blocks.start(block, out));
            // Up to the quote that the end of the call adds.
            let (id, name, held) = (escaped(&self.id), escaped(name), escaped(&held));
            let begun = format!(
                "{{\"id\":\"{id}\",\"type\":\"{CUSTOM}\",\"{CUSTOM}\":{{\"name\":\"{name}\",\"input\":\"{held}"
            );
            out(Event::BlockDelta { index, delta: Delta::Opaque(begun.into()) });
            return;
        }
        let block = BlockStart::ToolCall { id: self.id.as_str().into(), name: name.into() };
        let index = *self.block.insert(blocks.start(block, out));
        if !held.is_empty() {
            out(Event::BlockDelta { index, delta: Delta::ToolArguments(held.into()) });
        }
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape(text, &mut out);
    out
}

fn read_fragment<'a>(json: &'a [u8], call: &Span) -> Result<Fragment<'a>, JsonError> {
    let mut fragment = Fragment::default();
    let [mut function, mut extra, mut fields]: [Option<Span>; 3] = Default::default();
    each_member(json, call.start, |key, kind, span| match (key, kind) {
        (b"index", Kind::Number) => fragment.number = number(json, &span),
        (b"id", Kind::String) => fragment.id = text(json, &span),
        (b"type", Kind::String) => fragment.kind = text(json, &span),
        (b"function" | b"custom", Kind::Object) => function = Some(span),
        (b"extra_content", Kind::Object) => extra = Some(span),
        (b"provider_specific_fields", Kind::Object) => fields = Some(span),
        _ => {}
    })?;
    if let Some(function) = function {
        read_function(json, &function, &mut fragment)?;
    }
    if let Some(fields) = fields {
        fragment.signature = signature(json, &fields)?;
    }
    if let Some(extra) = extra {
        // Under `google` or `vertex`.
        let mut inner = None;
        each_member(json, extra.start, |_, kind, span| {
            if kind == Kind::Object {
                inner = Some(span);
            }
        })?;
        if let Some(inner) = inner {
            fragment.signature = signature(json, &inner)?;
        }
    }
    Ok(fragment)
}

fn read_function<'a>(
    json: &'a [u8],
    function: &Span,
    fragment: &mut Fragment<'a>,
) -> Result<(), JsonError> {
    each_member(json, function.start, |key, kind, span| match (key, kind) {
        (b"name", Kind::String) => fragment.name = text(json, &span),
        (b"arguments" | b"input", Kind::String) => fragment.arguments = text(json, &span),
        // Some servers send an object instead of text.
        (b"arguments", Kind::Object) => {
            fragment.arguments = String::from_utf8_lossy(slice(json, &span));
        }
        _ => {}
    })
}

fn signature<'a>(json: &'a [u8], object: &Span) -> Result<Option<Cow<'a, str>>, JsonError> {
    let found = find_member(json, object.start, b"thought_signature", Kind::String)?;
    Ok(found.filter(|span| span.len() > 2).map(|span| text(json, &span)))
}
