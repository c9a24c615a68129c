//! How many tokens a request has, and which turns fit into the model's window.
//!
//! The estimate is high on purpose: three bytes of ASCII text are a token, and two bytes of any other
//! text. Real tokenizers need about four bytes of English, three of code, three of Chinese. Once the
//! provider has counted a request of the same model, the estimate of what that request had is scaled
//! to its count. What came later is never estimated lower than without a count.

use throughline_canonical::{Block, Request, Tool, Usage};

use super::context::PastNode;
use crate::store::{NodeRole, NodeStatus};

/// Bytes of ASCII text per token.
const ASCII_BYTES_PER_TOKEN: u64 = 3;
/// Bytes of other text per token.
const OTHER_BYTES_PER_TOKEN: u64 = 2;
/// What a message counts beside its blocks, and a block beside its text.
const MESSAGE_TOKENS: u64 = 8;
const BLOCK_TOKENS: u64 = 4;
/// What an image or a document counts, in tokens.
const MEDIA_TOKENS: u64 = 1_600;
/// The room for the answer if neither the request nor the catalog has a limit.
const DEFAULT_OUTPUT: u64 = 32_768;

/// The room of a model for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// How many tokens the request may have, without the answer.
    pub tokens: u64,
    /// About how many tokens the system text and the tools have.
    pub fixed: u64,
}

impl Window {
    /// The window of a model with this context length. `limit` is the limit of the answer, if known.
    pub fn new(context: u64, limit: Option<u64>, fixed: u64) -> Self {
        let output = limit.unwrap_or(DEFAULT_OUTPUT.min(context / 4)).min(context / 2);
        Self { tokens: context - output, fixed }
    }
}

/// About how many tokens the system texts and the tools of a request have.
pub fn fixed_tokens(request: &Request) -> u64 {
    let system = request.system.iter().map(|text| text_tokens(text) + MESSAGE_TOKENS);
    let tools = request.tools.iter().map(|tool| {
        let text = match tool {
            Tool::Function { name, description, parameters, .. } => {
                let description = description.as_deref().unwrap_or_default();
                text_tokens(name) + text_tokens(description) + text_tokens(&parameters.to_string())
            }
            Tool::Opaque { value, .. } => text_tokens(&value.to_string()),
        };
        text + MESSAGE_TOKENS
    });
    system.chain(tools).sum()
}

/// About how many tokens a message with these blocks has.
pub fn message_tokens(blocks: &[Block]) -> u64 {
    MESSAGE_TOKENS + blocks.iter().map(block_tokens).sum::<u64>()
}

/// About how many tokens a block has at least in a request that has its text, with or without its signature.
pub fn text_block_tokens(block: &Block) -> u64 {
    match block {
        Block::Text { text, .. } | Block::Refusal { text } => text_tokens(text),
        _ => 0,
    }
}

fn block_tokens(block: &Block) -> u64 {
    let signed = |signature: &Option<String>| signature.as_deref().map_or(0, text_tokens);
    let own = match block {
        Block::Text { text, signature, .. } | Block::Thinking { text, signature } => {
            text_tokens(text) + signed(signature)
        }
        Block::Refusal { text } => text_tokens(text),
        Block::Redacted { data } => text_tokens(data),
        Block::ToolCall { name, arguments, signature, .. } => {
            text_tokens(name) + text_tokens(arguments) + signed(signature)
        }
        Block::ToolResult { content, .. } => content.iter().map(block_tokens).sum(),
        Block::Media { .. } => MEDIA_TOKENS,
        Block::Opaque { value, .. } => text_tokens(&value.to_string()),
    };
    own + BLOCK_TOKENS
}

fn text_tokens(text: &str) -> u64 {
    let other = text.bytes().filter(|byte| !byte.is_ascii()).count() as u64;
    let ascii = text.len() as u64 - other;
    ascii.div_ceil(ASCII_BYTES_PER_TOKEN) + other.div_ceil(OTHER_BYTES_PER_TOKEN)
}

/// A request that the provider has counted: what it had by our estimate, and by the provider's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The index of the answer to it.
    answer: usize,
    estimated: u64,
    counted: u64,
}

impl Counted {
    /// The newest request of this model that was counted.
    pub fn newest(path: &[PastNode], provider: &str, model: &str) -> Option<Self> {
        let count = |(answer, node): (usize, &PastNode)| {
            let facts = &node.facts;
            let is_own = facts.role == NodeRole::Assistant
                && facts.status == NodeStatus::Complete
                && facts.provider.as_deref() == Some(provider)
                && facts.model.as_deref() == Some(model);
            let estimated = node.content.estimated_input.filter(|tokens| is_own && *tokens > 0)?;
            let counted = input_tokens(&facts.usage?).filter(|tokens| *tokens > 0)?;
            Some(Self { answer, estimated, counted })
        };
        path.iter().enumerate().rev().find_map(count)
    }

    fn scaled(self, tokens: u64) -> u64 {
        let scaled = u128::from(tokens) * u128::from(self.counted);
        u64::try_from(scaled.div_ceil(u128::from(self.estimated))).unwrap_or(u64::MAX)
    }

    /// The tokens of the node at this index, from an estimate.
    fn node_tokens(self, index: usize, estimate: u64) -> u64 {
        match index < self.answer {
            true => self.scaled(estimate),
            false => self.scaled(estimate).max(estimate),
        }
    }
}

/// All tokens that the provider read.
fn input_tokens(usage: &Usage) -> Option<u64> {
    let cached = [usage.cache_read, usage.cache_write].into_iter().flatten();
    Some(usage.input? + cached.sum::<u64>())
}

/// The tokens of the nodes of a branch.
#[derive(Debug)]
pub struct Sizes {
    /// The estimate of each node.
    estimates: Vec<u64>,
    counted: Option<Counted>,
}

impl Sizes {
    /// The sizes of nodes with these estimates.
    pub fn new(estimates: Vec<u64>, counted: Option<Counted>) -> Self {
        Self { estimates, counted }
    }

    /// The tokens of the node at this index, scaled to the provider's count.
    pub fn node(&self, index: usize) -> u64 {
        let estimate = self.estimates.get(index).copied().unwrap_or_default();
        self.counted.map_or(estimate, |counted| counted.node_tokens(index, estimate))
    }

    /// The tokens of the nodes from an index on.
    pub fn from(&self, first: usize) -> u64 {
        (first..self.estimates.len()).map(|index| self.node(index)).sum()
    }

    /// The same by our estimate alone.
    pub fn estimated_from(&self, first: usize) -> u64 {
        self.estimates.get(first..).unwrap_or_default().iter().sum()
    }

    /// The tokens of the system text and the tools, from an estimate.
    pub fn fixed(&self, estimate: u64) -> u64 {
        self.counted.map_or(estimate, |counted| counted.scaled(estimate))
    }

    /// The index of the first node that fits into a window. `starts` are the indexes of nodes that begin
    /// a turn, in order. Nodes from `keep_from` on always stay. An earlier turn is kept whole or not at
    /// all.
    pub fn first_that_fits(&self, window: Window, keep_from: usize, starts: &[usize]) -> usize {
        let needed = self.fixed(window.fixed) + self.from(keep_from);
        let mut left = window.tokens.saturating_sub(needed);
        let mut first = keep_from;
        // Messages before the first question belong to it.
        let earlier = starts.iter().copied().skip(1).filter(|start| *start < keep_from);
        for start in earlier.rev().chain((keep_from > 0).then_some(0)) {
            let turn: u64 = (start..first).map(|index| self.node(index)).sum();
            if turn > left {
                break;
            }
            left -= turn;
            first = start;
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimate_is_high_for_any_script() {
        for (text, tokens) in
            [("", 0), ("abcdef", 2), ("Привет", 6), ("你好", 3), ("नमस्ते", 9), ("🙂", 2)]
        {
            assert_eq!(text_tokens(text), tokens, "{text}");
        }
    }

    #[test]
    fn window_leaves_room_for_the_answer() {
        for (context, limit, tokens) in [
            (200_000, Some(64_000), 136_000),
            (200_000, Some(180_000), 100_000),
            (200_000, None, 167_232),
            (8_192, None, 6_144),
        ] {
            assert_eq!(Window::new(context, limit, 5).tokens, tokens, "{context} {limit:?}");
        }
    }

    #[test]
    fn provider_count_scales_what_it_counted() {
        let counted = Counted { answer: 2, estimated: 1_000, counted: 500 };
        let sizes = Sizes::new(vec![600, 200, 100, 100], Some(counted));
        // The answer and what follows it were not counted.
        assert_eq!((0..4).map(|at| sizes.node(at)).collect::<Vec<_>>(), [300, 100, 100, 100]);
        assert_eq!((sizes.fixed(200), sizes.from(1), sizes.estimated_from(1)), (100, 300, 400));
        let denser = Sizes::new(vec![600, 200, 100], Some(Counted { counted: 2_000, ..counted }));
        assert_eq!((0..3).map(|at| denser.node(at)).collect::<Vec<_>>(), [1_200, 400, 200]);
    }

    #[test]
    fn earlier_turns_fit_whole_or_not_at_all() {
        let sizes = Sizes::new(vec![10, 10, 10, 10, 10], None);
        for (tokens, first) in [(100, 0), (50, 0), (49, 2), (30, 2), (29, 4), (0, 4)] {
            let window = Window { tokens, fixed: 0 };
            assert_eq!(sizes.first_that_fits(window, 4, &[0, 2, 4]), first, "{tokens}");
        }
        // Tools and system text need room too.
        let window = Window { tokens: 50, fixed: 1 };
        assert_eq!(sizes.first_that_fits(window, 4, &[0, 2, 4]), 2);
    }
}
