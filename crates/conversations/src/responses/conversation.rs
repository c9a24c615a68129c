//! Conversations that clients name by id: a reference to the newest turn, its metadata, and its
//! items.

use std::collections::HashMap;

use bytes::Bytes;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::openai_responses::state;
use throughline_gateway::thinking::random;
use throughline_gateway::{IncomingRequest, unix_ms};

use super::Responses;
use super::body;
use super::by_id::{Found, page};
use super::kept::{Belonging, Kept, fault, lasts};
use crate::shelf::Kind;
use crate::store::Reference;

pub(super) const CONVERSATIONS: &str = "/v1/conversations";

/// The sealed content of a reference.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Said {
    metadata: Map<String, Value>,
    /// Ids of removed items.
    #[serde(default)]
    removed: Vec<String>,
}

impl Said {
    /// Turns without the removed items.
    pub(super) fn without_removed(&self, mut way: Vec<Kept>) -> Vec<Kept> {
        let stays = |item: &Value| {
            let id = item.get("id").and_then(Value::as_str);
            id.is_none_or(|id| !self.removed.iter().any(|removed| removed == id))
        };
        for kept in way.iter_mut().filter(|_| !self.removed.is_empty()) {
            kept.input.retain(stays);
            if let Some(output) = kept.response.get_mut("output").and_then(Value::as_array_mut) {
                output.retain(stays);
            }
        }
        way
    }
}

impl Responses {
    /// A conversation of this owner, with its content.
    pub(super) async fn conversation(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<(Reference, Said)>, Fault> {
        let reference = self.shelf.store.reference(id).await.map_err(fault)?;
        let is_theirs =
            |reference: &Reference| reference.owner == owner && lasts(reference.expires);
        let Some(reference) = reference.filter(is_theirs) else {
            return Ok(None);
        };
        let said = self.shelf.open(Kind::Reference, id, &reference.sealed);
        Ok(Some((reference, said.map_err(fault)?)))
    }

    pub(super) async fn conversations(
        &self,
        owner: &str,
        asked: &IncomingRequest,
        body: &Bytes,
    ) -> Result<Found, Fault> {
        let rest = asked.path.strip_prefix(CONVERSATIONS).unwrap_or_default();
        let mut steps = rest.trim_matches('/').split('/').filter(|step| !step.is_empty());
        let (id, list, item) = (steps.next(), steps.next(), steps.next());
        let wrong_method = || {
            Fault::new(
                FaultKind::WrongMethod,
                format!("`{}` does not accept {}", asked.path, asked.method),
            )
        };
        let Some(id) = id else {
            if asked.method != Method::POST {
                return Err(wrong_method());
            }
            // A backend of the dialect may store conversations itself.
            if !self.keeps() {
                return Ok(Found::Nowhere);
            }
            let made = self.create_conversation(owner, body).await?;
            return Ok(here(&made));
        };
        let Some((reference, mut said)) = self.conversation(owner, id).await? else {
            return Ok(Found::Nowhere);
        };
        let store = &self.shelf.store;
        let value = match (&asked.method, list, item) {
            (&Method::GET, None, None) => shown(&reference, &said),
            (&Method::POST, None, None) => {
                said.metadata = metadata(&object(body)?)?;
                self.say(reference.clone(), &said).await?;
                shown(&reference, &said)
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
                let items = self.items_of(owner, &reference, &said).await?;
                match item {
                    None => page(&items, asked.query.as_deref().unwrap_or_default())?,
                    Some(wanted) => {
                        let is_it =
                            |item: &Value| item.get("id").and_then(Value::as_str) == Some(wanted);
                        let Some(item) = items.into_iter().find(is_it) else {
                            return Ok(Found::Nowhere);
                        };
                        item
                    }
                }
            }
            (&Method::DELETE, Some("items"), Some(item)) => {
                said.removed.push(item.to_owned());
                self.say(reference.clone(), &said).await?;
                shown(&reference, &said)
            }
            _ => return Err(wrong_method()),
        };
        Ok(here(&value))
    }

    async fn create_conversation(&self, owner: &str, body: &Bytes) -> Result<Value, Fault> {
        let asked = object(body)?;
        let said = Said { metadata: metadata(&asked)?, removed: Vec::new() };
        let added = added(&asked)?;
        let now = unix_ms();
        let reference = Reference {
            id: format!("conv_{}", random::id()),
            owner: owner.to_owned(),
            head: None,
            created: now,
            expires: self.rules.expires(now),
            sealed: Vec::new(),
        };
        self.say(reference.clone(), &said).await?;
        if !added.is_empty() {
            self.add(owner, &reference.id, added).await?;
        }
        Ok(shown(&reference, &said))
    }

    async fn say(&self, mut reference: Reference, said: &Said) -> Result<(), Fault> {
        reference.sealed = self.shelf.seal(Kind::Reference, &reference.id, said);
        let written = self.shelf.store.put_reference(reference).await;
        written.map_err(fault)
    }

    /// Adds items without a turn.
    async fn add(&self, owner: &str, conversation: &str, items: Vec<Value>) -> Result<(), Fault> {
        let belonging = Belonging {
            owner: owner.to_owned(),
            parent: None,
            conversation: Some(conversation.to_owned()),
        };
        let kept = Kept {
            input: items,
            response: Value::Null,
            native: None,
            background: false,
            deleted: false,
        };
        let id = format!("items_{}", random::id());
        let written = self.keep(&id, &belonging, &kept, false).await;
        written.map_err(fault)
    }

    async fn items_of(
        &self,
        owner: &str,
        reference: &Reference,
        said: &Said,
    ) -> Result<Vec<Value>, Fault> {
        let walked = match &reference.head {
            Some(head) => self.way(owner, head).await?,
            None => None,
        };
        let turns = walked.map(|walked| walked.turns).unwrap_or_default();
        let way = said.without_removed(turns);
        Ok(way.iter().flat_map(Kept::items).cloned().collect())
    }
}

fn here(value: &Value) -> Found {
    Found::Here(body::json(value))
}

fn shown(reference: &Reference, said: &Said) -> Value {
    json!({
        "id": reference.id,
        "object": "conversation",
        "created_at": reference.created / 1000,
        "metadata": said.metadata,
    })
}

fn object(body: &Bytes) -> Result<Map<String, Value>, Fault> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(body)
        .map_err(|error| Fault::invalid(format!("the body is not a JSON object: {error}")))
}

fn metadata(asked: &Map<String, Value>) -> Result<Map<String, Value>, Fault> {
    match asked.get("metadata") {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(metadata)) => Ok(metadata.clone()),
        Some(_) => Err(Fault::invalid("metadata: must be an object")),
    }
}

fn added(asked: &Map<String, Value>) -> Result<Vec<Value>, Fault> {
    match asked.get("items") {
        None | Some(Value::Null) => Ok(Vec::new()),
        items @ Some(Value::Array(_)) => Ok(state::items(items, &HashMap::new(), &mut random::id)),
        Some(_) => Err(Fault::invalid("items: must be a list")),
    }
}
