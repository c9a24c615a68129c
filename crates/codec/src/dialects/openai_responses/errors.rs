//! Errors: those we send to clients before a reply, and those of providers.

use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};

use crate::dialects::RefusalKind;
use crate::dialects::shared::{error_codes, fault_status};

/// The code of the error about a response that is not stored.
pub(super) const MISSING_RESPONSE: &str = "previous_response_not_found";

/// The status and the body of an error before a reply.
pub(super) fn write(fault: &Fault) -> (u16, Vec<u8>) {
    let (status, kind, code) = match fault.kind {
        FaultKind::Invalid => (400, "invalid_request_error", None),
        FaultKind::Unauthenticated => (401, "invalid_request_error", Some("invalid_api_key")),
        FaultKind::Forbidden => (403, "permission_error", None),
        FaultKind::NotFound => (404, "invalid_request_error", Some("not_found")),
        FaultKind::WrongMethod => (405, "invalid_request_error", Some("method_not_allowed")),
        FaultKind::Conflict => (409, "invalid_request_error", Some("conflict")),
        FaultKind::TooLarge => (413, "invalid_request_error", Some("request_too_large")),
        FaultKind::RateLimited => (429, "rate_limit_error", Some("rate_limit_exceeded")),
        FaultKind::Overloaded => (503, "server_error", Some("server_is_overloaded")),
        FaultKind::Unreachable => (502, "server_error", None),
        FaultKind::TimedOut => (504, "server_error", Some("timeout")),
        FaultKind::ToolCallUnreadable => (502, "server_error", Some("tool_call_parse_error")),
        FaultKind::Internal => (500, "server_error", None),
    };
    let body = json!({"error": {
        "message": fault.message,
        "type": kind,
        "param": fault.path,
        "code": fault.code.as_deref().or(code),
    }});
    (status, body.to_string().into_bytes())
}

/// The error code of a failed reply. Clients know few codes and give up on some of them at once. An
/// overloaded server may well answer a second attempt.
pub(super) fn reply_code(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::RateLimited => "rate_limit_exceeded",
        FaultKind::Invalid | FaultKind::TooLarge => "invalid_prompt",
        _ => "server_error",
    }
}

/// The fault kind of an error code.
pub(super) fn kind_of_code(code: &str) -> Option<FaultKind> {
    Some(match code {
        "rate_limit_exceeded" | "insufficient_quota" => FaultKind::RateLimited,
        "server_is_overloaded" | "slow_down" | "overloaded" => FaultKind::Overloaded,
        "invalid_prompt"
        | "invalid_encrypted_content"
        | "context_length_exceeded"
        | "invalid_request_error" => FaultKind::Invalid,
        "invalid_api_key" => FaultKind::Unauthenticated,
        "model_not_found" => FaultKind::NotFound,
        _ => return None,
    })
}

/// Reads an error that arrives instead of a reply.
pub(super) fn read(status: u16, body: &[u8]) -> Fault {
    let kind = match (status, fault_status::kind_of(status)) {
        (402, _) => FaultKind::Invalid,
        // Another status than 500 comes from a proxy in between.
        (status, FaultKind::Internal) if status != 500 => FaultKind::Unreachable,
        (_, kind) => kind,
    };
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    // Some servers send only the message, some omit the envelope.
    let message = ["/error/message", "/error", "/message", "/detail"]
        .into_iter()
        .find_map(|pointer| value.pointer(pointer)?.as_str())
        .filter(|message| !message.is_empty());
    let fault = match message {
        Some(message) => Fault::new(kind, message),
        None => Fault::new(kind, format!("the provider answered with status {status}")),
    };
    error_codes::with_code(fault, value.pointer("/error/code").and_then(Value::as_str))
}

/// Recognises an error about reasoning that the provider cannot use: encrypted elsewhere, or bound
/// to items that it does not have. The request may succeed without its reasoning.
pub(super) fn refused_reasoning(status: u16, body: &[u8]) -> Option<RefusalKind> {
    if !matches!(status, 400 | 404) {
        return None;
    }
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |pointer| value.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let message = text("/error/message");
    let unread = text("/error/code") == "invalid_encrypted_content"
        || message.contains("ncrypted content") && message.contains("could not be verified")
        || message.contains("Item with id 'rs_") && message.contains("not found");
    let misplaced = message.contains("of type 'reasoning' was provided without its required")
        || message.contains("provided without its required 'reasoning' item");
    match (unread, misplaced) {
        (true, _) => Some(RefusalKind::Signature),
        (false, true) => Some(RefusalKind::MissingThinking),
        (false, false) => None,
    }
}

/// Recognises an error about a stored response that the provider does not have.
pub(super) fn has_lost_reply(status: u16, body: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = value.pointer("/error/code").and_then(Value::as_str);
    matches!(status, 400 | 404) && code == Some(MISSING_RESPONSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fault_is_written_with_four_members_and_its_path() {
        for (fault, status, expected) in [
            (
                Fault::at("input[2].content", "expected a list, found a number"),
                400,
                json!({"error": {"message": "input[2].content: expected a list, found a number",
                    "type": "invalid_request_error", "param": "input[2].content", "code": null}}),
            ),
            (
                Fault::invalid("the body is not JSON: x"),
                400,
                json!({"error": {"message": "the body is not JSON: x",
                    "type": "invalid_request_error", "param": null, "code": null}}),
            ),
            (
                Fault::new(FaultKind::RateLimited, "slow: down"),
                429,
                json!({"error": {"message": "slow: down", "type": "rate_limit_error",
                    "param": null, "code": "rate_limit_exceeded"}}),
            ),
        ] {
            let (found, body) = write(&fault);
            assert_eq!(found, status);
            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
        }
    }

    #[test]
    fn provider_errors_are_read_in_every_shape() {
        for (status, body, kind, message) in [
            (
                400,
                r#"{"error":{"message":"bad","type":"invalid_request_error","param":null,"code":null}}"#,
                FaultKind::Invalid,
                "bad",
            ),
            (
                401,
                r#"{"error":{"message":"who","code":"invalid_api_key"}}"#,
                FaultKind::Unauthenticated,
                "who",
            ),
            (404, r#"{"error":"no such model"}"#, FaultKind::NotFound, "no such model"),
            (422, r#"{"detail":"odd"}"#, FaultKind::Invalid, "odd"),
            (429, r#"{"error":{"message":"wait"}}"#, FaultKind::RateLimited, "wait"),
            (500, "<html>", FaultKind::Internal, "the provider answered with status 500"),
            (502, "", FaultKind::Unreachable, "the provider answered with status 502"),
            (503, r#"{"message":"full"}"#, FaultKind::Overloaded, "full"),
            (
                504,
                r#"{"error":{"message":""}}"#,
                FaultKind::TimedOut,
                "the provider answered with status 504",
            ),
        ] {
            assert_eq!(read(status, body.as_bytes()), Fault::new(kind, message), "{body}");
        }
    }

    #[test]
    fn recognises_a_refusal_of_reasoning() {
        let error = |code: &str, message: &str| {
            json!({"error": {"message": message, "code": code}}).to_string().into_bytes()
        };
        use RefusalKind::{MissingThinking, Signature};
        for (code, message, refused) in [
            ("invalid_encrypted_content", "", Some(Signature)),
            ("", "The encrypted content gAAA... could not be verified. Reason: x", Some(Signature)),
            (
                "",
                "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false.",
                Some(Signature),
            ),
            (
                "",
                "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
                Some(MissingThinking),
            ),
            (
                "",
                "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
                Some(MissingThinking),
            ),
            ("", "No tool output found for function call call_1.", None),
        ] {
            assert_eq!(refused_reasoning(400, &error(code, message)), refused, "{message}");
            assert_eq!(refused_reasoning(500, &error(code, message)), None);
        }
    }
}
