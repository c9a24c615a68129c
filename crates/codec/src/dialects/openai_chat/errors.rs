//! Errors: a status and a body before a reply, an object inside one.

use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};

use crate::dialects::shared::openai_errors;
use crate::dialects::shared::{refusal, refused_setting};
use crate::dialects::{RefusalKind, RefusedSetting};

/// The status and the body of an error.
pub(super) fn write(fault: &Fault) -> (u16, Vec<u8>) {
    let (status, ..) = words(fault.kind);
    let body = json!({"error": object(fault)});
    (status, body.to_string().into_bytes())
}

/// The error object.
pub(super) fn object(fault: &Fault) -> Value {
    let (_, kind, code) = words(fault.kind);
    json!({"message": fault.message, "type": kind, "param": fault.path, "code": fault.code.as_deref().or(code)})
}

fn words(kind: FaultKind) -> (u16, &'static str, Option<&'static str>) {
    match kind {
        FaultKind::Invalid => (400, "invalid_request_error", None),
        FaultKind::Unauthenticated => (401, "authentication_error", Some("invalid_api_key")),
        FaultKind::Forbidden => (403, "permission_error", None),
        FaultKind::NotFound => (404, "invalid_request_error", Some("not_found")),
        FaultKind::WrongMethod => (405, "invalid_request_error", Some("method_not_allowed")),
        FaultKind::Conflict => (409, "conflict_error", None),
        FaultKind::TooLarge => (413, "invalid_request_error", Some("request_too_large")),
        FaultKind::RateLimited => (429, "rate_limit_error", Some("rate_limit_exceeded")),
        FaultKind::Overloaded => (503, "server_error", Some("overloaded")),
        FaultKind::Unreachable => (502, "server_error", Some("upstream_unreachable")),
        FaultKind::TimedOut => (504, "server_error", Some("timeout")),
        FaultKind::ToolCallUnreadable => (502, "tool_call_parse_error", None),
        FaultKind::Internal => (500, "server_error", None),
    }
}

/// Recognises an error about signed reasoning. Servers in between pass on the text of the original
/// provider.
pub(super) fn refused_thinking(status: u16, body: &[u8]) -> Option<RefusalKind> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    let message = openai_errors::read(status, body).message;
    match refusal::in_anthropic_text(&message).or_else(|| refusal::in_gemini_text(&message)) {
        // This dialect cannot ask the provider to drop bound blocks.
        Some(RefusalKind::Bound) => Some(RefusalKind::Signature),
        // It gets summaries as text.
        Some(RefusalKind::Compaction) => None,
        kind => kind,
    }
}

/// Recognises an error about the thinking setting, of any provider behind the server.
pub(super) fn refused_setting(status: u16, body: &[u8]) -> Option<RefusedSetting> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    let message = openai_errors::read(status, body).message;
    refused_setting::in_openai_text(&openai_errors::parameter(body), &message)
        .or_else(|| refused_setting::in_ollama_text(&message))
        .or_else(|| refused_setting::in_anthropic_text(&message))
        .or_else(|| refused_setting::in_gemini_text(&message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialects::shared::openai_errors::read_inside;
    use crate::json::Kind;

    #[test]
    fn recognises_refusals_of_reasoning() {
        for (status, message, refused) in [
            (
                400,
                "messages[1]: Invalid `signature` in `thinking` block",
                Some(RefusalKind::Signature),
            ),
            (
                400,
                "litellm.BadRequestError: {\"message\":\"messages.1.content.0: Invalid `signature` in `thinking` block\"}",
                Some(RefusalKind::Signature),
            ),
            (400, "Corrupted thought signature.", Some(RefusalKind::Signature)),
            (500, "Corrupted thought signature.", None),
            (400, "The `reasoning_content` in the thinking mode must be passed back", None),
            (
                400,
                "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
                Some(RefusalKind::Signature),
            ),
            (
                400,
                "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
                Some(RefusalKind::MissingThinking),
            ),
            (
                400,
                "Function call is missing a thought_signature in functionCall parts.",
                Some(RefusalKind::MissingThinking),
            ),
            (400, "max_tokens: too large", None),
        ] {
            let body = json!({"error": {"message": message}}).to_string();
            assert_eq!(refused_thinking(status, body.as_bytes()), refused, "{message}");
        }
    }

    #[test]
    fn error_shapes_of_many_servers_are_read() {
        let check = |status, body: &str, kind, message: &str| {
            let fault = openai_errors::read(status, body.as_bytes());
            assert_eq!((fault.kind, fault.message.as_str()), (kind, message), "{body}");
        };
        check(
            400,
            r#"{"error":{"message":"Function tools with reasoning_effort are not supported","type":"invalid_request_error","param":"reasoning_effort","code":null}}"#,
            FaultKind::Invalid,
            "Function tools with reasoning_effort are not supported",
        );
        check(
            401,
            r#"{"error":{"message":"no","type":"invalid_request_error","code":"invalid_api_key"}}"#,
            FaultKind::Unauthenticated,
            "no",
        );
        check(
            429,
            r#"{"error":{"message":"slow","type":"x","code":"insufficient_quota"}}"#,
            FaultKind::RateLimited,
            "slow",
        );
        check(
            400,
            r#"{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"too long","provider_name":"x"}}}"#,
            FaultKind::Invalid,
            "Provider returned error: too long",
        );
        check(422, r#"{"detail":[{"msg":"extra"}]}"#, FaultKind::Invalid, r#"[{"msg":"extra"}]"#);
        check(
            400,
            r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#,
            FaultKind::Invalid,
            "bad",
        );
        check(
            400,
            r#"[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]"#,
            FaultKind::Invalid,
            "m",
        );
        check(401, "who?", FaultKind::Unauthenticated, "who?");
        check(500, "oops", FaultKind::Internal, "oops");
        check(503, "", FaultKind::Overloaded, "the provider answered with status 503");
        check(502, "<html>", FaultKind::Unreachable, "<html>");
        check(404, r#"{"error":"model not found"}"#, FaultKind::NotFound, "model not found");
        check(
            402,
            r#"{"error":{"message":"credits","code":402}}"#,
            FaultKind::Forbidden,
            "credits",
        );
    }

    #[test]
    fn every_written_fault_kind_reads_back() {
        use FaultKind::*;
        for kind in [
            Invalid,
            Unauthenticated,
            Forbidden,
            NotFound,
            Conflict,
            TooLarge,
            RateLimited,
            Overloaded,
            Unreachable,
            TimedOut,
            ToolCallUnreadable,
            Internal,
        ] {
            let fault = Fault::new(kind, "what happened");
            let (status, body) = write(&fault);
            assert!((400..600).contains(&status));
            if kind != ToolCallUnreadable {
                assert_eq!(openai_errors::read(status, &body), fault);
            }
            let error = object(&fault).to_string();
            let inside = read_inside(error.as_bytes(), Kind::Object, &(0..error.len()));
            assert_eq!(inside, Some(fault));
        }
    }

    #[test]
    fn fault_names_the_wrong_member() {
        let wrong = object(&Fault::at("messages[2].content", "expected a string"));
        assert_eq!(wrong["param"], "messages[2].content");
        assert_eq!(object(&Fault::invalid("it is: wrong"))["param"], Value::Null);
    }
}
