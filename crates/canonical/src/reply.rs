//! Whole replies. They are always folded from events.

use serde::Serialize;
use serde_json::Value;

use crate::{Block, BlockStart, Delta, EndDetails, EndReason, Event, Fault, Loss, Usage};

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reply {
    /// The provider's id of the reply.
    pub id: String,
    /// The provider's name of the model.
    pub model: String,
    /// The blocks, in order.
    pub content: Vec<Block>,
    /// Token counts.
    pub usage: Usage,
    /// An error after the reply began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// Why it ended; `None` while it is incomplete.
    pub reason: Option<EndReason>,
    /// Details about the end.
    #[serde(skip_serializing_if = "EndDetails::is_empty")]
    pub details: EndDetails,
    /// What was lost between client and provider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// Whether the thinking is a summary made by the provider. Events do not carry this: the caller
    /// knows the model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub summary: bool,
}

/// Folds the events of a reply.
#[derive(Debug, Default)]
pub struct Fold {
    reply: Reply,
    /// Open blocks: index in the stream, position in the reply.
    open: Vec<(u32, usize)>,
}

impl Fold {
    /// Adds the next event.
    pub fn push(&mut self, event: &Event<'_>) {
        match event {
            Event::MessageStarted { id, model } => {
                self.reply.id = id.clone().into_owned();
                self.reply.model = model.clone().into_owned();
            }
            Event::BlockStarted { index, block } => {
                self.open.push((*index, self.reply.content.len()));
                self.reply.content.push(begun(block));
            }
            Event::BlockDelta { index, delta } => {
                let position = self.open.iter().rev().find(|(number, _)| number == index);
                if let Some((_, position)) = position
                    && let Some(block) = self.reply.content.get_mut(*position)
                {
                    grow(block, delta);
                }
            }
            Event::BlockEnded { index } => {
                while let Some(at) = self.open.iter().position(|(number, _)| number == index) {
                    let (_, position) = self.open.remove(at);
                    if let Some(block) = self.reply.content.get_mut(position) {
                        settle(block);
                    }
                }
            }
            Event::ToolResult { id, name, content, is_error } => {
                self.reply.content.push(Block::ToolResult {
                    id: id.clone().into_owned(),
                    name: Some(name.clone().into_owned()),
                    content: content.clone(),
                    is_error: *is_error,
                });
            }
            Event::Usage(usage) => self.reply.usage.update(*usage),
            Event::EndExplained(details) => self.reply.details = details.clone(),
            Event::Fault(fault) => self.reply.fault = Some(fault.clone()),
            Event::Ended { reason } => self.reply.reason = Some(reason.clone()),
            Event::Lost { losses } => self.reply.losses.clone_from(losses),
            Event::Transformed { .. }
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. } => {}
        }
    }

    /// The reply so far.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Ends the fold.
    pub fn finish(self) -> Reply {
        self.reply
    }
}

fn begun(block: &BlockStart<'_>) -> Block {
    let owned = |text: &str| text.to_owned();
    match block {
        BlockStart::Text { text } => Block::text(owned(text)),
        BlockStart::Thinking { text, signature } => Block::Thinking {
            text: owned(text),
            signature: (!signature.is_empty()).then(|| owned(signature)),
        },
        BlockStart::Refusal { text } => Block::Refusal { text: owned(text) },
        BlockStart::Redacted { data } => Block::Redacted { data: owned(data) },
        BlockStart::ToolCall { id, name } => Block::ToolCall {
            id: owned(id),
            name: owned(name),
            arguments: String::new(),
            signature: None,
        },
        BlockStart::Opaque { dialect, .. } => {
            Block::Opaque { dialect: owned(dialect), value: Value::String(String::new()) }
        }
    }
}

fn grow(block: &mut Block, delta: &Delta<'_>) {
    match (block, delta) {
        (Block::Text { text, .. } | Block::Refusal { text }, Delta::Text(more))
        // Providers may send plain text inside a reasoning block.
        | (Block::Thinking { text, .. }, Delta::Thinking(more) | Delta::Text(more)) => {
            text.push_str(more);
        }
        (Block::Text { citations, .. }, Delta::Citation(citation)) => {
            citations.push((**citation).clone());
        }
        (Block::ToolCall { arguments, .. }, Delta::ToolArguments(more)) => arguments.push_str(more),
        (
            Block::Opaque {
                value: Value::String(json),
                ..
            },
            Delta::Opaque(more),
        ) => json.push_str(more),
        (
            Block::Text { signature, .. }
            | Block::Thinking { signature, .. }
            | Block::ToolCall { signature, .. },
            Delta::Signature(value),
        ) => *signature = Some(value.clone().into_owned()),
        _ => {}
    }
}

/// Completes a block. An opaque block grew as JSON text and now becomes a value; text that is not
/// an object is dropped.
fn settle(block: &mut Block) {
    if let Block::Opaque { value, .. } = block
        && let Value::String(json) = value
    {
        *value = serde_json::from_str(json).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    #[test]
    fn events_fold_into_blocks_in_order() {
        let text = |text: &'static str| Cow::Borrowed(text);
        let delta = |index, delta| Event::BlockDelta { index, delta };
        let events = [
            Event::MessageStarted { id: text("m1"), model: text("x") },
            Event::BlockStarted {
                index: 0,
                block: BlockStart::Thinking { text: text("a"), signature: text("") },
            },
            delta(0, Delta::Thinking(text("b"))),
            delta(0, Delta::Signature(text("s1"))),
            delta(0, Delta::Signature(text("s2"))),
            Event::BlockEnded { index: 0 },
            // Two calls at once, in turns.
            Event::BlockStarted {
                index: 1,
                block: BlockStart::ToolCall { id: text("c1"), name: text("f") },
            },
            Event::BlockStarted {
                index: 2,
                block: BlockStart::ToolCall { id: text("c2"), name: text("g") },
            },
            delta(1, Delta::ToolArguments(text("{\"a\""))),
            delta(2, Delta::ToolArguments(text("{}"))),
            delta(1, Delta::ToolArguments(text(":1}"))),
            delta(2, Delta::Signature(text("on the call"))),
            Event::Usage(Usage { output: Some(7), ..Usage::default() }),
            Event::Ended { reason: EndReason::ToolCalls },
        ];
        let mut fold = Fold::default();
        for event in &events {
            fold.push(event);
        }
        let call =
            |id: &str, name: &str, arguments: &str, signature: Option<&str>| Block::ToolCall {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                signature: signature.map(str::to_owned),
            };
        assert_eq!(
            fold.finish(),
            Reply {
                id: "m1".to_owned(),
                model: "x".to_owned(),
                content: vec![
                    Block::Thinking { text: "ab".to_owned(), signature: Some("s2".to_owned()) },
                    call("c1", "f", "{\"a\":1}", None),
                    call("c2", "g", "{}", Some("on the call")),
                ],
                usage: Usage { output: Some(7), ..Usage::default() },
                fault: None,
                reason: Some(EndReason::ToolCalls),
                details: EndDetails::default(),
                losses: Vec::new(),
                summary: false,
            }
        );
    }

    #[test]
    fn opaque_block_folds_into_its_json() {
        let text = |text: &'static str| Cow::Borrowed(text);
        let of = |index, json: &[&'static str]| {
            let dialect = text("theirs");
            let name = text("search");
            let mut events =
                vec![Event::BlockStarted { index, block: BlockStart::Opaque { dialect, name } }];
            events.extend(
                json.iter()
                    .map(|piece| Event::BlockDelta { index, delta: Delta::Opaque(text(piece)) }),
            );
            events.push(Event::BlockEnded { index });
            events
        };
        let grown = of(0, &["{\"a\":1,\"b\":{}", ",\"b\":", "{\"c\":", "2}", "}"]);
        let broken = of(1, &["{\"a\":"]);
        let mut fold = Fold::default();
        for event in grown.iter().chain(&broken) {
            fold.push(event);
        }
        let block = |value| Block::Opaque { dialect: "theirs".to_owned(), value };
        assert_eq!(
            fold.finish().content,
            [block(serde_json::json!({"a": 1, "b": {"c": 2}})), block(Value::Null)]
        );
    }
}
