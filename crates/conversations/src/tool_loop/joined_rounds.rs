//! Joins the events of all rounds into those of one reply: indexes of blocks go on, token counts
//! are added, and the losses of all rounds come once, before the end.

use throughline_canonical::{Block, EndReason, Event, Fold, Loss, Reply, Usage};

use crate::runs::canonical::FinishedRound;

/// The rounds of a reply so far.
#[derive(Debug, Default)]
pub(crate) struct JoinedRounds {
    fold: Fold,
    /// The finished rounds.
    pub(crate) rounds: Vec<FinishedRound>,
    /// The position of the first block of the present round.
    start: usize,
    /// The token counts of earlier rounds, and those of the present one.
    before: Usage,
    usage: Usage,
    losses: Vec<Loss>,
}

impl JoinedRounds {
    /// The reply so far.
    pub(crate) fn reply(&self) -> &Reply {
        self.fold.reply()
    }

    /// The position of the first block of the present round.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// The blocks of the present round.
    pub(crate) fn round(&self) -> &[Block] {
        self.fold.reply().content.get(self.start..).unwrap_or_default()
    }

    /// The token counts of the present round.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Begins a round.
    pub(crate) fn begin_round(&mut self) {
        self.start = self.fold.reply().content.len();
        self.before = self.before.plus(std::mem::take(&mut self.usage));
    }

    /// Takes an event of the present round, and returns it as an event of the whole reply. `None` if it
    /// comes later.
    pub(crate) fn take(&mut self, event: Event<'static>) -> Option<Event<'static>> {
        let offset = u32::try_from(self.start).unwrap_or(u32::MAX);
        let event = match event {
            Event::BlockStarted { index, block } => {
                Event::BlockStarted { index: index.saturating_add(offset), block }
            }
            Event::BlockDelta { index, delta } => {
                Event::BlockDelta { index: index.saturating_add(offset), delta }
            }
            Event::BlockEnded { index } => {
                Event::BlockEnded { index: index.saturating_add(offset) }
            }
            Event::Usage(usage) => {
                self.usage.update(usage);
                Event::Usage(self.before.plus(self.usage))
            }
            Event::Lost { losses } => {
                losses.into_iter().for_each(|loss| Loss::add(&mut self.losses, loss));
                return None;
            }
            event => event,
        };
        self.record(&event);
        Some(event)
    }

    /// Records an event of the loop itself.
    pub(crate) fn record(&mut self, event: &Event<'_>) {
        self.fold.push(event);
    }

    /// The last events.
    pub(crate) fn end(&mut self, reason: EndReason) -> Vec<Event<'static>> {
        let losses = std::mem::take(&mut self.losses);
        let lost = (!losses.is_empty()).then_some(Event::Lost { losses });
        lost.into_iter().chain([Event::Ended { reason }]).collect()
    }
}

#[cfg(test)]
mod tests {
    use throughline_canonical::BlockStart;

    use super::*;

    #[test]
    fn second_round_goes_on_where_the_first_one_ended() {
        let text =
            |index| Event::BlockStarted { index, block: BlockStart::Text { text: "a".into() } };
        let usage = |output| Event::Usage(Usage { output: Some(output), ..Usage::default() });
        let lost = |loss| Event::Lost { losses: vec![loss] };
        let mut joined = JoinedRounds::default();
        joined.begin_round();
        assert_eq!(joined.take(text(0)), Some(text(0)));
        assert_eq!(joined.take(usage(3)), Some(usage(3)));
        assert_eq!(joined.take(usage(5)), Some(usage(5)));
        assert_eq!(joined.take(lost(Loss::ReasoningUnclosed)), None);
        joined.record(&Event::ToolResult {
            id: "c".into(),
            name: "t".into(),
            content: Vec::new(),
            is_error: false,
        });
        joined.begin_round();
        assert_eq!(joined.take(text(0)), Some(text(2)));
        assert_eq!(joined.take(usage(1)), Some(usage(6)));
        assert_eq!((joined.start(), joined.round().len()), (2, 1));
        let end = Event::Ended { reason: EndReason::Stop };
        assert_eq!(joined.end(EndReason::Stop), [lost(Loss::ReasoningUnclosed), end]);
    }
}
