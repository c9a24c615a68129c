//! Reads the parts of a captured reply that its maker gets back as it wrote them.
//!
//! Canonical blocks lack some of what a provider wrote: ids of items, the parts of a summary, citations
//! in its own form, members that the vocabulary has no field for. A stored conversation keeps the
//! parts that have any of it beside its blocks, and the dialect's request writer uses them where their
//! blocks are unchanged ([`throughline_canonical::Message::native_parts`]).

use throughline_canonical::{Block, Fold, NativePart, NativeTurn};

use super::{Target, UpstreamDialect};

/// How many blocks that belong to no part are looked past.
const MAX_OTHER_BLOCKS: usize = 64;

/// How a dialect sends the parts of a turn back.
pub trait NativeForm: Sync {
    /// The parts of a captured reply, in order, as a request has them. `None` if the payload cannot be
    /// read.
    fn parts(&self, payload: &str) -> Option<Vec<String>>;
    /// A whole reply with this part only.
    fn reply_of(&self, part: &str) -> String;
    /// Whether the blocks of a part have all of it.
    fn is_plain(&self, part: &str) -> bool;
    /// Whether a call has an id, or gets one from the reader.
    fn names_call(&self, _part: &str) -> bool {
        true
    }
}

/// Reads the native form of a turn from its captured reply. `blocks` is the turn as it is stored. `None`
/// if the blocks have all of it.
pub fn read(dialect: &dyn UpstreamDialect, payload: &str, blocks: &[Block]) -> Option<NativeTurn> {
    let form = dialect.native_form()?;
    let mut parts = Vec::new();
    let mut next = 0;
    for json in form.parts(payload)? {
        let read = blocks_of(dialect, &form.reply_of(&json));
        let named = form.names_call(&json);
        let starts = next..blocks.len().min(next + MAX_OTHER_BLOCKS);
        let is_here = |at: &usize| {
            let here = blocks.get(*at..*at + read.len());
            let is_same = |(one, other): (&Block, &Block)| is_same(one, other, named);
            here.is_some_and(|here| read.iter().zip(here).all(is_same))
        };
        let found = starts.into_iter().find(is_here).filter(|_| !read.is_empty());
        let Some(first) = found else { continue };
        next = first + read.len();
        if !form.is_plain(&json) {
            parts.push(NativePart { json, first, blocks: read.len() });
        }
    }
    (!parts.is_empty()).then(|| NativeTurn { dialect: dialect.name().to_owned(), parts })
}

/// The blocks of a whole reply.
fn blocks_of(dialect: &dyn UpstreamDialect, reply: &str) -> Vec<Block> {
    let target = Target { model: "", profile: dialect.profile("") };
    let mut reader = dialect.reply_reader(&target, false);
    let mut fold = Fold::default();
    reader.push(reply.as_bytes(), &mut |event| fold.push(&event));
    reader.finish(&mut |event| fold.push(&event));
    fold.finish().content
}

/// Whether a stored block is the one that a part reads as. The store may have other names of tools. A
/// call that the provider gave no id has one of ours.
fn is_same(read: &Block, stored: &Block, is_named: bool) -> bool {
    let signed = |signature: &Option<String>| signature.clone().unwrap_or_default();
    match (read, stored) {
        (
            Block::Text { text, signature, .. },
            Block::Text { text: stored, signature: stored_signature, .. },
        ) => text == stored && signed(signature) == signed(stored_signature),
        (
            Block::Thinking { text, signature },
            Block::Thinking { text: stored, signature: stored_signature },
        ) => text == stored && signed(signature) == signed(stored_signature),
        (
            Block::ToolCall { id, name, arguments, signature },
            Block::ToolCall {
                id: stored_id,
                name: stored_name,
                arguments: stored,
                signature: stored_signature,
            },
        ) => {
            let is_call = if is_named { id == stored_id } else { name == stored_name };
            is_call && arguments == stored && signed(signature) == signed(stored_signature)
        }
        (read, stored) => read == stored,
    }
}
