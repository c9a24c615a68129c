//! The states of a text, the loop over them, and the emitted events.

use super::block::Block;
use super::fenced::Fenced;
use super::reasoning::Reasoning;
use crate::text::calls::{MAX_FRAMING, Numbering, leading_white_space};
use crate::text::event::{EndReason, Event, Out};
use crate::text::fence::Fence;
use crate::text::marker::{Found, Markers};
use crate::text::marker_sets::MarkerSets;
use crate::text::recipe::{Options, ReasoningFormat, Recipe};

/// Limit for white space that waits until it is known to be framing or text. More is text.
pub(super) const MAX_WHITE_SPACE: usize = 4096;

/// The reader of one text. Many fields: every state reads and changes them.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) recipe: Recipe,
    pub(super) options: Options,
    pub(super) markers: MarkerSets,
    pub(super) state: State,
    /// How white space is handled here.
    pub(super) gap: Gap,
    /// White space that waits.
    pub(super) white_space: String,
    /// There is no content yet, so a call without a marker may come.
    pub(super) at_start: bool,
    /// There was content, also if reasoning followed it.
    pub(super) has_content: bool,
    /// The next marker of the answer in the current piece, if it was searched.
    pub(super) next_marker: Option<Found>,
    /// A wrapper around the answer is open.
    pub(super) wrapped: bool,
    pub(super) fence: Fence,
    /// The last byte, if it was text.
    pub(super) previous_byte: u8,
    pub(super) numbering: Numbering,
    pub(super) faulted: bool,
    /// Text to emit before the first piece.
    pub(super) prefix: &'static str,
    pub(super) ended: bool,
    pub(super) tags: Tags,
}

/// Where in the answer the tags of reasoning have a meaning. Elsewhere they are text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tags {
    Anywhere,
    /// Only before the first text and the first call: the server separates reasoning itself, but may leave one
    /// block behind.
    AtStart,
    Nowhere,
}

#[derive(Debug)]
pub(super) enum State {
    Content,
    Reasoning(Reasoning),
    Header(String),
    Call(Box<Block>),
    /// In fenced code that may be a list of calls.
    Fenced(Box<Fenced>),
    /// After a fault, up to the end of the block.
    Skip {
        /// Markers that end the block.
        closers: Markers,
        /// One of them was found. More may follow.
        found: bool,
    },
    /// After malformed calls, where their brackets and end marker may follow.
    Leftover {
        /// Markers that end the block.
        closers: Markers,
    },
}

/// How white space is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// It is text.
    None,
    /// It is framing and is dropped.
    Drop,
    /// It is framing if a marker follows, and text if text follows.
    Wait,
}

/// How the loop over the states continues.
pub(super) enum Flow {
    /// Continues at this position.
    On(usize),
    /// Needs more text. Everything before this position is used.
    Wait(usize),
}

impl Core {
    pub(super) fn new(recipe: &Recipe, options: Options) -> Self {
        let markers = MarkerSets::new(recipe);
        let state = if recipe.implicit && recipe.reasoning.is_some() {
            State::Reasoning(Reasoning {
                skip_line_break: options.reasoning_format == ReasoningFormat::Split,
                may_repeat_opener: true,
                ..Reasoning::default()
            })
        } else {
            State::Content
        };
        Self {
            numbering: Numbering::new(&options.id_prefix),
            recipe: recipe.clone(),
            options,
            markers,
            state,
            gap: Gap::Wait,
            white_space: String::new(),
            at_start: true,
            has_content: false,
            next_marker: None,
            wrapped: false,
            fence: Fence::default(),
            previous_byte: 0,
            faulted: false,
            prefix: recipe.reasoning.map_or("", |tags| tags.prefix),
            ended: false,
            tags: Tags::Anywhere,
        }
    }

    /// Reads as much of a text as possible. Returns the number of bytes used.
    pub(super) fn run(&mut self, text: &str, last: bool, out: Out<'_>) -> usize {
        let mut at = 0;
        // Most small pieces are arguments, and only their call needs to see them.
        if self.numbering.is_open() {
            match self.arguments(text, at, last, out) {
                Flow::On(next) => at = next,
                Flow::Wait(used) => return used,
            }
        }
        self.run_states(text, at, last, out)
    }

    /// Runs state after state.
    fn run_states(&mut self, text: &str, mut at: usize, last: bool, out: Out<'_>) -> usize {
        if !self.prefix.is_empty() && !text.is_empty() {
            let prefix = std::mem::take(&mut self.prefix);
            self.emit_content(prefix, out);
        }
        self.next_marker = None;
        loop {
            let flow = match &self.state {
                State::Content => self.content(text, at, last, out),
                State::Reasoning(_) => self.reasoning(text, at, last, out),
                State::Header(_) => self.header(text, at, last, out),
                State::Call(_) => self.call(text, at, last, out),
                State::Fenced(_) => self.fenced(text, at, out),
                State::Skip { .. } => self.skip(text, at, last),
                State::Leftover { .. } => self.leftover(text, at, last),
            };
            match flow {
                Flow::On(next) => at = next,
                Flow::Wait(used) => return used,
            }
        }
    }

    /// Something other than text comes next. Emits the waiting text. An open call stays incomplete.
    pub(super) fn interrupt(&mut self, held: &str, out: Out<'_>) {
        let used = self.run(held, true, out);
        let rest = &held[used..];
        match std::mem::replace(&mut self.state, State::Content) {
            State::Call(mut block) => {
                block.raw.push_str(rest);
                self.abandon_block(&block, "the call was interrupted", true, out);
            }
            State::Header(raw) => {
                self.emit_unparsed(&raw, out);
                self.emit_unparsed(rest, out);
            }
            State::Fenced(fenced) => self.emit_unparsed(fenced.text(), out),
            state => self.state = state,
        }
    }

    pub(super) fn begins_in_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning(_))
    }

    /// Leaves reasoning, if it is open. From here on, only a block at the start of the answer is reasoning.
    pub(super) fn begin_answer(&mut self) {
        if self.tags == Tags::Anywhere {
            let has_answer = self.has_content || self.numbering.started() > 0;
            self.tags = if has_answer { Tags::Nowhere } else { Tags::AtStart };
        }
        if let State::Reasoning(_) = self.state {
            self.state = State::Content;
            self.white_space.clear();
            self.gap = Gap::Drop;
        }
    }

    /// Skips the rest of a block.
    fn skip(&mut self, text: &str, at: usize, last: bool) -> Flow {
        let State::Skip { closers, found } = &mut self.state else {
            return Flow::Wait(at);
        };
        let rest = &text[at..];
        if !*found {
            return match closers.find(rest.as_bytes(), last) {
                Found::Nothing => Flow::Wait(text.len()),
                Found::Partial { at: begun } => Flow::Wait(at + begun),
                Found::Marker { end, .. } => {
                    *found = true;
                    Flow::On(at + end)
                }
            };
        }
        let white = leading_white_space(rest);
        match closers.at(&rest.as_bytes()[white..], last) {
            Found::Partial { .. } if white <= MAX_FRAMING => Flow::Wait(at),
            Found::Marker { end, .. } if white <= MAX_FRAMING => Flow::On(at + white + end),
            _ => {
                self.state = State::Content;
                self.gap = Gap::Wait;
                Flow::On(at)
            }
        }
    }

    /// Drops the brackets and the end marker of malformed calls.
    fn leftover(&mut self, text: &str, at: usize, last: bool) -> Flow {
        let State::Leftover { closers } = &self.state else {
            return Flow::Wait(at);
        };
        let rest = &text[at..];
        let white = leading_white_space(rest);
        let found = match rest.as_bytes().get(white) {
            _ if white > MAX_FRAMING => Found::Nothing,
            None if !last => return Flow::Wait(at),
            Some(b')' | b']' | b'}') => return Flow::On(at + white + 1),
            _ => closers.at(&rest.as_bytes()[white..], last),
        };
        let next = match found {
            Found::Partial { .. } => return Flow::Wait(at),
            Found::Marker { end, .. } => {
                self.gap = Gap::Wait;
                at + white + end
            }
            Found::Nothing => at,
        };
        self.state = State::Content;
        Flow::On(next)
    }

    /// Whether the end was emitted.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn finish(&mut self, held: &str, out: Out<'_>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut used = self.run(held, true, out);
        let mut text = held;
        let fenced = self.finish_fenced(out);
        if let Some(fenced) = &fenced {
            used = self.run(fenced, true, out);
            text = fenced;
        }
        let rest = &text[used..];
        let mut unclosed = false;
        match std::mem::replace(&mut self.state, State::Content) {
            State::Content => {
                // A text of only white space has nothing to frame.
                if self.at_start && self.numbering.started() == 0 && self.gap == Gap::Wait {
                    let white = std::mem::take(&mut self.white_space);
                    self.emit_content(&white, out);
                }
                self.emit_content(rest, out);
            }
            State::Reasoning(_) => {
                unclosed = true;
                self.emit_reasoning(rest, out);
            }
            State::Header(raw) => {
                self.emit_unparsed(&raw, out);
                self.emit_unparsed(rest, out);
            }
            State::Call(mut block) => {
                block.raw.push_str(rest);
                unclosed = block.origin.is_some() && self.numbering.started() == block.calls_before;
                self.abandon_block(&block, "the text ends inside the call", true, out);
            }
            State::Fenced(_) | State::Skip { .. } | State::Leftover { .. } => {}
        }
        let reason = if self.faulted {
            EndReason::Error
        } else if self.numbering.has_incomplete() {
            EndReason::UnclosedToolCall
        } else if unclosed {
            EndReason::UnclosedReasoning
        } else if self.numbering.started() > 0 {
            EndReason::ToolCalls
        } else {
            EndReason::Stop
        };
        out(Event::Ended(reason));
    }

    /// Emits answer text that the fence has already followed.
    pub(super) fn emit_content(&mut self, text: &str, out: Out<'_>) {
        if let Some(&byte) = text.as_bytes().last() {
            self.previous_byte = byte;
            self.at_start = false;
            self.has_content = true;
            self.end_of_leading_tags();
            out(Event::Content(text));
        }
    }

    /// The answer has begun, so its tags are text if the server separates reasoning itself.
    pub(super) fn end_of_leading_tags(&mut self) {
        if self.tags == Tags::AtStart {
            self.tags = Tags::Nowhere;
        }
    }

    /// Emits answer text that was first taken for something else.
    pub(super) fn emit_unparsed(&mut self, text: &str, out: Out<'_>) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let toggled = if self.fence.is_open() {
                self.fence.inside(rest)
            } else {
                self.fence.outside(rest)
            };
            rest = toggled.map_or(&[], |toggled| &rest[toggled..]);
        }
        self.emit_content(text, out);
    }

    /// Emits reasoning in the format that the caller wants.
    pub(super) fn emit_reasoning(&mut self, text: &str, out: Out<'_>) {
        if let Some(&byte) = text.as_bytes().last() {
            self.previous_byte = byte;
            match self.options.reasoning_format {
                ReasoningFormat::None => {
                    self.at_start = false;
                    out(Event::Content(text));
                }
                ReasoningFormat::Split | ReasoningFormat::Raw => out(Event::Reasoning(text)),
            }
        }
    }

    /// Takes text that the server flagged as reasoning.
    pub(super) fn push_flagged(&mut self, text: &str, out: Out<'_>) {
        self.emit_reasoning(text, out);
        if let State::Content = self.state {
            self.white_space.clear();
            self.gap = Gap::Drop;
        }
    }
}
