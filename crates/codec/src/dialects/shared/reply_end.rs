//! How a reply ends: with a fault, in the middle of a call, or too early.

use throughline_canonical::{EndDetails, EndReason, Event, Fault, FaultKind, Loss, Out, Usage};

/// What the last event of a reply reports to a front end.
#[derive(Debug, Default)]
pub(crate) struct EndReport {
    pub(crate) usage: Usage,
    pub(crate) details: EndDetails,
    pub(crate) losses: Vec<Loss>,
}

impl EndReport {
    /// Records an event that only the end of the reply reports. Returns false for other events.
    pub(crate) fn record(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::Usage(usage) => self.usage.update(*usage),
            Event::EndExplained(details) => self.details.clone_from(details),
            Event::Lost { losses } => self.losses.clone_from(losses),
            _ => return false,
        }
        true
    }
}

/// The fault to report for a reply that was cut or failed without one. Clients would take a plain end
/// for success.
pub fn fault_of_end(reason: &EndReason) -> Option<Fault> {
    let message = match reason {
        EndReason::Cut => "the provider's reply ended before it was complete",
        EndReason::Failed => "the provider reported an error",
        _ => return None,
    };
    Some(Fault::new(FaultKind::Unreachable, message))
}

/// Emits a fault and the failed end, unless the reply has ended already.
pub(crate) fn fail_once(ended: &mut bool, fault: Fault, out: Out<'_>) {
    if std::mem::replace(ended, true) {
        return;
    }
    out(Event::Fault(fault));
    out(Event::Ended { reason: EndReason::Failed });
}

/// Whether a reply that ended for this reason may have stopped inside a tool call.
pub(crate) fn may_cut_a_call(reason: &EndReason) -> bool {
    matches!(reason, EndReason::Length | EndReason::Refusal | EndReason::StopSequence)
        || reason.is_cancelled()
}
