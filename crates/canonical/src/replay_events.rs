//! Replays a whole reply as events. Folding them gives the same reply.

use std::borrow::Cow;

use crate::{Block, BlockStart, Delta, EndDetails, EndReason, Event, Reply};

impl Reply {
    /// Emits the events of the reply, one per part of a block.
    pub fn emit_events(&self, out: &mut dyn FnMut(&Event<'_>)) {
        out(&Event::MessageStarted { id: (&*self.id).into(), model: (&*self.model).into() });
        for (index, block) in (0..).zip(&self.content) {
            if let Block::ToolResult { id, name, content, is_error } = block {
                let (id, name) = (id.into(), name.as_deref().unwrap_or_default().into());
                let (content, is_error) = (content.clone(), *is_error);
                out(&Event::ToolResult { id, name, content, is_error });
                continue;
            }
            let Some((block, deltas)) = parts(block) else {
                continue;
            };
            out(&Event::BlockStarted { index, block });
            for delta in deltas {
                out(&Event::BlockDelta { index, delta });
            }
            out(&Event::BlockEnded { index });
        }
        out(&Event::Usage(self.usage));
        if self.details != EndDetails::default() {
            out(&Event::EndExplained(self.details.clone()));
        }
        if !self.losses.is_empty() {
            out(&Event::Lost { losses: self.losses.clone() });
        }
        if let Some(fault) = &self.fault {
            out(&Event::Fault(fault.clone()));
        }
        let reason = self.reason.clone().unwrap_or(EndReason::Cut);
        out(&Event::Ended { reason });
    }
}

/// The start and the deltas of a block; `None` for blocks that models do not write.
fn parts(block: &Block) -> Option<(BlockStart<'_>, Vec<Delta<'_>>)> {
    const EMPTY: Cow<'_, str> = Cow::Borrowed("");
    fn signed(signature: Option<&String>) -> Option<Delta<'_>> {
        signature.map(|value| Delta::Signature(value.into()))
    }
    let (start, first, signature) = match block {
        Block::Text { text, signature, .. } => (
            BlockStart::Text { text: EMPTY },
            Some(Delta::Text(text.into())),
            signed(signature.as_ref()),
        ),
        Block::Thinking { text, signature } => (
            BlockStart::Thinking { text: EMPTY, signature: EMPTY },
            Some(Delta::Thinking(text.into())),
            signed(signature.as_ref()),
        ),
        Block::Refusal { text } => {
            (BlockStart::Refusal { text: EMPTY }, Some(Delta::Text(text.into())), None)
        }
        Block::Redacted { data } => (BlockStart::Redacted { data: data.into() }, None, None),
        Block::ToolCall { id, name, arguments, signature } => (
            BlockStart::ToolCall { id: id.into(), name: name.into() },
            Some(Delta::ToolArguments(arguments.into())),
            signed(signature.as_ref()),
        ),
        Block::Opaque { dialect, value } => (
            BlockStart::Opaque {
                dialect: dialect.into(),
                name: value["type"].as_str().unwrap_or_default().into(),
            },
            Some(Delta::Opaque(value.to_string().into())),
            None,
        ),
        Block::ToolResult { .. } | Block::Media { .. } => return None,
    };
    let cited = match block {
        Block::Text { citations, .. } => citations.as_slice(),
        _ => &[],
    };
    let cited = cited.iter().cloned().map(Box::new).map(Delta::Citation);
    Some((start, first.into_iter().chain(cited).chain(signature).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Citation, Fold, Loss, Usage};

    #[test]
    fn replayed_reply_folds_into_itself() {
        let call = |id: &str, signature: Option<&str>| Block::ToolCall {
            id: id.to_owned(),
            name: "f".to_owned(),
            arguments: "{\"a\":1}".to_owned(),
            signature: signature.map(str::to_owned),
        };
        let reply = Reply {
            id: "m1".to_owned(),
            model: "x".to_owned(),
            content: vec![
                Block::Thinking { text: "hm".to_owned(), signature: Some("s".to_owned()) },
                Block::Redacted { data: "d".to_owned() },
                Block::text("yes"),
                Block::Refusal { text: "no".to_owned() },
                call("c1", None),
                call("c2", Some("on the call")),
                Block::ToolResult {
                    id: "c1".to_owned(),
                    name: Some("f".to_owned()),
                    content: vec![Block::text("4")],
                    is_error: true,
                },
                Block::Opaque {
                    dialect: "theirs".to_owned(),
                    value: serde_json::json!({"type": "search", "of": ["x"]}),
                },
                Block::Text {
                    text: "see there".to_owned(),
                    signature: Some("t".to_owned()),
                    citations: vec![Citation::default()],
                },
            ],
            usage: Usage { output: Some(7), ..Usage::default() },
            fault: None,
            details: EndDetails { sequence: Some("stop".to_owned()), ..EndDetails::default() },
            reason: Some(EndReason::ToolCalls),
            losses: vec![Loss::ReasoningUnclosed],
            summary: false,
        };
        let mut fold = Fold::default();
        reply.emit_events(&mut |event| fold.push(event));
        assert_eq!(fold.finish(), reply);
    }
}
