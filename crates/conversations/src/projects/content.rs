//! What a node of a project holds, and how the API shows it.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use throughline_canonical::{Block, Cost, EndReason, Fault, Loss, NativeTurn, Origin, Usage};
use throughline_codec::dialects::content_blocks;
use utoipa::ToSchema;

use super::unreadable::Unreadable;
use crate::chat_seal::{ChatSeal, Field, SealedFields};
use crate::store::{Node, NodeRole, NodeStatus, ProjectNode};

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
    /// What the blocks lack of the form in which their maker wrote them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub native: Option<NativeTurn>,
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
    /// About how many tokens the request had that this answers, by our own estimate. Together with the
    /// provider's count it tells how far off the estimate is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_input: Option<u64>,
    /// The settings of the turn that a user's node asks for, as they were sent.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub settings: Map<String, Value>,
    /// Who said it in a room, if that was a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Whether models see the name of the author. It never changes, so that requests stay equal from turn
    /// to turn.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub shows_author: bool,
    /// How many answers of models in a room led to it without a person in between.
    #[serde(skip_serializing_if = "is_zero")]
    pub chain: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
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

    /// Seals the content for a node.
    pub fn seal(&self, seal: &ChatSeal, node: &str) -> Vec<u8> {
        let mut fields =
            SealedFields::default().with(Field::Node, seal.seal_json(Field::Node, node, self));
        if seal.is_clients() {
            let (text, blocks) = (self.text(), write_blocks(&self.clone().into_blocks()));
            fields = fields
                .with(Field::Content, seal.seal(Field::Content, node, text.as_bytes()))
                .with(Field::ContentBlocks, seal.seal_json(Field::ContentBlocks, node, &blocks));
        }
        fields.write()
    }

    /// Whether there is any thinking.
    pub fn has_thinking(&self) -> bool {
        let thinks =
            |block: &Block| matches!(block, Block::Thinking { .. } | Block::Redacted { .. });
        self.thinking.is_some() || self.blocks.iter().any(thinks)
    }
}

/// Blocks as the API shows them.
fn write_blocks(blocks: &[Block]) -> Vec<Value> {
    blocks.iter().map(content_blocks::write).collect()
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
    /// The text. Missing if the project is sealed and the request has no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// The blocks, in order. Missing as the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub content_blocks: Option<Vec<Value>>,
    /// The text of a node of a sealed project, sealed, in base64url.
    #[serde(rename = "encrypted_content", skip_serializing_if = "Option::is_none")]
    pub encrypted_content: Option<String>,
    /// Its blocks as JSON, sealed.
    #[serde(rename = "encrypted_content_blocks", skip_serializing_if = "Option::is_none")]
    pub encrypted_content_blocks: Option<String>,
    /// The text of all its thinking, sealed.
    #[serde(rename = "encrypted_thinking_content", skip_serializing_if = "Option::is_none")]
    pub encrypted_thinking_content: Option<String>,
    /// The signatures of all its thinking as a JSON list, sealed.
    #[serde(rename = "encrypted_thinking_signature", skip_serializing_if = "Option::is_none")]
    pub encrypted_thinking_signature: Option<String>,
    /// The provider's reply as JSON, compressed with zstd and sealed. Lists leave it out.
    #[serde(rename = "encrypted_raw_response", skip_serializing_if = "Option::is_none")]
    pub encrypted_raw_response: Option<String>,
    /// The backend that made it.
    pub provider: Option<String>,
    /// The model that made it.
    pub model_used: Option<String>,
    /// The person who said it in a room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The channel that said it in a room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
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
    /// The cost in US dollars, as far as the prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
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
    /// Why the content is missing although the request may read it. Only lists show such nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Unreadable>,
}

/// The sealed fields of a node, in base64url. Only sealed projects show them: their clients have the key.
#[derive(Default)]
struct EncryptedFields {
    content: Option<String>,
    content_blocks: Option<String>,
    thinking_content: Option<String>,
    thinking_signature: Option<String>,
}

impl EncryptedFields {
    fn of(node: &Node, inside: &ProjectNode) -> Self {
        let fields = SealedFields::read(&node.sealed).unwrap_or_default();
        let Some(content) = fields.get(Field::Content) else {
            return Self::default();
        };
        let text = |sealed: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(sealed);
        Self {
            content: Some(text(content)),
            content_blocks: fields.get(Field::ContentBlocks).map(text),
            thinking_content: inside.sealed_thinking.as_deref().map(text),
            thinking_signature: inside.sealed_signatures.as_deref().map(text),
        }
    }
}

impl NodeView {
    /// Shows a node with its opened content, if there is a key. `branch` is the name of the branch that
    /// it was created on.
    pub fn new(node: &Node, content: Option<NodeContent>, branch: &str) -> Self {
        let inside = node.in_project.clone().unwrap_or_default();
        let encrypted = EncryptedFields::of(node, &inside);
        let facts = inside.facts;
        let is_open = content.is_some();
        let content = content.unwrap_or_default();
        let (error, author) = (content.fault.as_ref(), content.author.clone());
        Self {
            id: node.id.clone(),
            parent: node.parent.clone(),
            role: facts.role,
            status: facts.status,
            content: is_open.then(|| content.text()),
            encrypted_content: encrypted.content,
            encrypted_content_blocks: encrypted.content_blocks,
            encrypted_thinking_content: encrypted.thinking_content,
            encrypted_thinking_signature: encrypted.thinking_signature,
            encrypted_raw_response: None,
            thinking_content: content.thinking_text(),
            error: error.map(|fault| json!({"kind": fault.kind, "message": fault.message})),
            losses: content.losses.clone(),
            content_blocks: is_open.then(|| write_blocks(&content.into_blocks())),
            author,
            channel: facts.channel,
            provider: facts.provider,
            model_used: facts.model,
            created_on_branch: branch.to_owned(),
            merged_from: facts.merged,
            has_thinking: inside.has_thinking,
            thinking_token_count: inside.thinking_tokens,
            usage: facts.usage,
            cost: facts.cost.and_then(Cost::dollars),
            interrupted: facts.status != NodeStatus::Complete,
            starred: facts.starred,
            created_at: node.created,
            problem: None,
        }
    }
}
