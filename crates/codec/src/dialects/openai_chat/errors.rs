//! Errors, both ways: before a reply as a status and a body, after it began as an object in it.

use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};

use crate::dialects::anthropic::refusal;
use crate::dialects::{RefusalKind, error_codes, gemini};
use crate::json::{Kind, Span, slice};

/// The status and the body of an error.
pub(super) fn write(fault: &Fault) -> (u16, Vec<u8>) {
    let (status, ..) = words(fault.kind);
    let body = json!({"error": object(fault)});
    (status, body.to_string().into_bytes())
}

/// The error itself.
pub(super) fn object(fault: &Fault) -> Value {
    let (_, kind, code) = words(fault.kind);
    json!({"message": fault.message, "type": kind, "param": fault.place(), "code": fault.code.as_deref().or(code)})
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

/// Reads an error that comes in place of a reply.
pub(in crate::dialects) fn read(status: u16, body: &[u8]) -> Fault {
    let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let told = found(&value);
    let kind = match status {
        401 | 403 | 404 | 409 | 413 | 429 | 500.. | 402 | 408 => of_status(status),
        // The words tell more than a plain 400.
        _ => match kind_of(told) {
            FaultKind::Internal => FaultKind::Invalid,
            kind => kind,
        },
    };
    let message = message_of(told).unwrap_or_else(|| match String::from_utf8_lossy(body).trim() {
        "" => format!("the provider answered with status {status}"),
        text => text.chars().take(2000).collect(),
    });
    error_codes::told(Fault::new(kind, message), code_of(told))
}

/// What an error says of signed reasoning. Servers in between pass on the words of the provider that
/// made it.
pub(super) fn refused_thinking(status: u16, body: &[u8]) -> Option<RefusalKind> {
    if !matches!(status, 400 | 422) {
        return None;
    }
    let message = read(status, body).message;
    match refusal::kind_of(&message).or_else(|| gemini::refused_signature(&message)) {
        // Here is no way to ask for what the provider offers in place of it.
        Some(RefusalKind::Bound) => Some(RefusalKind::Signature),
        kind => kind,
    }
}

/// Reads an error inside a reply.
pub(in crate::dialects) fn read_inside(json: &[u8], kind: Kind, error: &Span) -> Option<Fault> {
    let value: Value = serde_json::from_slice(slice(json, error)).ok()?;
    // Only one that says something is one: some servers send `false`, or an empty text.
    let says = match kind {
        Kind::String => value.as_str().is_some_and(|text| !text.is_empty()),
        Kind::Object => true,
        _ => false,
    };
    says.then(|| {
        let message = message_of(&value);
        let fault = Fault::new(
            kind_of(&value),
            message.unwrap_or_else(|| "the provider reported an error".to_owned()),
        );
        error_codes::told(fault, code_of(&value))
    })
}

/// The error in a body, under whichever name.
fn found(body: &Value) -> &Value {
    match body {
        // Google sends a list of one.
        Value::Array(list) => list.first().map_or(body, found),
        _ => body.get("error").filter(|error| !error.is_null()).unwrap_or(body),
    }
}

fn message_of(error: &Value) -> Option<String> {
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Object(_) | Value::Array(_) => Some(value.to_string()),
        _ => None,
    };
    if error.is_string() {
        return text(error);
    }
    let message = ["message", "detail", "msg"].iter().find_map(|name| text(error.get(*name)?));
    // OpenRouter says "Provider returned error", and behind it what the provider said.
    match (message, error.pointer("/metadata/raw").and_then(text)) {
        (Some(message), Some(raw)) if message != raw => Some(format!("{message}: {raw}")),
        (message, raw) => message.or(raw),
    }
}

fn code_of(error: &Value) -> Option<&str> {
    error.get("code").and_then(Value::as_str)
}

fn kind_of(error: &Value) -> FaultKind {
    let code = error.get("code").or_else(|| error.get("status"));
    if let Some(status) = code.and_then(Value::as_u64) {
        return of_status(u16::try_from(status).unwrap_or(500));
    }
    let words = [code, error.get("type")].into_iter().flatten();
    words.filter_map(Value::as_str).find_map(of_word).unwrap_or(FaultKind::Internal)
}

fn of_word(word: &str) -> Option<FaultKind> {
    Some(match word {
        "invalid_api_key" | "authentication_error" | "UNAUTHENTICATED" => {
            FaultKind::Unauthenticated
        }
        "permission_error" | "PERMISSION_DENIED" => FaultKind::Forbidden,
        "not_found" | "model_not_found" | "not_found_error" | "NotFoundError" | "NOT_FOUND" => {
            FaultKind::NotFound
        }
        "conflict_error" => FaultKind::Conflict,
        "request_too_large" => FaultKind::TooLarge,
        "rate_limit_exceeded"
        | "insufficient_quota"
        | "rate_limit_error"
        | "RateLimitError"
        | "RESOURCE_EXHAUSTED" => FaultKind::RateLimited,
        "overloaded" | "overloaded_error" | "server_is_overloaded" | "UNAVAILABLE" => {
            FaultKind::Overloaded
        }
        "upstream_unreachable" => FaultKind::Unreachable,
        "timeout" | "timeout_error" | "DEADLINE_EXCEEDED" => FaultKind::TimedOut,
        "tool_call_parse_error" => FaultKind::ToolCallUnreadable,
        "invalid_request_error" | "BadRequestError" | "INVALID_ARGUMENT" => FaultKind::Invalid,
        _ => return None,
    })
}

fn of_status(status: u16) -> FaultKind {
    match status {
        401 => FaultKind::Unauthenticated,
        402 | 403 => FaultKind::Forbidden,
        404 => FaultKind::NotFound,
        408 | 504 => FaultKind::TimedOut,
        409 => FaultKind::Conflict,
        413 => FaultKind::TooLarge,
        429 => FaultKind::RateLimited,
        400..=499 => FaultKind::Invalid,
        502 => FaultKind::Unreachable,
        503 | 529 => FaultKind::Overloaded,
        _ => FaultKind::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_reasoning_are_told_from_other_errors() {
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
    fn errors_of_many_servers_are_read() {
        let check = |status, body: &str, kind, message: &str| {
            let fault = read(status, body.as_bytes());
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
    fn every_kind_is_read_as_it_was_written() {
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
                assert_eq!(read(status, &body), fault);
            }
            let error = object(&fault).to_string();
            let inside = read_inside(error.as_bytes(), Kind::Object, &(0..error.len()));
            assert_eq!(inside, Some(fault));
        }
    }

    #[test]
    fn the_wrong_member_is_named() {
        let wrong = object(&Fault::invalid("messages[2].content: expected a string"));
        assert_eq!(wrong["param"], "messages[2].content");
        assert_eq!(object(&Fault::invalid("it is: wrong"))["param"], Value::Null);
    }
}
