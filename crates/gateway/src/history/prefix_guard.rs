//! The prefix guard on this lane. The history is written anew for every request; a block holds as long as
//! that comes out the same, so what counts is what was sent and not what the client said.

use throughline_canonical::{Amount, Block, Prefix, Request, Role};
use throughline_codec::dialects::anthropic;
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::prefix::{Prefixes, after_block};

use crate::history::adapt::{AdaptedHistory, Sent};
use crate::thinking::guard::Guard;

/// How a request is guarded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarding {
    pub(crate) guard: Guard,
    /// The provider is asked in any case.
    pub(crate) asks: bool,
}

/// What the guard found.
#[derive(Debug, Default)]
pub(crate) struct Guarded {
    /// What the reply will be made under.
    pub(crate) prefix: Option<Prefix>,
    /// Whether the provider is asked to drop what does not hold.
    pub(crate) asked: bool,
    /// Which of the blocks that go out will probably not hold.
    doubtful: Vec<usize>,
}

impl Guarding {
    /// Looks at a request as it would go out.
    pub(crate) fn look(self, body: &[u8], adapted: &mut AdaptedHistory) -> Guarded {
        if self.guard == Guard::Off {
            return Guarded::default();
        }
        let prefix = place(body, &mut adapted.sent);
        let is_stale = |sent: &Sent| {
            let stands = sent.prefix;
            stands.is_some_and(|stands| self.guard.is_stale(stands, sent.prefix_record, sent.tried))
        };
        let sent = adapted.sent.iter().enumerate();
        Guarded {
            prefix,
            asked: false,
            doubtful: sent.filter(|(_, sent)| is_stale(sent)).map(|(at, _)| at).collect(),
        }
    }

    /// Asks the provider to drop what does not hold, or leaves it out where nothing can be asked since
    /// thinking is off. Answers whether the request has to be written anew.
    pub(crate) fn mend(
        self,
        guarded: &mut Guarded,
        request: &mut Request,
        adapted: &mut AdaptedHistory,
    ) -> bool {
        if self.guard == Guard::Off || guarded.doubtful.is_empty() && !self.asks {
            return false;
        }
        for at in &guarded.doubtful {
            if let Some(line) = adapted.sent[*at].line {
                adapted.doubt(line);
            }
        }
        if request.thinking.amount == Some(Amount::Off) {
            leave_out(request, &guarded.doubtful, adapted);
        } else {
            anthropic::drop_bound(request);
            guarded.asked = true;
        }
        true
    }
}

/// Takes blocks out of a request, by their number among those that go out.
fn leave_out(request: &mut Request, gone: &[usize], adapted: &mut AdaptedHistory) {
    let mut numbers = 0..;
    let mut stays = |block: &Block| match block {
        Block::Thinking { .. } | Block::Redacted { .. } => {
            numbers.next().is_some_and(|number| !gone.contains(&number))
        }
        _ => true,
    };
    for message in &mut request.messages {
        if message.role == Role::Assistant {
            message.content.retain(&mut stays);
        }
    }
    let mut number = 0..;
    adapted.sent.retain(|_| number.next().is_some_and(|number| !gone.contains(&number)));
}

/// Notes of each block where it stands in a body, and under what. Answers what the reply will be made
/// under; nothing, if the body holds other blocks.
pub(crate) fn place(body: &[u8], sent: &mut [Sent]) -> Option<Prefix> {
    let outline = Outline::read(body, usize::MAX).ok()?;
    if outline.thinking_blocks().count() != sent.len() {
        return None;
    }
    let prefixes = Prefixes::read(body, &outline);
    let mut running: Option<(usize, Prefix)> = None;
    for ((message, index, _, key), sent) in outline.thinking_blocks().zip(sent) {
        let stands = match running {
            Some((at, prefix)) if at == message => prefix,
            _ => prefixes.before_message(message),
        };
        sent.prefix = Some(stands);
        sent.place = Some((message, index));
        running = Some((message, key.map_or(stands, |key| after_block(stands, &key))));
    }
    Some(prefixes.whole())
}
