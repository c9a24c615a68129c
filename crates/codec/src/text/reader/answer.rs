//! In the answer: markers, quoted markers, white space that may frame them.

use super::states::{Core, Flow, Gap, State, WHITE};
use super::thought::{Reasoning, line_break, may_break};
use crate::text::calls::white_space;
use crate::text::event::Event;
use crate::text::lookout::Role;
use crate::text::marker::{Found, Match, compare};
use crate::text::recipe::ReasoningFormat;

impl Core {
    pub(super) fn content(
        &mut self,
        text: &str,
        mut at: usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        if self.gap != Gap::None {
            match self.gap(text, &mut at, last, out) {
                Some(flow) => return flow,
                None => self.gap = Gap::None,
            }
        }
        let rest = &text[at..];
        if self.fence.is_open() {
            let closed = self.fence.inside(rest.as_bytes());
            let end = closed.map_or(text.len(), |closed| at + closed);
            self.say(&text[at..end], out);
            return match closed {
                Some(_) => Flow::On(end),
                None => Flow::Wait(end),
            };
        }
        let found = self.ahead(text, at, last);
        let (stop, follow) = match found {
            Found::Nothing => (text.len(), text.len()),
            Found::Begun { at: begun } => (begun, begun),
            // The marker's first byte ends a run of fence characters before it.
            Found::Marker { at: stop, .. } => (stop, stop + 1),
        };
        if let Some(opened) = self.fence.outside(&text.as_bytes()[at..follow]) {
            self.say(&text[at..at + opened], out);
            return Flow::On(at + opened);
        }
        match found {
            Found::Nothing | Found::Begun { .. } => {
                let held =
                    if self.lookouts.wrapped && !last { may_break(&text[at..stop]) } else { 0 };
                self.say(&text[at..stop - held], out);
                Flow::Wait(stop - held)
            }
            Found::Marker { end, which, .. } => {
                let role = self.lookouts.content.role(which);
                let quoted = if self.counts(role) {
                    self.quoted(text, at, stop, end, last)
                } else {
                    Match::Whole(0)
                };
                match quoted {
                    Match::Begun => {
                        self.say(&text[at..stop], out);
                        return Flow::Wait(stop);
                    }
                    Match::Whole(_) => {
                        self.fence.outside(&text.as_bytes()[follow..end]);
                        self.say(&text[at..end], out);
                        return Flow::On(end);
                    }
                    Match::No => {}
                }
                let before = match role {
                    Role::WrapperClose => stop - line_break(&text[at..stop]),
                    _ => stop,
                };
                self.say(&text[at..before], out);
                self.act(role, &text[stop..end], out);
                Flow::On(end)
            }
        }
    }

    /// The first marker from here on, with its place in the whole piece. One that was found stays
    /// found while fences open and close before it: each byte is searched once.
    fn ahead(&mut self, text: &str, from: usize, last: bool) -> Found {
        let is_ahead = |found: &Found| match *found {
            Found::Nothing => true,
            Found::Begun { at } | Found::Marker { at, .. } => at >= from,
        };
        if let Some(found) = self.ahead.filter(is_ahead) {
            return found;
        }
        let found = match self.lookouts.content.find(&text[from..], last) {
            Found::Nothing => Found::Nothing,
            Found::Begun { at } => Found::Begun { at: from + at },
            Found::Marker { at, end, which } => {
                Found::Marker { at: from + at, end: from + end, which }
            }
        };
        self.ahead = Some(found);
        found
    }

    /// White space where it may be framing, and what stands behind it. `None`: text does.
    pub(super) fn gap(
        &mut self,
        text: &str,
        at: &mut usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Option<Flow> {
        let white = white_space(&text[*at..]);
        if white > 0 {
            self.previous = 0;
        }
        if self.gap == Gap::Wait && !self.wait(&text[*at..*at + white], at) {
            self.flush_white(out);
            return None;
        }
        if self.gap == Gap::Drop {
            *at += white;
        }
        let rest = &text[*at..];
        if rest.is_empty() {
            return Some(Flow::Wait(*at));
        }
        if self.fresh {
            match self.start(rest, last) {
                Match::Whole(_) => return Some(Flow::On(*at)),
                Match::Begun => return Some(Flow::Wait(*at)),
                Match::No => {}
            }
        }
        match self.lookouts.content.at(rest, last) {
            Found::Nothing => {
                self.flush_white(out);
                None
            }
            Found::Begun { .. } => Some(Flow::Wait(*at)),
            Found::Marker { end, which, .. } => {
                let role = self.lookouts.content.role(which);
                let begins = role == Role::WrapperOpen && self.fresh && !self.wrapped;
                if !begins && !self.counts(role) {
                    self.flush_white(out);
                    return None;
                }
                self.act(role, &rest[..end], out);
                Some(Flow::On(*at + end))
            }
        }
    }

    /// Whether a block or a header stands at the beginning of the answer without its marker.
    pub(super) fn start(&mut self, rest: &str, last: bool) -> Match {
        let mut begun = false;
        for (which, format) in self.recipe.tools.iter().enumerate() {
            for (start, step) in format.starts {
                match start.compare(rest) {
                    Match::Whole(_) => {
                        self.open(which, *step, "", None, true);
                        return Match::Whole(0);
                    }
                    Match::Begun => begun = true,
                    Match::No => {}
                }
            }
        }
        if let Some(channels) = self.lookouts.channels
            && self.numbering.begun() == 0
        {
            for first in channels.first {
                match compare(first, rest) {
                    Match::Whole(_) => {
                        self.state = State::Header(std::mem::take(&mut self.white));
                        return Match::Whole(0);
                    }
                    Match::Begun => begun = true,
                    Match::No => {}
                }
            }
        }
        if begun && !last { Match::Begun } else { Match::No }
    }

    /// White space joins what waits, as far as there is room; tells whether there was room for all.
    pub(super) fn wait(&mut self, white: &str, at: &mut usize) -> bool {
        let room = WHITE.saturating_sub(self.white.len()).min(white.len());
        self.white.push_str(&white[..room]);
        *at += room;
        room == white.len()
    }

    pub(super) fn flush_white(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        if !self.white.is_empty() {
            let white = std::mem::take(&mut self.white);
            self.give_back(&white, out);
            self.white = white;
            self.white.clear();
        }
    }

    /// Whether a marker of this role is one here. A wrapper opens only where the answer begins, and
    /// closes only if it is open.
    fn counts(&self, role: Role) -> bool {
        match role {
            Role::WrapperOpen => false,
            Role::WrapperClose => self.wrapped,
            _ => true,
        }
    }

    /// Whether a marker stands tightly between two equal quotes: then it is only spoken of.
    pub(super) fn quoted(
        &self,
        text: &str,
        from: usize,
        at: usize,
        end: usize,
        last: bool,
    ) -> Match {
        let before = if at > from { text.as_bytes()[at - 1] } else { self.previous };
        if !matches!(before, b'`' | b'"' | b'\'') {
            return Match::No;
        }
        match text.as_bytes().get(end) {
            Some(&behind) if behind == before => Match::Whole(1),
            None if !last => Match::Begun,
            _ => Match::No,
        }
    }

    /// A marker in the answer.
    pub(super) fn act(&mut self, role: Role, marker: &str, out: &mut dyn FnMut(Event<'_>)) {
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        match role {
            Role::Open(pair) => {
                self.leave_content(out);
                let reasoning =
                    Reasoning { pair: Some(pair), at_break: split, spoke: !split, echo: false };
                if !split {
                    self.think(marker, out);
                }
                self.state = State::Reasoning(reasoning);
            }
            Role::Call(which, step) => self.open(which, step, marker, None, false),
            Role::Header => {
                let mut raw = std::mem::take(&mut self.white);
                raw.push_str(marker);
                self.state = State::Header(raw);
            }
            Role::StrayClose | Role::Close if !split => {
                self.flush_white(out);
                self.give_back(marker, out);
                self.gap = Gap::None;
            }
            Role::MessageEnd => {
                self.white.clear();
                self.gap = Gap::Drop;
            }
            Role::WrapperOpen => {
                self.white.clear();
                self.gap = Gap::Drop;
                self.wrapped = true;
            }
            Role::WrapperClose => {
                self.gap = Gap::Wait;
                self.wrapped = false;
            }
            Role::StrayClose | Role::Close => {
                // Nothing was said before: it closes what the prompt opened.
                self.gap = if self.fresh { Gap::Drop } else { Gap::Wait };
                self.fresh = true;
            }
            Role::Noise => {}
        }
        self.previous = 0;
    }

    /// The answer gives way to reasoning: white space before it frames it.
    pub(super) fn leave_content(&mut self, out: &mut dyn FnMut(Event<'_>)) {
        if self.options.reasoning_format == ReasoningFormat::Split {
            self.white.clear();
        } else {
            self.flush_white(out);
        }
    }
}
