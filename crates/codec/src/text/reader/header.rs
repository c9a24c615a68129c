//! In the header of a message. The header gives the type of the message.

use super::reasoning::Reasoning;
use super::states::{Core, Flow, Gap, State};
use crate::text::calls::{MAX_NAME, Script, prefix_up_to};
use crate::text::channels::Channel;
use crate::text::event::Event;
use crate::text::recipe::ReasoningFormat;

impl Core {
    /// Reads a header up to its end and enters the state of the message.
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
        let Some(channels) = self.markers.channels else {
            return Flow::Wait(at);
        };
        // A header is short: a marker further away does not end it.
        let window = prefix_up_to(rest, MAX_NAME + max_length(channels.message_starts));
        let end = channels
            .message_starts
            .iter()
            .filter_map(|marker| Some((window.find(marker)?, *marker)))
            .min();
        let Some((stop, marker)) = end.filter(|(stop, _)| *stop <= MAX_NAME) else {
            if rest.len() <= MAX_NAME + max_length(channels.message_starts) && !last {
                self.state = State::Header(raw);
                return Flow::Wait(at);
            }
            self.state = State::Content;
            self.gap = Gap::None;
            self.emit_unparsed(&raw, out);
            return Flow::On(at);
        };
        raw.push_str(&rest[..stop]);
        let channel = (channels.classify)(&raw, marker);
        raw.push_str(marker);
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        self.state = State::Content;
        self.fence.reset();
        self.gap = Gap::None;
        match channel {
            Channel::Reasoning if self.recipe.reasoning.is_some() => {
                let reasoning =
                    Reasoning { skip_line_break: split, has_text: !split, ..Reasoning::default() };
                if !split {
                    self.emit_reasoning(&raw, out);
                }
                self.state = State::Reasoning(reasoning);
            }
            Channel::Call(name) | Channel::Calls(Some(name)) if !self.recipe.tools.is_empty() => {
                self.enter_block(Script::named(channels.calls, &name), raw, None, false);
            }
            Channel::Calls(None) if !self.recipe.tools.is_empty() => {
                self.enter_block(Script::new(channels.calls, 0), raw, None, false);
            }
            Channel::Unknown => self.emit_unparsed(&raw, out),
            Channel::Content | Channel::Reasoning | Channel::Call(_) | Channel::Calls(_) => {}
        }
        Flow::On(at + stop + marker.len())
    }
}

fn max_length(markers: &[&str]) -> usize {
    markers.iter().map(|marker| marker.len()).max().unwrap_or(0)
}
