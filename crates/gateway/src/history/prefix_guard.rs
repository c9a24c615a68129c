//! The prefix guard of the translate lane. The history is written anew for every request. A block
//! stays valid as long as the written text before it is the same, so the guard compares the
//! sent text, not the client's text. The guard of the passthrough lane is in `plan/outlined`.

use throughline_canonical::{Amount, Block, Prefix, Request, Role};
use throughline_codec::dialects::UpstreamDialect;
use throughline_codec::dialects::blocks::outline::Outline;
use throughline_codec::dialects::blocks::prefix::{Prefixes, after_block};

use crate::history::adapt::{AdaptedHistory, SentPart};
use crate::thinking::guard::{BlockPosition, Guard};

/// The guard's mode for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixGuard {
    pub(crate) mode: Guard,
    /// Whether the provider is asked to drop bound blocks in any case.
    pub(crate) always_ask: bool,
}

/// The guard's result.
#[derive(Debug, Default)]
pub(crate) struct GuardResult {
    /// The prefix that the reply will follow.
    pub(crate) prefix: Option<Prefix>,
    /// Whether the provider is asked to drop stale blocks.
    pub(crate) asks_provider: bool,
    /// Indexes of sent blocks that are probably stale.
    stale: Vec<usize>,
}

impl PrefixGuard {
    /// Finds stale blocks in a written request.
    pub(crate) fn check(self, body: &[u8], adapted: &mut AdaptedHistory) -> GuardResult {
        if self.mode == Guard::Off {
            return GuardResult::default();
        }
        let prefix = record_prefixes(body, &mut adapted.sent);
        let is_stale = |sent: &SentPart| {
            let SentPart { after_summary, tried, .. } = *sent;
            sent.prefix.is_some_and(|prefix| {
                let position = BlockPosition { prefix, after_summary, tried };
                self.mode.is_stale(position, sent.prefix_record)
            })
        };
        let sent = adapted.sent.iter().enumerate();
        GuardResult {
            prefix,
            asks_provider: false,
            stale: sent.filter(|(_, sent)| is_stale(sent)).map(|(at, _)| at).collect(),
        }
    }

    /// Asks the provider to drop stale blocks. Removes them if the provider cannot be asked because
    /// thinking is off. Returns whether the request must be written again.
    pub(crate) fn drop_stale(
        self,
        result: &mut GuardResult,
        dialect: &dyn UpstreamDialect,
        request: &mut Request,
        adapted: &mut AdaptedHistory,
    ) -> bool {
        if self.mode == Guard::Off || result.stale.is_empty() && !self.always_ask {
            return false;
        }
        for at in &result.stale {
            if let Some(line) = adapted.sent[*at].line {
                adapted.record_stale(line);
            }
        }
        if request.thinking.amount == Some(Amount::Off) {
            remove_blocks(request, &result.stale, adapted);
        } else {
            dialect.drop_bound(request);
            result.asks_provider = true;
        }
        true
    }
}

/// Removes blocks from a request, by their index among the sent blocks.
fn remove_blocks(request: &mut Request, gone: &[usize], adapted: &mut AdaptedHistory) {
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
pub(crate) fn record_prefixes(body: &[u8], sent: &mut [SentPart]) -> Option<Prefix> {
    let outline = Outline::read(body, usize::MAX).ok()?;
    if outline.thinking_blocks().count() != sent.len() {
        return None;
    }
    let prefixes = Prefixes::read(body, &outline);
    let mut running: Option<(usize, Prefix)> = None;
    for ((message, index, _, key), sent) in outline.thinking_blocks().zip(sent) {
        let current = match running {
            Some((at, prefix)) if at == message => prefix,
            _ => prefixes.before_message(message),
        };
        sent.prefix = Some(current);
        sent.after_summary = prefixes.is_after_summary(message);
        sent.position = Some((message, index));
        running = Some((message, key.map_or(current, |key| after_block(current, &key))));
    }
    Some(prefixes.whole())
}
