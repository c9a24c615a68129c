//! Losses that several dialects report.

use throughline_canonical::{BlockStart, Delta, EndDetails, Event, Loss};

/// A set of losses: each is reported once.
#[derive(Debug, Default)]
pub(crate) struct Losses(pub(crate) Vec<Loss>);

impl Losses {
    /// Records an omitted part.
    pub(crate) fn omit(&mut self, part: &'static str, reason: &'static str) {
        self.add(Loss::of_part(part, reason));
    }

    /// Records an adapted setting.
    pub(crate) fn adapt(&mut self, setting: &'static str, reason: &'static str) {
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
    omit(losses, "tool_result", "missing");
    "The tool was not run."
}

/// Records that an incomplete call was dropped.
pub(crate) fn unfinished_call(losses: &mut Vec<Loss>) {
    omit(losses, "tool_call", "unfinished");
}

/// Records an omitted part unless it is there already.
pub(crate) fn omit(losses: &mut Vec<Loss>, part: &'static str, reason: &'static str) {
    let loss = Loss::of_part(part, reason);
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
            Some(Loss::of_part(name, "foreign_dialect"))
        }
        Event::BlockDelta { delta: Delta::Citation(citation), .. }
            if citation.written_by(own).is_none() =>
        {
            match (&citation.url, &citation.quote) {
                (None, _) => Some(Loss::of_part("citations", "foreign_dialect")),
                (Some(_), Some(_)) => Some(Loss::of_part("citations.quote", "no_word")),
                (Some(_), None) => None,
            }
        }
        Event::EndExplained(EndDetails { category: Some(_), .. }) => {
            Some(Loss::of_part("stop_details.category", "no_word"))
        }
        _ => None,
    }
}
