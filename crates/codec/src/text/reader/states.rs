//! The states of a text, the loop over them, and what is told.

use super::block::Block;
use super::thought::Reasoning;
use crate::text::calls::{FRAME, Numbering, white_space};
use crate::text::event::{EndReason, Event};
use crate::text::fence::Fence;
use crate::text::lookout::Lookouts;
use crate::text::marker::{Found, Markers};
use crate::text::recipe::{Options, ReasoningFormat, Recipe};

/// White space that waits to be told framing from text. More is text.
pub(super) const WHITE: usize = 4096;

#[derive(Debug)]
pub(super) struct Core {
    pub(super) recipe: Recipe,
    pub(super) options: Options,
    pub(super) lookouts: Lookouts,
    pub(super) state: State,
    /// What white space here would be.
    pub(super) gap: Gap,
    /// White space that waits.
    pub(super) white: String,
    /// Nothing has been said yet, so that a call without a marker may come.
    pub(super) fresh: bool,
    /// The next marker of the answer in the present piece, if it was looked for.
    pub(super) ahead: Option<Found>,
    /// A wrapper of the answer is open.
    pub(super) wrapped: bool,
    pub(super) fence: Fence,
    /// The byte before, if it was text.
    pub(super) previous: u8,
    pub(super) numbering: Numbering,
    /// A call broke off, or the text did inside one.
    pub(super) incomplete: bool,
    pub(super) faulted: bool,
    /// What goes before the text.
    pub(super) lead: &'static str,
    pub(super) ended: bool,
}

#[derive(Debug)]
pub(super) enum State {
    Content,
    Reasoning(Reasoning),
    Header(String),
    Call(Box<Block>),
    /// Behind a fault, up to the end of the block.
    Skip {
        /// What ends it.
        closers: Markers,
        /// One of them was found; more may follow.
        found: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// Text.
    None,
    /// Framing.
    Drop,
    /// Framing if a marker follows, text if text does.
    Wait,
}

/// Where to go on.
pub(super) enum Flow {
    On(usize),
    /// More text is needed for what stands here.
    Wait(usize),
}

impl Core {
    pub(super) fn new(recipe: &Recipe, options: Options) -> Self {
        let lookouts = Lookouts::new(recipe);
        let implicit = recipe.reasoning.is_some()
            && (recipe.implicit || lookouts.channels.is_some_and(|channels| channels.implicit));
        let state = if implicit {
            State::Reasoning(Reasoning {
                at_break: options.reasoning_format == ReasoningFormat::Split,
                echo: true,
                ..Reasoning::default()
            })
        } else {
            State::Content
        };
        Self {
            numbering: Numbering::new(&options.id_prefix),
            recipe: recipe.clone(),
            options,
            lookouts,
            state,
            gap: Gap::Wait,
            white: String::new(),
            fresh: true,
            ahead: None,
            wrapped: false,
            fence: Fence::default(),
            previous: 0,
            incomplete: false,
            faulted: false,
            lead: recipe.reasoning.map_or("", |tags| tags.lead),
            ended: false,
        }
    }

    /// Reads a text as far as it goes; tells how much was used.
    pub(super) fn run(&mut self, text: &str, last: bool, out: &mut dyn FnMut(Event<'_>)) -> usize {
        let mut at = 0;
        // Arguments are most of what comes in small pieces, and only their call has a say in them.
        if self.numbering.is_open() {
            match self.arguments(text, at, last, out) {
                Flow::On(next) => at = next,
                Flow::Wait(used) => return used,
            }
        }
        self.walk(text, at, last, out)
    }

    /// From state to state.
    fn walk(
        &mut self,
        text: &str,
        mut at: usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> usize {
        if !self.lead.is_empty() && !text.is_empty() {
            let lead = std::mem::take(&mut self.lead);
            self.say(lead, out);
        }
        self.ahead = None;
        loop {
            let flow = match &self.state {
                State::Content => self.content(text, at, last, out),
                State::Reasoning(_) => self.reasoning(text, at, last, out),
                State::Header(_) => self.header(text, at, last, out),
                State::Call(_) => self.call(text, at, last, out),
                State::Skip { .. } => self.skip(text, at, last),
            };
            match flow {
                Flow::On(next) => at = next,
                Flow::Wait(used) => return used,
            }
        }
    }

    /// Something other than text comes between: what waits is let go, and a call that is open stays as
    /// it is.
    pub(super) fn interrupt(&mut self, held: &str, out: &mut dyn FnMut(Event<'_>)) {
        let used = self.run(held, true, out);
        let rest = &held[used..];
        match std::mem::replace(&mut self.state, State::Content) {
            State::Call(mut block) => {
                block.raw.push_str(rest);
                self.broken(&block, "something came between", true, out);
            }
            State::Header(raw) => {
                self.give_back(&raw, out);
                self.give_back(rest, out);
            }
            state => self.state = state,
        }
    }

    pub(super) fn begins_in_reasoning(&self) -> bool {
        matches!(self.state, State::Reasoning(_))
    }

    /// Leaves reasoning, if it is open.
    pub(super) fn begin_answer(&mut self) {
        if let State::Reasoning(_) = self.state {
            self.state = State::Content;
            self.white.clear();
            self.gap = Gap::Drop;
        }
    }

    /// Throws away the rest of a block.
    fn skip(&mut self, text: &str, at: usize, last: bool) -> Flow {
        let State::Skip { closers, found } = &mut self.state else {
            return Flow::Wait(at);
        };
        let rest = &text[at..];
        if !*found {
            return match closers.find(rest.as_bytes(), last) {
                Found::Nothing => Flow::Wait(text.len()),
                Found::Begun { at: begun } => Flow::Wait(at + begun),
                Found::Marker { end, .. } => {
                    *found = true;
                    Flow::On(at + end)
                }
            };
        }
        let white = white_space(rest);
        match closers.at(&rest.as_bytes()[white..], last) {
            Found::Begun { .. } if white <= FRAME => Flow::Wait(at),
            Found::Marker { end, .. } if white <= FRAME => Flow::On(at + white + end),
            _ => {
                self.state = State::Content;
                self.gap = Gap::Wait;
                Flow::On(at)
            }
        }
    }

    /// Whether the end was told.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn finish(&mut self, held: &str, out: &mut dyn FnMut(Event<'_>)) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let used = self.run(held, true, out);
        let rest = &held[used..];
        let mut unclosed = false;
        match std::mem::replace(&mut self.state, State::Content) {
            State::Content => {
                // A text of white space alone has nothing to frame.
                if self.fresh && self.numbering.begun() == 0 && self.gap == Gap::Wait {
                    let white = std::mem::take(&mut self.white);
                    self.say(&white, out);
                }
                self.say(rest, out);
            }
            State::Reasoning(_) => {
                unclosed = true;
                self.think(rest, out);
            }
            State::Header(raw) => {
                self.give_back(&raw, out);
                self.give_back(rest, out);
            }
            State::Call(mut block) => {
                block.raw.push_str(rest);
                unclosed = block.origin.is_some() && self.numbering.begun() == block.before;
                self.broken(&block, "the text ends inside it", true, out);
            }
            State::Skip { .. } => {}
        }
        let reason = if self.faulted {
            EndReason::Error
        } else if self.incomplete {
            EndReason::UnclosedToolCall
        } else if unclosed {
            EndReason::UnclosedReasoning
        } else if self.numbering.begun() > 0 {
            EndReason::ToolCalls
        } else {
            EndReason::Stop
        };
        out(Event::Ended(reason));
    }

    /// Answer text that the fence has followed.
    pub(super) fn say(&mut self, text: &str, out: &mut dyn FnMut(Event<'_>)) {
        if let Some(&byte) = text.as_bytes().last() {
            self.previous = byte;
            self.fresh = false;
            out(Event::Content(text));
        }
    }

    /// Answer text that was taken for something else.
    pub(super) fn give_back(&mut self, text: &str, out: &mut dyn FnMut(Event<'_>)) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let turned = if self.fence.is_open() {
                self.fence.inside(rest)
            } else {
                self.fence.outside(rest)
            };
            rest = turned.map_or(&[], |turned| &rest[turned..]);
        }
        self.say(text, out);
    }

    pub(super) fn think(&mut self, text: &str, out: &mut dyn FnMut(Event<'_>)) {
        if let Some(&byte) = text.as_bytes().last() {
            self.previous = byte;
            match self.options.reasoning_format {
                ReasoningFormat::None => {
                    self.fresh = false;
                    out(Event::Content(text));
                }
                ReasoningFormat::Split | ReasoningFormat::Raw => out(Event::Reasoning(text)),
            }
        }
    }

    /// Text the worker marked as reasoning.
    pub(super) fn flagged(&mut self, text: &str, out: &mut dyn FnMut(Event<'_>)) {
        self.think(text, out);
        if let State::Content = self.state {
            self.white.clear();
            self.gap = Gap::Drop;
        }
    }
}
