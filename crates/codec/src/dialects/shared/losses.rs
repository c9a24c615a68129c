//! Losses that several dialects report.

use serde_json::{Map, Value};
use throughline_canonical::{
    BlockStart, Delta, EndDetails, Event, Loss, LossReason, LossSubject, Request,
};

/// A set of losses: each is reported once.
#[derive(Debug, Default)]
pub(crate) struct Losses(pub(crate) Vec<Loss>);

impl Losses {
    /// Records an omitted part.
    pub(crate) fn omit(&mut self, part: LossSubject, reason: LossReason) {
        self.add(Loss::of_part(part, reason));
    }

    /// Records an adapted setting.
    pub(crate) fn adapt(&mut self, setting: LossSubject, reason: LossReason) {
        self.add(Loss::SettingAdapted { setting, reason });
    }

    /// Records a loss unless it is there already.
    pub(crate) fn add(&mut self, loss: Loss) {
        if !self.0.contains(&loss) {
            self.0.push(loss);
        }
    }
}

/// Members of other dialects that are reported in another way: the canonical request has them too,
/// or the reader of the client's request has reported them.
const REPORTED: [&str; 5] =
    ["logprobs", "top_logprobs", "responseLogprobs", "presence_penalty", "frequency_penalty"];
/// Members that group others. Their own members are reported.
const GROUPS: [&str; 7] =
    ["generationConfig", "options", "output_config", "reasoning", "text", "thinking", "toolConfig"];
/// Members that name a part of the conversation which a provider stores.
const STORED: [(&str, LossSubject); 4] = [
    ("cachedContent", LossSubject::CachedContent),
    ("cached_content", LossSubject::CachedContent),
    ("previous_response_id", LossSubject::StoredResponse),
    ("conversation", LossSubject::StoredResponse),
];
/// How many members of one request are reported by name.
const MAX_NAMED_MEMBERS: usize = 16;

/// Records the members that only another dialect than `own` has, by name.
pub(crate) fn omit_foreign_members(request: &Request, own: &str, losses: &mut Vec<Loss>) {
    let mut named = 0;
    let mut report = |name: &str| {
        named += 1;
        let stored = STORED.iter().find(|(stored, _)| *stored == name);
        let part = match stored {
            Some((_, stored)) => stored.clone(),
            None if named <= MAX_NAMED_MEMBERS => LossSubject::named(name),
            None => LossSubject::Extra,
        };
        omit(losses, part, LossReason::ForeignDialect);
    };
    let foreign = request.extra.iter().filter(|(dialect, _)| *dialect != own);
    for (name, value) in foreign.flat_map(|(_, members)| members) {
        match value {
            _ if REPORTED.contains(&name.as_str()) => {}
            Value::Object(members) if GROUPS.contains(&name.as_str()) => {
                let inner = members.keys().filter(|inner| !REPORTED.contains(&inner.as_str()));
                inner.for_each(|inner| report(&format!("{name}.{inner}")));
            }
            _ => report(name),
        }
    }
}

/// The loss of a block that only another dialect has. One that is a file in its provider's store is a
/// part of what the model has to read.
pub(crate) fn foreign_block(value: &Value) -> Loss {
    match value.get("file_id") {
        Some(Value::String(_)) => Loss::of_part(LossSubject::MediaFile, LossReason::ForeignFile),
        _ => Loss::of_part(LossSubject::Block, LossReason::ForeignDialect),
    }
}

/// Records that a request asks for the probabilities of tokens, which no canonical reply has.
pub(crate) fn omit_logprobs(losses: &mut Vec<Loss>) {
    omit(losses, LossSubject::Logprobs, LossReason::NoWord);
}

/// Reads members that ask for the probabilities of tokens. They stay in `members` for servers of the
/// same dialect, unless they ask for none.
pub(crate) fn read_logprobs(members: &mut Map<String, Value>, losses: &mut Vec<Loss>) {
    let asks = |value: &Value| value.as_bool() == Some(true) || value.as_u64().unwrap_or(0) > 0;
    for name in ["logprobs", "top_logprobs", "responseLogprobs"] {
        match members.get(name) {
            Some(value) if asks(value) => omit_logprobs(losses),
            Some(_) => {
                members.remove(name);
            }
            None => {}
        }
    }
}

/// The result for a call that the client sent without one. Models reject calls without a result.
pub(crate) fn missing_result(losses: &mut Vec<Loss>) -> &'static str {
    omit(losses, LossSubject::ToolResult, LossReason::Missing);
    "The tool was not run."
}

/// Records that an incomplete call was dropped.
pub(crate) fn unfinished_call(losses: &mut Vec<Loss>) {
    omit(losses, LossSubject::ToolCall, LossReason::Unfinished);
}

/// Records an omitted part unless it is there already.
pub(crate) fn omit(losses: &mut Vec<Loss>, part: LossSubject, reason: LossReason) {
    let loss = Loss::of_part(part, reason);
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

/// Records an adapted setting unless it is there already.
pub(crate) fn adapt(losses: &mut Vec<Loss>, setting: LossSubject, reason: LossReason) {
    let loss = Loss::SettingAdapted { setting, reason };
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

/// The loss of an event that most reply writers cannot express: a part that only another dialect has.
pub(crate) fn lost_part(event: &Event<'_>, own: &str) -> Option<Loss> {
    match event {
        Event::BlockStarted { block: BlockStart::Opaque { dialect, name }, .. }
            if dialect != own =>
        {
            Some(Loss::of_part(LossSubject::named(name), LossReason::ForeignDialect))
        }
        Event::BlockDelta { delta: Delta::Citation(citation), .. }
            if citation.written_by(own).is_none() =>
        {
            match (&citation.url, &citation.quote) {
                (None, _) => {
                    Some(Loss::of_part(LossSubject::Citations, LossReason::ForeignDialect))
                }
                (Some(_), Some(_)) => {
                    Some(Loss::of_part(LossSubject::CitationsQuote, LossReason::NoWord))
                }
                (Some(_), None) => None,
            }
        }
        Event::EndExplained(EndDetails { category: Some(_), .. }) => {
            Some(Loss::of_part(LossSubject::StopDetailsCategory, LossReason::NoWord))
        }
        _ => None,
    }
}
