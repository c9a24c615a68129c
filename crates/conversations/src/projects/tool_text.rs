//! Tool calls and their results as short texts, for models that did not make the calls.

use std::collections::{HashMap, HashSet};

use throughline_canonical::Block;

use super::content::text_of;
use super::context::PastNode;

/// The longest text that a tool call or a tool result becomes, in characters.
pub(super) const MAX_TOOL_TEXT: usize = 600;

/// A call, for the result that answers it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    name: String,
    arguments: String,
    /// Whether another call of the same answer has the same name.
    shares_name: bool,
}

/// The calls of a conversation, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(HashMap<String, Call>);

impl Calls {
    /// Remembers the calls of an answer.
    pub(super) fn remember(&mut self, blocks: &[Block]) {
        let mut named: HashMap<&str, usize> = HashMap::new();
        let calls: Vec<_> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::ToolCall { id, name, arguments, .. } => Some((id, name, arguments)),
                _ => None,
            })
            .inspect(|(_, name, _)| *named.entry(name.as_str()).or_default() += 1)
            .collect();
        for (id, name, arguments) in calls {
            let shares_name = named.get(name.as_str()).is_some_and(|count| *count > 1);
            let call = Call { name: name.clone(), arguments: arguments.clone(), shares_name };
            self.0.insert(id.clone(), call);
        }
    }

    /// The name of the called tool.
    pub(super) fn name(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(|call| call.name.as_str())
    }

    /// A result as a short text, and the media in it.
    pub(super) fn result_texts(&self, result: &Block) -> Vec<Block> {
        let Block::ToolResult { id, name, content, is_error } = result else {
            return Vec::new();
        };
        let call = self.0.get(id);
        let name = name.as_deref().or(call.map(|call| call.name.as_str())).unwrap_or(id);
        let arguments = match call {
            Some(call) if call.shares_name => {
                format!(" with {}", shortened(call.arguments.trim()))
            }
            _ => String::new(),
        };
        let verb = if *is_error { "failed" } else { "returned" };
        let text = text_of(content);
        let text = format!("[tool {name}{arguments} {verb}: {}]", shortened(text.trim()));
        let media = content.iter().filter(|block| matches!(block, Block::Media { .. }));
        std::iter::once(Block::text(text)).chain(media.cloned()).collect()
    }
}

/// A call as a short text.
pub(super) fn call_text(name: &str, arguments: &str) -> Block {
    Block::text(format!("[called tool {name} with {}]", shortened(arguments.trim())))
}

/// Keeps the last of several equal results of equal calls. Agents read the same file again and again.
pub(super) fn drop_repeated_results(path: &mut [PastNode]) {
    let mut calls = Calls::default();
    // The call and the result, and where the result is.
    let mut found = Vec::new();
    for (node, past) in path.iter().enumerate() {
        calls.remember(&past.content.blocks);
        for (at, block) in past.content.blocks.iter().enumerate() {
            if let Block::ToolResult { id, content, is_error, .. } = block
                && let Some(call) = calls.0.get(id)
                && let Ok(content) = serde_json::to_string(content)
            {
                let name = call.name.clone();
                let arguments = call.arguments.trim().to_owned();
                found.push(((name, arguments, content, *is_error), (node, at)));
            }
        }
    }
    let mut seen = HashSet::new();
    for (result, (node, at)) in found.into_iter().rev() {
        // From the end on, so that the earlier positions stay as they are.
        if !seen.insert(result) {
            path[node].content.blocks.remove(at);
        }
    }
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_TOOL_TEXT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
