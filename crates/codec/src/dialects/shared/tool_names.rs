//! Rules for tool names.

/// The longest tool name that OpenAI accepts.
pub(crate) const OPENAI_MAX_NAME: usize = 64;

/// Whether a tool name has only ASCII letters, digits, `_` and `-`, and at most `max` of them.
pub(crate) fn is_plain_name(name: &str, max: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=max).contains(&name.len()) && name.bytes().all(plain)
}
