//! The breakpoints for the prompt cache, as several dialects write them.

use serde_json::{Value, json};
use throughline_canonical::{
    CacheBreakpoints, CachePlace, CacheTime, Fault, Loss, LossReason, LossSubject, Request,
};

use super::losses::{adapt, omit};
use crate::dialects::Target;
use crate::json::Node;

/// The member of a part that ends a prefix.
pub(crate) const CACHE_CONTROL: &str = "cache_control";
/// OpenAI's member of a part that ends a prefix. It does not say for how long.
pub(crate) const PROMPT_CACHE_BREAKPOINT: &str = "prompt_cache_breakpoint";

/// Reads the breakpoint of a part.
pub(crate) fn read_breakpoint(part: &Node<'_>) -> Result<Option<CacheTime>, Fault> {
    let Some(breakpoint) = part.get(CACHE_CONTROL) else {
        return Ok(None);
    };
    breakpoint.object()?;
    let kind = breakpoint.need("type")?;
    if kind.text()? != "ephemeral" {
        return Err(kind.refuse("expected `ephemeral`"));
    }
    let Some(time) = breakpoint.get("ttl") else {
        return Ok(Some(CacheTime::Minutes));
    };
    match time.text()? {
        "5m" => Ok(Some(CacheTime::Minutes)),
        "1h" => Ok(Some(CacheTime::Hour)),
        _ => Err(time.refuse("expected `5m` or `1h`")),
    }
}

/// A part without its breakpoint.
pub(crate) fn without_breakpoint(part: &Value) -> Value {
    let mut part = part.clone();
    if let Value::Object(members) = &mut part {
        members.shift_remove(CACHE_CONTROL);
    }
    part
}

/// Adds a breakpoint to the part that was just written: an object with other members.
pub(crate) fn add_breakpoint(out: &mut Vec<u8>, time: CacheTime) {
    if out.pop_if(|last| *last == b'}').is_some() {
        out.extend_from_slice(
            format!(",\"{CACHE_CONTROL}\":{}}}", breakpoint_value(time)).as_bytes(),
        );
    }
}

/// A breakpoint as a value.
pub(crate) fn breakpoint_value(time: CacheTime) -> Value {
    match time {
        CacheTime::Minutes => json!({"type": "ephemeral"}),
        CacheTime::Hour => json!({"type": "ephemeral", "ttl": "1h"}),
    }
}

/// The breakpoints of a request in a dialect that has them on the parts of messages.
pub(crate) struct PartBreakpoints<'r> {
    breakpoints: Option<&'r CacheBreakpoints>,
    /// The member of a part that ends a prefix.
    member: &'static str,
}

impl<'r> PartBreakpoints<'r> {
    /// The breakpoints, if the target takes any. A breakpoint at the end needs a part of its own.
    pub(crate) fn new(
        request: &'r Request,
        target: &Target<'_>,
        member: &'static str,
        losses: &mut Vec<Loss>,
    ) -> Self {
        let breakpoints =
            Some(&request.cache_breakpoints).filter(|breakpoints| !breakpoints.is_empty());
        let is_taken = target.profile.cache_breakpoints.taken_by.contain(target.model);
        let at_end = request.cache_breakpoints.at(CachePlace::End).is_some();
        if breakpoints.is_some() && !is_taken || at_end {
            omit(losses, LossSubject::CacheControl, LossReason::NoPlace);
        }
        Self { breakpoints: breakpoints.filter(|_| is_taken), member }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.breakpoints.is_some()
    }

    /// The breakpoint at a place.
    pub(crate) fn at(&self, position: CachePlace) -> Option<CacheTime> {
        self.breakpoints.and_then(|breakpoints| breakpoints.at(position))
    }

    /// Adds a breakpoint to a part.
    pub(crate) fn write(&self, part: &mut Value, time: CacheTime, losses: &mut Vec<Loss>) {
        let Value::Object(members) = part else {
            return;
        };
        let breakpoint = match self.member {
            PROMPT_CACHE_BREAKPOINT => {
                if time == CacheTime::Hour {
                    adapt(losses, LossSubject::CacheControl, LossReason::Range);
                }
                json!({"mode": "explicit"})
            }
            _ => breakpoint_value(time),
        };
        members.insert(self.member.to_owned(), breakpoint);
    }
}
