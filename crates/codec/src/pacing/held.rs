//! Held text and how it is released. `boundary.rs` decides where to cut.

use std::time::Duration;

use throughline_canonical::{Event, Out};

use super::{DeltaKind, MAX_HELD_BYTES};

/// Waiting text, all from one block.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// The block and kind of the last delta. Stays set after the text is released.
    pub(super) block: Option<(u32, DeltaKind)>,
    text: String,
    pub(super) deadline: Option<Duration>,
}

impl Held {
    /// Emits the held text.
    pub(super) fn release(&mut self, out: Out<'_>) {
        if !self.text.is_empty() {
            self.emit(&self.text, out);
            self.text.clear();
        }
        self.deadline = None;
    }

    /// Emits the held text with `more` at its end, as one delta if both fit. If nothing is held,
    /// the text is not copied.
    pub(super) fn release_with(&mut self, more: &str, out: Out<'_>) {
        if self.text.len() + more.len() > MAX_HELD_BYTES {
            self.release(out);
        }
        if self.text.is_empty() {
            self.emit(more, out);
        } else {
            self.text.push_str(more);
            self.release(out);
        }
    }

    /// Also holds `more`, within the limit.
    pub(super) fn hold(&mut self, more: &str, out: Out<'_>) {
        if self.text.len() + more.len() > MAX_HELD_BYTES {
            self.release(out);
        }
        if more.len() > MAX_HELD_BYTES {
            self.emit(more, out);
        } else {
            self.text.push_str(more);
        }
    }

    /// Also holds `more`, and emits a delta for each `bytes` bytes.
    pub(super) fn fill(
        &mut self,
        mut more: &str,
        bytes: usize,
        due: Option<Duration>,
        out: Out<'_>,
    ) {
        while self.text.len() + more.len() >= bytes {
            let mut at = more.floor_char_boundary(bytes - self.text.len());
            if at == 0 && self.text.is_empty() {
                // A single character is longer than the limit.
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

    fn emit(&self, text: &str, out: Out<'_>) {
        if let Some((index, kind)) = self.block
            && !text.is_empty()
        {
            out(Event::BlockDelta { index, delta: kind.delta(text) });
        }
    }
}
