//! Finish reasons.

use throughline_canonical::{EndReason, Fault, FaultKind};

use super::super::{REFUSALS, REFUSED};

/// The end of an answer.
#[derive(Debug)]
pub(super) enum Finish {
    Reason(EndReason),
    Fault(Fault),
}

/// The meaning of a finish reason; `None` if it says nothing.
pub(super) fn finish(word: &str, message: Option<&str>) -> Option<Finish> {
    let failed = |kind, default: &str| {
        Finish::Fault(Fault::new(kind, message.unwrap_or(default).to_owned()))
    };
    Some(match word {
        "" | "FINISH_REASON_UNSPECIFIED" => return None,
        // The provider ends a reply with calls like any other. Some servers of its dialect do not.
        "STOP" | "FUNCTION_CALL" => Finish::Reason(EndReason::Stop),
        "MAX_TOKENS" | "CONTINUATION" => Finish::Reason(EndReason::Length),
        word if word == REFUSED || REFUSALS.contains(&word) => Finish::Reason(EndReason::Refusal),
        "MALFORMED_FUNCTION_CALL" => failed(
            FaultKind::ToolCallUnreadable,
            "the model wrote a function call that cannot be read",
        ),
        "UNEXPECTED_TOOL_CALL" => {
            failed(FaultKind::ToolCallUnreadable, "the model called a tool it was not offered")
        }
        "MALFORMED_RESPONSE" => failed(FaultKind::Unreachable, "the model's answer cannot be read"),
        "MISSING_THOUGHT_SIGNATURE" => {
            failed(FaultKind::Invalid, "a function call of the request lacks its thought signature")
        }
        other => Finish::Reason(EndReason::Other(other.to_owned())),
    })
}
