//! Stored responses, and how they are found.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use throughline_canonical::Fault;
use throughline_codec::dialects::openai_responses::state::{ids, output};
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;

use super::Responses;
use crate::sealed_store::{Ancestry, SealedKind, expires, fault};
use crate::store::{Commit, Move, Node, Outcome, Run, RunEnd, bounded_name};

/// What one turn added to a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredResponse {
    /// The items that the client sent.
    pub(super) input: Vec<Value>,
    /// The response. `null` for items that were added to a conversation directly.
    pub(super) response: Value,
    /// The backend that also stores it, under the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) native: Option<String>,
    /// Whether it ran in the background.
    #[serde(default)]
    pub(super) background: bool,
    /// Whether it was deleted while its conversation was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleted: bool,
}

impl StoredResponse {
    /// All items, in order.
    pub(super) fn items(&self) -> impl Iterator<Item = &Value> {
        self.input.iter().chain(output(&self.response))
    }

    /// All items, in order, without a copy.
    pub(super) fn into_items(mut self) -> impl Iterator<Item = Value> {
        let output = match self.response.get_mut("output") {
            Some(Value::Array(items)) => std::mem::take(items),
            _ => Vec::new(),
        };
        self.input.into_iter().chain(output)
    }
}

/// The owner and the position of a turn.
#[derive(Clone, Debug)]
pub(super) struct Ownership {
    /// The owner's key fingerprint.
    pub(super) owner: String,
    /// The response that it follows.
    pub(super) parent: Option<String>,
    /// The conversation that it is part of.
    pub(super) conversation: Option<String>,
}

/// Whether an id can be written in only one way. A backend that uses the operator's key could read
/// another spelling as an id of another caller.
pub(super) fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !id.is_empty() && id.bytes().all(plain)
}

/// The error if a request needs stored state and the operator has disabled it.
pub(super) fn nothing_stored(member: &str) -> Fault {
    Fault::at(
        member,
        "this server stores no responses, because `responses.limit` is zero; send the \
         conversation as `input` and wait for the reply",
    )
}

impl Responses {
    /// A response of this owner.
    pub(super) async fn find(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<StoredResponse>, Fault> {
        let stored: Option<StoredResponse> = self.sealed_store.find(owner, id).await?;
        Ok(stored.filter(|stored| !stored.deleted))
    }

    /// A response and those before it. `None` if there is no such response.
    pub(super) async fn ancestry(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<Ancestry<StoredResponse>>, Fault> {
        self.sealed_store.ancestry(owner, id).await
    }

    /// Items of this owner, by id.
    pub(super) async fn items(
        &self,
        owner: &str,
        ids: &[&str],
    ) -> Result<HashMap<String, Value>, Fault> {
        let mut found = HashMap::new();
        for id in ids {
            if found.contains_key(*id) {
                continue;
            }
            let node =
                self.sealed_store.store.named(owner, &bounded_name(id)).await.map_err(fault)?;
            let not_stored = || {
                let what = format!("item `{id}` is not stored; send the item itself");
                Fault::at("input", what)
            };
            let stored: Option<StoredResponse> = match node {
                Some(node) if node.owner != owner => return Err(not_stored()),
                Some(node) => {
                    let opened = self.sealed_store.open_node(&node)?;
                    Some(opened.ok_or_else(not_stored)?)
                }
                None if !is_plain(id) => return Err(not_stored()),
                None => None,
            };
            // Items of the same turn are often needed too.
            for item in stored.iter().flat_map(StoredResponse::items) {
                if let Some(id) = item.get("id").and_then(Value::as_str) {
                    found.insert(id.to_owned(), item.clone());
                }
            }
        }
        Ok(found)
    }

    /// Stores a turn, and the result of its run.
    pub(super) async fn store_turn(
        &self,
        id: &str,
        ownership: &Ownership,
        stored: &StoredResponse,
        run: RunChange,
    ) -> Result<(), StoreError> {
        // A backend may use an id twice. A turn that follows itself would have no beginning.
        if ownership.parent.as_deref() == Some(id) {
            tracing::warn!(response = id, "not storing the response: it would follow itself");
            return Ok(());
        }
        let now = unix_ms();
        let sealed = self.sealed_store.seal(SealedKind::Node, id, stored);
        self.sealed_store.count_written(sealed.len());
        let names = ids(&stored.input).chain(ids(output(&stored.response)));
        let node = Node {
            id: id.to_owned(),
            parent: ownership.parent.clone(),
            owner: ownership.owner.clone(),
            created: now,
            expires: Some(expires(now, self.retention)),
            open: matches!(run, RunChange::Starts(_)),
            names: names.map(|name| bounded_name(name).into_owned()).collect(),
            sealed,
            in_project: None,
        };
        let store = &self.sealed_store.store;
        let mut commit = Commit { nodes: vec![node], ..Commit::default() };
        match run {
            RunChange::None => {}
            // An incomplete turn is not part of its conversation yet.
            RunChange::Starts(run) => {
                commit.start = Some(*run);
                store.commit(commit).await?;
                return Ok(());
            }
            RunChange::Ends(end) => commit.end = Some(end),
        }
        if let Some(reference) = &ownership.conversation {
            // Another turn may have ended first. Then this one follows it.
            while let Some(known) = store.reference(reference).await? {
                if known.head.as_deref() == Some(id) {
                    return Ok(());
                }
                commit.nodes[0].parent.clone_from(&known.head);
                let (reference, to) = (reference.clone(), Some(id.to_owned()));
                commit.moves = Some(Move { reference, from: known.head, to });
                match store.commit(commit.clone()).await? {
                    Outcome::Stale => {}
                    _ => return Ok(()),
                }
            }
            // The conversation was deleted meanwhile.
            commit.moves = None;
        }
        store.commit(commit).await.map(drop)
    }
}

/// What storing a turn means for its background run.
pub(super) enum RunChange {
    /// It has none.
    None,
    /// The run starts. Boxed because it is much larger than the others.
    Starts(Box<Run>),
    /// The run ends.
    Ends(RunEnd),
}
