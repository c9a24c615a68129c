//! Nodes and references: what each turn added, and the newest node of a line.

use serde::{Deserialize, Serialize};
use throughline_canonical::{Cost, Usage};
use utoipa::ToSchema;

/// The owner: a fingerprint of the caller's key.
pub type Owner = String;

/// What one turn added to a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The unique id. Ids of project nodes sort by the time they were made.
    pub id: String,
    /// The node before it.
    pub parent: Option<String>,
    /// The owner.
    pub owner: Owner,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// Whether it is still being written.
    pub open: bool,
    /// Ids of items inside it, by which it can also be found.
    pub names: Vec<String>,
    /// The sealed content.
    pub sealed: Vec<u8>,
    /// The project that it belongs to, and what is known about it there. Nodes of a project never
    /// expire and are not counted by [`super::NodeStore::trim`].
    pub in_project: Option<ProjectNode>,
}

impl Node {
    /// The node as a path with this detail has it.
    #[must_use]
    pub fn with_detail(mut self, detail: Detail) -> Self {
        let Some(inside) = &mut self.in_project else { return self };
        if detail != Detail::Whole {
            (inside.sealed_thinking, inside.sealed_signatures) = (None, None);
        }
        if detail == Detail::Facts {
            self.sealed.clear();
        }
        self
    }
}

/// How much of each node of a path is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything but the provider's reply.
    Whole,
    /// Without the sealed thinking and signatures, which the content has too. Only clients with a key of
    /// their own need them apart.
    Content,
    /// Without anything sealed.
    Facts,
}

/// A node as part of a project. The facts are readable without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectNode {
    /// The project.
    pub project: String,
    /// The facts.
    pub facts: NodeFacts,
    /// Whether it has any thinking.
    pub has_thinking: bool,
    /// Tokens that the model spent on thinking, if the provider said so.
    pub thinking_tokens: Option<u64>,
    /// The text of all thinking, sealed.
    pub sealed_thinking: Option<Vec<u8>>,
    /// The signatures of all thinking, sealed.
    pub sealed_signatures: Option<Vec<u8>>,
    /// The provider's reply as it was captured, sealed. Only [`super::NodeStore::raw`] reads it; it
    /// is `None` in nodes that a store returns.
    pub sealed_raw: Option<Vec<u8>>,
}

/// What is known about a node without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeFacts {
    /// The author.
    pub role: NodeRole,
    /// Whether it is complete.
    pub status: NodeStatus,
    /// The backend that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The id of the branch on which it was created.
    pub branch: String,
    /// The second parent of a node that merges a branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged: Option<String>,
    /// Whether the user marked it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub starred: bool,
    /// The member of a room that said it: the id of a channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Token counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// What it has cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The provider's id of the reply, if the provider was asked to store it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}

/// The author of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// The operator.
    System,
    /// A person, and the tools that ran for the model.
    #[default]
    User,
    /// The model.
    Assistant,
}

/// Whether a node is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStatus {
    /// Nothing is missing.
    #[default]
    Complete,
    /// The reply was stopped or cut. The node has what had arrived.
    Interrupted,
    /// The provider reported an error. The node has what had arrived.
    Error,
}

/// Points to the newest node of a line: a conversation, a thread, or a branch of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reference {
    /// The unique id.
    pub id: String,
    /// The owner.
    pub owner: Owner,
    /// The newest node. `None` before the first one.
    pub head: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// When it expires, in milliseconds since 1970. Every move extends it.
    pub expires: Option<u64>,
    /// The sealed content.
    pub sealed: Vec<u8>,
    /// What it is in a project, if it is a branch.
    pub branch: Option<Branch>,
}

/// A branch of a project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// The project.
    pub project: String,
    /// The name. No two branches of a project have the same one, deleted branches included.
    pub name: String,
    /// The facts.
    pub facts: BranchFacts,
}

/// What is known about a branch. Readable without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct BranchFacts {
    /// The backend that it is locked to.
    pub provider: String,
    /// The model that it is locked to.
    pub model: String,
    /// The node at which it was forked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_node: Option<String>,
    /// Whether it is listed first.
    pub pinned: bool,
    /// Whether pages should not show it.
    pub hidden: bool,
    /// Whether the user marked it.
    pub starred: bool,
    /// When it was deleted, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
}

/// The result of a change that holds only if no other request has changed the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was changed.
    Yes,
    /// It is not as the caller knew it, or does not exist. Nothing was written.
    Stale,
    /// The project has another branch of this name. Nothing was written.
    NameTaken,
}

/// Moves a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The reference's id.
    pub reference: String,
    /// The node that it must point to. Otherwise nothing is written.
    pub from: Option<String>,
    /// The node that it then points to.
    pub to: Option<String>,
}
