//! Errors of the conversation API: a problem as RFC 9457 defines it, with a hint and the facts that a
//! client needs to go on.

use serde_json::{Map, Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::ClientDialect;
use throughline_codec::dialects::stored::Stored;
use throughline_gateway::thinking::store::StoreError;

use crate::sealed_store::{UNREADABLE, fault};

/// An error of the conversation API. Boxed, because results are returned often and fail rarely.
#[derive(Clone, Debug)]
pub struct Problem(Box<Details>);

#[derive(Clone, Debug)]
struct Details {
    fault: Fault,
    /// The last part of its `type`, for programs.
    kind: &'static str,
    hint: Option<String>,
    /// The status, if the kind of fault has none of its own.
    status: Option<(u16, &'static str)>,
    extra: Map<String, Value>,
}

impl Problem {
    /// A problem of this kind.
    pub fn new(fault_kind: FaultKind, kind: &'static str, detail: impl Into<String>) -> Self {
        let fault = Fault::new(fault_kind, detail);
        Self(Box::new(Details { fault, kind, hint: None, status: None, extra: Map::new() }))
    }

    /// Something that does not exist, or belongs to another caller.
    pub fn not_found(what: &str, id: &str) -> Self {
        Self::new(FaultKind::NotFound, "not-found", format!("there is no {what} `{id}`"))
    }

    /// A wrong member of a request.
    pub fn invalid(path: &str, message: impl std::fmt::Display) -> Self {
        Fault::at(path, message).into()
    }

    /// A request that does not fit the present state.
    pub fn conflict(kind: &'static str, detail: impl Into<String>) -> Self {
        Self::new(FaultKind::Conflict, kind, detail)
    }

    /// Contents that cannot be read without a key.
    pub fn locked(detail: impl Into<String>) -> Self {
        let mut locked = Self::new(FaultKind::Forbidden, "locked", detail);
        locked.0.status = Some((423, "Locked"));
        locked
    }

    /// Adds what the caller can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds a fact that the caller needs to go on.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.extra.insert(name.to_owned(), value.into());
        self
    }

    /// Adds how long the caller has to wait, in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.fault.retry_after = Some(seconds);
        self
    }

    /// The same about a member that the caller knows by another name.
    #[must_use]
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Self {
        let rest = self.0.fault.path.as_deref().and_then(|path| path.strip_prefix(from));
        if let Some(path) = rest.map(|rest| format!("{to}{rest}")) {
            self.0.fault.path = Some(path);
        }
        self
    }

    /// The fault.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// The status and the body.
    pub fn write(&self) -> (u16, Value) {
        let Details { fault, kind, hint, status, extra } = &*self.0;
        let (mut code, body) = Stored.write_fault(fault, "");
        let mut body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if let Some((status, title)) = status {
            code = *status;
            (body["status"], body["title"]) = (json!(status), json!(title));
        }
        if !kind.is_empty() {
            body["type"] = json!(format!("/problems/{kind}"));
        }
        body["hint"] = json!(hint.as_deref().unwrap_or_else(|| default_hint(fault.kind)));
        for (name, value) in extra {
            body[name] = value.clone();
        }
        (code, body)
    }
}

/// What the caller can do about a fault that says nothing itself.
fn default_hint(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Invalid | FaultKind::WrongMethod | FaultKind::TooLarge => {
            "see /api/docs for what this request takes"
        }
        FaultKind::NotFound => {
            "check the id, and the key that you present: each key has its own projects"
        }
        FaultKind::Conflict => "read the present state and try again",
        FaultKind::RateLimited | FaultKind::Overloaded => "retry later",
        FaultKind::Unreachable | FaultKind::TimedOut => {
            "check the backend with `throughline doctor`"
        }
        _ => "see the server's log",
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let is_unreadable = fault.code.as_deref() == Some(UNREADABLE);
        let details = Details { fault, kind: "", hint: None, status: None, extra: Map::new() };
        let mut problem = Self(Box::new(details));
        if is_unreadable {
            problem.0.kind = UNREADABLE;
            problem = problem.with("code", UNREADABLE).hint(
                "the stored value was damaged or moved; `throughline keys verify` finds all such rows",
            );
        }
        problem
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        fault(error).into()
    }
}
