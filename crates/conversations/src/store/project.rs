//! Projects: trees of nodes with named branches.

use serde::{Deserialize, Serialize};

use super::node::Owner;

/// A project.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Project {
    /// The unique id. Ids sort by the time they were made.
    pub id: String,
    /// The owner.
    pub owner: Owner,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// The facts.
    pub facts: ProjectFacts,
    /// The sealed title and settings.
    pub sealed: Vec<u8>,
}

/// What is known about a project without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ProjectFacts {
    /// Who holds the key: `managed` or `sealed`.
    pub mode: String,
    /// When it was deleted, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted: Option<u64>,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The id after which the page starts.
    pub after: Option<String>,
    /// The largest number of entries.
    pub limit: usize,
}
