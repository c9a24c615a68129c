//! Lists and shows models: those of all backends, in the client's dialect. What a backend reports
//! about a model is also added to the catalog.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{HeaderValue, Method, Response, header};
use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::model_paths::model_in_path;
use throughline_codec::dialects::segments::decode;
use throughline_codec::dialects::{Abilities, ModelCard, ModelDetailsFormat, Models};

use crate::backend::{Backend, credential_fingerprint};
use crate::catalog::{Form, Model, Off};
use crate::gateway::Gateway;
use crate::headers;
use crate::reply::ReplyBody;
use crate::settings::Settings;
use crate::turn::allowed_fallbacks;
use crate::turn::error_reply::{Reply, TurnHeaders, error_response};
use crate::turn::request::IncomingRequest;
use crate::upstream::send::read_plain;
use crate::upstream::{RequestBody, SendError, whole};

/// How long a backend's list is cached.
const LIST_TTL: Duration = Duration::from_secs(60);
/// How long a backend may take to send its list.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// How many lists are cached: one for each backend and key.
const MAX_LISTS: usize = 64;
/// How many bytes of a list are read.
const MAX_LIST_BYTES: usize = 8 << 20;

/// The cached model lists, each with the time it arrived.
pub(crate) type Lists = std::collections::HashMap<String, (Instant, Arc<Vec<ModelCard>>)>;

impl Gateway {
    /// Answers with one model or all models. If only one backend is asked and it shares the
    /// client's dialect, the request is forwarded to it.
    pub async fn models(&self, incoming: IncomingRequest, body: RequestBody) -> Reply {
        let settings = self.settings();
        let id = incoming.id.clone();
        let name = model_in_path(&incoming.path).map(decode);
        let backends = match self.backends_for(&settings, &incoming, name.as_deref()) {
            Ok(backends) => backends,
            Err(fault) => return error_response(incoming.dialect, &fault, &id, ""),
        };
        if let [only] = backends.as_slice()
            && incoming.dialect.lists_as(only.dialect.name())
            && only.names().next().is_none()
        {
            let pin = Some(only.name.clone());
            return self.forward_request(IncomingRequest { pin, ..incoming }, body).await;
        }
        let cards = match self.all_models(&settings, &incoming, &backends).await {
            Ok(cards) => cards,
            Err(error) => {
                let backend = backends.first().map_or("", |backend| &backend.name);
                return error_response(incoming.dialect, &error.fault(), &id, backend);
            }
        };
        let query = incoming.query.as_deref().unwrap_or_default();
        let answer = match &name {
            None => incoming.dialect.write_models(Models::All(&cards), query),
            Some(name) => match cards.iter().find(|card| card.name == *name) {
                Some(card) => incoming.dialect.write_models(Models::One(card), query),
                None => {
                    let what = format!("no backend lists a model `{name}`");
                    Err(Fault::new(FaultKind::NotFound, what))
                }
            },
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return error_response(incoming.dialect, &fault, &id, ""),
        };
        json_reply(&answer, &id, "")
    }

    /// Shows the abilities of a model in this format of the client's dialect. A backend of the same
    /// dialect answers itself; for others the catalog answers.
    pub async fn show_model(
        &self,
        mut incoming: IncomingRequest,
        body: bytes::Bytes,
        format: &ModelDetailsFormat,
    ) -> Reply {
        let settings = self.settings();
        let id = incoming.id.clone();
        let found = (format.read_request)(&body).and_then(|name| {
            let (pin, active) = (incoming.pin.as_deref(), self.active());
            let routes = &settings.routes;
            let chosen = routes.choose(&settings, pin, Some(&name), &active)?;
            Ok((name, chosen.chain[0].clone()))
        });
        let (name, backend) = match found {
            Ok(found) => found,
            Err(fault) => return error_response(incoming.dialect, &fault, &id, ""),
        };
        let theirs = backend.model_for(Some(&name));
        if backend.dialect.name() == incoming.dialect.name() {
            let body = (format.write_request)(theirs);
            incoming.headers.insert(header::CONTENT_LENGTH, body.len().into());
            incoming.pin = Some(backend.name.clone());
            return self.forward_request(incoming, whole(body.into())).await;
        }
        if !self.may_be_served(&settings, &incoming, &name).await {
            let fault = Fault::new(FaultKind::NotFound, (format.not_found)(&name));
            return error_response(incoming.dialect, &fault, &id, &backend.name);
        }
        let known = settings.catalog.find_at(&backend.name, theirs);
        let answer = (format.write_answer)(Abilities {
            thinks: known.thinking.is_some_and(|form| form != Form::None),
            sees: known.vision,
            context: known.context,
        });
        json_reply(&answer, &id, &backend.name)
    }

    /// Whether a backend may serve a model of this name. True if that cannot be decided: some
    /// backends list nothing, and most serve more names than they list.
    async fn may_be_served(
        &self,
        settings: &Settings,
        incoming: &IncomingRequest,
        name: &str,
    ) -> bool {
        let Ok(backends) = self.backends_for(settings, incoming, Some(name)) else {
            return true;
        };
        let by_name = |backend: &Arc<Backend>| {
            let theirs = backend.model_for(Some(name));
            theirs != name
                || backend.names().any(|own| own == name)
                || *settings.catalog.find_at(&backend.name, name) != Model::default()
        };
        if backends.iter().any(by_name) {
            return true;
        }
        let lists = backends.iter().map(|backend| self.list_of(settings, incoming, backend));
        join_all(lists).await.into_iter().any(|list| match list {
            Ok(list) => list.is_empty() || list.iter().any(|card| is_same_name(&card.name, name)),
            Err(_) => true,
        })
    }

    /// The backends to ask: the pinned one, the one that a rule gives the model to, or all.
    fn backends_for(
        &self,
        settings: &Settings,
        incoming: &IncomingRequest,
        name: Option<&str>,
    ) -> Result<Vec<Arc<Backend>>, Fault> {
        let pin = incoming.pin.as_deref();
        if pin.is_some() || name.is_some() {
            let chosen = settings.routes.choose(settings, pin, name, &self.active())?;
            if pin.is_some() || !chosen.follows_active_backend {
                return Ok(chosen.chain.into_iter().take(1).collect());
            }
        }
        // A caller's key must not reach a backend that its requests cannot reach.
        let mut all = settings.backends.clone();
        let active = self.active();
        all.sort_by_key(|backend| backend.name != *active);
        let may: HashSet<String> =
            allowed_fallbacks(&all).into_iter().map(|backend| backend.name.clone()).collect();
        let backends = settings.backends.iter();
        let usable =
            |backend: &&Arc<Backend>| backend.off().is_none() && may.contains(&backend.name);
        Ok(backends.filter(usable).cloned().collect())
    }

    /// All models of these backends, without duplicates. Fails only if no backend answers.
    async fn all_models(
        &self,
        settings: &Settings,
        incoming: &IncomingRequest,
        backends: &[Arc<Backend>],
    ) -> Result<Vec<ModelCard>, SendError> {
        let lists = backends.iter().map(|backend| self.list_of(settings, incoming, backend));
        let mut cards = Vec::new();
        let mut failed = None;
        for (backend, list) in backends.iter().zip(join_all(lists).await) {
            let complete = |card| add_catalog_facts(card, settings, backend);
            let names = backend
                .names()
                .map(|name| ModelCard { name: name.to_owned(), ..ModelCard::default() });
            cards.extend(names.map(complete));
            match list {
                Ok(list) => cards.extend(list.iter().cloned().map(complete)),
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    tracing::warn!(
                        backend = backend.name,
                        error = cause,
                        "could not list the backend's models"
                    );
                    failed.get_or_insert(error);
                }
            }
        }
        let mut seen = HashSet::new();
        cards.retain(|card| seen.insert(card.name.clone()));
        match failed {
            Some(error) if cards.is_empty() => Err(error),
            _ => Ok(cards),
        }
    }

    /// The list of one backend, from the cache if it is recent.
    async fn list_of(
        &self,
        settings: &Settings,
        incoming: &IncomingRequest,
        backend: &Arc<Backend>,
    ) -> Result<Arc<Vec<ModelCard>>, SendError> {
        let fingerprint = credential_fingerprint(&headers::credential(incoming, backend));
        let key = format!("{} {fingerprint}", backend.name);
        if let Some((when, list)) = self.lists.lock().get(&key)
            && when.elapsed() < LIST_TTL
        {
            return Ok(list.clone());
        }
        let response = self
            .request(
                backend,
                &Method::GET,
                (backend.profile.models_path, backend.dialect.list_query()),
                headers::translated(incoming, backend, &[]),
                whole(bytes::Bytes::new()),
                LIST_TIMEOUT,
            )
            .await?;
        let status = response.status();
        let body = read_plain(backend, response, MAX_LIST_BYTES, LIST_TIMEOUT).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let list = match status.as_u16() {
            200..=299 => backend.dialect.read_models(&answer),
            // This backend cannot list its models.
            404 | 405 | 501 => Vec::new(),
            refused => {
                return Err(SendError::Unreachable {
                    backend: backend.name.clone(),
                    cause: format!(
                        "the request for its list of models failed with status {refused}"
                    )
                    .into(),
                });
            }
        };
        for card in &list {
            settings.catalog.learn_at(&backend.name, card);
        }
        let list = Arc::new(list);
        let mut lists = self.lists.lock();
        if lists.len() >= MAX_LISTS {
            lists.retain(|_, (when, _)| when.elapsed() < LIST_TTL);
        }
        if lists.len() < MAX_LISTS {
            lists.insert(key, (Instant::now(), list.clone()));
        }
        Ok(list)
    }
}

fn json_reply(answer: &Value, id: &str, backend: &str) -> Reply {
    let mut reply = Response::new(ReplyBody::whole(answer.to_string()));
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, json);
    TurnHeaders::new(id, backend).write(reply.headers_mut());
    reply
}

/// Adds what the catalog knows about a model to what its backend reports.
fn add_catalog_facts(card: ModelCard, settings: &Settings, backend: &Backend) -> ModelCard {
    let name = backend.model_for(Some(&card.name));
    let known = settings.catalog.find_at(&backend.name, name);
    let from_form = |is: fn(Form) -> Option<bool>| known.thinking.and_then(is);
    let thinks = card.thinks.or_else(|| from_form(|form| Some(form != Form::None)));
    let adaptive = card.adaptive.or_else(|| {
        from_form(|form| match form {
            Form::Adaptive => Some(true),
            Form::Budget => Some(false),
            _ => None,
        })
    });
    let budget = adaptive.map(|_| !known.refuses_budget);
    // Whether thinking can be turned off is unknown for an unknown model.
    let thinking = thinks == Some(true);
    let efforts = match card.efforts.is_empty() {
        true => known.efforts.clone(),
        false => card.efforts,
    };
    ModelCard {
        max_output: card.max_output.or(known.max_output),
        context: card.context.or(known.context),
        thinks,
        adaptive,
        budget: card.budget.or(budget),
        off: card.off.or(thinking.then_some(known.off == Off::Disabled)),
        between_tools: card.between_tools.or((known.off == Off::BetweenTools).then_some(true)),
        efforts,
        name: card.name,
    }
}

/// Whether a listed name is the requested one. Ollama's clients may omit `:latest`.
fn is_same_name(listed: &str, incoming: &str) -> bool {
    listed.strip_suffix(":latest").unwrap_or(listed) == incoming
}
