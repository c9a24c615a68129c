//! Stores turns in the vault, for clients that drop parts of them.

use std::sync::Arc;

use throughline_canonical::{Block, EndReason, Event, Fold, Prefix};
use throughline_codec::dialects::compaction::Compaction;

use crate::gateway::Gateway;
use crate::history::turn_position::TurnPosition;
use crate::history::vault_lookup::vault_keys;
use crate::relay::call_ids::looks_random;
use crate::thinking::vault::{Scope, StoredTurn, Vault, VaultKey};
use crate::turn::ledger::Ledger;
use crate::turn::request::ParsedRequest;

/// Collects the turn of a forwarded reply and stores it if the model called tools. Clients need only
/// such turns back.
#[derive(Debug)]
pub(crate) struct TurnRecorder {
    fold: Fold,
    vault: Arc<Vault>,
    scope: Scope,
    /// The prefix that the reply follows, if prefixes matter.
    prefix: Option<Prefix>,
}

impl TurnRecorder {
    /// A recorder for the reply to a request. `None` if the reply need not be stored.
    pub(crate) fn for_request(
        gateway: &Gateway,
        request: &ParsedRequest,
        prefix: Option<Prefix>,
    ) -> Option<Self> {
        let offers_tools = request.outline.as_ref().is_some_and(|outline| outline.tools.is_some());
        (offers_tools && request.in_conversation).then(|| Self {
            fold: Fold::default(),
            vault: gateway.vault.clone(),
            scope: request.scope.clone(),
            prefix,
        })
    }

    /// Takes the next event. The end of the reply stores the turn.
    pub(crate) fn record(&mut self, event: &Event<'_>, ledger: &Ledger) {
        self.fold.push(event);
        if let Event::Ended { reason } = event
            && !matches!(reason, EndReason::Cut | EndReason::Failed)
        {
            let content = std::mem::take(&mut self.fold).finish().content;
            let calls = |block: &Block| matches!(block, Block::ToolCall { .. });
            if content.iter().any(calls) && has_unique_ids(&content) {
                let turn_position = TurnPosition::default();
                let keys = vault_keys(&self.scope, &turn_position, &content, &ledger.origin, true);
                store_turn(&self.vault, &keys, &self.scope, ledger, &content, self.prefix);
            }
        }
    }
}

/// Whether the calls of a turn have ids that no other reply uses, so that they can be keys.
pub(crate) fn has_unique_ids(content: &[Block]) -> bool {
    content.iter().all(|block| match block {
        Block::ToolCall { id, .. } => looks_random(id),
        _ => true,
    })
}

/// Stores a turn as its maker wrote it.
pub(crate) fn store_turn(
    vault: &Vault,
    keys: &[VaultKey],
    scope: &Scope,
    ledger: &Ledger,
    content: &[Block],
    prefix: Option<Prefix>,
) {
    let turn = StoredTurn {
        origin: (*ledger.origin).clone(),
        session: ledger.session,
        conversation: Some(scope.conversation()),
        blocks: content.iter().filter(is_restorable).cloned().collect(),
        prefix,
    };
    vault.store(keys, &turn);
}

/// Whether a block is complete and may be put back. A summary of earlier turns may not: it replaces
/// everything before it, and only its maker reads it.
fn is_restorable(block: &&Block) -> bool {
    match block {
        Block::Opaque { dialect, value } => {
            value.is_object() && Compaction::read(dialect, value).is_none()
        }
        _ => true,
    }
}
