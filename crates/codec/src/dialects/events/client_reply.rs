//! Writes canonical events. Opaque parts are not sent.

use std::borrow::Cow;

use throughline_canonical::{Block, BlockStart, Delta, Event, Reply, Request, Show};

use crate::dialects::shared::arguments::EMPTY_OBJECT;
use crate::dialects::shared::keep_alive;
use crate::dialects::shared::number::write_number;
use crate::dialects::{ReplyIdentity, ReplyWriter};
use crate::json::escape_bytes;

/// Writes one reply.
#[derive(Default)]
pub(super) struct Writer {
    id: String,
    /// The client's name of the model.
    model: String,
    /// Whether the client wants no reasoning, only signatures.
    hidden: bool,
    /// Open blocks that are hidden, completely or except for their signature.
    untold: Vec<u32>,
    silent: Vec<u32>,
    /// Open calls without arguments.
    bare: Vec<u32>,
    written: usize,
    ended: bool,
}

impl Writer {
    pub(super) fn new(request: &Request, identity: &ReplyIdentity) -> Self {
        Self {
            id: identity.id.clone(),
            model: identity.model(request).to_owned(),
            hidden: request.thinking.show == Some(Show::Hidden),
            ..Self::default()
        }
    }

    fn write(&mut self, name: &str, event: &Event<'_>, out: &mut Vec<u8>) {
        self.written += 1;
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\nid: ");
        write_number(self.written, out);
        out.extend_from_slice(b"\ndata: ");
        if !write_words(event, out) {
            // Writing to memory cannot fail.
            let _ = serde_json::to_writer(&mut *out, event);
        }
        out.extend_from_slice(b"\n\n");
    }

    /// Writes the arguments of a call that ends without any: an empty object.
    fn end_call(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        match event {
            Event::BlockStarted { index, block: BlockStart::ToolCall { .. } } => {
                self.bare.push(*index);
            }
            Event::BlockDelta { index, delta: Delta::ToolArguments(text) } if !text.is_empty() => {
                self.bare.retain(|bare| bare != index);
            }
            Event::BlockEnded { index } if self.bare.contains(index) => {
                self.bare.retain(|bare| bare != index);
                let delta = Delta::ToolArguments(EMPTY_OBJECT.into());
                self.write("block_delta", &Event::BlockDelta { index: *index, delta }, out);
            }
            _ => {}
        }
    }

    fn model<'a>(&'a self, theirs: &'a str) -> &'a str {
        match self.model.as_str() {
            "" => theirs,
            requested => requested,
        }
    }

    /// Whether the client may and wants to see the event.
    fn is_visible(&mut self, event: &Event<'_>) -> bool {
        match event {
            Event::BlockStarted { index, block } => {
                self.untold.retain(|untold| untold != index);
                self.silent.retain(|silent| silent != index);
                let opaque = matches!(block, BlockStart::Opaque { .. });
                let thinks = matches!(block, BlockStart::Thinking { .. });
                self.untold.extend(opaque.then_some(*index));
                self.silent.extend((self.hidden && thinks).then_some(*index));
                !opaque
            }
            Event::BlockDelta { index, delta } => match delta {
                Delta::Opaque(_) => false,
                Delta::Thinking(_) | Delta::Text(_) if self.silent.contains(index) => false,
                _ => !self.untold.contains(index),
            },
            Event::BlockEnded { index } => !self.untold.contains(index),
            _ => true,
        }
    }
}

/// Writes text deltas, which are nearly all events. Hand-written JSON is twice as fast here.
/// Returns false, and writes nothing, for other events.
fn write_words(event: &Event<'_>, out: &mut Vec<u8>) -> bool {
    let Event::BlockDelta { index, delta } = event else {
        return false;
    };
    let (kind, words) = match delta {
        Delta::Text(text) => ("text", text),
        Delta::Thinking(text) => ("thinking", text),
        Delta::ToolArguments(text) => ("tool_arguments", text),
        _ => return false,
    };
    out.extend_from_slice(b"{\"type\":\"block_delta\",\"index\":");
    write_number(*index, out);
    out.extend_from_slice(b",\"delta\":{\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"value\":\"");
    escape_bytes(words, out);
    out.extend_from_slice(b"\"}}");
    true
}

impl ReplyWriter for Writer {
    fn push(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if self.ended || !self.is_visible(event) {
            return;
        }
        self.end_call(event, out);
        let name = match event {
            Event::MessageStarted { model, .. } => {
                let own = Event::MessageStarted {
                    id: Cow::Owned(self.id.clone()),
                    model: Cow::Owned(self.model(model).to_owned()),
                };
                return self.write("message_started", &own, out);
            }
            Event::BlockStarted { index, block: BlockStart::Thinking { signature, .. } }
                if self.hidden =>
            {
                let block =
                    BlockStart::Thinking { text: Cow::Borrowed(""), signature: signature.clone() };
                let index = *index;
                let bare = Event::BlockStarted { index, block };
                return self.write("block_started", &bare, out);
            }
            Event::EndExplained(_) => "end_explained",
            Event::BlockStarted { .. } => "block_started",
            Event::BlockDelta { .. } => "block_delta",
            Event::BlockEnded { .. } => "block_ended",
            Event::RoundEnded(_) => return,
            Event::ToolStarted { .. } => "tool_started",
            Event::ApprovalNeeded { .. } => "approval_needed",
            Event::ToolResult { .. } => "tool_result",
            Event::Transformed { .. } => "transformed",
            Event::Usage(_) => "usage",
            Event::Fault(_) => "fault",
            Event::Lost { .. } => "lost",
            Event::Ended { .. } => {
                self.ended = true;
                "ended"
            }
        };
        self.write(name, event, out);
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        if !self.ended {
            out.extend_from_slice(keep_alive::COMMENT);
        }
    }

    fn whole(&self, reply: &Reply) -> Vec<u8> {
        let mut own = reply.clone();
        own.id.clone_from(&self.id);
        own.model = self.model(&reply.model).to_owned();
        own.content.retain(|block| !matches!(block, Block::Opaque { .. }));
        for block in &mut own.content {
            if let Block::ToolCall { arguments, .. } = block
                && arguments.is_empty()
            {
                arguments.push_str(EMPTY_OBJECT);
            }
        }
        if self.hidden {
            for block in &mut own.content {
                if let Block::Thinking { text, .. } = block {
                    text.clear();
                }
            }
        }
        serde_json::to_vec(&own).unwrap_or_default()
    }
}
