//! In the answer: markers, quoted markers, and white space that may frame markers.

use super::fenced::Fenced;
use super::reasoning::{Reasoning, line_break, partial_line_break};
use super::states::{Core, Flow, Gap, MAX_WHITE_SPACE, State, Tags};
use crate::text::calls::leading_white_space;
use crate::text::event::Out;
use crate::text::marker::{Found, Match, compare};
use crate::text::marker_sets::Role;
use crate::text::recipe::ReasoningFormat;

impl Core {
    pub(super) fn content(&mut self, text: &str, mut at: usize, last: bool, out: Out<'_>) -> Flow {
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
            self.emit_content(&text[at..end], out);
            return match closed {
                Some(_) => Flow::On(end),
                None => Flow::Wait(end),
            };
        }
        let found = self.find_next_marker(text, at, last);
        let (stop, follow) = match found {
            Found::Nothing => (text.len(), text.len()),
            Found::Partial { at: partial } => (partial, partial),
            Found::Marker { at: stop, which, .. } => match self.markers.content.role(which) {
                Role::Fence(..) => (stop, stop),
                // The marker's first byte ends a run of fence characters before it.
                _ => (stop, stop + 1),
            },
        };
        if let Some(opened) = self.fence.outside(&text.as_bytes()[at..follow]) {
            self.emit_content(&text[at..at + opened], out);
            return Flow::On(at + opened);
        }
        match found {
            Found::Nothing | Found::Partial { .. } => {
                let held = if self.markers.wrapped && !last {
                    partial_line_break(&text[at..stop])
                } else {
                    0
                };
                self.emit_content(&text[at..stop - held], out);
                Flow::Wait(stop - held)
            }
            Found::Marker { end, which, .. } => {
                let role = self.markers.content.role(which);
                if self.open_fenced(role, &text[at..stop], out) {
                    return Flow::On(stop);
                }
                let quoted = if self.is_active(role, false) {
                    self.is_quoted(text, at, stop, end, last)
                } else {
                    Match::Full(0)
                };
                match quoted {
                    Match::Partial => {
                        self.emit_content(&text[at..stop], out);
                        return Flow::Wait(stop);
                    }
                    Match::Full(_) => {
                        self.fence.outside(&text.as_bytes()[follow..end]);
                        self.emit_content(&text[at..end], out);
                        return Flow::On(end);
                    }
                    Match::No => {}
                }
                let before = match role {
                    Role::WrapperClose => stop - line_break(&text[at..stop]),
                    _ => stop,
                };
                self.emit_content(&text[at..before], out);
                self.handle_marker(role, &text[stop..end], out);
                Flow::On(end)
            }
        }
    }

    /// Opens fenced code that may be a list of calls, if the marker after this text is a fence at the
    /// start of a line.
    fn open_fenced(&mut self, role: Role, text: &str, out: Out<'_>) -> bool {
        let before = text.bytes().last().unwrap_or(self.previous_byte);
        let (Role::Fence(which, step), b'\n') = (role, before) else {
            return false;
        };
        self.emit_content(text, out);
        self.state = State::Fenced(Box::new(Fenced::new(which, step)));
        true
    }

    /// Finds the first marker from here on, with its position in the whole piece. The result is
    /// kept while fences open and close before it, so each byte is searched once.
    fn find_next_marker(&mut self, text: &str, from: usize, last: bool) -> Found {
        let is_ahead = |found: &Found| match *found {
            Found::Nothing => true,
            Found::Partial { at } | Found::Marker { at, .. } => at >= from,
        };
        if let Some(found) = self.next_marker.filter(is_ahead) {
            return found;
        }
        let found = match self.markers.content.find(&text[from..], last) {
            Found::Nothing => Found::Nothing,
            Found::Partial { at } => Found::Partial { at: from + at },
            Found::Marker { at, end, which } => {
                Found::Marker { at: from + at, end: from + end, which }
            }
        };
        self.next_marker = Some(found);
        found
    }

    /// Handles white space that may frame a marker, and the marker after it. `None`: text follows.
    pub(super) fn gap(
        &mut self,
        text: &str,
        at: &mut usize,
        last: bool,
        out: Out<'_>,
    ) -> Option<Flow> {
        let white = leading_white_space(&text[*at..]);
        if white > 0 {
            self.previous_byte = 0;
        }
        if self.gap == Gap::Wait && !self.hold_white_space(&text[*at..*at + white], at) {
            self.flush_white_space(out);
            return None;
        }
        if self.gap == Gap::Drop {
            *at += white;
        }
        let rest = &text[*at..];
        if rest.is_empty() {
            return Some(Flow::Wait(*at));
        }
        if self.at_start {
            match self.find_implied_start(rest, last) {
                Match::Full(_) => return Some(Flow::On(*at)),
                Match::Partial => return Some(Flow::Wait(*at)),
                Match::No => {}
            }
        }
        match self.markers.content.at(rest, last) {
            Found::Nothing => {
                self.flush_white_space(out);
                None
            }
            Found::Partial { .. } => Some(Flow::Wait(*at)),
            Found::Marker { end, which, .. } => {
                let role = self.markers.content.role(which);
                let opens_wrapper = role == Role::WrapperOpen && self.at_start && !self.wrapped;
                if !opens_wrapper && !self.is_active(role, true) {
                    self.flush_white_space(out);
                    return None;
                }
                self.handle_marker(role, &rest[..end], out);
                Some(Flow::On(*at + end))
            }
        }
    }

    /// Whether the answer begins with a block or a header that lacks its marker. Opens it.
    pub(super) fn find_implied_start(&mut self, rest: &str, last: bool) -> Match {
        let mut partial = false;
        // Without a marker, only offered tools are called.
        let none_offered = self.options.tools.as_ref().is_some_and(|tools| tools.is_empty());
        let formats = if none_offered { &[] } else { self.recipe.tools.as_slice() };
        for (which, format) in formats.iter().enumerate() {
            for (start, step) in format.starts {
                match start.compare(rest) {
                    Match::Full(_) => {
                        self.open_block(which, *step, "", None, true);
                        return Match::Full(0);
                    }
                    Match::Partial => partial = true,
                    Match::No => {}
                }
            }
        }
        if let Some(channels) = self.markers.channels
            && self.numbering.started() == 0
        {
            for first in channels.implied_starts {
                match compare(first, rest) {
                    Match::Full(_) => {
                        self.state = State::Header(std::mem::take(&mut self.white_space));
                        return Match::Full(0);
                    }
                    Match::Partial => partial = true,
                    Match::No => {}
                }
            }
        }
        if partial && !last { Match::Partial } else { Match::No }
    }

    /// Adds white space to the waiting white space. Returns false if there was no room for all of
    /// it.
    pub(super) fn hold_white_space(&mut self, white: &str, at: &mut usize) -> bool {
        let room = MAX_WHITE_SPACE.saturating_sub(self.white_space.len()).min(white.len());
        self.white_space.push_str(&white[..room]);
        *at += room;
        room == white.len()
    }

    pub(super) fn flush_white_space(&mut self, out: Out<'_>) {
        if !self.white_space.is_empty() {
            let white = std::mem::take(&mut self.white_space);
            self.emit_unparsed(&white, out);
            self.white_space = white;
            self.white_space.clear();
        }
    }

    /// Whether a marker of this role is active here. A wrapper opens only at the start of the
    /// answer, and closes only if it is open. `leads`: there is no text directly before the marker.
    fn is_active(&self, role: Role, leads: bool) -> bool {
        match role {
            Role::Open(_) | Role::StrayClose => match self.tags {
                Tags::Anywhere => true,
                Tags::AtStart => leads,
                Tags::Nowhere => false,
            },
            Role::WrapperOpen | Role::Fence(..) => false,
            Role::WrapperClose => self.wrapped,
            _ => true,
        }
    }

    /// Whether a marker is directly between two equal quotes. Then it is only mentioned.
    pub(super) fn is_quoted(
        &self,
        text: &str,
        from: usize,
        at: usize,
        end: usize,
        last: bool,
    ) -> Match {
        let before = if at > from { text.as_bytes()[at - 1] } else { self.previous_byte };
        if !matches!(before, b'`' | b'"' | b'\'') {
            return Match::No;
        }
        match text.as_bytes().get(end) {
            Some(&after) if after == before => Match::Full(1),
            None if !last => Match::Partial,
            _ => Match::No,
        }
    }

    /// Handles a marker in the answer.
    pub(super) fn handle_marker(&mut self, role: Role, marker: &str, out: Out<'_>) {
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        match role {
            Role::Open(pair) => {
                self.frame_reasoning(out);
                let reasoning = Reasoning {
                    pair: Some(pair),
                    skip_line_break: split,
                    has_text: !split,
                    may_repeat_opener: split,
                };
                if !split {
                    self.emit_reasoning(marker, out);
                }
                self.state = State::Reasoning(reasoning);
            }
            Role::Call(which, step) => self.open_block(which, step, marker, None, false),
            Role::Header => {
                let mut raw = std::mem::take(&mut self.white_space);
                raw.push_str(marker);
                self.state = State::Header(raw);
            }
            Role::StrayClose | Role::Close if !split => {
                self.flush_white_space(out);
                self.emit_unparsed(marker, out);
                self.gap = Gap::None;
            }
            Role::MessageEnd => {
                self.white_space.clear();
                self.gap = Gap::Drop;
            }
            Role::WrapperOpen => {
                self.white_space.clear();
                self.gap = Gap::Drop;
                self.wrapped = true;
            }
            Role::WrapperClose => {
                self.gap = Gap::Wait;
                self.wrapped = false;
            }
            Role::StrayClose | Role::Close => {
                // Without content before it, it closes reasoning that the prompt opened.
                self.gap = if self.at_start { Gap::Drop } else { Gap::Wait };
                self.at_start = true;
            }
            Role::Noise | Role::Interrupt | Role::Fence(..) => {}
        }
        self.previous_byte = 0;
    }

    /// Reasoning follows: white space before it is framing.
    pub(super) fn frame_reasoning(&mut self, out: Out<'_>) {
        if self.options.reasoning_format == ReasoningFormat::Split {
            self.white_space.clear();
        } else {
            self.flush_white_space(out);
        }
    }
}
