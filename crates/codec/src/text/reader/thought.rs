//! In reasoning: its closer, and the line breaks that belong to its tags.

use super::states::{Core, Flow, Gap, State};
use crate::text::calls::white_space;
use crate::text::event::Event;
use crate::text::lookout::Role;
use crate::text::marker::{Found, Match};
use crate::text::recipe::ReasoningFormat;

/// Reasoning that is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reasoning {
    /// The pair of tags that opened it.
    pub(super) pair: Option<usize>,
    /// A line break may follow the opener.
    pub(super) at_break: bool,
    /// Something other than white space has been thought.
    pub(super) spoke: bool,
    /// The model may repeat the opener of the prompt.
    pub(super) echo: bool,
}

impl Core {
    pub(super) fn reasoning(
        &mut self,
        text: &str,
        mut at: usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        let State::Reasoning(reasoning) = &self.state else {
            return Flow::Wait(at);
        };
        let mut reasoning = *reasoning;
        let flow = self.in_reasoning(&mut reasoning, text, &mut at, last, out);
        if let State::Reasoning(open) = &mut self.state {
            *open = reasoning;
        }
        flow
    }

    pub(super) fn in_reasoning(
        &mut self,
        reasoning: &mut Reasoning,
        text: &str,
        at: &mut usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        if reasoning.at_break {
            match text.as_bytes()[*at..] {
                [] => return Flow::Wait(*at),
                [b'\r'] if !last => return Flow::Wait(*at),
                [b'\r', b'\n', ..] => *at += 2,
                [b'\n', ..] => *at += 1,
                _ => {}
            }
            reasoning.at_break = false;
        }
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        if !reasoning.spoke {
            let white = white_space(&text[*at..]);
            if !self.wait(&text[*at..*at + white], at) {
                return self.speak(reasoning, *at, out);
            }
            let rest = &text[*at..];
            if rest.is_empty() {
                return Flow::Wait(*at);
            }
            if reasoning.echo {
                match self.lookouts.openers.at(rest, last) {
                    Found::Begun { .. } => return Flow::Wait(*at),
                    Found::Marker { end, .. } => {
                        reasoning.echo = false;
                        if split {
                            self.white.clear();
                            reasoning.at_break = true;
                        } else {
                            let white = std::mem::take(&mut self.white);
                            self.think(&white, out);
                            self.think(&rest[..end], out);
                        }
                        return Flow::On(*at + end);
                    }
                    Found::Nothing => reasoning.echo = false,
                }
            }
            match self.lookouts.reasoning(reasoning.pair).at(rest, last) {
                Found::Begun { .. } => return Flow::Wait(*at),
                Found::Marker { end, which, .. } => {
                    let role = self.lookouts.reasoning(reasoning.pair).role(which);
                    let white = std::mem::take(&mut self.white);
                    self.leave(reasoning, role, &white, &rest[..end], out);
                    return Flow::On(*at + end);
                }
                Found::Nothing => return self.speak(reasoning, *at, out),
            }
        }
        let rest = &text[*at..];
        let found = self.lookouts.reasoning(reasoning.pair).find(rest, last);
        match found {
            Found::Nothing | Found::Begun { .. } => {
                let stop = match found {
                    Found::Begun { at } => at,
                    _ => rest.len(),
                };
                let held = if split && !last { may_break(&rest[..stop]) } else { 0 };
                self.think(&rest[..stop - held], out);
                Flow::Wait(*at + stop - held)
            }
            Found::Marker { at: stop, end, which } => {
                match self.quoted(text, *at, *at + stop, *at + end, last) {
                    Match::Begun => {
                        self.think(&rest[..stop], out);
                        return Flow::Wait(*at + stop);
                    }
                    Match::Whole(_) => {
                        self.think(&rest[..end], out);
                        return Flow::On(*at + end);
                    }
                    Match::No => {}
                }
                let role = self.lookouts.reasoning(reasoning.pair).role(which);
                let before = if split { line_break(&rest[..stop]) } else { 0 };
                self.think(&rest[..stop - before], out);
                self.leave(reasoning, role, &rest[stop - before..stop], &rest[stop..end], out);
                Flow::On(*at + end)
            }
        }
    }

    /// Something is thought: the white space before it is part of it.
    fn speak(
        &mut self,
        reasoning: &mut Reasoning,
        at: usize,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        let mut white = std::mem::take(&mut self.white);
        self.think(&white, out);
        white.clear();
        self.white = white;
        reasoning.spoke = true;
        reasoning.echo = false;
        Flow::On(at)
    }

    /// A marker that ends reasoning, or may.
    pub(super) fn leave(
        &mut self,
        reasoning: &mut Reasoning,
        role: Role,
        framing: &str,
        marker: &str,
        out: &mut dyn FnMut(Event<'_>),
    ) {
        self.previous = 0;
        match role {
            Role::Call(which, step) => {
                self.white.push_str(framing);
                self.open(which, step, marker, Some(*reasoning), false);
            }
            Role::Header => self.state = State::Header(marker.to_owned()),
            _ => {
                self.gap = Gap::Drop;
                if self.options.reasoning_format != ReasoningFormat::Split {
                    self.think(framing, out);
                    self.think(marker, out);
                    self.gap = Gap::None;
                }
                self.state = State::Content;
                self.fresh = true;
                self.fence.reset();
            }
        }
    }
}

/// The line break at the end of a text.
pub(super) fn line_break(text: &str) -> usize {
    match text.as_bytes() {
        [.., b'\r', b'\n'] => 2,
        [.., b'\n'] => 1,
        _ => 0,
    }
}

/// The line break at the end of a text that goes on, which may be half of one.
pub(super) fn may_break(text: &str) -> usize {
    match text.as_bytes() {
        [.., b'\r'] => 1,
        _ => line_break(text),
    }
}
