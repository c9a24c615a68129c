//! The prefix guard of the translate lane. The history is written anew for every request. A block
//! stays valid as long as the written text before it is the same, so the guard compares what was
//! sent, not what the client said. The guard of the passthrough lane is in `plan/outlined`.

use throughline_canonical::{Amount, Block, Prefix, Request, Role};
use throughline_codec::dialects::anthropic;
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::prefix::{Prefixes, after_block};

use crate::history::adapt::{AdaptedHistory, Sent};
use crate::thinking::guard::Guard;

/// The guard's mode for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarding {
    pub(crate) guard: Guard,
    /// Whether the provider is asked to drop bound blocks in any case.
    pub(crate) asks: bool,
}

/// The guard's result.
#[derive(Debug, Default)]
pub(crate) struct Guarded {
    /// The prefix that the reply will follow.
    pub(crate) prefix: Option<Prefix>,
    /// Whether the provider is asked to drop stale blocks.
    pub(crate) asked: bool,
    /// Indexes of sent blocks that are probably stale.
    doubtful: Vec<usize>,
}

impl Guarding {
    /// Finds stale blocks in a written request.
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

    /// Asks the provider to drop stale blocks. Removes them if the provider cannot be asked because
    /// thinking is off. Returns whether the request must be written again.
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

/// Removes blocks from a request, by their index among the sent blocks.
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

/// Records the position and prefix of each sent block. Returns the prefix of the reply, or `None`
/// if the body does not hold exactly these blocks.
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
