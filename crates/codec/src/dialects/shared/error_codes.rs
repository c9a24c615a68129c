//! Error codes that programs act on: a client shortens a conversation that is too long, or stops
//! when the credit is spent. Each dialect spells these errors differently.

use throughline_canonical::{Fault, FaultKind};

/// The conversation exceeds the model's context.
const TOO_LONG: &str = "context_length_exceeded";

/// Codes of OpenAI's dialects that say more than the kind of the error.
const KNOWN: [&str; 4] =
    [TOO_LONG, "insufficient_quota", "model_not_found", "content_policy_violation"];

/// Phrases of providers that send no such code, in lower case.
const SENTENCES: [&str; 5] = [
    "prompt is too long",
    "maximum context length",
    "exceeds the maximum number of tokens allowed",
    "exceeds the available context size",
    "exceeds the context window",
];

/// Clients of Anthropic's dialect look for this phrase and then shorten the conversation.
const PROMPT_TOO_LONG: &str = "prompt is too long";

/// Completes a provider's error: with the path that its message starts with, and with the error
/// code, the provider's or the one that its message implies.
pub(crate) fn with_code(mut fault: Fault, code: Option<&str>) -> Fault {
    if fault.kind == FaultKind::Invalid {
        fault.path = path_in(&fault.message).map(str::to_owned);
    }
    if let Some(code) = code.filter(|code| KNOWN.contains(code)) {
        return fault.with_code(code);
    }
    let sentence = fault.message.to_ascii_lowercase();
    if SENTENCES.iter().any(|known| sentence.contains(known)) {
        return fault.with_code(TOO_LONG);
    }
    fault
}

/// The path of the wrong member in a provider's message, such as `max_tokens: must be positive`.
fn path_in(message: &str) -> Option<&str> {
    let (path, _) = message.split_once(": ")?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
    (!path.is_empty() && path.bytes().all(plain)).then_some(path)
}

/// The message, with the phrase that Anthropic's clients look for.
pub(crate) fn message_for_anthropic(fault: &Fault) -> String {
    let message = &fault.message;
    if fault.code.as_deref() == Some(TOO_LONG)
        && !message.to_ascii_lowercase().contains(PROMPT_TOO_LONG)
    {
        return format!("{PROMPT_TOO_LONG}: {message}");
    }
    message.clone()
}

/// The code that Anthropic's clients act on. The codes of OpenAI's dialects mean nothing to them.
pub(crate) fn code_for_anthropic(fault: &Fault) -> Option<&str> {
    let own = ["thread_", "compaction_"];
    fault.code.as_deref().filter(|code| own.iter().any(|prefix| code.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::dialects::{CLIENT, UPSTREAM};

    fn fault_of(dialect: &str, body: &Value) -> throughline_canonical::Fault {
        let upstream = UPSTREAM.iter().find(|known| known.name() == dialect);
        let upstream = upstream.expect("an upstream dialect");
        upstream.read_fault(400, body.to_string().as_bytes())
    }

    fn written_by(dialect: &str, fault: &throughline_canonical::Fault) -> Value {
        let client = CLIENT.iter().find(|known| known.name() == dialect);
        let (_, body) = client.expect("a client dialect").write_fault(fault, "");
        serde_json::from_slice(&body).expect("JSON")
    }

    #[test]
    fn context_overflow_keeps_its_code_in_every_dialect() {
        let openai = json!({"error": {"message": "no", "type": "invalid_request_error", "code": "context_length_exceeded"}});
        let cases = [
            (
                "anthropic",
                json!({"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8 maximum"}}),
            ),
            (
                "gemini",
                json!({"error": {"code": 400, "status": "INVALID_ARGUMENT",
                    "message": "The input token count (9) exceeds the maximum number of tokens allowed (8)."}}),
            ),
            (
                "openai_chat",
                json!({"object": "error", "message": "This model's maximum context length is 8 tokens.", "code": 400}),
            ),
            ("openai_chat", openai.clone()),
            ("openai_responses", openai),
        ];
        for (dialect, body) in cases {
            let fault = fault_of(dialect, &body);
            for client in ["openai_chat", "openai_responses"] {
                let body = written_by(client, &fault);
                assert_eq!(body["error"]["code"], "context_length_exceeded", "{dialect} {client}");
            }
            let body = written_by("anthropic", &fault);
            let message = body["error"]["message"].as_str().expect("a sentence");
            assert!(message.starts_with("prompt is too long: "), "{dialect}: {message}");
            assert_eq!(message.matches("too long").count(), 1, "{message}");
        }
    }

    #[test]
    fn unknown_error_codes_are_dropped() {
        let body = json!({"error": {"message": "who", "code": "odd"}});
        assert_eq!(fault_of("openai_responses", &body).code, None);
    }
}
