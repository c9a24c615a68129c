//! What is kept of a response, and how it is found again.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::openai_responses::state::{ids, output};
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;

use super::Responses;
use crate::shelf::Kind;
use crate::store::{Move, Node};

/// The longest way that is walked back.
pub(super) const LONGEST_WAY: usize = 10_000;

/// What one turn added.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// What the client sent.
    pub(super) input: Vec<Value>,
    /// What it got; null for items that were put into a conversation by hand.
    pub(super) response: Value,
    /// The backend that keeps it too, under the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) native: Option<String>,
    /// Whether it was written without a client waiting.
    #[serde(default)]
    pub(super) background: bool,
    /// It was deleted, but the conversation it is part of was not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleted: bool,
}

impl Kept {
    /// All of it, in order.
    pub(super) fn items(&self) -> impl Iterator<Item = &Value> {
        self.input.iter().chain(output(&self.response))
    }
}

/// A response and those it follows.
pub(super) struct Walked {
    /// The turns, the oldest first.
    pub(super) turns: Vec<Kept>,
    /// What the oldest follows, if that is gone.
    pub(super) missing: Option<String>,
}

/// Whether a time has not run out; nobody may have swept since.
pub(super) fn lasts(expires: Option<u64>) -> bool {
    expires.is_none_or(|at| at > unix_ms())
}

fn is_live(node: &Node) -> bool {
    node.open || lasts(node.expires)
}

/// Where a turn belongs.
#[derive(Clone, Debug)]
pub(super) struct Belonging {
    /// Whose it is.
    pub(super) owner: String,
    /// The response it follows.
    pub(super) parent: Option<String>,
    /// The conversation it is part of.
    pub(super) conversation: Option<String>,
}

/// Whether an id can be written in one way only. Another one, asked of a backend that is called with a key
/// of the operator's, could be read there as one that is somebody else's.
pub(super) fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !id.is_empty() && id.bytes().all(plain)
}

/// What is said of a wish that needs what is kept, where the operator wants nothing kept.
pub(super) fn nothing_kept(wish: &str) -> Fault {
    Fault::invalid(format!(
        "{wish}: nothing is kept here, since `responses.limit` is zero; send the \
         conversation as `input` and wait for the reply"
    ))
}

/// A store's failure, for the person who asked.
#[allow(clippy::needless_pass_by_value, reason = "it stands behind map_err")]
pub(super) fn fault(error: StoreError) -> Fault {
    tracing::error!(error = &error as &dyn std::error::Error, "{error}");
    Fault::new(FaultKind::Internal, "what is kept cannot be reached; the server's log says why")
}

impl Responses {
    /// A response of this owner.
    pub(super) async fn find(&self, owner: &str, id: &str) -> Result<Option<Kept>, Fault> {
        let node = self.shelf.store.node(id).await.map_err(fault)?;
        let node = node.filter(|node| node.owner == owner && is_live(node));
        let kept = node.map(|node| self.open(&node)).transpose()?;
        Ok(kept.filter(|kept| !kept.deleted))
    }

    /// Whether this id is known as somebody else's. Then nobody is asked for it: a backend that is called
    /// with a key of the operator's does not tell our callers apart.
    pub(super) async fn is_anothers(&self, owner: &str, id: &str) -> Result<bool, Fault> {
        let node = self.shelf.store.node(id).await.map_err(fault)?;
        Ok(node.is_some_and(|node| node.owner != owner))
    }

    pub(super) fn open(&self, node: &Node) -> Result<Kept, Fault> {
        let kept = self.shelf.open(Kind::Node, &node.id, &node.sealed);
        kept.map_err(fault)
    }

    /// A response and those it follows; none if there is no such response.
    pub(super) async fn way(&self, owner: &str, id: &str) -> Result<Option<Walked>, Fault> {
        let nodes = self.shelf.store.path(id, LONGEST_WAY).await.map_err(fault)?;
        let theirs = nodes.iter().all(|node| node.owner == owner);
        if !theirs || !nodes.last().is_some_and(is_live) {
            return Ok(None);
        }
        let turns: Result<_, _> = nodes.iter().map(|node| self.open(node)).collect();
        Ok(Some(Walked {
            turns: turns?,
            missing: nodes.into_iter().next().and_then(|first| first.parent),
        }))
    }

    /// Items of this owner, by their ids.
    pub(super) async fn items(
        &self,
        owner: &str,
        wanted: &[&str],
    ) -> Result<HashMap<String, Value>, Fault> {
        let mut found = HashMap::new();
        for id in wanted {
            if found.contains_key(*id) {
                continue;
            }
            let node = self.shelf.store.named(owner, id).await.map_err(fault)?;
            let hidden = match &node {
                Some(node) => node.owner != owner,
                None => !is_plain(id),
            };
            if hidden {
                return Err(Fault::invalid(format!(
                    "input: no item `{id}` is kept; send the item itself"
                )));
            }
            // Neighbours are often wanted too.
            for item in node.map(|node| self.open(&node)).transpose()?.iter().flat_map(Kept::items)
            {
                if let Some(id) = item.get("id").and_then(Value::as_str) {
                    found.insert(id.to_owned(), item.clone());
                }
            }
        }
        Ok(found)
    }

    /// Keeps a turn. `open` says that it is still being written.
    pub(super) async fn keep(
        &self,
        id: &str,
        belonging: &Belonging,
        kept: &Kept,
        open: bool,
    ) -> Result<(), StoreError> {
        // A backend may use an id twice. What followed itself would have no beginning.
        if belonging.parent.as_deref() == Some(id) {
            tracing::warn!(response = id, "a response is not kept, since it follows itself");
            return Ok(());
        }
        let now = unix_ms();
        let sealed = self.shelf.seal(Kind::Node, id, kept);
        self.wrote(sealed.len());
        let names = ids(&kept.input).chain(ids(output(&kept.response)));
        let mut node = Node {
            id: id.to_owned(),
            parent: belonging.parent.clone(),
            owner: belonging.owner.clone(),
            created: now,
            expires: self.rules.expires(now),
            open,
            names: names.map(str::to_owned).collect(),
            sealed,
        };
        let store = &self.shelf.store;
        // What is not complete is not yet part of its conversation.
        let Some(reference) = belonging.conversation.as_ref().filter(|_| !open) else {
            store.put(node, None).await?;
            return Ok(());
        };
        // Another turn may have come to its end first; then this one follows it.
        while let Some(known) = store.reference(reference).await? {
            if known.head.as_deref() == Some(id) {
                return Ok(());
            }
            node.parent.clone_from(&known.head);
            let moves = Move { reference: reference.clone(), from: known.head };
            if store.put(node.clone(), Some(moves)).await? {
                return Ok(());
            }
        }
        // It was deleted meanwhile.
        store.put(node, None).await.map(|_| ())
    }
}
