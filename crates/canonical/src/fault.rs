//! Faults: the only errors that reach a client. A fault has a kind, a message that is safe to show,
//! and a hint when to retry. Each client dialect writes it in its own form.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An error as a value.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
#[cfg_attr(test, ts(optional_fields))]
pub struct Fault {
    /// The kind, which decides the status.
    pub kind: FaultKind,
    /// A message for people. It starts with the path, if there is one.
    pub message: String,
    /// The path of the wrong member, such as `messages[2].role`. Each dialect has its own member for
    /// it, so it is not part of the canonical JSON.
    #[serde(skip)]
    pub path: Option<String>,
    /// Seconds after which a retry may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// A code for programs, if the kind says too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Fault {
    /// Creates a fault of this kind.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), path: None, retry_after: None, code: None }
    }

    /// Adds a code for programs.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// A fault for a request that cannot be understood.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message)
    }

    /// A fault for a wrong member of a request: `messages[2].role: is required`.
    pub fn at(path: impl Into<String>, why: impl fmt::Display) -> Self {
        let path = path.into();
        let message = format!("{path}: {why}");
        Self { path: Some(path), ..Self::invalid(message) }
    }
}

/// The kinds of fault.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The request cannot be understood.
    Invalid,
    /// The credential is missing or rejected.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// The resource does not exist.
    NotFound,
    /// The resource exists, but not for this method.
    WrongMethod,
    /// The request conflicts with the current state.
    Conflict,
    /// The request is too large.
    TooLarge,
    /// Too many requests.
    RateLimited,
    /// The server has no capacity now.
    Overloaded,
    /// The provider could not be reached, or its reply could not be read.
    Unreachable,
    /// The provider did not answer in time.
    TimedOut,
    /// The model wrote a tool call that cannot be parsed.
    #[serde(rename = "tool_call_parse_error")]
    ToolCallUnreadable,
    /// An internal error.
    Internal,
}

impl FaultKind {
    /// The word for it in logs and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Unauthenticated => "unauthenticated",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::WrongMethod => "wrong_method",
            Self::Conflict => "conflict",
            Self::TooLarge => "too_large",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Unreachable => "unreachable",
            Self::TimedOut => "timed_out",
            Self::ToolCallUnreadable => "tool_call_parse_error",
            Self::Internal => "internal",
        }
    }
}
