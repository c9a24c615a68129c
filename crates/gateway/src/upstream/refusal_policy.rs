//! What a second try does differently where thinking was refused: one rule for both lanes, which make a
//! request of it in their own ways.

use throughline_canonical::Fate;
use throughline_codec::dialects::RefusalKind;

/// What a second try does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryPlan {
    /// This is the first try.
    First,
    /// The model is asked otherwise; all that is said goes as it did.
    NoThinkingSetting,
    /// Blocks nobody knew stay behind.
    DropTried,
    /// All thinking before the last user turn stays behind, and blocks nobody knew.
    DropEarlierThinking,
    /// All thinking stays behind.
    DropAllThinking,
    /// Bound blocks are to be dropped by the provider.
    DropBound,
    /// What the model misses is made good, or thinking is off.
    ThinkingOff,
}

/// Which blocks the target is known not to read from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectedBlocks {
    /// Those that were tried.
    Tried,
    /// The one that was named, if any was.
    Named,
    /// All that went out.
    All,
    /// None.
    None,
}

/// A refusal, as far as something follows from it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefusedRequest {
    pub(crate) kind: RefusalKind,
    /// What was to become of the block that the provider names.
    pub(crate) named: Option<Fate>,
    /// Whether blocks went out that nobody knew.
    pub(crate) tried: bool,
    /// Whether known ones went out that stand before the last user turn.
    pub(crate) old: bool,
    /// Whether the provider can be asked to drop what is bound elsewhere, and was not.
    pub(crate) can_ask: bool,
    /// Whether what the model misses is ours to make good.
    pub(crate) ours: bool,
}

impl RefusedRequest {
    /// What to do about it, and who is guilty; nothing, where the refusal has to be passed on.
    pub(crate) fn plan_retry(self) -> Option<(RetryPlan, RejectedBlocks)> {
        let a_try_failed = self.tried && self.named.is_none_or(|fate| fate == Fate::Tried);
        match self.kind {
            RefusalKind::Signature | RefusalKind::Bound if a_try_failed => {
                Some((RetryPlan::DropTried, RejectedBlocks::Tried))
            }
            RefusalKind::Signature if self.named.is_some() || self.old => {
                Some((RetryPlan::DropEarlierThinking, RejectedBlocks::Named))
            }
            // No other can be meant than those of the present turn.
            RefusalKind::Signature => Some((RetryPlan::DropAllThinking, RejectedBlocks::All)),
            RefusalKind::Bound => {
                self.can_ask.then_some((RetryPlan::DropBound, RejectedBlocks::None))
            }
            RefusalKind::MissingThinking => {
                self.ours.then_some((RetryPlan::ThinkingOff, RejectedBlocks::None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: RefusedRequest = RefusedRequest {
        kind: RefusalKind::Signature,
        named: None,
        tried: false,
        old: false,
        can_ask: true,
        ours: true,
    };

    /// Covers: C-38
    #[test]
    fn a_refused_try_takes_all_tries_along_and_no_block_that_is_known() {
        for kind in [RefusalKind::Signature, RefusalKind::Bound] {
            for named in [None, Some(Fate::Tried)] {
                let refused = RefusedRequest { kind, named, tried: true, old: true, ..NOTHING };
                let mended = Some((RetryPlan::DropTried, RejectedBlocks::Tried));
                assert_eq!(refused.plan_retry(), mended);
            }
        }
    }

    #[test]
    fn a_refused_known_block_takes_all_older_thinking_along() {
        let (named, old) = (Some(Fate::Sent), true);
        for refused in [
            RefusedRequest { named, tried: true, ..NOTHING },
            RefusedRequest { named, ..NOTHING },
            RefusedRequest { old, ..NOTHING },
        ] {
            let mended = Some((RetryPlan::DropEarlierThinking, RejectedBlocks::Named));
            assert_eq!(refused.plan_retry(), mended);
        }
        let mended = Some((RetryPlan::DropAllThinking, RejectedBlocks::All));
        assert_eq!(NOTHING.plan_retry(), mended);
    }

    #[test]
    fn what_is_bound_or_missing_condemns_nobody() {
        for (kind, retry) in [
            (RefusalKind::Bound, RetryPlan::DropBound),
            (RefusalKind::MissingThinking, RetryPlan::ThinkingOff),
        ] {
            let refused = RefusedRequest { kind, old: true, ..NOTHING };
            assert_eq!(refused.plan_retry(), Some((retry, RejectedBlocks::None)));
            let hopeless = RefusedRequest { can_ask: false, ours: false, ..refused };
            assert_eq!(hopeless.plan_retry(), None);
        }
    }
}
