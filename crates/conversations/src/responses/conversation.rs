//! Conversations that clients name by id: a reference to the newest turn, its metadata, and its
//! items.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::openai_responses::state;
use throughline_gateway::thinking::random;
use throughline_gateway::{IncomingRequest, unix_ms};
use tracing::Instrument;

use super::Responses;
use super::by_id::{StateAnswer, page};
use super::run::RETRY_PAUSE;
use super::stored::{Ownership, RunChange, StoredResponse};
use crate::body;
use crate::sealed_store::{SealedKind, expires, fault, is_valid};
use crate::store::Reference;

pub(super) const CONVERSATIONS: &str = "/v1/conversations";

/// The sealed content of a reference.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ConversationContent {
    metadata: Map<String, Value>,
    /// Ids of removed items.
    #[serde(default)]
    removed: Vec<String>,
    /// Whether it lacks a turn that could not be stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) incomplete: bool,
}

impl ConversationContent {
    /// Turns without the removed items.
    pub(super) fn without_removed(&self, mut turns: Vec<StoredResponse>) -> Vec<StoredResponse> {
        let stays = |item: &Value| {
            let id = item.get("id").and_then(Value::as_str);
            id.is_none_or(|id| !self.removed.iter().any(|removed| removed == id))
        };
        for stored in turns.iter_mut().filter(|_| !self.removed.is_empty()) {
            stored.input.retain(stays);
            if let Some(output) = stored.response.get_mut("output").and_then(Value::as_array_mut) {
                output.retain(stays);
            }
        }
        turns
    }
}

impl Responses {
    /// A conversation of this owner, with its content.
    pub(super) async fn conversation(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<(Reference, ConversationContent)>, Fault> {
        let reference = self.sealed_store.store.reference(id).await.map_err(fault)?;
        let is_theirs =
            |reference: &Reference| reference.owner == owner && is_valid(reference.expires);
        let Some(reference) = reference.filter(is_theirs) else {
            return Ok(None);
        };
        let store = &self.sealed_store;
        let content = store.open_if_possible(SealedKind::Reference, id, &reference.sealed)?;
        Ok(content.map(|content| (reference, content)))
    }

    pub(super) async fn conversations(
        &self,
        owner: &str,
        incoming: &IncomingRequest,
        body: &Bytes,
    ) -> Result<StateAnswer, Fault> {
        let rest = incoming.path.strip_prefix(CONVERSATIONS).unwrap_or_default();
        let mut steps = rest.trim_matches('/').split('/').filter(|step| !step.is_empty());
        let (id, list, item) = (steps.next(), steps.next(), steps.next());
        let wrong_method = || {
            Fault::new(
                FaultKind::WrongMethod,
                format!("`{}` does not accept {}", incoming.path, incoming.method),
            )
        };
        let Some(id) = id else {
            if incoming.method != Method::POST {
                return Err(wrong_method());
            }
            // A backend of the dialect may store conversations itself.
            if !self.stores_responses() {
                return Ok(StateAnswer::Nowhere);
            }
            let made = self.create_conversation(owner, body).await?;
            return Ok(here(&made));
        };
        let Some((reference, mut content)) = self.conversation(owner, id).await? else {
            return Ok(StateAnswer::Nowhere);
        };
        let store = &self.sealed_store.store;
        let value = match (&incoming.method, list, item) {
            (&Method::GET, None, None) => shown(&reference, &content),
            (&Method::POST, None, None) => {
                content.metadata = metadata(&object(body)?)?;
                self.store_content(reference.clone(), &content).await?;
                shown(&reference, &content)
            }
            (&Method::DELETE, None, None) => {
                store.remove_reference(id).await.map_err(fault)?;
                json!({"id": id, "object": "conversation.deleted", "deleted": true})
            }
            (&Method::POST, Some("items"), None) => {
                let added = added(&object(body)?)?;
                self.add(owner, id, added.clone()).await?;
                page(&added, "order=asc&limit=100")?
            }
            (&Method::GET, Some("items"), item) => {
                let items = self.items_of(owner, &reference, &content).await?;
                match item {
                    None => page(&items, incoming.query.as_deref().unwrap_or_default())?,
                    Some(wanted) => {
                        let is_it =
                            |item: &Value| item.get("id").and_then(Value::as_str) == Some(wanted);
                        let Some(item) = items.into_iter().find(is_it) else {
                            return Ok(StateAnswer::Nowhere);
                        };
                        item
                    }
                }
            }
            (&Method::DELETE, Some("items"), Some(item)) => {
                content.removed.push(item.to_owned());
                self.store_content(reference.clone(), &content).await?;
                shown(&reference, &content)
            }
            _ => return Err(wrong_method()),
        };
        Ok(here(&value))
    }

    async fn create_conversation(&self, owner: &str, body: &Bytes) -> Result<Value, Fault> {
        let request = object(body)?;
        let content =
            ConversationContent { metadata: metadata(&request)?, ..ConversationContent::default() };
        let added = added(&request)?;
        let now = unix_ms();
        let reference = Reference {
            id: format!("conv_{}", random::id()),
            owner: owner.to_owned(),
            head: None,
            created: now,
            expires: Some(expires(now, self.retention)),
            sealed: Vec::new(),
            branch: None,
        };
        self.store_content(reference.clone(), &content).await?;
        if !added.is_empty() {
            self.add(owner, &reference.id, added).await?;
        }
        Ok(shown(&reference, &content))
    }

    /// Records that a conversation lacks a turn, so that it does not go on without it. While nothing
    /// can be written, it is known in memory only.
    pub(super) fn mark_incomplete(self: &Arc<Self>, owner: String, id: String) {
        if !self.incomplete.lock().insert(id.clone()) {
            return;
        }
        let this = Arc::clone(self);
        let marking = async move {
            while let Ok(Some((reference, content))) = this.conversation(&owner, &id).await {
                let stored = this.store_content(reference, &content).await;
                if stored.is_ok() {
                    return;
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        tokio::spawn(marking.in_current_span());
    }

    async fn store_content(
        &self,
        mut reference: Reference,
        content: &ConversationContent,
    ) -> Result<(), Fault> {
        let incomplete = content.incomplete || self.incomplete.lock().contains(&reference.id);
        let content = &ConversationContent { incomplete, ..content.clone() };
        reference.sealed = self.sealed_store.seal(SealedKind::Reference, &reference.id, content);
        let written = self.sealed_store.store.put_reference(reference).await;
        written.map_err(fault)
    }

    /// Adds items without a turn.
    async fn add(&self, owner: &str, conversation: &str, items: Vec<Value>) -> Result<(), Fault> {
        let ownership = Ownership {
            owner: owner.to_owned(),
            parent: None,
            conversation: Some(conversation.to_owned()),
        };
        let stored = StoredResponse {
            input: items,
            response: Value::Null,
            native: None,
            background: false,
            deleted: false,
        };
        let id = format!("items_{}", random::id());
        let written = self.store_turn(&id, &ownership, &stored, RunChange::None).await;
        written.map_err(fault)
    }

    async fn items_of(
        &self,
        owner: &str,
        reference: &Reference,
        content: &ConversationContent,
    ) -> Result<Vec<Value>, Fault> {
        let ancestry = match &reference.head {
            Some(head) => self.ancestry(owner, head).await?,
            None => None,
        };
        let turns = ancestry.map(|ancestry| ancestry.turns).unwrap_or_default();
        let turns = content.without_removed(turns);
        Ok(turns.iter().flat_map(StoredResponse::items).cloned().collect())
    }
}

fn here(value: &Value) -> StateAnswer {
    StateAnswer::Here(body::json(value))
}

fn shown(reference: &Reference, content: &ConversationContent) -> Value {
    json!({
        "id": reference.id,
        "object": "conversation",
        "created_at": reference.created / 1000,
        "metadata": content.metadata,
    })
}

fn object(body: &Bytes) -> Result<Map<String, Value>, Fault> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(body)
        .map_err(|error| Fault::invalid(format!("the body is not a JSON object: {error}")))
}

fn metadata(request: &Map<String, Value>) -> Result<Map<String, Value>, Fault> {
    match request.get("metadata") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(metadata)) => Ok(metadata.clone()),
        Some(_) => Err(Fault::at("metadata", "must be an object")),
    }
}

fn added(request: &Map<String, Value>) -> Result<Vec<Value>, Fault> {
    match request.get("items") {
        None | Some(Value::Null) => Ok(Vec::new()),
        items @ Some(Value::Array(_)) => Ok(state::items(items, &HashMap::new(), &mut random::id)),
        Some(_) => Err(Fault::at("items", "must be a list")),
    }
}
