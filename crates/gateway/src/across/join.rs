//! Turns that a client keeps in pieces, made whole.

use std::collections::HashMap;

use throughline_canonical::{Block, Message, Role};

/// Makes one message of what a model said in one turn, and one block of what was one: some clients
/// keep every piece of a stream as a message of its own.
pub(crate) fn join_turns(messages: &mut Vec<Message>) {
    let mut joined: Vec<Message> = Vec::with_capacity(messages.len());
    for message in messages.drain(..) {
        match joined.last_mut() {
            Some(last) if last.role == Role::Assistant && message.role == Role::Assistant => {
                for block in message.content {
                    append(&mut last.content, block);
                }
            }
            _ => joined.push(message),
        }
    }
    for message in &mut joined {
        let says = |block: &Block| match block {
            Block::Text { text, signature } => !text.is_empty() || signature.is_some(),
            _ => true,
        };
        if message.role == Role::Assistant {
            message.content.retain(says);
        }
    }
    *messages = joined;
}

/// Leaves out results that were told before: a client that resumes a conversation may tell each twice,
/// and most providers refuse that. Answers how many of them were not the same.
pub(crate) fn tell_results_once(messages: &mut Vec<Message>) -> usize {
    let mut told: HashMap<String, Block> = HashMap::new();
    let mut differed = 0;
    for message in messages.iter_mut() {
        message.content.retain(|block| match block {
            // An id that is called again is answered again.
            Block::ToolCall { id, .. } => {
                told.remove(id);
                true
            }
            Block::ToolResult { id, .. } => match told.get(id) {
                Some(before) => {
                    differed += usize::from(before != block);
                    false
                }
                None => {
                    told.insert(id.clone(), block.clone());
                    true
                }
            },
            _ => true,
        });
    }
    messages.retain(|message| message.role != Role::User || !message.content.is_empty());
    differed
}

/// Adds a block to a turn. A signature ends its block; until then, pieces of a kind are one.
fn append(content: &mut Vec<Block>, block: Block) {
    match (content.last_mut(), &block) {
        (
            Some(Block::Thinking {
                text,
                signature: mark @ None,
            }),
            Block::Thinking {
                text: more,
                signature,
            },
        )
        | (
            Some(Block::Text {
                text,
                signature: mark @ None,
            }),
            Block::Text {
                text: more,
                signature,
            },
        ) => {
            text.push_str(more);
            mark.clone_from(signature);
        }
        _ => content.push(block),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_turn_are_one_message_and_pieces_of_a_block_one_block() {
        let thinking = |text: &str, signature: Option<&str>| Block::Thinking {
            text: text.to_owned(),
            signature: signature.map(ToOwned::to_owned),
        };
        let said = |role, content| Message { role, content };
        let mut messages = vec![
            said(Role::User, vec![Block::text("hi")]),
            said(Role::Assistant, vec![thinking("A", None)]),
            said(Role::Assistant, vec![thinking("B", None)]),
            said(Role::Assistant, vec![thinking("", Some("s"))]),
            said(Role::Assistant, vec![thinking("C", None)]),
            said(Role::Assistant, vec![Block::text("Y")]),
            said(Role::Assistant, vec![Block::text("es")]),
            said(Role::Assistant, vec![Block::text("")]),
            said(Role::User, vec![Block::text("and?")]),
        ];
        join_turns(&mut messages);
        let turn = vec![
            thinking("AB", Some("s")),
            thinking("C", None),
            Block::text("Yes"),
        ];
        assert_eq!(
            messages,
            [
                said(Role::User, vec![Block::text("hi")]),
                said(Role::Assistant, turn),
                said(Role::User, vec![Block::text("and?")]),
            ]
        );
    }

    #[test]
    fn a_result_is_told_once() {
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
        let said = |role, content| Message { role, content };
        let mut messages = vec![
            said(Role::Assistant, vec![call("a")]),
            said(Role::User, vec![result("a", "1"), result("a", "1")]),
            said(Role::User, vec![result("a", "2")]),
            said(Role::Assistant, vec![call("a")]),
            said(Role::User, vec![result("a", "3")]),
        ];
        assert_eq!(tell_results_once(&mut messages), 1);
        let expected = [
            said(Role::Assistant, vec![call("a")]),
            said(Role::User, vec![result("a", "1")]),
            said(Role::Assistant, vec![call("a")]),
            said(Role::User, vec![result("a", "3")]),
        ];
        assert_eq!(messages, expected);
    }
}
