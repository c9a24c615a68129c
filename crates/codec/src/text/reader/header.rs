//! In the header of a message. The header gives the type of the message.

use super::reasoning::Reasoning;
use super::states::{Core, Flow, Gap, State};
use crate::text::calls::{MAX_NAME, Script, prefix_up_to};
use crate::text::channels::{Channel, Channels};
use crate::text::event::Out;
use crate::text::recipe::ReasoningFormat;

impl Core {
    /// Reads a header up to its end and enters the state of the message.
    pub(super) fn header(&mut self, text: &str, at: usize, last: bool, out: Out<'_>) -> Flow {
        let State::Header(raw) = &mut self.state else {
            return Flow::Wait(at);
        };
        let mut raw = std::mem::take(raw);
        let rest = &text[at..];
        let Some(channels) = self.markers.channels else {
            return Flow::Wait(at);
        };
        // A header is short: a marker further away does not end it.
        let max_length = MAX_NAME + channels.max_header_end();
        let end = channels
            .find_header_end(&raw, prefix_up_to(rest, max_length))
            .filter(|(stop, ..)| *stop <= MAX_NAME);
        match end {
            None if rest.len() <= max_length && !last => {
                self.state = State::Header(raw);
                Flow::Wait(at)
            }
            Some((stop, marker, true)) => {
                raw.push_str(&rest[..stop]);
                let channel = (channels.classify)(&raw, marker);
                raw.push_str(marker);
                self.enter_message(channels, channel, raw, Gap::None, out);
                Flow::On(at + stop + marker.len())
            }
            Some((stop, _, false)) => {
                Flow::On(at + self.broken_header(channels, raw, &rest[..stop], true, out))
            }
            None => {
                let text = prefix_up_to(rest, MAX_NAME);
                Flow::On(at + self.broken_header(channels, raw, text, false, out))
            }
        }
    }

    /// The marker that starts the message is missing. Text after the known parts of the header
    /// belongs to the message. Returns how much of the text belongs to the header.
    fn broken_header(
        &mut self,
        channels: &Channels,
        raw: String,
        text: &str,
        is_ended: bool,
        out: Out<'_>,
    ) -> usize {
        let mut header = raw.clone();
        header.push_str(text);
        let length = channels.header_length(&header);
        let has_start = !raw.trim_start().is_empty();
        let mut channel = (channels.classify)(&header[..length], "");
        let is_sure = match channel {
            // An answer can begin like a header.
            Channel::Content | Channel::Call(_) | Channel::Calls(_) => has_start || is_ended,
            _ => true,
        };
        // A header that was cut is text, too: the rest of its last word may be missing.
        let is_cut = !is_ended && header[length..].trim_start().is_empty();
        if !is_sure || is_cut || length < raw.len() {
            channel = Channel::Unknown;
        }
        if channel == Channel::Unknown {
            self.enter_message(channels, channel, raw, Gap::None, out);
            return 0;
        }
        let used = length - raw.len();
        header.truncate(length);
        self.enter_message(channels, channel, header, Gap::Drop, out);
        used
    }

    /// Enters the state of a message after its header.
    fn enter_message(
        &mut self,
        channels: &Channels,
        channel: Channel,
        raw: String,
        gap: Gap,
        out: Out<'_>,
    ) {
        let split = self.options.reasoning_format == ReasoningFormat::Split;
        self.state = State::Content;
        self.fence.reset();
        self.gap = gap;
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
    }
}
