//! Errors, both ways: `{"error":{"code":400,"message":"...","status":"INVALID_ARGUMENT"}}`, on
//! stream endpoints sometimes inside a list.

use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};

use crate::dialects::shared::{error_codes, fault_status};

const RETRY: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The status and the body of an error.
pub fn write(fault: &Fault) -> (u16, Vec<u8>) {
    let (code, _) = status(fault.kind);
    (code, value(fault).to_string().into_bytes())
}

/// An error as JSON, also for the middle of a stream.
pub(crate) fn value(fault: &Fault) -> Value {
    let (code, status) = status(fault.kind);
    let mut error = json!({"code": code, "message": fault.message, "status": status});
    if let Some(seconds) = fault.retry_after {
        error["details"] = json!([{"@type": RETRY, "retryDelay": format!("{seconds}s")}]);
    }
    json!({"error": error})
}

/// Reads an error that arrives instead of a reply.
pub fn read(status: u16, body: &[u8]) -> Fault {
    let kind = kind_of_code(status);
    let found =
        serde_json::from_slice::<Value>(body).ok().and_then(|value| read_value(&value, kind));
    found.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        let text = text.trim();
        Fault::new(
            kind,
            match text.char_indices().nth(500) {
                _ if text.is_empty() => format!("the provider answered with status {status}"),
                Some((end, _)) => format!("{}...", &text[..end]),
                None => text.to_owned(),
            },
        )
    })
}

/// Reads an error object, or the list that contains it. `kind` is the default.
pub(crate) fn read_value(value: &Value, kind: FaultKind) -> Option<Fault> {
    let value = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    let error = value.get("error")?;
    let code = error.get("code").and_then(Value::as_u64);
    let word = error.get("status").and_then(Value::as_str);
    let of_code = code.map(|code| kind_of_code(u16::try_from(code).unwrap_or(500)));
    let kind = match (word.and_then(kind_of_status), of_code) {
        // The dialect has no status words for these.
        (Some(FaultKind::Invalid), Some(FaultKind::TooLarge)) => FaultKind::TooLarge,
        (Some(FaultKind::Overloaded), Some(FaultKind::Unreachable)) => FaultKind::Unreachable,
        (of_word, of_code) => of_word.or(of_code).unwrap_or(kind),
    };
    let message = match error {
        Value::String(message) => message,
        _ => error.get("message").and_then(Value::as_str).unwrap_or("the provider failed"),
    };
    let mut fault = error_codes::with_code(Fault::new(kind, message), None);
    for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| detail.get(key).and_then(Value::as_str);
        if let Some(delay) = text("retryDelay").and_then(seconds) {
            fault.retry_after = Some(delay);
        }
        // An invalid key is reported as an invalid argument.
        if text("reason") == Some("API_KEY_INVALID") {
            fault.kind = FaultKind::Unauthenticated;
        }
    }
    Some(fault)
}

/// Parses the seconds in `3s` or `1.5s`, rounded up.
fn seconds(delay: &str) -> Option<u64> {
    let seconds: f64 = delay.strip_suffix('s')?.parse().ok()?;
    (0.0..1e9).contains(&seconds).then(|| seconds.ceil() as u64)
}

fn status(kind: FaultKind) -> (u16, &'static str) {
    match kind {
        FaultKind::Invalid => (400, "INVALID_ARGUMENT"),
        FaultKind::Unauthenticated => (401, "UNAUTHENTICATED"),
        FaultKind::Forbidden => (403, "PERMISSION_DENIED"),
        FaultKind::NotFound => (404, "NOT_FOUND"),
        FaultKind::WrongMethod => (405, "INVALID_ARGUMENT"),
        FaultKind::Conflict => (409, "ABORTED"),
        FaultKind::TooLarge => (413, "INVALID_ARGUMENT"),
        FaultKind::RateLimited => (429, "RESOURCE_EXHAUSTED"),
        FaultKind::Overloaded => (503, "UNAVAILABLE"),
        FaultKind::Unreachable => (502, "UNAVAILABLE"),
        FaultKind::TimedOut => (504, "DEADLINE_EXCEEDED"),
        FaultKind::ToolCallUnreadable => (502, "INTERNAL"),
        FaultKind::Internal => (500, "INTERNAL"),
    }
}

fn kind_of_status(status: &str) -> Option<FaultKind> {
    Some(match status {
        "INVALID_ARGUMENT" | "FAILED_PRECONDITION" | "OUT_OF_RANGE" => FaultKind::Invalid,
        "UNAUTHENTICATED" => FaultKind::Unauthenticated,
        "PERMISSION_DENIED" => FaultKind::Forbidden,
        "NOT_FOUND" => FaultKind::NotFound,
        "ALREADY_EXISTS" | "ABORTED" => FaultKind::Conflict,
        "RESOURCE_EXHAUSTED" => FaultKind::RateLimited,
        "UNAVAILABLE" => FaultKind::Overloaded,
        "DEADLINE_EXCEEDED" => FaultKind::TimedOut,
        "CANCELLED" => FaultKind::Unreachable,
        "INTERNAL" | "UNKNOWN" | "DATA_LOSS" | "UNIMPLEMENTED" => FaultKind::Internal,
        _ => return None,
    })
}

fn kind_of_code(code: u16) -> FaultKind {
    match code {
        402 => FaultKind::Invalid,
        // The provider's client closed the connection.
        499 => FaultKind::Unreachable,
        _ => fault_status::kind_of(code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_has_the_form_of_the_provider() {
        let (status, body) = write(&Fault::at("contents", "is required"));
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, 400);
        assert_eq!(
            body,
            json!({"error": {"code": 400, "message": "contents: is required", "status": "INVALID_ARGUMENT"}})
        );
    }

    #[test]
    fn status_word_decides_the_fault_kind() {
        for (word, kind) in [
            ("INVALID_ARGUMENT", FaultKind::Invalid),
            ("FAILED_PRECONDITION", FaultKind::Invalid),
            ("OUT_OF_RANGE", FaultKind::Invalid),
            ("UNAUTHENTICATED", FaultKind::Unauthenticated),
            ("PERMISSION_DENIED", FaultKind::Forbidden),
            ("NOT_FOUND", FaultKind::NotFound),
            ("ALREADY_EXISTS", FaultKind::Conflict),
            ("ABORTED", FaultKind::Conflict),
            ("RESOURCE_EXHAUSTED", FaultKind::RateLimited),
            ("INTERNAL", FaultKind::Internal),
            ("UNKNOWN", FaultKind::Internal),
            ("UNAVAILABLE", FaultKind::Overloaded),
            ("DEADLINE_EXCEEDED", FaultKind::TimedOut),
        ] {
            let body =
                json!({"error": {"code": 418, "message": "m", "status": word, "details": []}});
            for body in [body.clone(), json!([body])] {
                let fault = read(418, body.to_string().as_bytes());
                assert_eq!(fault, Fault::new(kind, "m"), "{word}");
            }
        }
    }

    #[test]
    fn details_give_the_retry_delay_and_an_invalid_key() {
        let body = json!([{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": RETRY, "retryDelay": "33.2s"}]}}]);
        assert_eq!(read(429, body.to_string().as_bytes()).retry_after, Some(34));
        let body = json!({"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT",
            "details": [{"reason": "API_KEY_INVALID"}]}});
        let fault = read(400, body.to_string().as_bytes());
        assert_eq!(fault.kind, FaultKind::Unauthenticated);
    }

    #[test]
    fn error_without_json_keeps_its_status_and_text() {
        for (status, body, kind, message) in [
            (502, "<html>bad</html>", FaultKind::Unreachable, "<html>bad</html>"),
            (503, "", FaultKind::Overloaded, "the provider answered with status 503"),
            (404, "{\"error\":\"no such model\"}", FaultKind::NotFound, "no such model"),
            (418, "[]", FaultKind::Invalid, "[]"),
        ] {
            assert_eq!(read(status, body.as_bytes()), Fault::new(kind, message));
        }
        assert!(read(500, "é".repeat(4000).as_bytes()).message.len() < 2000);
    }

    #[test]
    fn written_error_reads_back() {
        for kind in [
            FaultKind::Invalid,
            FaultKind::Unauthenticated,
            FaultKind::Forbidden,
            FaultKind::NotFound,
            FaultKind::Conflict,
            FaultKind::TooLarge,
            FaultKind::RateLimited,
            FaultKind::Overloaded,
            FaultKind::Unreachable,
            FaultKind::TimedOut,
            FaultKind::Internal,
        ] {
            let mut fault = Fault::new(kind, "why \"so\"");
            fault.retry_after = Some(3);
            let (status, body) = write(&fault);
            assert_eq!(read(status, &body), fault);
        }
    }
}
