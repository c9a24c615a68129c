//! Restores tool-call ids that a client does not return. Some client libraries have no ids, and some
//! drop them. The envelope of a call names its id; without it, the vault finds the call by its
//! content and its position.

use std::collections::HashMap;

use throughline_canonical::{Block, Message, Role};

use crate::gateway::Gateway;
use crate::history::turn_position::{RepeatedTexts, TurnPositions};
use crate::history::vault_lookup::{FoundTurn, MAX_LOOKUPS, StoredCall, lacks_call_ids};
use crate::thinking::envelope::OpenResult;
use crate::thinking::vault::Scope;

impl Gateway {
    /// Gives calls and their results the ids back that the model used. `reader` is the domain of the
    /// backend that gets them.
    pub(crate) async fn restore_call_ids(
        &self,
        scope: &Scope,
        reader: &str,
        messages: &mut [Message],
    ) {
        let mut restored_ids: HashMap<String, String> = HashMap::new();
        let repeated = RepeatedTexts::of(messages);
        let mut turn_positions = TurnPositions::default();
        let mut lookups = 0;
        for message in messages {
            if message.role != Role::Assistant {
                restore_results(message, &restored_ids);
            } else if lacks_call_ids(&message.content) && lookups < MAX_LOOKUPS {
                lookups += 1;
                let is_repeated = repeated.contains(&message.content);
                self.restore_from_envelopes(&mut message.content, &mut restored_ids);
                let (position, content) = (turn_positions.next(), &message.content);
                let found = self.find_turn(scope, reader, &position, content, is_repeated).await;
                if let FoundTurn::One(kept) = found {
                    restore_calls(&mut message.content, kept.blocks, &mut restored_ids);
                }
            }
            turn_positions.pass(message);
        }
    }

    /// Restores the ids of calls that have an envelope.
    fn restore_from_envelopes(
        &self,
        content: &mut [Block],
        restored_ids: &mut HashMap<String, String>,
    ) {
        for block in content {
            let Block::ToolCall { id, signature: Some(signature), .. } = block else {
                continue;
            };
            if let OpenResult::Ours(envelope) = self.envelopes.open(signature)
                && let Some(call) = envelope.call
            {
                restored_ids.insert(std::mem::replace(id, call.id.clone()), call.id);
            }
        }
    }
}

/// Restores the ids of calls that the vault has.
fn restore_calls(
    content: &mut [Block],
    stored: Vec<Block>,
    restored_ids: &mut HashMap<String, String>,
) {
    let calls = content.iter_mut().filter(|block| is_call(block));
    for (block, original) in calls.zip(stored.into_iter().filter(is_call)) {
        let Some((original_id, call)) = StoredCall::of(original) else {
            continue;
        };
        if call.matches(block)
            && let Block::ToolCall { id, .. } = block
        {
            restored_ids.insert(std::mem::replace(id, original_id.clone()), original_id);
        }
    }
}

fn restore_results(message: &mut Message, restored_ids: &HashMap<String, String>) {
    for block in &mut message.content {
        if let Block::ToolResult { id, .. } = block
            && let Some(original) = restored_ids.get(id)
        {
            id.clone_from(original);
        }
    }
}

fn is_call(block: &Block) -> bool {
    matches!(block, Block::ToolCall { .. })
}
