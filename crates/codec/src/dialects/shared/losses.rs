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
const STORED: [(&str, LossSubject); 5] = [
    ("container", LossSubject::Container),
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
    let mut report = |name: &str, value: &Value| {
        let stored = STORED.iter().find(|(stored, _)| *stored == name);
        let part = match stored {
            _ if value.is_null() || is_plain_text(name, value) => return,
            _ if is_modalities(name) => LossSubject::Modalities,
            Some((_, stored)) => stored.clone(),
            None if named < MAX_NAMED_MEMBERS => LossSubject::named(name),
            None => LossSubject::Extra,
        };
        named += 1;
        omit(losses, part, LossReason::ForeignDialect);
    };
    let foreign = request.extra.iter().filter(|(dialect, _)| *dialect != own);
    for (name, value) in foreign.flat_map(|(_, members)| members) {
        match value {
            _ if REPORTED.contains(&name.as_str()) => {}
            Value::Object(members) if GROUPS.contains(&name.as_str()) => {
                let inner = members.iter().filter(|(inner, _)| !REPORTED.contains(&inner.as_str()));
                inner.for_each(|(inner, value)| report(&format!("{name}.{inner}"), value));
            }
            _ => report(name, value),
        }
    }
}

/// Whether a member asks for answers in other forms than text.
fn is_modalities(name: &str) -> bool {
    matches!(name, "modalities" | "generationConfig.responseModalities")
}

/// Whether a member asks for answers as text, as every model gives them.
fn is_plain_text(name: &str, value: &Value) -> bool {
    let is_text =
        |form: &Value| form.as_str().is_some_and(|form| form.eq_ignore_ascii_case("text"));
    is_modalities(name) && value.as_array().is_some_and(|forms| forms.iter().all(is_text))
}

/// The subject of a member that a server of its own dialect does not know. `None` if leaving it out
/// changes nothing.
pub(crate) fn unknown_member(name: &'static str, value: &Value) -> Option<LossSubject> {
    match is_modalities(name) {
        true => (!is_plain_text(name, value)).then_some(LossSubject::Modalities),
        false => Some(LossSubject::named(name)),
    }
}

/// The loss of a block that only another dialect has. One that is in its provider's store is a part
/// of what the model has to read.
pub(crate) fn foreign_block(value: &Value) -> Loss {
    let names = |pointer: &str| value.pointer(pointer).is_some_and(Value::is_string);
    match () {
        () if names("/file_id") => Loss::of_part(LossSubject::MediaFile, LossReason::ForeignFile),
        () if names("/audio/id") => {
            Loss::of_part(LossSubject::StoredAudio, LossReason::ForeignFile)
        }
        () => Loss::of_part(LossSubject::Block, LossReason::ForeignDialect),
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
