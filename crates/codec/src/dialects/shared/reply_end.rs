//! How a reply ends: with a fault, in the middle of a call, or too early.

use throughline_canonical::{EndReason, Event, Fault, FaultKind};

/// The fault to report for a reply that was cut or failed without one. Clients would take a plain end
/// for success.
pub(crate) fn fault_of_end(reason: &EndReason) -> Option<Fault> {
    let message = match reason {
        EndReason::Cut => "the provider's reply ended before it was complete",
        EndReason::Failed => "the provider reported an error",
        _ => return None,
    };
    Some(Fault::new(FaultKind::Unreachable, message))
}

/// Emits a fault and the failed end, unless the reply has ended already.
pub(crate) fn fail_once(ended: &mut bool, fault: Fault, out: &mut dyn FnMut(Event<'_>)) {
    if std::mem::replace(ended, true) {
        return;
    }
    out(Event::Fault(fault));
    out(Event::Ended { reason: EndReason::Failed });
}

/// Whether a reply that ended for this reason may have stopped inside a tool call.
pub(crate) fn may_cut_a_call(reason: &EndReason) -> bool {
    matches!(reason, EndReason::Length | EndReason::Refusal | EndReason::StopSequence)
}
