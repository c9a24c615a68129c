//! What a node of a project holds, and how the API shows it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use throughline_canonical::{Block, EndReason, Fault, Loss, Origin, Usage};
use throughline_codec::dialects::content_blocks;
use utoipa::ToSchema;

use crate::store::{Node, NodeRole, NodeStatus};

/// The notice for reasoning that the provider has hidden.
pub const REDACTED_NOTICE: &str = "[Some reasoning was hidden for safety reasons]";

/// The content of a node. It is sealed as JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeContent {
    /// The blocks, in the provider's order, with the provider's own signatures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Block>,
    /// The text of a node from before there were blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The thinking of such a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The maker of the blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Why the reply ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<EndReason>,
    /// The error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// What was lost between here and the provider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// The positions of blocks that were cut. They are never sent to a provider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cut_blocks: Vec<usize>,
    /// The settings of the turn that a user's node asks for, as they were sent.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
}

impl NodeContent {
    /// The blocks. Nodes from before there were blocks have them made from their texts.
    pub fn into_blocks(self) -> Vec<Block> {
        if !self.blocks.is_empty() {
            return self.blocks;
        }
        let thinking = self.thinking.map(|text| Block::Thinking { text, signature: None });
        thinking.into_iter().chain(self.content.map(Block::text)).collect()
    }

    /// The plain text, derived from the blocks.
    pub fn text(&self) -> String {
        if self.blocks.is_empty() {
            return self.content.clone().unwrap_or_default();
        }
        text_of(&self.blocks)
    }

    /// The text of all thinking.
    pub fn thinking_text(&self) -> Option<String> {
        let texts: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Thinking { text, .. } if !text.is_empty() => Some(text.as_str()),
                Block::Redacted { .. } => Some(REDACTED_NOTICE),
                _ => None,
            })
            .collect();
        match texts.is_empty() {
            true => self.thinking.clone(),
            false => Some(texts.join("\n\n")),
        }
    }

    /// The signatures of all thinking, in order.
    pub fn signatures(&self) -> Vec<&str> {
        let signatures = self.blocks.iter().filter_map(|block| match block {
            Block::Thinking { signature, .. } => signature.as_deref(),
            Block::Redacted { data } => Some(data.as_str()),
            _ => None,
        });
        signatures.collect()
    }

    /// Whether there is any thinking.
    pub fn has_thinking(&self) -> bool {
        let thinks =
            |block: &Block| matches!(block, Block::Thinking { .. } | Block::Redacted { .. });
        self.thinking.is_some() || self.blocks.iter().any(thinks)
    }
}

/// The text of blocks.
pub fn text_of(blocks: &[Block]) -> String {
    let text = |block: &Block| match block {
        Block::Text { text, .. } | Block::Refusal { text } => Some(text.clone()),
        _ => None,
    };
    blocks.iter().filter_map(text).collect()
}

/// A node as the API shows it. Many fields: each one is a member of the JSON object.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// The id.
    pub id: String,
    /// The node before it.
    pub parent: Option<String>,
    /// The author: `user`, `assistant` or `system`.
    pub role: NodeRole,
    /// `complete`, `interrupted` or `error`.
    pub status: NodeStatus,
    /// The text.
    pub content: String,
    /// The blocks, in order.
    #[schema(value_type = Vec<Object>)]
    pub content_blocks: Vec<Value>,
    /// The backend that made it.
    pub provider: Option<String>,
    /// The model that made it.
    pub model_used: Option<String>,
    /// The branch on which it was created.
    pub created_on_branch: String,
    /// The second parent, if it merges a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_from: Option<String>,
    /// Whether it has thinking.
    #[serde(rename = "has_thinking")]
    pub has_thinking: bool,
    /// Tokens spent on thinking, if known.
    #[serde(rename = "thinking_token_count")]
    pub thinking_token_count: Option<u64>,
    /// The text of all thinking, derived.
    #[serde(rename = "thinking_content", skip_serializing_if = "Option::is_none")]
    pub thinking_content: Option<String>,
    /// Token counts.
    #[schema(value_type = Option<Object>)]
    pub usage: Option<Usage>,
    /// Whether the reply was stopped or cut.
    pub interrupted: bool,
    /// Whether the user marked it.
    pub starred: bool,
    /// The error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub error: Option<Value>,
    /// What was lost between here and the provider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub losses: Vec<Loss>,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
}

impl NodeView {
    /// Shows a node with its opened content. `branch` is the name of the branch that it was created
    /// on.
    pub fn new(node: &Node, content: NodeContent, branch: &str) -> Self {
        let inside = node.in_project.clone().unwrap_or_default();
        let facts = inside.facts;
        let error = content.fault.as_ref();
        Self {
            id: node.id.clone(),
            parent: node.parent.clone(),
            role: facts.role,
            status: facts.status,
            content: content.text(),
            thinking_content: content.thinking_text(),
            error: error.map(|fault| json!({"kind": fault.kind, "message": fault.message})),
            losses: content.losses.clone(),
            content_blocks: content.into_blocks().iter().map(content_blocks::write).collect(),
            provider: facts.provider,
            model_used: facts.model,
            created_on_branch: branch.to_owned(),
            merged_from: facts.merged,
            has_thinking: inside.has_thinking,
            thinking_token_count: inside.thinking_tokens,
            usage: facts.usage,
            interrupted: facts.status != NodeStatus::Complete,
            starred: facts.starred,
            created_at: node.created,
        }
    }
}
