//! Calls that a provider tells twice.
//!
//! Some models stream a function call and then stream it again, once with its signature and once
//! without. A client would run the tool twice, so a repeat is passed over and its signature kept. As two
//! calls may well be alike, a call is a repeat only where
//!
//! - both have the same id, name and arguments; or
//! - neither has an id, name and arguments are the same, exactly one of them is signed, and it comes in a
//!   later piece than the first, with nothing but repeats between: the calls of a piece repeat those of
//!   the last piece that had any, in order and from the first on, or the last of them. Calls of one piece
//!   are calls, since only the first of several is ever signed.

use std::collections::HashMap;

use throughline_canonical::{Delta, Event};

use super::chunk::Out;

/// The calls of one reply.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    told: Vec<Told>,
    /// Which of them has an id.
    ids: HashMap<String, usize>,
    /// The number of the piece that is read.
    piece: u64,
    /// What the next call of this piece may repeat.
    next: Next,
    /// Where the calls of the last piece that had new ones begin; none, once something came between.
    run: Option<usize>,
    /// Every piece repeats all of the reply, and what is new in it was sorted out before.
    cumulative: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Next {
    /// It is the first: the first or the last of those of the last piece.
    #[default]
    Any,
    /// All before it were repeats.
    At(usize),
    /// One was not, and so is none behind it.
    Nothing,
}

#[derive(Debug)]
struct Told {
    index: u32,
    id: String,
    name: String,
    arguments: String,
    signed: bool,
    /// Its signature may still come, so its end was not told.
    open: bool,
    piece: u64,
}

/// A call that came whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole<'c> {
    pub(crate) id: &'c str,
    pub(crate) name: &'c str,
    pub(crate) arguments: &'c str,
    pub(crate) signature: Option<&'c str>,
}

impl Repeats {
    /// The calls of a provider that repeats all it said in every piece, or does not.
    pub(crate) fn new(cumulative: bool) -> Self {
        Self { cumulative, ..Self::default() }
    }

    /// The next piece begins.
    pub(crate) fn next_piece(&mut self) {
        self.piece += 1;
        self.next = Next::Any;
    }

    /// Whether a call repeats one that was told, which gets the signature it lacks.
    pub(crate) fn passes_over(&mut self, call: Whole<'_>, out: &mut Out<'_>) -> bool {
        let Some(place) = self.repeated(call) else {
            self.next = Next::Nothing;
            return false;
        };
        if let Some(told) = self.told.get_mut(place) {
            if let (Some(signature), false) = (call.signature, told.signed)
                && told.open
            {
                let (index, delta) = (told.index, Delta::Signature(signature.into()));
                out(Event::BlockDelta { index, delta });
            }
            told.signed |= call.signature.is_some();
            told.end(out);
        }
        true
    }

    fn repeated(&mut self, call: Whole<'_>) -> Option<usize> {
        if !call.id.is_empty() {
            let place = *self.ids.get(call.id)?;
            return self.told.get(place)?.says(call).then_some(place);
        }
        if self.cumulative {
            return None;
        }
        let (first, last) = (self.run?, self.told.len().checked_sub(1)?);
        let repeats = |place: &usize| {
            self.told.get(*place).is_some_and(|told| {
                told.id.is_empty()
                    && told.piece < self.piece
                    && told.signed != call.signature.is_some()
                    && told.says(call)
            })
        };
        let place = match self.next {
            Next::Any => [first, last].into_iter().find(repeats),
            Next::At(place) => Some(place).filter(repeats),
            Next::Nothing => None,
        }?;
        self.next = Next::At(place + 1);
        Some(place)
    }

    /// A new call was told in this block. It ends at once where nothing of it can follow.
    pub(crate) fn add(&mut self, index: u32, call: Whole<'_>, out: &mut Out<'_>) {
        let place = self.told.len();
        if self.run.is_none() || self.is_first_of_piece() {
            self.run = Some(place);
        }
        if !call.id.is_empty() {
            self.ids.entry(call.id.to_owned()).or_insert(place);
        }
        let mut told = Told {
            index,
            id: call.id.to_owned(),
            name: call.name.to_owned(),
            arguments: call.arguments.to_owned(),
            signed: call.signature.is_some(),
            open: true,
            piece: self.piece,
        };
        if told.signed || self.cumulative {
            told.end(out);
        }
        self.told.push(told);
    }

    /// Ends what was told in earlier pieces, since something new follows.
    pub(crate) fn end_earlier(&mut self, out: &mut Out<'_>) {
        if self.is_first_of_piece() {
            self.interrupt(out);
        }
    }

    fn is_first_of_piece(&self) -> bool {
        let last = self.told.last();
        last.is_none_or(|last| last.piece < self.piece)
    }

    /// Something other than a call follows: what comes behind it repeats nothing, but for ids.
    pub(crate) fn interrupt(&mut self, out: &mut Out<'_>) {
        if let Some(run) = self.run.take() {
            for told in self.told.iter_mut().skip(run) {
                told.end(out);
            }
        }
    }
}

impl Told {
    fn says(&self, call: Whole<'_>) -> bool {
        let value = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
        let same = || match (value(&self.arguments), value(call.arguments)) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => false,
        };
        self.name == call.name && (self.arguments == call.arguments || same())
    }

    fn end(&mut self, out: &mut Out<'_>) {
        if std::mem::replace(&mut self.open, false) {
            let index = self.index;
            out(Event::BlockEnded { index });
        }
    }
}
