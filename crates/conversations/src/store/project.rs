//! Projects: trees of nodes with named branches.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use throughline_sealing::KeyCheck;
use utoipa::ToSchema;

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
    /// The check of the present chat key, in base64url. Only sealed projects have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_check: Option<String>,
    /// The chat keys before the present one, newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub previous_keys: Vec<PreviousKey>,
}

/// An earlier chat key of a sealed project.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviousKey {
    /// Its check, in base64url.
    pub key_check: String,
    /// The key, wrapped under the key after it, in base64url.
    pub previous: String,
}

impl PreviousKey {
    /// A key with this check, wrapped.
    pub fn new(key_check: KeyCheck, wrapped: &[u8]) -> Self {
        let previous = BASE64_URL_SAFE_NO_PAD.encode(wrapped);
        Self { key_check: key_check.to_string(), previous }
    }

    /// The bytes of the wrapped key.
    pub fn wrapped(&self) -> Option<Vec<u8>> {
        BASE64_URL_SAFE_NO_PAD.decode(&self.previous).ok()
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The id after which the page starts.
    pub after: Option<String>,
    /// The largest number of entries.
    pub limit: usize,
}
