//! Brings messages into a regular order: joins split turns, orders tool results, removes repeated
//! ones.

use std::collections::HashMap;

use throughline_canonical::{Block, MadeTurn, Message, Request, Role};

/// Joins the messages of one model turn into one message, and split blocks into one block. Some
/// clients store every piece of a stream as its own message.
pub(crate) fn join_turns(messages: &mut Vec<Message>) {
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match joined.last_mut() {
            Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
                if let Some(made) = message.made {
                    last.made = Some(MadeTurn::join(last.made.take(), &last.content, made));
                }
                for block in message.content {
                    append(&mut last.content, block);
                }
            }
            _ => joined.push(message),
        }
    }
    for message in &mut joined {
        let has_content = |block: &Block| match block {
            Block::Text { text, signature, .. } => !text.is_empty() || signature.is_some(),
            _ => true,
        };
        if message.role == Role::Assistant {
            message.content.retain(has_content);
        }
    }
    *messages = joined;
}

/// Turns system messages into a user message if there is nothing else, because most dialects reject
/// such a conversation. Returns whether it did.
pub(crate) fn ensure_user_message(request: &mut Request) -> bool {
    let only_system = |message: &Message| message.role == Role::System;
    if !request.messages.iter().all(only_system) {
        return false;
    }
    let system = request.system.drain(..).map(Block::text);
    let content: Vec<Block> =
        system.chain(request.messages.drain(..).flat_map(|message| message.content)).collect();
    if content.is_empty() {
        return false;
    }
    request.messages.push(Message::new(Role::User, content));
    true
}

/// Moves tool results directly after their calls. Most servers of the chat dialect reject text in
/// between. Returns whether anything moved.
pub(crate) fn results_follow_calls(messages: &mut Vec<Message>) -> bool {
    let mut moved = false;
    let mut ordered: Vec<Message> = Vec::with_capacity(messages.len());
    let mut waiting = messages.drain(..).peekable();
    while let Some(message) = waiting.next() {
        let called = message.role == Role::Assistant;
        ordered.push(message);
        if !called {
            continue;
        }
        let first = ordered.len();
        while let Some(next) = waiting.next_if(|next| next.role != Role::Assistant) {
            ordered.push(next);
        }
        let following = ordered.get_mut(first..).unwrap_or_default();
        let is_result = |block: &Block| matches!(block, Block::ToolResult { .. });
        let blocks = following.iter().flat_map(|message| &message.content);
        if blocks.clone().skip_while(|block| is_result(block)).all(|block| !is_result(block)) {
            continue;
        }
        moved = true;
        let mut results = Vec::new();
        for message in following.iter_mut() {
            let (found, rest) = std::mem::take(&mut message.content)
                .into_iter()
                .partition(|block| is_result(block));
            results.extend::<Vec<Block>>(found);
            message.content = rest;
        }
        let results = Message::new(Role::User, results);
        ordered.insert(first, results);
    }
    drop(waiting);
    ordered.retain(|message| message.role == Role::Assistant || !message.content.is_empty());
    *messages = ordered;
    moved
}

/// Removes repeated tool results. A client that resumes a conversation may send each twice, and
/// most providers reject that. Returns how many had different content.
pub(crate) fn dedupe_tool_results(messages: &mut Vec<Message>) -> usize {
    let mut seen: HashMap<String, Block> = HashMap::new();
    let mut differed = 0;
    for message in messages.iter_mut() {
        message.content.retain(|block| match block {
            // A repeated call with the same id gets its own result.
            Block::ToolCall { id, .. } => {
                seen.remove(id);
                true
            }
            Block::ToolResult { id, .. } => match seen.get(id) {
                Some(before) => {
                    differed += usize::from(before != block);
                    false
                }
                None => {
                    seen.insert(id.clone(), block.clone());
                    true
                }
            },
            _ => true,
        });
    }
    messages.retain(|message| message.role != Role::User || !message.content.is_empty());
    differed
}

/// Adds a block to a turn. Pieces of the same kind are joined until one has a signature.
fn append(content: &mut Vec<Block>, block: Block) {
    match (content.last_mut(), &block) {
        (
            Some(Block::Thinking { text, signature: last @ None }),
            Block::Thinking { text: more, signature },
        )
        | (
            Some(Block::Text { text, signature: last @ None, .. }),
            Block::Text { text: more, signature, .. },
        ) => {
            text.push_str(more);
            last.clone_from(signature);
        }
        _ => content.push(block),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_turns_joins_messages_and_split_blocks() {
        let thinking = |text: &str, signature: Option<&str>| Block::Thinking {
            text: text.to_owned(),
            signature: signature.map(ToOwned::to_owned),
        };
        let message = |role, content| Message::new(role, content);
        let mut messages = vec![
            message(Role::User, vec![Block::text("hi")]),
            message(Role::Assistant, vec![thinking("A", None)]),
            message(Role::Assistant, vec![thinking("B", None)]),
            message(Role::Assistant, vec![thinking("", Some("s"))]),
            message(Role::Assistant, vec![thinking("C", None)]),
            message(Role::Assistant, vec![Block::text("Y")]),
            message(Role::Assistant, vec![Block::text("es")]),
            message(Role::Assistant, vec![Block::text("")]),
            message(Role::User, vec![Block::text("and?")]),
        ];
        join_turns(&mut messages);
        let turn = vec![thinking("AB", Some("s")), thinking("C", None), Block::text("Yes")];
        assert_eq!(
            messages,
            [
                message(Role::User, vec![Block::text("hi")]),
                message(Role::Assistant, turn),
                message(Role::User, vec![Block::text("and?")]),
            ]
        );
    }

    #[test]
    fn dedupe_keeps_the_first_result_of_each_call() {
        let result = |id: &str, text: &str| Block::ToolResult {
            id: id.to_owned(),
            name: None,
            content: vec![Block::text(text)],
            is_error: false,
        };
        let call = |id: &str| Block::ToolCall {
            id: id.to_owned(),
            name: "f".to_owned(),
            arguments: "{}".to_owned(),
            signature: None,
        };
        let message = |role, content| Message::new(role, content);
        let mut messages = vec![
            message(Role::Assistant, vec![call("a")]),
            message(Role::User, vec![result("a", "1"), result("a", "1")]),
            message(Role::User, vec![result("a", "2")]),
            message(Role::Assistant, vec![call("a")]),
            message(Role::User, vec![result("a", "3")]),
        ];
        assert_eq!(dedupe_tool_results(&mut messages), 1);
        let expected = [
            message(Role::Assistant, vec![call("a")]),
            message(Role::User, vec![result("a", "1")]),
            message(Role::Assistant, vec![call("a")]),
            message(Role::User, vec![result("a", "3")]),
        ];
        assert_eq!(messages, expected);
    }

    #[test]
    fn results_follow_their_calls_directly() {
        let result = |id: &str| Block::ToolResult {
            id: id.to_owned(),
            name: None,
            content: Vec::new(),
            is_error: false,
        };
        let message = |role, content| Message::new(role, content);
        let call = message(Role::Assistant, vec![Block::text("calling")]);
        let mut messages = vec![
            call.clone(),
            message(Role::User, vec![Block::text("hold on"), result("a")]),
            message(Role::System, vec![Block::text("note")]),
            message(Role::User, vec![result("b")]),
            call.clone(),
        ];
        assert!(results_follow_calls(&mut messages));
        let ordered = [
            call.clone(),
            message(Role::User, vec![result("a"), result("b")]),
            message(Role::User, vec![Block::text("hold on")]),
            message(Role::System, vec![Block::text("note")]),
            call,
        ];
        assert_eq!(messages, ordered);
        assert!(!results_follow_calls(&mut messages));
        assert_eq!(messages, ordered);
    }
}
