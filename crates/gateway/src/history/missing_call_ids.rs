//! Restores tool-call ids that a client does not return. Some client libraries have no ids; the
//! vault then finds the call by its content and the question before it.

use std::collections::HashMap;

use serde_json::Value;
use throughline_canonical::{Block, Message, Role};

use crate::gateway::Gateway;
use crate::history::vault_lookup::{MOST_LOOKS, Signed, tell_question, text_of};
use crate::relay::call_ids::looks_random;
use crate::thinking::vault::{Scope, VaultKey};

/// The vault keys of a turn by the content of its calls. Empty if it has no calls.
pub(crate) fn names(scope: &Scope, question: &str, content: &[Block]) -> Vec<VaultKey> {
    let mut told = text_of(content).trim().to_owned();
    let mut calls = 0;
    for block in content {
        if let Block::ToolCall { name, arguments, .. } = block {
            calls += 1;
            // Clients reformat the arguments, so compare them with sorted members.
            let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
            arguments.sort_all_objects();
            told.push_str(&format!("\n{name} {arguments}"));
        }
    }
    match calls {
        0 => Vec::new(),
        _ => scope.answer(question, &told).to_vec(),
    }
}

impl Gateway {
    /// Gives calls and their results the ids back that the model used.
    pub(crate) async fn name_calls(&self, scope: &Scope, messages: &mut [Message]) {
        let mut question = String::new();
        let mut named: HashMap<String, String> = HashMap::new();
        let mut looks = 0;
        for message in messages {
            if message.role != Role::Assistant {
                for block in &mut message.content {
                    if let Block::ToolResult { id, .. } = block
                        && let Some(told) = named.get(id)
                    {
                        id.clone_from(told);
                    }
                }
                tell_question(message, &mut question);
                continue;
            }
            let asked = std::mem::take(&mut question);
            // Every id that the gateway or a provider sends looks random.
            let nameless =
                |block: &Block| matches!(block, Block::ToolCall { id, .. } if !looks_random(id));
            if !message.content.iter().any(nameless) || looks == MOST_LOOKS {
                continue;
            }
            looks += 1;
            let names = names(scope, &asked, &message.content);
            let Some(kept) = self.vault.find(&names).await else {
                continue;
            };
            let calls = message.content.iter_mut().filter(|block| is_call(block));
            let told = kept.blocks.into_iter().filter(is_call);
            for (block, told) in calls.zip(told) {
                let Some((told, signed)) = Signed::of(told) else {
                    continue;
                };
                if signed.is(block)
                    && let Block::ToolCall { id, .. } = block
                {
                    named.insert(std::mem::replace(id, told.clone()), told);
                }
            }
        }
    }
}

fn is_call(block: &Block) -> bool {
    matches!(block, Block::ToolCall { .. })
}
