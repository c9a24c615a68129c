//! A model's turn in the form of its maker's dialect, for requests that send it back to its maker.
//!
//! Blocks have what all dialects share. Ids of items, citations and members that the vocabulary has no
//! field for are only in the maker's own form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Block;

/// How many blocks that are gone from a turn are looked past.
const MAX_GONE_BLOCKS: usize = 64;

/// The parts of a turn as its maker wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativeTurn {
    /// The dialect of the parts.
    pub dialect: String,
    /// The parts, in order. A part that its blocks can express is left out.
    pub parts: Vec<NativePart>,
}

/// A part of a turn: an item, a block or a part of a message, by dialect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NativePart {
    /// The part as a request has it: a JSON object.
    pub json: String,
    /// The index of the first block that it stands for.
    pub first: usize,
    /// How many blocks it stands for.
    pub blocks: usize,
}

/// A turn as its maker wrote it, together with the blocks that it was read as.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeTurn {
    /// The maker's form.
    pub native: NativeTurn,
    /// All blocks of the turn, as they were made.
    pub blocks: Vec<Block>,
}

/// Where the parts of a turn go in the present content of its message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Alignment<'a> {
    /// For each block: the part that begins with it.
    parts: Vec<Option<&'a NativePart>>,
    /// Whether thinking of the turn is gone.
    pub lacks_thinking: bool,
}

impl<'a> Alignment<'a> {
    /// The part that stands for the block at this index and those after it.
    pub fn part(&self, index: usize) -> Option<&'a NativePart> {
        self.parts.get(index).copied().flatten()
    }
}

impl MadeTurn {
    /// Appends a turn to an earlier one. `earlier` are the blocks of the earlier turn, in case it has no
    /// native form.
    pub fn join(before: Option<Arc<Self>>, earlier: &[Block], after: Arc<Self>) -> Arc<Self> {
        let mut joined = match before {
            Some(before) if before.native.dialect == after.native.dialect => (*before).clone(),
            _ => Self {
                native: NativeTurn { parts: Vec::new(), ..after.native.clone() },
                blocks: earlier.to_vec(),
            },
        };
        let offset = joined.blocks.len();
        let after = Arc::unwrap_or_clone(after);
        let moved = |part: NativePart| NativePart { first: part.first + offset, ..part };
        joined.native.parts.extend(after.native.parts.into_iter().map(moved));
        joined.blocks.extend(after.blocks);
        Arc::new(joined)
    }

    /// Finds the parts whose blocks are all still there, unchanged.
    pub fn align(&self, content: &[Block]) -> Alignment<'_> {
        // The index of each block of the content among the blocks of the turn.
        let mut found = Vec::with_capacity(content.len());
        let mut next = 0;
        for block in content {
            let rest = self.blocks.iter().skip(next).take(MAX_GONE_BLOCKS);
            let at = rest.clone().position(|made| is_unchanged(made, block));
            found.push(at.map(|at| next + at));
            if let Some(at) = at {
                next += at + 1;
            }
        }
        let mut aligned =
            Alignment { parts: vec![None; content.len()], lacks_thinking: self.lacks(&found) };
        let mut parts = self.native.parts.iter().peekable();
        for (index, made) in found.iter().enumerate() {
            let Some(made) = *made else { continue };
            while parts.next_if(|part| part.first < made).is_some() {}
            let follow = |part: &&NativePart| {
                (0..part.blocks).all(|at| found.get(index + at) == Some(&Some(made + at)))
            };
            let part = parts.peek().copied().filter(|part| part.first == made && part.blocks > 0);
            if let Some(part) = part.filter(follow) {
                aligned.parts[index] = Some(part);
            }
        }
        aligned
    }

    fn lacks(&self, found: &[Option<usize>]) -> bool {
        let thinks =
            |block: &Block| matches!(block, Block::Thinking { .. } | Block::Redacted { .. });
        let mut kept = found.iter().flatten().peekable();
        self.blocks.iter().enumerate().any(|(at, block)| {
            while kept.next_if(|kept| **kept < at).is_some() {}
            thinks(block) && kept.peek() != Some(&&at)
        })
    }
}

/// Whether a block says what it said when it was made. A call may have another name: some providers
/// refuse the name of a tool, and get another one.
fn is_unchanged(made: &Block, now: &Block) -> bool {
    match (made, now) {
        (
            Block::ToolCall { id, arguments, signature, .. },
            Block::ToolCall { id: own, arguments: now, signature: signed, .. },
        ) => id == own && arguments == now && signature == signed,
        (made, now) => made == now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinking(text: &str) -> Block {
        Block::Thinking { text: text.to_owned(), signature: Some("s".to_owned()) }
    }

    fn part(first: usize, blocks: usize) -> NativePart {
        NativePart { json: format!("{{\"at\":{first}}}"), first, blocks }
    }

    fn turn(blocks: Vec<Block>, parts: Vec<NativePart>) -> MadeTurn {
        MadeTurn { native: NativeTurn { dialect: "d".to_owned(), parts }, blocks }
    }

    fn starts(made: &MadeTurn, content: &[Block]) -> (Vec<Option<usize>>, bool) {
        let aligned = made.align(content);
        let first = |index| aligned.part(index).map(|part| part.first);
        ((0..content.len()).map(first).collect(), aligned.lacks_thinking)
    }

    #[test]
    fn part_goes_only_with_all_of_its_blocks() {
        let (a, b) = (Block::text("a"), Block::text("b"));
        let blocks = vec![thinking("1"), a.clone(), b.clone(), thinking("2"), a.clone()];
        let made = turn(blocks.clone(), vec![part(0, 1), part(1, 2), part(3, 1), part(4, 1)]);
        assert_eq!(starts(&made, &blocks), (vec![Some(0), Some(1), None, Some(3), Some(4)], false));
        // Thinking was dropped, and one text of the second part was changed.
        let changed = [a.clone(), Block::text("c"), a.clone()];
        assert_eq!(starts(&made, &changed), (vec![None, None, Some(4)], true));
        assert_eq!(starts(&made, &[]), (Vec::new(), true));
    }

    #[test]
    fn renamed_call_keeps_its_part_and_an_unsigned_one_does_not() {
        let call = |name: &str, signature: Option<&str>| Block::ToolCall {
            id: "c".to_owned(),
            name: name.to_owned(),
            arguments: "{}".to_owned(),
            signature: signature.map(str::to_owned),
        };
        let made = turn(vec![call("a", Some("s"))], vec![part(0, 1)]);
        assert_eq!(starts(&made, &[call("b", Some("s"))]).0, [Some(0)]);
        assert_eq!(starts(&made, &[call("a", None)]).0, [None]);
    }

    #[test]
    fn joined_turns_keep_the_parts_of_both() {
        let one = Arc::new(turn(vec![Block::text("a")], vec![part(0, 1)]));
        let two = Arc::new(turn(vec![thinking("1"), Block::text("b")], vec![part(1, 1)]));
        let content = [Block::text("a"), thinking("1"), Block::text("b")];
        let both = MadeTurn::join(Some(one), &[], two.clone());
        assert_eq!(starts(&both, &content).0, [Some(0), None, Some(2)]);
        let second = MadeTurn::join(None, &[Block::text("a")], two);
        assert_eq!(starts(&second, &content).0, [None, None, Some(2)]);
    }
}
