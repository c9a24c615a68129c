//! Losses that several dialects report.

use throughline_canonical::{BlockStart, Delta, EndDetails, Event, Loss, LossReason, LossSubject};

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
