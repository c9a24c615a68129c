//! Refusals in this provider's own words.

use http::StatusCode;

use crate::refusal::Refusal;

/// A member that has to be there.
pub(crate) fn missing(path: &str) -> Refusal {
    coded(
        format!("Missing required parameter: '{path}'."),
        path,
        "missing_required_parameter",
    )
}

/// Something about the conversation; only `input` is named then.
pub(crate) fn of_input(status: StatusCode, message: String) -> Refusal {
    Refusal {
        parameter: Some("input".to_owned()),
        ..Refusal::new(status, message)
    }
}

/// A status 400 with a code.
pub(crate) fn coded(message: String, path: &str, code: &'static str) -> Refusal {
    Refusal {
        parameter: Some(path.to_owned()),
        code: Some(code),
        ..Refusal::invalid(message)
    }
}
