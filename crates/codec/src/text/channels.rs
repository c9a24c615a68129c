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
    /// Markers that end a header and start the message.
    pub(crate) message_starts: &'static [&'static str],
    /// Markers that end a message.
    pub(crate) message_ends: &'static [&'static str],
    /// Classifies a message by its header and the marker that ended the header.
    pub(crate) classify: fn(&str, &str) -> Channel,
    /// The format of a call's body. The name is in the header.
    pub(crate) calls: &'static ToolFormat,
    /// Whether a text begins inside reasoning.
    pub(crate) implicit: bool,
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
    implied_starts: &[" to=", "to="],
    message_starts: &["<|message|>"],
    message_ends: &["<|end|>", "<|call|>", "<|return|>"],
    classify: classify_harmony,
    calls: &formats::HARMONY_CALL,
    implicit: false,
};

/// Beam.
pub(crate) static BEAM: Channels =
    Channels { calls: &formats::BEAM_CALL, implicit: true, ..HARMONY };

/// Inkling.
pub(crate) static INKLING: Channels = Channels {
    header_starts: &["<|message_model|>"],
    implied_starts: &["<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>"],
    message_starts: &["<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>"],
    message_ends: &["<|end_message|>", "<|content_model_end_sampling|>"],
    classify: classify_inkling,
    calls: &formats::INKLING_CALL,
    implicit: false,
};

/// Muse.
pub(crate) static MUSE: Channels = Channels {
    header_starts: &["<|start|>"],
    implied_starts: &[" to=", "to="],
    message_starts: &["<|message|>"],
    message_ends: &["<|eom|>"],
    classify: classify_muse,
    calls: &formats::MUSE_CALLS,
    implicit: false,
};

/// The word after `to=`.
fn recipient(header: &str) -> Option<&str> {
    let (_, rest) = header.split_once("to=")?;
    let end = rest
        .find(|character: char| character.is_whitespace() || character == '<')
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
        "<|content_text|>" => Channel::Content,
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
