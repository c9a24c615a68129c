//! Calls whose ids a client has lost. Some libraries know no ids; the vault tells them by what was
//! called, after which question.

use std::collections::HashMap;

use serde_json::Value;
use throughline_canonical::{Block, Message, Role};

use crate::gateway::Gateway;
use crate::history::vault_lookup::{MOST_LOOKS, Signed, tell_question, text_of};
use crate::relay::call_ids::looks_random;
use crate::thinking::vault::{Scope, VaultKey};

/// The names of a turn by what it calls; none if it calls nothing.
pub(crate) fn names(scope: &Scope, question: &str, content: &[Block]) -> Vec<VaultKey> {
    let mut told = text_of(content).trim().to_owned();
    let mut calls = 0;
    for block in content {
        if let Block::ToolCall { name, arguments, .. } = block {
            calls += 1;
            // Clients write the arguments anew.
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
    /// Gives calls the ids back that they were told under, and their results with them.
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
            // Every id that we tell looks so.
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
