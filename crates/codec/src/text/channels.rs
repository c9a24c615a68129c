//! Models that write messages with headers. The header gives the type of the message.

use super::calls::ToolFormat;
use super::formats;

/// The markers of such messages.
#[derive(Debug)]
pub(crate) struct Channels {
    /// Markers that start a header.
    pub(crate) header_starts: &'static [&'static str],
    /// How the first header of a text can start if the prompt ended inside it.
    pub(crate) implied_starts: &'static [&'static str],
    /// The marker that may come once inside a header, before the name of the channel.
    pub(crate) channel_marker: Option<&'static str>,
    /// Markers that end a header and start the message.
    pub(crate) message_starts: &'static [&'static str],
    /// Markers that end a message.
    pub(crate) message_ends: &'static [&'static str],
    /// Classifies a message by its header and the marker that ended the header. A broken header has
    /// no such marker.
    pub(crate) classify: fn(&str, &str) -> Channel,
    /// The format of a call's body. The name is in the header.
    pub(crate) calls: &'static ToolFormat,
}

/// The type of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Reasoning.
    Reasoning,
    /// The answer.
    Content,
    /// A call of the named tool.
    Call(String),
    /// A block of calls that name themselves. Calls without a name get this one.
    Calls(Option<String>),
    /// Not a valid header.
    Unknown,
}

/// gpt-oss.
pub(crate) static HARMONY: Channels = Channels {
    header_starts: &["<|start|>", "<|channel|>"],
    channel_marker: Some("<|channel|>"),
    implied_starts: &[" to=", "to="],
    message_starts: &["<|message|>"],
    message_ends: &["<|end|>", "<|call|>", "<|return|>"],
    classify: classify_harmony,
    calls: &formats::HARMONY_CALL,
};

/// Beam.
pub(crate) static BEAM: Channels = Channels { calls: &formats::BEAM_CALL, ..HARMONY };

/// Inkling.
pub(crate) static INKLING: Channels = Channels {
    header_starts: &["<|message_model|>"],
    channel_marker: None,
    implied_starts: &["<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>"],
    message_starts: &["<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>"],
    message_ends: &["<|end_message|>", "<|content_model_end_sampling|>"],
    classify: classify_inkling,
    calls: &formats::INKLING_CALL,
};

/// Muse.
pub(crate) static MUSE: Channels = Channels {
    header_starts: &["<|start|>"],
    channel_marker: None,
    implied_starts: &[" to=", "to="],
    message_starts: &["<|message|>"],
    message_ends: &["<|eom|>", "<|eot|>"],
    classify: classify_muse,
    calls: &formats::MUSE_CALLS,
};

/// The names of Harmony's channels.
const HARMONY_CHANNELS: [&str; 3] = ["analysis", "commentary", "final"];

impl Channels {
    /// Finds the marker that ends a header, in the text after its start. Also returns whether it
    /// starts the message. Any other marker means that the header is broken.
    pub(crate) fn find_header_end(
        &self,
        start: &str,
        text: &str,
    ) -> Option<(usize, &'static str, bool)> {
        let find = |marker: &'static str| {
            let inside = self.channel_marker == Some(marker) && !start.contains(marker);
            let from = if inside { text.find(marker)? + marker.len() } else { 0 };
            Some((from + text[from..].find(marker)?, marker))
        };
        let starts = self.message_starts.iter().filter_map(|marker| find(marker));
        let others = self.header_starts.iter().chain(self.message_ends);
        let broken =
            others.filter_map(|marker| find(marker)).map(|(at, marker)| (at, marker, false));
        starts.map(|(at, marker)| (at, marker, true)).chain(broken).min()
    }

    /// The length of the longest marker that ends a header.
    pub(crate) fn max_header_end(&self) -> usize {
        let all = [self.message_starts, self.header_starts, self.message_ends];
        all.iter().flat_map(|markers| *markers).map(|marker| marker.len()).max().unwrap_or(0)
    }

    /// The length of a header without a marker at its end: its known parts.
    pub(crate) fn header_length(&self, text: &str) -> usize {
        let mut end = 0;
        loop {
            let rest = match end {
                0 => text.trim_start(),
                _ => text[end..].trim_start_matches(' '),
            };
            let start = text.len() - rest.len();
            match self.header_part(&text[..end], rest) {
                0 => return end,
                length => end = start + length,
            }
        }
    }

    /// The length of the next part of a header, or 0 if text follows.
    fn header_part(&self, before: &str, rest: &str) -> usize {
        let word = |from: usize| {
            let letters = rest[from..].bytes().take_while(u8::is_ascii_alphabetic).count();
            from + letters
        };
        if let Some(marker) = self.header_starts.iter().find(|marker| rest.starts_with(**marker)) {
            return marker.len();
        }
        if before.ends_with("<|channel|>") {
            let name = HARMONY_CHANNELS.iter().find(|name| rest.starts_with(**name));
            return name.map_or(0, |name| name.len());
        }
        if let Some(constraint) = rest.strip_prefix("<|constrain|>") {
            return word(rest.len() - constraint.len());
        }
        if before.ends_with("<|start|>") && &rest[..word(0)] == "assistant" {
            return word(0);
        }
        match recipient(rest) {
            Some(recipient) if rest.starts_with("to=") => "to=".len() + recipient.len(),
            _ => 0,
        }
    }
}

/// The word after `to=`.
fn recipient(header: &str) -> Option<&str> {
    let (_, rest) = header.split_once("to=")?;
    let end = rest
        .find(|character: char| character.is_whitespace() || matches!(character, '<' | '{'))
        .unwrap_or(rest.len());
    Some(&rest[..end]).filter(|recipient| !recipient.is_empty())
}

/// The first word after `<|channel|>`.
fn channel(header: &str) -> &str {
    let name = header.rsplit_once("<|channel|>").map_or("", |(_, rest)| rest);
    let end = name
        .find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(name.len());
    &name[..end]
}

fn classify_harmony(header: &str, _: &str) -> Channel {
    if let Some(recipient) = recipient(header) {
        let name = recipient.strip_prefix("functions.").unwrap_or(recipient);
        if !matches!(name, "user" | "assistant" | "all" | "") {
            return Channel::Call(name.to_owned());
        }
    }
    match channel(header) {
        "analysis" => Channel::Reasoning,
        // Without a recipient, commentary is a preamble for the user.
        "final" | "commentary" => Channel::Content,
        "" if header.contains("assistant") => Channel::Content,
        _ => Channel::Unknown,
    }
}

fn classify_inkling(header: &str, end: &str) -> Channel {
    let name = header.trim().strip_prefix("<|message_model|>").unwrap_or(header).trim();
    match end {
        "<|content_thinking|>" => Channel::Reasoning,
        // Without a marker for its type, a message is content.
        "<|content_text|>" | "" => Channel::Content,
        _ => Channel::Calls(Some(name.to_owned()).filter(|name| !name.is_empty())),
    }
}

fn classify_muse(header: &str, _: &str) -> Channel {
    match recipient(header) {
        Some("self") => Channel::Reasoning,
        Some("user" | "commentary") => Channel::Content,
        Some(_) => Channel::Calls(None),
        None if header.contains("commentary") || header.contains("assistant") => Channel::Content,
        None => Channel::Unknown,
    }
}
