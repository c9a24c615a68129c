//! In reasoning: the closing tag, and the line breaks that belong to the tags.

use super::states::{Core, Flow, Gap, State};
use crate::text::calls::leading_white_space;
use crate::text::event::Out;
use crate::text::marker::{Found, Match};
use crate::text::marker_sets::Role;
use crate::text::recipe::ReasoningFormat;

/// The reasoning that is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reasoning {
    /// The tag pair that opened it.
    pub(super) pair: Option<usize>,
    /// A line break may follow the opening tag and is skipped.
    pub(super) skip_line_break: bool,
    /// It contains something other than white space.
    pub(super) has_text: bool,
    /// The model may repeat the opening tag.
    pub(super) may_repeat_opener: bool,
}

impl Core {
    pub(super) fn reasoning(
        &mut self,
        text: &str,
        mut at: usize,
        last: bool,
        out: Out<'_>,
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
        out: Out<'_>,
    ) -> Flow {
        if reasoning.skip_line_break {
            match text.as_bytes()[*at..] {
                [] => return Flow::Wait(*at),
                [b'\r'] if !last => return Flow::Wait(*at),
                [b'\r', b'\n', ..] => *at += 2,
                [b'\n', ..] => *at += 1,
                _ => {}
            }
            reasoning.skip_line_break = false;
        }
        if !reasoning.has_text {
            return self.before_text(reasoning, text, *at, last, out);
        }
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        let rest = &text[*at..];
        let found = self.markers.reasoning(reasoning.pair).find(rest, last);
        match found {
            Found::Nothing | Found::Partial { .. } => {
                let stop = match found {
                    Found::Partial { at } => at,
                    _ => rest.len(),
                };
                let held = if split && !last { partial_line_break(&rest[..stop]) } else { 0 };
                self.emit_reasoning(&rest[..stop - held], out);
                Flow::Wait(*at + stop - held)
            }
            Found::Marker { at: stop, end, which } => {
                match self.is_quoted(text, *at, *at + stop, *at + end, last) {
                    Match::Partial => {
                        self.emit_reasoning(&rest[..stop], out);
                        return Flow::Wait(*at + stop);
                    }
                    Match::Full(_) => {
                        self.emit_reasoning(&rest[..end], out);
                        return Flow::On(*at + end);
                    }
                    Match::No => {}
                }
                let role = self.markers.reasoning(reasoning.pair).role(which);
                let end = if role == Role::Interrupt { stop } else { end };
                let before = if split { line_break(&rest[..stop]) } else { 0 };
                self.emit_reasoning(&rest[..stop - before], out);
                self.leave_reasoning(
                    reasoning,
                    role,
                    &rest[stop - before..stop],
                    &rest[stop..end],
                    out,
                );
                Flow::On(*at + end)
            }
        }
    }

    /// Reads in reasoning that is only white space so far. The closing tag may follow, or the
    /// opening tag again.
    fn before_text(
        &mut self,
        reasoning: &mut Reasoning,
        text: &str,
        mut at: usize,
        last: bool,
        out: Out<'_>,
    ) -> Flow {
        let white = leading_white_space(&text[at..]);
        if !self.hold_white_space(&text[at..at + white], &mut at) {
            return self.begin_text(reasoning, at, out);
        }
        let rest = &text[at..];
        if rest.is_empty() {
            return Flow::Wait(at);
        }
        if reasoning.may_repeat_opener {
            let openers = &self.markers.openers;
            let is_same = |which| match reasoning.pair {
                Some(pair) => openers.role(which) == Role::Open(pair),
                None => true,
            };
            match openers.at(rest, last) {
                Found::Partial { .. } => return Flow::Wait(at),
                Found::Marker { end, which, .. } if is_same(which) => {
                    reasoning.may_repeat_opener = false;
                    if self.options.reasoning_format == ReasoningFormat::Split {
                        self.white_space.clear();
                        reasoning.skip_line_break = true;
                    } else {
                        let white = std::mem::take(&mut self.white_space);
                        self.emit_reasoning(&white, out);
                        self.emit_reasoning(&rest[..end], out);
                    }
                    return Flow::On(at + end);
                }
                _ => reasoning.may_repeat_opener = false,
            }
        }
        match self.markers.reasoning(reasoning.pair).at(rest, last) {
            Found::Partial { .. } => Flow::Wait(at),
            Found::Marker { end, which, .. } => {
                let role = self.markers.reasoning(reasoning.pair).role(which);
                let end = if role == Role::Interrupt { 0 } else { end };
                let white = std::mem::take(&mut self.white_space);
                self.leave_reasoning(reasoning, role, &white, &rest[..end], out);
                Flow::On(at + end)
            }
            Found::Nothing => self.begin_text(reasoning, at, out),
        }
    }

    /// The first text of the reasoning. The white space before it is part of it.
    fn begin_text(&mut self, reasoning: &mut Reasoning, at: usize, out: Out<'_>) -> Flow {
        let mut white = std::mem::take(&mut self.white_space);
        self.emit_reasoning(&white, out);
        white.clear();
        self.white_space = white;
        reasoning.has_text = true;
        reasoning.may_repeat_opener = false;
        Flow::On(at)
    }

    /// Handles a marker that ends reasoning, or may end it.
    pub(super) fn leave_reasoning(
        &mut self,
        reasoning: &mut Reasoning,
        role: Role,
        framing: &str,
        marker: &str,
        out: Out<'_>,
    ) {
        self.previous_byte = 0;
        self.end_of_leading_tags();
        match role {
            Role::Call(which, step) => {
                self.white_space.push_str(framing);
                self.open_block(which, step, marker, Some(*reasoning), false);
            }
            Role::Header => self.state = State::Header(marker.to_owned()),
            _ => {
                self.gap = Gap::Drop;
                if self.options.reasoning_format != ReasoningFormat::Split {
                    self.emit_reasoning(framing, out);
                    self.emit_reasoning(marker, out);
                    self.gap = Gap::None;
                }
                self.state = State::Content;
                self.at_start = true;
                self.fence.reset();
            }
        }
    }
}

/// The length of the line break at the end of a text.
pub(super) fn line_break(text: &str) -> usize {
    match text.as_bytes() {
        [.., b'\r', b'\n'] => 2,
        [.., b'\n'] => 1,
        _ => 0,
    }
}

/// The length of the line break at the end of a text that continues. It may be half of one.
pub(super) fn partial_line_break(text: &str) -> usize {
    match text.as_bytes() {
        [.., b'\r'] => 1,
        _ => line_break(text),
    }
}
