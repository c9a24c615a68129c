//! Restores tool-call ids that a client does not return. Some client libraries have no ids; the
//! vault then finds the call by its content and the question before it.

use std::collections::HashMap;

use serde_json::Value;
use throughline_canonical::{Block, Message, Role};

use crate::gateway::Gateway;
use crate::history::vault_lookup::{MAX_LOOKUPS, StoredCall, question, text_of};
use crate::relay::call_ids::looks_random;
use crate::thinking::vault::{Scope, VaultKey};

/// The vault keys of a turn by the content of its calls. Empty if it has no calls.
pub(crate) fn call_keys(scope: &Scope, question: &str, content: &[Block]) -> Vec<VaultKey> {
    let mut content_text = text_of(content).trim().to_owned();
    let mut calls = 0;
    for block in content {
        if let Block::ToolCall { name, arguments, .. } = block {
            calls += 1;
            // Clients reformat the arguments, so compare them with sorted members.
            let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            arguments.sort_all_objects();
            content_text.push_str(&format!("\n{name} {arguments}"));
        }
    }
    match calls {
        0 => Vec::new(),
        _ => scope.answer(question, &content_text).to_vec(),
    }
}

impl Gateway {
    /// Gives calls and their results the ids back that the model used.
    pub(crate) async fn restore_call_ids(&self, scope: &Scope, messages: &mut [Message]) {
        let mut answered = 0;
        let mut restored_ids: HashMap<String, String> = HashMap::new();
        let mut lookups = 0;
        for at in 0..messages.len() {
            let (before, message) = messages.split_at_mut(at);
            let message = &mut message[0];
            if message.role != Role::Assistant {
                for block in &mut message.content {
                    if let Block::ToolResult { id, .. } = block
                        && let Some(original) = restored_ids.get(id)
                    {
                        id.clone_from(original);
                    }
                }
                continue;
            }
            let questions = &before[std::mem::replace(&mut answered, at + 1)..];
            // Every id that the gateway or a provider sends looks random.
            let lacks_id =
                |block: &Block| matches!(block, Block::ToolCall { id, .. } if !looks_random(id));
            if !message.content.iter().any(lacks_id) || lookups == MAX_LOOKUPS {
                continue;
            }
            lookups += 1;
            let keys = call_keys(scope, &question(questions), &message.content);
            let Some(kept) = self.vault.find(&keys).await.turn() else {
                continue;
            };
            let calls = message.content.iter_mut().filter(|block| is_call(block));
            let stored = kept.blocks.into_iter().filter(is_call);
            for (block, original) in calls.zip(stored) {
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
    }
}

fn is_call(block: &Block) -> bool {
    matches!(block, Block::ToolCall { .. })
}
