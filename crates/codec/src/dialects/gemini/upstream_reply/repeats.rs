//! Calls that a provider sends twice.
//!
//! Some models stream a function call and then stream it again, once with its signature and once
//! without. A client would run the tool twice, so a repeat is skipped and its signature kept. Two
//! calls may be equal by intent. So a call is a repeat only if
//!
//! - both have the same id, name and arguments; or
//! - neither has an id, name and arguments are equal, exactly one of them is signed, and it comes
//!   in a later chunk than the first, with nothing but repeats between: the calls of a chunk repeat
//!   those of the last chunk that had any, in order and from the first on, or the last of them.
//!   Calls in one chunk are never repeats, because only the first of several is signed.

use std::collections::HashMap;

use throughline_canonical::{Delta, Event, Out};

/// The calls of one reply.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    emitted: Vec<EmittedCall>,
    /// Position of a call by id.
    ids: HashMap<String, usize>,
    /// The number of the current chunk.
    piece: u64,
    /// What the next call of this chunk may repeat.
    next: Next,
    /// Position of the first call in the last chunk with new calls; `None` after other content.
    run: Option<usize>,
    /// Cumulative chunks were reduced to their new parts before.
    cumulative: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Next {
    /// The first call: it may repeat the first or the last call of the last chunk.
    #[default]
    Any,
    /// All calls before it were repeats.
    At(usize),
    /// A call before it was new, so it is new too.
    Nothing,
}

#[derive(Debug)]
struct EmittedCall {
    index: u32,
    id: String,
    name: String,
    arguments: String,
    signed: bool,
    /// Whether its end was not emitted, because its signature may follow.
    open: bool,
    piece: u64,
}

/// A complete call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompleteCall<'c> {
    pub(crate) id: &'c str,
    pub(crate) name: &'c str,
    pub(crate) arguments: &'c str,
    pub(crate) signature: Option<&'c str>,
}

impl Repeats {
    /// Creates the tracker. `cumulative` providers repeat the answer in every chunk.
    pub(crate) fn new(cumulative: bool) -> Self {
        Self { cumulative, ..Self::default() }
    }

    /// Starts the next chunk.
    pub(crate) fn next_piece(&mut self) {
        self.piece += 1;
        self.next = Next::Any;
    }

    /// Whether a call repeats an earlier one, which then gets the missing signature.
    pub(crate) fn is_repeat(&mut self, call: CompleteCall<'_>, out: Out<'_>) -> bool {
        let Some(position) = self.repeated(call) else {
            self.next = Next::Nothing;
            return false;
        };
        if let Some(emitted) = self.emitted.get_mut(position) {
            if let (Some(signature), false) = (call.signature, emitted.signed)
                && emitted.open
            {
                let (index, delta) = (emitted.index, Delta::Signature(signature.into()));
                out(Event::BlockDelta { index, delta });
            }
            emitted.signed |= call.signature.is_some();
            emitted.end(out);
        }
        true
    }

    fn repeated(&mut self, call: CompleteCall<'_>) -> Option<usize> {
        if !call.id.is_empty() {
            let position = *self.ids.get(call.id)?;
            return self.emitted.get(position)?.is_equal(call).then_some(position);
        }
        if self.cumulative {
            return None;
        }
        let (first, last) = (self.run?, self.emitted.len().checked_sub(1)?);
        let repeats = |position: &usize| {
            self.emitted.get(*position).is_some_and(|emitted| {
                emitted.id.is_empty()
                    && emitted.piece < self.piece
                    && emitted.signed != call.signature.is_some()
                    && emitted.is_equal(call)
            })
        };
        let position = match self.next {
            Next::Any => [first, last].into_iter().find(repeats),
            Next::At(position) => Some(position).filter(repeats),
            Next::Nothing => None,
        }?;
        self.next = Next::At(position + 1);
        Some(position)
    }

    /// Adds a new call in this block. It ends at once if nothing of it can follow.
    pub(crate) fn add(&mut self, index: u32, call: CompleteCall<'_>, out: Out<'_>) {
        let position = self.emitted.len();
        if self.run.is_none() || self.is_first_of_piece() {
            self.run = Some(position);
        }
        if !call.id.is_empty() {
            self.ids.entry(call.id.to_owned()).or_insert(position);
        }
        let mut emitted = EmittedCall {
            index,
            id: call.id.to_owned(),
            name: call.name.to_owned(),
            arguments: call.arguments.to_owned(),
            signed: call.signature.is_some(),
            open: true,
            piece: self.piece,
        };
        if emitted.signed || self.cumulative {
            emitted.end(out);
        }
        self.emitted.push(emitted);
    }

    /// Ends calls of earlier chunks because something new follows.
    pub(crate) fn end_earlier(&mut self, out: Out<'_>) {
        if self.is_first_of_piece() {
            self.interrupt(out);
        }
    }

    fn is_first_of_piece(&self) -> bool {
        let last = self.emitted.last();
        last.is_none_or(|last| last.piece < self.piece)
    }

    /// Records other content: later calls repeat nothing, except by id.
    pub(crate) fn interrupt(&mut self, out: Out<'_>) {
        if let Some(run) = self.run.take() {
            for emitted in self.emitted.iter_mut().skip(run) {
                emitted.end(out);
            }
        }
    }
}

impl EmittedCall {
    fn is_equal(&self, call: CompleteCall<'_>) -> bool {
        let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
        let same = || match (value(&self.arguments), value(call.arguments)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => false,
        };
        self.name == call.name && (self.arguments == call.arguments || same())
    }

    fn end(&mut self, out: Out<'_>) {
        if std::mem::replace(&mut self.open, false) {
            let index = self.index;
            out(Event::BlockEnded { index });
        }
    }
}
