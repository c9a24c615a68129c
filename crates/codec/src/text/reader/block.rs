//! In a block of calls: what it tells goes out, and what is no call goes back.

use super::states::{Core, Flow, Gap, State};
use super::thought::Reasoning;
use crate::text::calls::{HELD, Numbering, Progress, Script, Sink, within};
use crate::text::event::Event;
use crate::text::marker::{Marker, Markers};
use crate::text::recipe::{OnError, Options};

/// A block of calls.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) script: Script,
    /// What has been read since the last call began or ended; given back if it is none.
    pub(super) raw: String,
    /// The reasoning it stands in.
    pub(super) origin: Option<Reasoning>,
    /// No marker opened it.
    pub(super) bare: bool,
    /// How many calls there were before.
    pub(super) before: usize,
}

impl Core {
    /// A block of calls begins behind its marker and the white space that waits.
    pub(super) fn open(
        &mut self,
        which: usize,
        step: usize,
        marker: &str,
        origin: Option<Reasoning>,
        bare: bool,
    ) {
        let mut raw = std::mem::take(&mut self.white);
        raw.push_str(marker);
        self.state = State::Call(Box::new(Block {
            script: Script::new(self.recipe.tools[which], step),
            raw,
            origin,
            bare,
            before: self.numbering.begun(),
        }));
    }

    /// In a block. What is read is kept until it is known that a call begins or ends with it.
    pub(super) fn call(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        if self.numbering.is_open() {
            return self.arguments(text, at, last, out);
        }
        let State::Call(block) = &mut self.state else {
            return Flow::Wait(at);
        };
        let begun = self.numbering.begun();
        // What may have to be given back is bounded.
        let shown = within(&text[at..], HELD.saturating_sub(block.raw.len()));
        let whole = at + shown.len() == text.len();
        let mut sink = sink(out, &mut self.numbering, &self.options);
        let progress = block.script.read(shown, last && whole, &mut sink);
        let is_open = self.numbering.is_open();
        if is_open || self.numbering.begun() > begun {
            block.raw.clear();
        } else {
            block.raw.push_str(&shown[..progress.used()]);
        }
        match progress.behind(at) {
            Progress::More(reached) if whole => Flow::Wait(reached),
            Progress::More(reached) if is_open => Flow::On(reached),
            Progress::More(reached) => self.give_up(reached, "it is too long", out),
            progress => self.progressed(progress, out),
        }
    }

    /// In a call that has begun: all that is read of it is told, so that nothing is kept or bounded.
    pub(super) fn arguments(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        let State::Call(block) = &mut self.state else {
            return Flow::On(at);
        };
        let mut sink = sink(out, &mut self.numbering, &self.options);
        match block.script.read(&text[at..], last, &mut sink) {
            Progress::More(used) => Flow::Wait(at + used),
            progress => self.progressed(progress.behind(at), out),
        }
    }

    /// Something in the block came to its end, in a text that was read up to there.
    fn progressed(&mut self, progress: Progress, out: &mut dyn FnMut(Event<'_>)) -> Flow {
        let State::Call(block) = &mut self.state else {
            return Flow::Wait(progress.used());
        };
        match progress {
            Progress::More(at) => Flow::Wait(at),
            Progress::Called(at) => {
                block.raw.clear();
                Flow::On(at)
            }
            Progress::Stray(at) if self.options.on_error == OnError::Error => {
                self.give_up(at, "a call has no name", out)
            }
            Progress::Stray(at) => {
                self.stray(out);
                Flow::On(at)
            }
            Progress::Ended(at) if self.numbering.begun() > block.before => {
                self.state = State::Content;
                self.gap = Gap::Wait;
                self.fresh = false;
                self.previous = 0;
                self.fence.reset();
                Flow::On(at)
            }
            Progress::Ended(at) => self.give_up(at, "it holds no call", out),
            Progress::Broken(at, why) => self.give_up(at, why, out),
        }
    }

    /// Something in the block is no call, and the block goes on.
    fn stray(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        let State::Call(block) = &mut self.state else {
            return;
        };
        let raw = std::mem::take(&mut block.raw);
        if self.numbering.begun() > block.before {
            self.give_back(behind_brackets(&raw), out);
        } else if block.origin.is_some() {
            self.think(&raw, out);
        } else {
            self.give_back(&raw, out);
        }
    }

    pub(super) fn give_up(&mut self, at: usize, why: &str, out: &mut dyn FnMut(Event<'_>)) -> Flow {
        if let State::Call(block) = std::mem::replace(&mut self.state, State::Content) {
            self.broken(&block, why, false, out);
        }
        Flow::On(at)
    }

    /// The text ends: a call whose name is known is one. Tells whether there was one.
    fn begin_ready(&mut self, out: &mut dyn FnMut(Event<'_>)) -> bool {
        let before = self.numbering.begun();
        Sink::new(out, &mut self.numbering, None, true).begin();
        self.numbering.begun() > before
    }

    /// A block that is no call, or not a whole one.
    pub(super) fn broken(
        &mut self,
        block: &Block,
        why: &str,
        cut: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) {
        let named = cut && self.begin_ready(out);
        let partial = self.numbering.is_open();
        let called = self.numbering.begun() > block.before;
        self.numbering.abandon();
        self.gap = Gap::None;
        self.previous = 0;
        self.fresh = false;
        self.fence.reset();
        // JSON without a marker was an answer all along.
        if self.options.on_error == OnError::Error && (called || !block.bare) {
            self.faulted = true;
            let format = block.script.format();
            let message = format!("a tool call ({}) could not be read: {why}", format.name);
            out(Event::Fault { message: &message });
            if !cut && !format.closers.is_empty() {
                self.state = State::Skip {
                    closers: Markers::new(format.closers.iter().copied().map(Marker::exact)),
                    found: false,
                };
            }
            return;
        }
        self.incomplete |= partial;
        match block.origin {
            Some(mut reasoning) if !called => {
                self.think(&block.raw, out);
                reasoning.spoke = true;
                reasoning.at_break = false;
                self.state = State::Reasoning(reasoning);
            }
            _ => {
                // Brackets behind a call that was read belong to it, and so does its name.
                let raw = if named {
                    ""
                } else if called {
                    behind_brackets(&block.raw)
                } else {
                    &block.raw
                };
                self.give_back(raw, out);
            }
        }
    }
}

/// Where a block's machines put what they read.
fn sink<'a>(
    out: &'a mut dyn FnMut(Event<'_>),
    numbering: &'a mut Numbering,
    options: &'a Options,
) -> Sink<'a> {
    let tolerant = options.on_error == OnError::Text;
    Sink::new(out, numbering, options.tools.as_deref(), tolerant)
}

/// What follows brackets and commas at the beginning of a text, with the white space around them, if
/// there are any.
fn behind_brackets(text: &str) -> &str {
    let mut rest = text;
    while let Some(next) = rest.trim_start().strip_prefix(['}', ']', ')', ',']) {
        rest = next.trim_start();
    }
    rest
}
