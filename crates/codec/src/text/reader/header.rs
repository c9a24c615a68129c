//! In the header of a message: it says what the message is.

use super::block::Block;
use super::states::{Core, Flow, Gap, State};
use super::thought::Reasoning;
use crate::text::calls::{NAME, Script, within};
use crate::text::channels::Channel;
use crate::text::event::Event;
use crate::text::recipe::ReasoningFormat;

impl Core {
    /// The message is a block of calls.
    fn enter(&mut self, script: Script, raw: String) {
        self.state = State::Call(Box::new(Block {
            script,
            raw,
            origin: None,
            bare: false,
            before: self.numbering.begun(),
        }));
    }

    pub(super) fn header(
        &mut self,
        text: &str,
        at: usize,
        last: bool,
        out: &mut dyn FnMut(Event<'_>),
    ) -> Flow {
        let State::Header(raw) = &mut self.state else {
            return Flow::Wait(at);
        };
        let mut raw = std::mem::take(raw);
        let rest = &text[at..];
        let Some(channels) = self.lookouts.channels else {
            return Flow::Wait(at);
        };
        // A header is short: what is farther away is not its end.
        let near = within(rest, NAME + marker_length(channels.messages));
        let end =
            channels.messages.iter().filter_map(|marker| Some((near.find(marker)?, *marker))).min();
        let Some((stop, marker)) = end.filter(|(stop, _)| *stop <= NAME) else {
            if rest.len() <= NAME + marker_length(channels.messages) && !last {
                self.state = State::Header(raw);
                return Flow::Wait(at);
            }
            self.state = State::Content;
            self.gap = Gap::None;
            self.give_back(&raw, out);
            return Flow::On(at);
        };
        raw.push_str(&rest[..stop]);
        let channel = (channels.read)(&raw, marker);
        raw.push_str(marker);
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        self.state = State::Content;
        self.fence.reset();
        self.gap = Gap::None;
        match channel {
            Channel::Reasoning if self.recipe.reasoning.is_some() => {
                let reasoning =
                    Reasoning { at_break: split, spoke: !split, ..Reasoning::default() };
                if !split {
                    self.think(&raw, out);
                }
                self.state = State::Reasoning(reasoning);
            }
            Channel::Call(name) | Channel::Calls(Some(name)) if !self.recipe.tools.is_empty() => {
                self.enter(Script::named(channels.calls, &name), raw);
            }
            Channel::Calls(None) if !self.recipe.tools.is_empty() => {
                self.enter(Script::new(channels.calls, 0), raw);
            }
            Channel::Unknown => self.give_back(&raw, out),
            Channel::Content | Channel::Reasoning | Channel::Call(_) | Channel::Calls(_) => {}
        }
        Flow::On(at + stop + marker.len())
    }
}

fn marker_length(markers: &[&str]) -> usize {
    markers.iter().map(|marker| marker.len()).max().unwrap_or(0)
}
