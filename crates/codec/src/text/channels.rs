//! Models that write messages with headers: the header says what the message is.

use super::calls::ToolFormat;
use super::formats;

/// How such messages are written.
#[derive(Debug)]
pub(crate) struct Channels {
    /// What begins a header.
    pub(crate) headers: &'static [&'static str],
    /// How the very first header begins: the prompt ended inside it.
    pub(crate) first: &'static [&'static str],
    /// What ends a header and begins the message.
    pub(crate) messages: &'static [&'static str],
    /// What ends a message.
    pub(crate) ends: &'static [&'static str],
    /// What a header says, with what ended it.
    pub(crate) read: fn(&str, &str) -> Channel,
    /// How the body of a call is written, its name being in the header.
    pub(crate) calls: &'static ToolFormat,
    /// Whether a text begins inside reasoning.
    pub(crate) implicit: bool,
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// Reasoning.
    Reasoning,
    /// The answer.
    Content,
    /// A call of this tool.
    Call(String),
    /// A block of calls that name themselves; those that do not have this name.
    Calls(Option<String>),
    /// The header is no header.
    Unknown,
}

/// gpt-oss.
pub(crate) static HARMONY: Channels = Channels {
    headers: &["<|start|>", "<|channel|>"],
    first: &[" to=", "to="],
    messages: &["<|message|>"],
    ends: &["<|end|>", "<|call|>", "<|return|>"],
    read: harmony,
    calls: &formats::HARMONY_CALL,
    implicit: false,
};

/// Beam.
pub(crate) static BEAM: Channels =
    Channels { calls: &formats::BEAM_CALL, implicit: true, ..HARMONY };

/// Inkling.
pub(crate) static INKLING: Channels = Channels {
    headers: &["<|message_model|>"],
    first: &["<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>"],
    messages: &["<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>"],
    ends: &["<|end_message|>", "<|content_model_end_sampling|>"],
    read: inkling,
    calls: &formats::INKLING_CALL,
    implicit: false,
};

/// Muse.
pub(crate) static MUSE: Channels = Channels {
    headers: &["<|start|>"],
    first: &[" to=", "to="],
    messages: &["<|message|>"],
    ends: &["<|eom|>"],
    read: muse,
    calls: &formats::MUSE_CALLS,
    implicit: false,
};

/// The word behind `to=`.
fn recipient(header: &str) -> Option<&str> {
    let (_, rest) = header.split_once("to=")?;
    let end = rest
        .find(|character: char| character.is_whitespace() || character == '<')
        .unwrap_or(rest.len());
    Some(&rest[..end]).filter(|recipient| !recipient.is_empty())
}

/// The first word behind `<|channel|>`.
fn channel(header: &str) -> &str {
    let behind = header.rsplit_once("<|channel|>").map_or("", |(_, rest)| rest);
    let end = behind
        .find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(behind.len());
    &behind[..end]
}

fn harmony(header: &str, _: &str) -> Channel {
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

fn inkling(header: &str, end: &str) -> Channel {
    let name = header.trim().strip_prefix("<|message_model|>").unwrap_or(header).trim();
    match end {
        "<|content_thinking|>" => Channel::Reasoning,
        "<|content_text|>" => Channel::Content,
        _ => Channel::Calls(Some(name.to_owned()).filter(|name| !name.is_empty())),
    }
}

fn muse(header: &str, _: &str) -> Channel {
    match recipient(header) {
        Some("self") => Channel::Reasoning,
        Some("user" | "commentary") => Channel::Content,
        Some(_) => Channel::Calls(None),
        None if header.contains("commentary") || header.contains("assistant") => Channel::Content,
        None => Channel::Unknown,
    }
}
