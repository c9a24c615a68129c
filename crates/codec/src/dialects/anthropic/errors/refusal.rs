//! Recognises errors about thinking blocks.
//!
//! There is no error code for them, only the text. Some resellers change the status, so the status
//! only shows that the request was rejected.

use crate::dialects::shared::{refusal, refused_setting};
use crate::dialects::{Refusal, RefusedSetting};
use crate::json::{Kind, find_member, text};

/// Classifies an error reply; `None` if it is not about thinking.
pub fn classify(status: u16, body: &[u8]) -> Option<Refusal> {
    if status != 400 && status != 422 && status != 429 {
        return None;
    }
    let message = error_message(body)?;
    Some(Refusal { kind: refusal::in_anthropic_text(&message)?, at: path(&message) })
}

/// Recognises an error about the thinking setting; `None` if it is about something else.
pub fn classify_setting(status: u16, body: &[u8]) -> Option<RefusedSetting> {
    if status != 400 && status != 422 {
        return None;
    }
    let message = error_message(body)?;
    refused_setting::in_anthropic_text(&message)
        .or_else(|| refused_setting::in_ollama_text(&message))
}

/// Parses the path in `messages.3.content.0: ...`.
pub(crate) fn path(text: &str) -> Option<(usize, usize)> {
    let rest = text.strip_prefix("messages.")?;
    let (message, rest) = rest.split_once(".content.")?;
    let digits = rest.find(|character: char| !character.is_ascii_digit());
    let block = &rest[..digits.unwrap_or(rest.len())];
    Some((message.parse().ok()?, block.parse().ok()?))
}

/// The message of `{"error":{"message":...}}`.
fn error_message(body: &[u8]) -> Option<String> {
    error_member(body, b"message")
}

/// A string member of `{"error":{...}}`.
fn error_member(body: &[u8], name: &[u8]) -> Option<String> {
    let error = find_member(body, 0, b"error", Kind::Object).ok()??;
    let member = find_member(body, error.start, name, Kind::String).ok()??;
    Some(text(body, &member).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::RefusalKind;

    fn check(status: u16, message: &str, expected: Option<(RefusalKind, Option<(usize, usize)>)>) {
        let body = serde_json::json!({"type":"error","error":{"type":"invalid_request_error","message":message},"request_id":"req_1"});
        let found = classify(status, body.to_string().as_bytes());
        assert_eq!(found.map(|refusal| (refusal.kind, refusal.at)), expected, "{message}");
    }

    #[test]
    fn recognises_refusals_of_thinking() {
        use RefusalKind::*;
        check(
            400,
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            Some((Signature, Some((1, 0)))),
        );
        check(
            429,
            "messages.12.content.3: Invalid `signature` in `thinking` block",
            Some((Signature, Some((12, 3)))),
        );
        check(
            400,
            "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set ...",
            Some((Bound, Some((1, 0)))),
        );
        check(
            400,
            "messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
            Some((Signature, Some((5, 1)))),
        );
        check(
            400,
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
            Some((MissingThinking, Some((1, 0)))),
        );
        check(
            400,
            "messages.0.content.0: Invalid `signature` in `compaction` block",
            Some((Compaction, Some((0, 0)))),
        );
        check(400, "Invalid thinking block signature", Some((Signature, None)));
        check(400, "max_tokens: required", None);
        check(400, "thinking.budget_tokens: must be at least 1024", None);
        check(500, "Invalid `signature` in `thinking` block", None);
        assert_eq!(classify(400, b"<html>"), None);
    }
}
