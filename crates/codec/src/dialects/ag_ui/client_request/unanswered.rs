//! Calls without a result. A run may be stopped, the user may continue without the tool, or a reply
//! may be cut inside a call. Models reject calls without a result.

use std::collections::BTreeMap;

use throughline_canonical::{Block, Loss, Message};

use super::super::interrupts::{insert_results, results};
use crate::dialects::shared::losses::{missing_result, unfinished_call};
use crate::json::OneLine;

/// Adds a "not run" result to calls without one, and drops incomplete calls.
pub(super) fn settle(messages: &mut Vec<Message>, losses: &mut Vec<Loss>) {
    let answered = results(messages);
    let is_open = |block: &Block| match block {
        Block::ToolCall { id, .. } => !answered.contains(id),
        _ => false,
    };
    messages.retain_mut(|message| {
        let before = message.content.len();
        message.content.retain(|block| !is_open(block) || is_whole(block));
        if message.content.len() < before {
            unfinished_call(losses);
        }
        before == 0 || !message.content.is_empty()
    });
    let mut made: BTreeMap<usize, Vec<Block>> = BTreeMap::new();
    for (at, message) in messages.iter().enumerate() {
        for block in message.content.iter().filter(|block| is_open(block)) {
            if let Block::ToolCall { id, name, .. } = block {
                made.entry(at).or_default().push(Block::ToolResult {
                    id: id.clone(),
                    name: Some(name.clone()),
                    content: vec![Block::text(missing_result(losses))],
                    is_error: true,
                });
            }
        }
    }
    if !made.is_empty() {
        insert_results(made, messages);
    }
}

/// Whether the arguments are complete. Empty arguments were cut: complete calls without arguments
/// have an empty object.
fn is_whole(block: &Block) -> bool {
    match block {
        Block::ToolCall { arguments, .. } => OneLine::of(arguments).is_some(),
        _ => true,
    }
}
