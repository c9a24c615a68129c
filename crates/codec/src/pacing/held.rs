//! What a stage holds back, and how it is let go. Where to cut is decided elsewhere.

use std::time::Duration;

use throughline_canonical::Event;

use super::{HELD_MOST, Kind};

/// Text that waits, all of one block.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The block that grew last, and by what. It stays when the text has gone.
    pub(super) place: Option<(u32, Kind)>,
    text: String,
    pub(super) deadline: Option<Duration>,
}

impl Held {
    /// Lets go what is held.
    pub(super) fn release(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        if !self.text.is_empty() {
            self.give(&self.text, out);
            self.text.clear();
        }
        self.deadline = None;
    }

    /// Lets go what is held and this behind it, as one delta if there is room for both. Without
    /// anything held the text is not copied.
    pub(super) fn release_with(&mut self, more: &str, out: &mut dyn FnMut(Event<'_>)) {
        if self.text.len() + more.len() > HELD_MOST {
            self.release(out);
        }
        if self.text.is_empty() {
            self.give(more, out);
        } else {
            self.text.push_str(more);
            self.release(out);
        }
    }

    /// Holds this too, as far as there is room.
    pub(super) fn keep(&mut self, more: &str, out: &mut dyn FnMut(Event<'_>)) {
        if self.text.len() + more.len() > HELD_MOST {
            self.release(out);
        }
        if more.len() > HELD_MOST {
            self.give(more, out);
        } else {
            self.text.push_str(more);
        }
    }

    /// Holds this too, and lets go in deltas of so many bytes what is enough for one.
    pub(super) fn fill(
        &mut self,
        mut more: &str,
        bytes: usize,
        due: Option<Duration>,
        out: &mut dyn FnMut(Event<'_>),
    ) {
        while self.text.len() + more.len() >= bytes {
            let mut at = more.floor_char_boundary(bytes - self.text.len());
            if at == 0 && self.text.is_empty() {
                // One character is more than enough.
                at = more.ceil_char_boundary(1);
            }
            let (enough, rest) = more.split_at(at);
            self.release_with(enough, out);
            more = rest;
            if more.is_empty() {
                return;
            }
        }
        if self.text.is_empty() {
            self.deadline = due;
        }
        self.text.push_str(more);
    }

    fn give(&self, text: &str, out: &mut dyn FnMut(Event<'_>)) {
        if let Some((index, kind)) = self.place
            && !text.is_empty()
        {
            out(Event::BlockDelta { index, delta: kind.delta(text) });
        }
    }
}
