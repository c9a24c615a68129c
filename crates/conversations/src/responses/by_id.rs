//! Requests about a stored or running response: get it, its events or its input items, cancel it,
//! delete it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::openai_responses::{self, OpenAiResponses};
use throughline_codec::dialects::segments::decode;
use throughline_gateway::IncomingRequest;
use throughline_gateway::backend::credential_fingerprint;
use throughline_gateway::headers::callers_key;
use throughline_gateway::turn::error_reply::error_response;
use tracing::Instrument;

use super::Responses;
use super::conversation::CONVERSATIONS;
use super::stored::{StoredResponse, is_plain, nothing_stored};
use crate::body::{self, Answer, plain};
use crate::sealed_store::{SealedKind, fault};

const RESPONSES: &str = "/v1/responses/";
/// The path that compacts a conversation.
const COMPACT: &str = "compact";
/// The default and the maximum number of items in a list.
const PAGE: (usize, usize) = (20, 100);

/// Statuses of a backend that stored nothing or never stores anything.
const NOT_STORED: [StatusCode; 3] =
    [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NOT_IMPLEMENTED];

/// Whether a path is about a response or about conversations.
pub(super) fn is_about_state(path: &str) -> bool {
    let of_response =
        path.strip_prefix(RESPONSES).is_some_and(|rest| !["", "input_tokens"].contains(&rest));
    of_response || path == "/v1/conversations" || path.starts_with("/v1/conversations/")
}

/// Whether every segment of a path can be read in only one way.
fn is_plainly_spelled(path: &str) -> bool {
    let steps = path.trim_start_matches('/').trim_end_matches('/');
    steps.split('/').all(is_plain)
}

/// Whether a path is another spelling of one about responses or conversations: with another
/// version, empty segments, capitals or percent-encoding. A backend may accept it, and then the
/// owner would not be checked.
fn is_misspelled(path: &str) -> bool {
    let read = decode(path).to_ascii_lowercase();
    let mut steps = read.split(['/', '\\']).filter(|step| !step.is_empty());
    let what = steps.nth(1).map(str::trim);
    let Some(what @ ("responses" | "conversations")) = what else {
        return false;
    };
    let rest = path.strip_prefix("/v1/").and_then(|path| path.strip_prefix(what));
    // The end of such a path decides who answers, so it must be exact.
    let ends_well = what == "conversations" || !path.ends_with('/');
    !rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') && !rest.contains("//"))
        || !ends_well
}

impl Responses {
    /// Whether a path is an unusual spelling of one about stored state. Do not forward it.
    pub fn is_misspelled(path: &str) -> bool {
        is_misspelled(path)
    }

    /// Whether [`Responses::state`] answers this path.
    pub fn handles(path: &str) -> bool {
        is_about_state(path)
    }

    /// Answers a request about stored responses or conversations.
    pub async fn state(self: &Arc<Self>, incoming: IncomingRequest, body: Bytes) -> Answer {
        let owner = credential_fingerprint(&callers_key(&incoming));
        let span = incoming.span();
        let found = match incoming.path.strip_prefix(RESPONSES) {
            Some(COMPACT) if incoming.method == Method::POST => {
                return self.compact(&owner, incoming, body).await;
            }
            Some(rest) => self.response(&owner, &incoming, rest).instrument(span).await,
            None => self.conversations(&owner, &incoming, &body).instrument(span).await,
        };
        match found {
            Ok(StateAnswer::Here(answer)) => answer,
            Ok(StateAnswer::AtBackend(pin)) => {
                let pin = Some(pin);
                self.forward(IncomingRequest { pin, ..incoming }, body).await
            }
            Ok(StateAnswer::DeleteAtBackend(pin, id)) => {
                let pin = Some(pin);
                let reply = self.forward(IncomingRequest { pin, ..incoming }, body).await;
                let agreed = reply.status().is_success();
                if !agreed && !NOT_STORED.contains(&reply.status()) {
                    return reply;
                }
                match self.forget(&id).await {
                    Ok(()) if agreed => reply,
                    Ok(()) => deleted(&id),
                    Err(fault) => self.error_reply(&fault),
                }
            }
            Ok(StateAnswer::Hidden) => self.not_found(&incoming),
            Ok(StateAnswer::Nowhere) if !is_plainly_spelled(&incoming.path) => {
                self.not_found(&incoming)
            }
            Ok(StateAnswer::Nowhere) => {
                let backend = self.gateway.backend_for(incoming.pin.as_deref(), None);
                let native = backend.ok();
                let native = native.filter(|one| one.dialect.name() == openai_responses::NAME);
                if let Some(backend) = native {
                    let reply = self.forward(incoming, body).await;
                    if reply.status().is_success() {
                        self.gateway.learn_keeping(&backend.name);
                    }
                    return reply;
                }
                if incoming.path.trim_end_matches('/') == CONVERSATIONS {
                    let fault = nothing_stored("conversation");
                    return plain(self.gateway.reject(&incoming, &fault));
                }
                self.not_found(&incoming)
            }
            Err(fault) => plain(self.gateway.reject(&incoming, &fault)),
        }
    }

    /// Reports an error after the request itself was consumed.
    pub(super) fn error_reply(&self, fault: &Fault) -> Answer {
        let id = self.gateway.new_turn_id();
        plain(error_response(&OpenAiResponses, fault, &id, ""))
    }

    fn not_found(&self, incoming: &IncomingRequest) -> Answer {
        let path = &incoming.path;
        let what = format!("nothing is stored at `{path}`; it may have expired");
        let fault = Fault::new(FaultKind::NotFound, what);
        plain(self.gateway.reject(incoming, &fault))
    }

    pub(super) async fn forward(&self, incoming: IncomingRequest, body: Bytes) -> Answer {
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        plain(self.gateway.forward_request(incoming, body).await)
    }

    async fn response(
        self: &Arc<Self>,
        owner: &str,
        incoming: &IncomingRequest,
        rest: &str,
    ) -> Result<StateAnswer, Fault> {
        let (id, what) = rest.split_once('/').unwrap_or((rest, ""));
        // Look for a run before the store is read: a run that ends in between is stored before it
        // is removed.
        let run = self.run(id);
        let stops =
            matches!((&incoming.method, what), (&Method::DELETE, "") | (&Method::POST, "cancel"));
        if stops && !self.sealed_store.is_foreign(owner, id).await? {
            match &run {
                Some(run) => {
                    run.stop();
                    run.ended().await;
                }
                None => self.stop_elsewhere(owner, id).await?,
            }
        }
        let Some(mut stored) = self.find(owner, id).await? else {
            return Ok(match self.sealed_store.is_foreign(owner, id).await? {
                true => StateAnswer::Hidden,
                false => StateAnswer::Nowhere,
            });
        };
        match run {
            Some(run) => stored.response = run.response().unwrap_or(stored.response),
            None if stored.background && is_open(&stored.response) => {
                stored.response = self.response_elsewhere(id, stored.response).await?;
            }
            None => {}
        }
        let query = incoming.query.as_deref().unwrap_or_default();
        let configured = |name: &&String| self.gateway.settings().backend(name).is_some();
        let native = stored.native.as_ref().filter(configured).cloned();
        let answer = match (&incoming.method, what) {
            (&Method::GET, "") if parameter(query, "stream") == Some("true") => {
                // Only the backend that made the response can have its events.
                if let Some(backend) = native {
                    return Ok(StateAnswer::AtBackend(backend));
                }
                self.events(id, &stored, query).await?
            }
            (&Method::GET, "") => body::json(&stored.response),
            (&Method::DELETE, "") => {
                if let Some(backend) = native {
                    return Ok(StateAnswer::DeleteAtBackend(backend, id.to_owned()));
                }
                self.forget(id).await?;
                deleted(id)
            }
            (&Method::POST, "cancel") => cancelled(&stored)?,
            (&Method::GET, "input_items") => {
                let ancestry = self.ancestry(owner, id).await?;
                let turns = ancestry.map(|ancestry| ancestry.turns).unwrap_or_default();
                body::json(&page(&input_items(&turns), query)?)
            }
            _ => {
                return Err(Fault::new(
                    FaultKind::WrongMethod,
                    format!("`{}` does not accept {}", incoming.path, incoming.method),
                ));
            }
        };
        Ok(StateAnswer::Here(answer))
    }

    /// Deletes a response. If it is part of a conversation, the conversation keeps its items.
    async fn forget(&self, id: &str) -> Result<(), Fault> {
        let store = &self.sealed_store.store;
        let Some(mut node) = store.node(id).await.map_err(fault)? else {
            return Ok(());
        };
        if let Some(mut stored) = self.sealed_store.open_node::<StoredResponse>(&node)?
            && let Some(conversation) = belongs_to(&stored.response)
            && store.reference(conversation).await.map_err(fault)?.is_some()
        {
            stored.deleted = true;
            node.sealed = self.sealed_store.seal(SealedKind::Node, id, &stored);
            store.put(node, None).await.map_err(fault)?;
            return Ok(());
        }
        store.remove(id).await.map_err(fault)?;
        Ok(())
    }

    async fn events(
        &self,
        id: &str,
        stored: &StoredResponse,
        query: &str,
    ) -> Result<Answer, Fault> {
        if !stored.background {
            return Err(Fault::at(
                "stream",
                "this response was not created with `background: true`, so its events are not \
                 stored; request it without `stream`",
            ));
        }
        let after = match parameter(query, "starting_after") {
            None => None,
            Some(number) => Some(
                number
                    .parse()
                    .map_err(|_| Fault::at("starting_after", "is not an event number"))?,
            ),
        };
        if let Some(run) = self.run(id) {
            return Ok(body::events(run.follow(after)));
        }
        Ok(body::events(self.events_after(id, after)))
    }
}

/// The reply to a cancel request. Cancelling twice, or after the end, returns the response
/// unchanged.
fn cancelled(stored: &StoredResponse) -> Result<Answer, Fault> {
    if !stored.background {
        return Err(Fault::invalid(
            "Cannot cancel a synchronous response; it was not created with `background: true`.",
        ));
    }
    Ok(body::json(&stored.response))
}

/// Where the answer comes from.
pub(super) enum StateAnswer {
    /// From here.
    Here(Answer),
    /// From the backend that stores it.
    AtBackend(String),
    /// It must be deleted at the backend first and then here. If the backend refuses, nothing is
    /// deleted.
    DeleteAtBackend(String, String),
    /// It is not stored here.
    Nowhere,
    /// It belongs to another owner.
    Hidden,
}

fn deleted(id: &str) -> Answer {
    body::json(&json!({"id": id, "object": "response", "deleted": true}))
}

/// Whether a response is still being written.
fn is_open(response: &Value) -> bool {
    matches!(response["status"].as_str(), Some("queued" | "in_progress"))
}

/// The conversation that a response is part of.
pub(super) fn belongs_to(response: &Value) -> Option<&str> {
    response.get("conversation")?.get("id")?.as_str()
}

/// The input items of the last response: the whole history before it, and its own input.
fn input_items(turns: &[StoredResponse]) -> Vec<Value> {
    let Some((last, before)) = turns.split_last() else {
        return Vec::new();
    };
    let before = before.iter().flat_map(StoredResponse::items);
    before.chain(&last.input).cloned().collect()
}

/// One page of a list of items.
pub(super) fn page(items: &[Value], query: &str) -> Result<Value, Fault> {
    let limit = match parameter(query, "limit") {
        None => PAGE.0,
        Some(limit) => limit
            .parse()
            .ok()
            .filter(|limit| (1..=PAGE.1).contains(limit))
            .ok_or_else(|| Fault::at("limit", format!("must be between 1 and {}", PAGE.1)))?,
    };
    let mut ordered: Vec<&Value> = items.iter().collect();
    match parameter(query, "order") {
        None | Some("desc") => ordered.reverse(),
        Some("asc") => {}
        Some(_) => return Err(Fault::at("order", "must be `asc` or `desc`")),
    }
    let id = |item: &&Value| item.get("id").and_then(Value::as_str).map(str::to_owned);
    let from = match parameter(query, "after") {
        None => 0,
        Some(after) => {
            let at = ordered.iter().position(|item| id(item).as_deref() == Some(after));
            at.ok_or_else(|| Fault::at("after", format!("there is no item `{after}`")))? + 1
        }
    };
    let page: Vec<&Value> = ordered.iter().skip(from).take(limit).copied().collect();
    Ok(json!({
        "object": "list",
        "data": page,
        "first_id": page.first().and_then(id),
        "last_id": page.last().and_then(id),
        "has_more": from + page.len() < ordered.len(),
    }))
}

fn parameter<'q>(query: &'q str, name: &str) -> Option<&'q str> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_about_state_are_recognized() {
        for path in [
            "/v1/responses/resp_1",
            "/v1/responses/resp_1/cancel",
            "/v1/responses/compact",
            "/v1/conversations",
            "/v1/conversations/conv_1/items",
        ] {
            assert!(is_about_state(path), "{path}");
        }
        for path in
            ["/v1/responses", "/v1/responses/", "/v1/responses/input_tokens", "/v1/conversationsx"]
        {
            assert!(!is_about_state(path), "{path}");
        }
    }

    #[test]
    fn misspelled_path_about_state_is_detected() {
        for path in [
            "/v1/responses/",
            "/v1/responses/compact/",
            "/v1//responses/resp_1",
            "/v1/responses//resp_1",
            "/v1beta/responses/resp_1",
            "/v1beta/responses",
            "/v1/%72esponses/resp_1",
            "/v1%2Fresponses/resp_1",
            "/v1/Responses/resp_1",
            "/v1/responses%2Fresp_1",
            "/v1beta/conversations/conv_1",
            "/v1/conversations//conv_1",
        ] {
            assert!(is_misspelled(path), "{path}");
        }
        for path in [
            "/v1/responses",
            "/v1/responses/input_tokens",
            "/v1/responses/resp_1/input_items",
            "/v1/conversations/",
            "/v1/conversations/conv_1/items",
            "/v1/messages",
            "/v1/models/responses",
            "/v1",
        ] {
            assert!(!is_misspelled(path), "{path}");
        }
    }

    #[test]
    fn page_follows_order_limit_and_cursor() {
        let items: Vec<Value> = (0..5).map(|number| json!({"id": format!("i{number}")})).collect();
        let ids = |page: &Value| -> Vec<String> {
            let data = page["data"].as_array().cloned().unwrap_or_default();
            let id = |item: &Value| item["id"].as_str().unwrap_or_default().to_owned();
            data.iter().map(id).collect()
        };
        let all = page(&items, "").expect("a page");
        assert_eq!(ids(&all), ["i4", "i3", "i2", "i1", "i0"]);
        assert_eq!(all["has_more"], false);
        let next = page(&items, "order=asc&limit=2&after=i1").expect("a page");
        assert_eq!(ids(&next), ["i2", "i3"]);
        assert_eq!((&next["first_id"], &next["has_more"]), (&json!("i2"), &json!(true)));
        for wrong in ["limit=0", "limit=101", "order=up", "after=unknown"] {
            let (name, _) = wrong.split_once('=').expect("a pair");
            assert_eq!(page(&items, wrong).unwrap_err().path.as_deref(), Some(name));
        }
    }
}
