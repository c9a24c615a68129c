//! The only error that travels to a client: a kind, a sentence that is safe to show, a hint when
//! to try again. Each client dialect writes it in its own form.

use serde::{Deserialize, Serialize};

/// What went wrong, told as a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Its kind; decides the status.
    pub kind: FaultKind,
    /// A sentence for the person who asked.
    pub message: String,
    /// Seconds after which another try may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// A word for programs, where the kind says too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl Fault {
    /// A fault of this kind with this sentence.
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None, code: None }
    }

    /// The same with a word for programs.
    #[must_use]
    pub fn with_code(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// The caller asked for something that cannot be understood.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(FaultKind::Invalid, message)
    }

    /// The path of the wrong member, with which the sentence about it begins: `messages[2].role: is
    /// required`.
    pub fn place(&self) -> Option<&str> {
        let (path, _) = self.message.split_once(": ")?;
        let of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.[]".contains(&byte);
        (self.kind == FaultKind::Invalid && !path.is_empty() && path.bytes().all(of_path))
            .then_some(path)
    }
}

/// The kinds of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The request cannot be understood.
    Invalid,
    /// The credential is missing or refused.
    Unauthenticated,
    /// The caller may not do this.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// There is something, but not for this method.
    WrongMethod,
    /// The request does not fit the present state.
    Conflict,
    /// The request is too large.
    TooLarge,
    /// Too many requests.
    RateLimited,
    /// The server has no room for it now.
    Overloaded,
    /// The provider could not be reached, or spoke nonsense.
    Unreachable,
    /// The provider did not answer in time.
    TimedOut,
    /// The model wrote a tool call that cannot be read.
    #[serde(rename = "tool_call_parse_error")]
    ToolCallUnreadable,
    /// Something failed inside.
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
