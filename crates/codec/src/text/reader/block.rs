//! In a block of calls: emits its calls, and returns text that is no call to the content.

use super::reasoning::Reasoning;
use super::states::{Core, Flow, Gap, State};
use crate::text::calls::{MAX_HELD, Numbering, Progress, Script, Sink, prefix_up_to};
use crate::text::event::{Event, Out};
use crate::text::marker::{Marker, Markers};
use crate::text::recipe::{OnError, Options};

/// A block of calls.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) script: Script,
    /// Text read since the last call started or ended. Emitted again if it is no call.
    pub(super) raw: String,
    /// The reasoning around the block.
    pub(super) origin: Option<Reasoning>,
    /// No marker opened the block.
    pub(super) bare: bool,
    /// How many calls started before the block.
    pub(super) calls_before: usize,
}

impl Core {
    /// Opens a block of calls after its marker and the waiting white space.
    pub(super) fn open_block(
        &mut self,
        which: usize,
        step: usize,
        marker: &str,
        origin: Option<Reasoning>,
        bare: bool,
    ) {
        let mut raw = std::mem::take(&mut self.white_space);
        raw.push_str(marker);
        let script = Script::new(self.recipe.tools[which], step);
        self.enter_block(script, raw, origin, bare);
    }

    /// Enters the state of a block.
    pub(super) fn enter_block(
        &mut self,
        script: Script,
        raw: String,
        origin: Option<Reasoning>,
        bare: bool,
    ) {
        self.end_of_leading_tags();
        let calls_before = self.numbering.started();
        self.state = State::Call(Box::new(Block { script, raw, origin, bare, calls_before }));
    }

    /// Reads in a block. The text is kept until a call starts or ends with it.
    pub(super) fn call(&mut self, text: &str, at: usize, last: bool, out: Out<'_>) -> Flow {
        if self.numbering.is_open() {
            return self.arguments(text, at, last, out);
        }
        let State::Call(block) = &mut self.state else {
            return Flow::Wait(at);
        };
        let started = self.numbering.started();
        // The kept text is limited.
        let visible = prefix_up_to(&text[at..], MAX_HELD.saturating_sub(block.raw.len()));
        let whole = at + visible.len() == text.len();
        let mut sink = sink(out, &mut self.numbering, &self.options);
        let progress = block.script.read(visible, last && whole, &mut sink);
        let is_open = self.numbering.is_open();
        if is_open || self.numbering.started() > started {
            block.raw.clear();
        } else {
            block.raw.push_str(&visible[..progress.used()]);
        }
        match progress.offset_by(at) {
            Progress::More(reached) if whole => Flow::Wait(reached),
            Progress::More(reached) if is_open => Flow::On(reached),
            Progress::More(reached) => self.fail_block(reached, "the block is too long", out),
            progress => self.handle_progress(progress, out),
        }
    }

    /// Reads in a call that has started. All of it is emitted, so nothing is kept or limited.
    pub(super) fn arguments(&mut self, text: &str, at: usize, last: bool, out: Out<'_>) -> Flow {
        let State::Call(block) = &mut self.state else {
            return Flow::On(at);
        };
        let mut sink = sink(out, &mut self.numbering, &self.options);
        match block.script.read(&text[at..], last, &mut sink) {
            Progress::More(used) => Flow::Wait(at + used),
            progress => self.handle_progress(progress.offset_by(at), out),
        }
    }

    /// Handles progress other than "more text needed".
    fn handle_progress(&mut self, progress: Progress, out: Out<'_>) -> Flow {
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
                self.fail_block(at, "a call has no name", out)
            }
            Progress::Stray(at) => {
                self.emit_stray(out);
                Flow::On(at)
            }
            Progress::Text(at) => {
                let raw = std::mem::take(&mut block.raw);
                self.emit_unparsed(&raw, out);
                Flow::On(at)
            }
            Progress::Ended(at) if self.numbering.started() > block.calls_before => {
                self.state = State::Content;
                self.gap = Gap::Wait;
                self.at_start = false;
                self.previous_byte = 0;
                self.fence.reset();
                Flow::On(at)
            }
            Progress::Ended(at) if block.script.has_empty_list() => {
                self.remove_block();
                Flow::On(at)
            }
            Progress::Ended(at) => self.fail_block(at, "the block contains no call", out),
            Progress::Broken(at, why) => self.fail_block(at, why, out),
        }
    }

    /// The block contains an empty list of calls: it leaves no trace.
    fn remove_block(&mut self) {
        self.previous_byte = 0;
        self.fence.reset();
        if let State::Call(block) = std::mem::replace(&mut self.state, State::Content)
            && let Some(reasoning) = block.origin
        {
            self.state = State::Reasoning(reasoning);
        } else {
            self.gap = if self.at_start { Gap::Drop } else { Gap::Wait };
        }
    }

    /// Something in the block is no call, and the block continues.
    fn emit_stray(&mut self, out: Out<'_>) {
        let State::Call(block) = &mut self.state else {
            return;
        };
        let raw = std::mem::take(&mut block.raw);
        if self.numbering.started() > block.calls_before {
            self.emit_unparsed(after_brackets(&raw), out);
        } else if block.origin.is_some() {
            self.emit_reasoning(&raw, out);
        } else {
            self.emit_unparsed(&raw, out);
        }
    }

    pub(super) fn fail_block(&mut self, at: usize, why: &str, out: Out<'_>) -> Flow {
        if let State::Call(block) = std::mem::replace(&mut self.state, State::Content) {
            self.abandon_block(&block, why, false, out);
        }
        Flow::On(at)
    }

    /// The text ends: starts a call whose name is known. Returns whether there was one.
    fn start_prepared(&mut self, out: Out<'_>) -> bool {
        let calls_before = self.numbering.started();
        Sink::new(out, &mut self.numbering, None, true).start_prepared();
        self.numbering.started() > calls_before
    }

    /// Ends a block that is no call, or not a complete one.
    pub(super) fn abandon_block(&mut self, block: &Block, why: &str, cut: bool, out: Out<'_>) {
        let has_started = cut && self.start_prepared(out);
        let has_calls = self.numbering.started() > block.calls_before;
        self.numbering.abandon();
        self.gap = Gap::None;
        self.previous_byte = 0;
        self.at_start = false;
        self.fence.reset();
        // JSON without a marker is part of the answer.
        if self.options.on_error == OnError::Error && (has_calls || !block.bare) {
            self.faulted = true;
            let format = block.script.format();
            let message = format!("a tool call ({}) could not be read: {why}", format.name);
            out(Event::Fault { message: &message });
            // Without an opening marker, no end marker follows either.
            if !cut && !block.bare && !format.closers.is_empty() {
                self.state = State::Skip {
                    closers: Markers::new(format.closers.iter().copied().map(Marker::exact)),
                    found: false,
                };
            }
            return;
        }
        match block.origin {
            Some(mut reasoning) if !has_calls => {
                self.emit_reasoning(&block.raw, out);
                reasoning.has_text = true;
                reasoning.skip_line_break = false;
                self.state = State::Reasoning(reasoning);
            }
            _ => {
                // Brackets after a finished call belong to it, and so does the name of a started
                // one.
                let raw = if has_started {
                    ""
                } else if has_calls {
                    after_brackets(&block.raw)
                } else {
                    &block.raw
                };
                self.emit_unparsed(raw, out);
                if has_calls && !cut && raw.is_empty() {
                    let closers = block.script.format().closers.iter().copied();
                    let closers = Markers::new(closers.map(Marker::exact));
                    self.state = State::Leftover { closers };
                }
            }
        }
    }
}

/// The sink for the machines of a block.
fn sink<'a>(
    out: &'a mut dyn FnMut(Event<'_>),
    numbering: &'a mut Numbering,
    options: &'a Options,
) -> Sink<'a> {
    let tolerant = options.on_error == OnError::Text;
    Sink::new(out, numbering, options.tools.as_deref(), tolerant)
}

/// Drops brackets and commas at the start of a text, with the white space around them.
fn after_brackets(text: &str) -> &str {
    let mut rest = text;
    while let Some(next) = rest.trim_start().strip_prefix(['}', ']', ')', ',']) {
        rest = next.trim_start();
    }
    rest
}
