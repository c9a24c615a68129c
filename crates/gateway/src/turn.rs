//! The path of a turn on the through lane: the client and the backend speak the same dialect.
//!
//! Read [`Gateway::turn`] first; everything else here is one of its steps.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use parking_lot::RwLock;
use throughline_canonical::{Fate, Fault, FaultKind, Loss, Origin};
use throughline_codec::dialects::anthropic::client_reply;
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::refusal::{Refusal, RefusalKind, classify};
use throughline_codec::dialects::anthropic::rewrite::ThinkingEdit;
use throughline_codec::framing::encoding::{Decoder, Encoding, EncodingError, unpack};
use tokio::sync::Semaphore;

use crate::backend::{Auth, Backend, credential_mark};
use crate::catalog;
use crate::counters::Counters;
use crate::headers;
use crate::plan::{Again, Guard, Plan, Planner};
use crate::reply::{LiveParts, Names, ReplyBody};
use crate::settings::Settings;
use crate::tap::{Notes, Tap, milliseconds};
use crate::thinking::lineage::Lineage;
use crate::thinking::memory::{Answer, Memory, Question, Target};
use crate::thinking::store::Change;
use crate::thinking::writer::Changes;
use crate::turns::{SharedTurn, Turn, Turns};
use crate::unix_ms;
use crate::upstream::{RequestBody, SendError, whole};

/// The longest error that is read; errors are short.
const LONGEST_ERROR: usize = 1 << 20;
/// The fact under which the active backend is kept.
const ACTIVE: &str = "active_backend";
/// The facts under which backends are kept that bind thinking to its conversation.
const BINDS: &str = "binds_thinking:";

/// Everything that lives as long as the server.
#[derive(Debug)]
pub struct Gateway {
    settings: ArcSwap<Settings>,
    active: RwLock<Arc<str>>,
    binding: RwLock<HashSet<String>>,
    /// Backends that could not be reached the last time.
    unreachable: RwLock<HashSet<String>>,
    /// The memory.
    pub memory: Arc<Memory>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// The recent turns.
    pub turns: Arc<Turns>,
    changes: Changes,
    places: Arc<Semaphore>,
    places_of: usize,
}

/// A request as it came.
#[derive(Debug)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Its path in the dialect, such as `/v1/messages`.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// Its headers.
    pub headers: HeaderMap,
    /// The backend it names, by header or path.
    pub pin: Option<String>,
    /// When it came.
    pub began: Instant,
}

/// A request that was read, with where it belongs.
struct Read {
    asked: Asked,
    /// The body as it came, maybe compressed.
    raw: Bytes,
    /// The body, readable.
    body: Bytes,
    outline: Outline,
    lineage: Lineage,
    /// Whether it is part of the conversation; token counts are not.
    counts: bool,
}

/// A plan for one backend, with the memory's answer it was made from.
struct Planned {
    plan: Plan,
    answer: Answer,
    target: Target,
}

/// What came back.
enum Back {
    /// A reply that may begin.
    Good(Response<Incoming>),
    /// An error, read whole.
    Refused(Response<Bytes>),
}

/// A reply to the client.
pub type Reply = Response<ReplyBody>;

impl Gateway {
    /// A gateway over what a store held.
    pub fn new(
        settings: Settings,
        snapshot: crate::thinking::store::Snapshot,
        changes: Changes,
    ) -> Self {
        let known = |name: &String| settings.backend(name).is_some();
        let active = snapshot.facts.get(ACTIVE).filter(|name| known(name));
        let active: Arc<str> = active.unwrap_or(&settings.routes.default).as_str().into();
        let binding = snapshot
            .facts
            .keys()
            .filter_map(|fact| fact.strip_prefix(BINDS))
            .map(ToOwned::to_owned)
            .collect();
        let places_of = settings.limits.streams;
        Self {
            active: RwLock::new(active),
            binding: RwLock::new(binding),
            unreachable: RwLock::default(),
            memory: Arc::new(Memory::new(snapshot, changes.clone())),
            counters: Arc::default(),
            turns: Arc::default(),
            changes,
            places: Arc::new(Semaphore::new(places_of)),
            places_of,
            settings: ArcSwap::from_pointee(settings),
        }
    }

    /// What is configured now.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes a new configuration. Requests in progress keep the one they began with; the number of
    /// places stays.
    pub fn configure(&self, settings: Settings) {
        let settings = Arc::new(settings);
        if settings.backend(&self.active()).is_none() {
            *self.active.write() = settings.routes.default.as_str().into();
        }
        self.settings.store(settings);
    }

    /// The active backend.
    pub fn active(&self) -> Arc<str> {
        self.active.read().clone()
    }

    /// Whether a backend could be reached the last time.
    pub fn healthy(&self, backend: &str) -> bool {
        !self.unreachable.read().contains(backend)
    }

    /// Requests in progress.
    pub fn in_progress(&self) -> usize {
        self.places_of
            .saturating_sub(self.places.available_permits())
    }

    /// Whether the memory reaches its store.
    pub fn store_works(&self) -> bool {
        !self.changes.failing()
    }

    /// Waits until everything remembered is written.
    pub async fn flush(&self) {
        self.changes.flush().await;
    }

    /// Makes another backend the active one. Answers the one that was.
    pub fn switch(&self, name: &str) -> Result<Arc<str>, Fault> {
        let settings = self.settings();
        let Some(next) = settings.backend(name) else {
            return Err(Fault::new(
                FaultKind::NotFound,
                format!(
                    "there is no backend `{name}`; the configured ones are {}",
                    settings.names()
                ),
            ));
        };
        let mut active = self.active.write();
        if let Some(now) = settings.backend(&active)
            && !may_share_key(now, next)
        {
            return Err(Fault::new(
                FaultKind::Conflict,
                format!(
                    "both `{}` and `{name}` get the caller's own key, and they are at different \
                     places; set `share_caller_key = true` on `{name}` if its operator may see it",
                    now.name
                ),
            ));
        }
        let previous = std::mem::replace(&mut *active, name.into());
        self.changes
            .push(Change::Fact(ACTIVE.into(), Some(name.into())));
        tracing::info!(
            old_backend = &*previous,
            new_backend = name,
            "Active backend changed"
        );
        Ok(previous)
    }

    /// One turn: from the client's bytes to the provider's.
    pub async fn turn(&self, asked: Asked, body: Bytes) -> Reply {
        let settings = self.settings();
        let now = unix_ms();
        let id = self.turns.id(now);
        let began = asked.began;
        let turn = Arc::new(parking_lot::Mutex::new(Turn {
            id: id.clone(),
            time: now,
            client_dialect: "anthropic",
            path: asked.path.clone(),
            lane: "through",
            ..Turn::default()
        }));
        self.counters.turns.add(1);
        match self.go(&settings, asked, body, &turn).await {
            Ok(reply) => reply,
            Err(fault) => {
                let (status, body) = client_reply::error(&fault, &id);
                self.failed(&turn, began, status, &fault.message);
                own_reply(status, body, &id, fault.retry_after)
            }
        }
    }

    async fn go(
        &self,
        settings: &Arc<Settings>,
        asked: Asked,
        body: Bytes,
        turn: &SharedTurn,
    ) -> Result<Reply, Fault> {
        let permit = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let mut fault = Fault::new(
                FaultKind::Overloaded,
                "all places are taken; `limits.streams` says how many there are",
            );
            fault.retry_after = Some(1);
            fault
        })?;
        let read = read(settings, asked, body)?;
        let model = read.outline.model.as_ref().map(|model| model.name.as_str());
        let chosen =
            settings
                .routes
                .choose(settings, read.asked.pin.as_deref(), model, &self.active())?;

        let mut last = None;
        for (at, backend) in chosen.chain.iter().enumerate() {
            if at > 0 && !may_share_key(&chosen.chain[0], backend) {
                tracing::warn!(
                    backend = backend.name,
                    "not used as a fallback: it would get the caller's key"
                );
                continue;
            }
            let planned = self.plan(
                settings,
                &read,
                backend,
                chosen.by_active && at == 0,
                Again::First,
            );
            self.note(turn, &read, backend, &planned, settings);
            let more = at + 1 < chosen.chain.len();
            match self.send(settings, &read, backend, planned, turn).await {
                Ok((Back::Refused(error), _)) if more && worth_another(error.status()) => {
                    tracing::warn!(
                        backend = backend.name,
                        status = error.status().as_u16(),
                        "trying the next backend"
                    );
                    last = Some(Ok((error, backend.clone())));
                }
                Ok((Back::Refused(error), planned)) => {
                    return Ok(self.refused(error, backend, &planned.plan, turn, read.asked.began));
                }
                Ok((Back::Good(response), planned)) => {
                    return Ok(self.good(settings, &read, backend, planned, response, turn, permit));
                }
                Err(error) if more => {
                    tracing::warn!(
                        backend = backend.name,
                        error = &error as &dyn std::error::Error,
                        "trying the next backend"
                    );
                    last = Some(Err(error.fault()));
                }
                Err(error) => {
                    tracing::warn!(
                        backend = backend.name,
                        error = &error as &dyn std::error::Error,
                        "no reply"
                    );
                    return Err(error.fault());
                }
            }
        }
        match last {
            Some(Ok((error, backend))) => {
                let planned = self.plan(settings, &read, &backend, false, Again::First);
                Ok(self.refused(error, &backend, &planned.plan, turn, read.asked.began))
            }
            Some(Err(fault)) => Err(fault),
            None => Err(Fault::new(FaultKind::Internal, "no backend could be asked")),
        }
    }

    /// What would go to a backend, without sending it.
    pub fn report(&self, asked: Asked, body: Bytes) -> Result<serde_json::Value, Fault> {
        let settings = self.settings();
        let mut read = read(&settings, asked, body)?;
        read.counts = false;
        let model = read.outline.model.as_ref().map(|model| model.name.as_str());
        let active = self.active();
        let pin = read.asked.pin.as_deref();
        let chosen = settings.routes.choose(&settings, pin, model, &active)?;
        let backend = &chosen.chain[0];
        let by_active = chosen.by_active || pin == Some(&*active);
        let Planned { plan, .. } = self.plan(&settings, &read, backend, by_active, Again::First);
        let asked = read.outline.thinking.as_ref().map(|thinking| {
            serde_json::from_slice::<serde_json::Value>(&read.body[thinking.span.clone()])
                .unwrap_or_default()
        });
        let sent = Outline::read(&plan.body, usize::MAX)
            .ok()
            .and_then(|outline| outline.thinking)
            .and_then(|thinking| serde_json::from_slice(&plan.body[thinking.span]).ok())
            .unwrap_or(serde_json::Value::Null);
        Ok(serde_json::json!({
            "backend": backend.name,
            "model": plan.model,
            "lane": "through",
            "blocks": plan.blocks.iter().map(crate::plan::PlannedBlock::report).collect::<Vec<_>>(),
            "losses": plan.losses,
            "thinking": {"asked": asked, "sent": sent},
        }))
    }

    fn plan(
        &self,
        settings: &Settings,
        read: &Read,
        backend: &Arc<Backend>,
        by_active: bool,
        again: Again,
    ) -> Planned {
        let asked_model = read.outline.model.as_ref().map_or("", |model| &model.name);
        let model = backend.map_model(asked_model).unwrap_or(asked_model);
        let known = catalog::find(model);
        let target = Target {
            backend: backend.name.as_str().into(),
            domain: backend.domain.as_str().into(),
            credential: credential_mark(&headers::credential(&read.asked.headers, backend)),
            account_bound: known.account_bound,
        };
        let keys: Vec<_> = read
            .outline
            .thinking_blocks()
            .map(|block| block.3)
            .collect();
        let answer = self.memory.ask(&Question {
            lineage: read.lineage,
            target: &target,
            by_active,
            // A second look at the same request tells nothing new.
            counts: read.counts && again == Again::First,
            blocks: &keys,
            has_assistant: read.outline.has_assistant(),
            now: unix_ms(),
            rules: settings.thinking,
        });
        let plan = Planner {
            body: &read.body,
            outline: &read.outline,
            backend,
            verdicts: &answer.verdicts,
            guard: if self.binding.read().contains(&backend.name) {
                Guard::Learnt
            } else if known.preserved {
                Guard::Known
            } else {
                Guard::Off
            },
            again,
        }
        .plan();
        Planned {
            plan,
            answer,
            target,
        }
    }

    /// Sends a plan; once more, changed, if the backend refused the thinking in it.
    async fn send(
        &self,
        settings: &Settings,
        read: &Read,
        backend: &Arc<Backend>,
        planned: Planned,
        turn: &SharedTurn,
    ) -> Result<(Back, Planned), SendError> {
        let back = self.send_patiently(read, backend, &planned.plan).await?;
        let Back::Refused(error) = &back else {
            self.learn_accepted(read, &planned);
            return Ok((back, planned));
        };
        let Some(again) = self.mend(read, backend, &planned, error) else {
            return Ok((back, planned));
        };
        let mut second = self.plan(settings, read, backend, false, again);
        second.answer.session = planned.answer.session;
        if second.plan.body == planned.plan.body {
            return Ok((back, planned));
        }
        tracing::info!(
            backend = backend.name,
            ?again,
            "sending again without the thinking that was refused"
        );
        self.counters.retried.add(1);
        self.note(turn, read, backend, &second, settings);
        let back = self.send_patiently(read, backend, &second.plan).await?;
        if let Back::Good(_) = &back {
            self.learn_refused(read, &planned, &second);
        }
        Ok((back, second))
    }

    /// Sends, and tries again where the operator allows it for 429 and 5xx.
    async fn send_patiently(
        &self,
        read: &Read,
        backend: &Backend,
        plan: &Plan,
    ) -> Result<Back, SendError> {
        let mut tries = 0;
        loop {
            let back = self.send_once(read, backend, plan).await;
            let (wait, give_up) = match &back {
                Ok(Back::Refused(error)) if worth_another(error.status()) => {
                    (retry_after(error.headers()), false)
                }
                Err(SendError::Unreachable { .. }) => (None, false),
                _ => (None, true),
            };
            if give_up || tries >= backend.retries {
                return back;
            }
            tries += 1;
            // Doubling, with a spread that keeps many callers from coming back together.
            let spread = unix_ms() % 100;
            let backoff = Duration::from_millis((250 << tries.min(6)) + spread);
            tokio::time::sleep(wait.unwrap_or(backoff)).await;
        }
    }

    async fn send_once(
        &self,
        read: &Read,
        backend: &Backend,
        plan: &Plan,
    ) -> Result<Back, SendError> {
        let mut head = headers::upstream(&read.asked.headers, backend, headers::Body::Read);
        headers::patch_betas(&mut head, &plan.betas_added, plan.betas_without_adaptive);
        // An unedited body goes out as it came, compressed or not.
        let body = if plan.body.as_ptr() == read.body.as_ptr() && plan.body.len() == read.body.len()
        {
            read.raw.clone()
        } else {
            head.remove(header::CONTENT_ENCODING);
            plan.body.clone()
        };
        let response = self
            .request(backend, &read.asked, head, whole(body))
            .await?;
        if response.status().is_success() {
            return Ok(Back::Good(response));
        }
        let (head, body) = response.into_parts();
        let body = Limited::new(body, LONGEST_ERROR)
            .collect()
            .await
            .map_err(|cause| SendError::Unreachable {
                backend: backend.name.clone(),
                cause,
            })?
            .to_bytes();
        Ok(Back::Refused(Response::from_parts(head, body)))
    }

    async fn request(
        &self,
        backend: &Backend,
        asked: &Asked,
        head: HeaderMap,
        body: RequestBody,
    ) -> Result<Response<Incoming>, SendError> {
        let unreachable = |cause: crate::upstream::BoxError| SendError::Unreachable {
            backend: backend.name.clone(),
            cause,
        };
        let address = backend
            .address(&asked.path, asked.query.as_deref())
            .map_err(|error| unreachable(error.into()))?;
        let mut request = Request::builder()
            .method(asked.method.clone())
            .uri(address)
            .body(body)
            .map_err(|error| unreachable(error.into()))?;
        *request.headers_mut() = head;
        let sent = backend
            .client
            .send(&backend.name, request, backend.timeouts.first_byte)
            .await;
        let was_healthy = self.healthy(&backend.name);
        if sent.is_ok() != was_healthy {
            let mut unreachable = self.unreachable.write();
            match &sent {
                Ok(_) => unreachable.remove(&backend.name),
                Err(_) => unreachable.insert(backend.name.clone()),
            };
        }
        sent
    }

    /// What to do about a refusal; none if it is not about thinking, or the caller wants it.
    fn mend(
        &self,
        read: &Read,
        backend: &Backend,
        planned: &Planned,
        error: &Response<Bytes>,
    ) -> Option<Again> {
        let encoding = content_encoding(error.headers())?;
        let text = unpack(encoding, error.body(), LONGEST_ERROR).ok()?;
        let Refusal { kind, at } = classify(error.status().as_u16(), &text)?;
        let caller = read
            .outline
            .thinking
            .as_ref()
            .and_then(|thinking| thinking.binding.as_deref());
        if caller == Some("error") {
            return None;
        }
        match kind {
            RefusalKind::Bound => {
                if self.binding.write().insert(backend.name.clone()) {
                    tracing::info!(
                        backend = backend.name,
                        "this backend binds thinking to its conversation"
                    );
                    let fact = format!("{BINDS}{}", backend.name);
                    self.changes.push(Change::Fact(fact, Some("yes".into())));
                }
                (caller.is_none() && !planned.plan.drop_bound).then_some(Again::DropBound)
            }
            RefusalKind::MissingThinking => {
                // Ours to mend if thinking stayed behind now, or in an earlier round of a loop
                // that began with it. A loop the caller sent without any is the caller's.
                let turn = read.outline.after_last_user_turn();
                let ours = planned
                    .plan
                    .blocks
                    .iter()
                    .any(|block| block.fate == Fate::LeftOut || block.message >= turn);
                (ours && planned.plan.thinking != ThinkingEdit::Disabled)
                    .then_some(Again::ThinkingOff)
            }
            RefusalKind::Signature => {
                let named = at.and_then(|(message, index)| planned.plan.sent_at(message, index));
                let tried = planned
                    .plan
                    .blocks
                    .iter()
                    .any(|block| block.fate == Fate::Tried);
                let known = named.is_some_and(|at| planned.plan.blocks[at].fate == Fate::Sent);
                Some(if tried && !known {
                    Again::WithoutTried
                } else {
                    Again::WithoutOld
                })
            }
        }
    }

    /// The backend took what nobody knew.
    fn learn_accepted(&self, read: &Read, planned: &Planned) {
        let tried: Vec<_> = planned
            .plan
            .blocks
            .iter()
            .filter(|block| block.fate == Fate::Tried)
            .filter_map(|block| Some((block.key?, block.stands_under)))
            .collect();
        self.counters.tried.add(tried.len());
        if read.counts && !tried.is_empty() {
            let session = planned.answer.session;
            self.memory
                .accepted(read.lineage, session, &planned.target, &tried, unix_ms());
        }
    }

    /// The backend took the second try: what had to stay behind for it is foreign there.
    fn learn_refused(&self, read: &Read, first: &Planned, second: &Planned) {
        let refused: Vec<_> = first
            .plan
            .blocks
            .iter()
            .zip(&second.plan.blocks)
            .filter(|(before, after)| before.fate != Fate::LeftOut && after.fate == Fate::LeftOut)
            .filter(|(_, after)| after.stands_under.is_none())
            .filter_map(|(before, _)| before.key)
            .collect();
        self.counters.refused.add(refused.len());
        self.counters.tried.add(first.plan.keys(Fate::Tried).len());
        if read.counts && !refused.is_empty() {
            let session = first.answer.session;
            self.memory
                .refused(read.lineage, session, &first.target, &refused, unix_ms());
        }
    }

    /// Notes what is about to happen.
    fn note(
        &self,
        turn: &SharedTurn,
        read: &Read,
        backend: &Backend,
        planned: &Planned,
        settings: &Settings,
    ) {
        let plan = &planned.plan;
        let mut turn = turn.lock();
        turn.lineage = read.lineage.id.text();
        turn.session = planned.answer.session;
        turn.backend.clone_from(&backend.name);
        turn.upstream_dialect = backend.dialect;
        turn.upstream_model.clone_from(&plan.model);
        turn.model = plan
            .asked_model
            .clone()
            .unwrap_or_else(|| plan.model.clone());
        turn.stream = read.outline.stream;
        turn.blocks = plan
            .blocks
            .iter()
            .map(crate::plan::PlannedBlock::report)
            .collect();
        turn.losses.clone_from(&plan.losses);
        if settings.full_body {
            let sent = String::from_utf8_lossy(&plan.body).into_owned();
            if settings.pretty_print {
                // Without quotes, which would put it back on one line.
                let body = pretty(&sent);
                tracing::debug!(turn = turn.id, %body, "Request body");
            } else {
                tracing::debug!(turn = turn.id, body = sent, "Request body");
            }
            turn.sent = Some(sent);
        }
    }

    /// An error of the provider, passed on as it is.
    fn refused(
        &self,
        error: Response<Bytes>,
        backend: &Backend,
        plan: &Plan,
        turn: &SharedTurn,
        began: Instant,
    ) -> Reply {
        let (head, body) = error.into_parts();
        let status = head.status.as_u16();
        let mut reply = Response::new(ReplyBody::whole(body));
        *reply.status_mut() = head.status;
        *reply.headers_mut() = headers::client(&head.headers);
        let id = turn.lock().id.clone();
        mark(reply.headers_mut(), &id, &backend.name, &plan.losses);
        self.failed(turn, began, status, "the backend refused the request");
        reply
    }

    /// A reply of the provider, passed on as it arrives.
    #[allow(
        clippy::too_many_arguments,
        reason = "the one place where all threads meet"
    )]
    fn good(
        &self,
        settings: &Arc<Settings>,
        read: &Read,
        backend: &Arc<Backend>,
        planned: Planned,
        response: Response<Incoming>,
        turn: &SharedTurn,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) -> Reply {
        let Planned {
            plan,
            answer,
            target,
        } = planned;
        let (head, upstream) = response.into_parts();
        let first_byte = milliseconds(read.asked.began);
        self.counters.first_byte.observe(first_byte);
        let left_out = plan
            .blocks
            .iter()
            .filter(|block| block.fate == Fate::LeftOut);
        self.counters.filtered.add(left_out.count());
        let id = {
            let mut turn = turn.lock();
            turn.status = head.status.as_u16();
            turn.ms.first_byte = Some(first_byte);
            turn.id.clone()
        };
        self.turns.push(turn.clone());

        let content = head.headers.get(header::CONTENT_TYPE);
        let is = |kind: &[u8]| content.is_some_and(|value| value.as_bytes().starts_with(kind));
        let events = is(b"text/event-stream");
        let encoding = content_encoding(&head.headers);
        let plain = encoding == Some(Encoding::Identity);
        let decoder = match encoding {
            Some(Encoding::Identity) | None => None,
            Some(packed) => Decoder::new(packed, 64 << 20).ok(),
        };
        let names = plan
            .asked_model
            .clone()
            .filter(|_| plain)
            .map(|asked| Names {
                theirs: plan.model.clone(),
                asked,
            });
        let mut reply_headers = headers::client(&head.headers);
        if events || names.is_some() {
            reply_headers.remove(header::CONTENT_LENGTH);
        }
        mark(&mut reply_headers, &id, &backend.name, &plan.losses);

        let origin = Arc::new(Origin {
            domain: backend.domain.clone(),
            backend: backend.name.clone(),
            model: plan.model.clone(),
            credential: target.credential,
        });
        let notes = Notes {
            memory: self.memory.clone(),
            counters: self.counters.clone(),
            turns: self.turns.clone(),
            turn: turn.clone(),
            lineage: read.lineage,
            session: answer.session,
            origin,
            plan,
            began: read.asked.began,
            memory_limit: settings.thinking.memory_limit,
            full_body: settings.full_body,
        };
        let body = ReplyBody::from(LiveParts {
            upstream,
            tap: Some(Tap::new(notes, events, decoder)),
            events: events && plain,
            names,
            backend: backend.name.clone(),
            keep_alive: settings.keep_alive,
            idle: backend.timeouts.idle,
            ends: (read.asked.began + backend.timeouts.total).into(),
            permit: Some(permit),
        });
        let mut reply = Response::new(body);
        *reply.status_mut() = head.status;
        *reply.headers_mut() = reply_headers;
        reply
    }

    /// A turn ended before it began to stream.
    fn failed(&self, turn: &SharedTurn, began: Instant, status: u16, what: &str) {
        self.counters.failed.add(1);
        {
            let mut turn = turn.lock();
            turn.status = status;
            turn.end = "failed";
            turn.error = Some(what.to_owned());
            turn.ms.total = Some(milliseconds(began));
            tracing::info!(
                turn = turn.id,
                backend = turn.backend,
                status,
                total_ms = turn.ms.total,
                "Turn ended"
            );
        }
        self.turns.push(turn.clone());
        self.turns.ended(turn.clone());
    }

    /// Passes a request of the dialect that is not about messages, as it is.
    pub async fn pass(&self, asked: Asked, body: RequestBody) -> Reply {
        let settings = self.settings();
        let id = self.turns.id(unix_ms());
        let sent = async {
            let chosen =
                settings
                    .routes
                    .choose(&settings, asked.pin.as_deref(), None, &self.active())?;
            let backend = chosen.chain[0].clone();
            let mut head = headers::upstream(&asked.headers, &backend, headers::Body::Passed);
            if let Some(length) = asked.headers.get(header::CONTENT_LENGTH) {
                head.insert(header::CONTENT_LENGTH, length.clone());
            }
            let response = self
                .request(&backend, &asked, head, body)
                .await
                .map_err(|error| {
                    tracing::warn!(
                        backend = backend.name,
                        error = &error as &dyn std::error::Error,
                        "no reply"
                    );
                    error.fault()
                })?;
            Ok::<_, Fault>((backend, response))
        };
        match sent.await {
            Ok((backend, response)) => {
                let (head, upstream) = response.into_parts();
                let mut reply_headers = headers::client(&head.headers);
                mark(&mut reply_headers, &id, &backend.name, &[]);
                let mut reply = Response::new(ReplyBody::from(LiveParts {
                    upstream,
                    tap: None,
                    events: false,
                    names: None,
                    backend: backend.name.clone(),
                    keep_alive: settings.keep_alive,
                    idle: backend.timeouts.idle,
                    ends: (asked.began + backend.timeouts.total).into(),
                    permit: None,
                }));
                *reply.status_mut() = head.status;
                *reply.headers_mut() = reply_headers;
                reply
            }
            Err(fault) => {
                let (status, body) = client_reply::error(&fault, &id);
                own_reply(status, body, &id, fault.retry_after)
            }
        }
    }
}

/// Reads a request; refuses what cannot be understood.
fn read(settings: &Settings, asked: Asked, raw: Bytes) -> Result<Read, Fault> {
    let encoding = content_encoding(&asked.headers).ok_or_else(|| {
        Fault::invalid("this content-encoding is not known; gzip, deflate, br and zstd are")
    })?;
    let body = match encoding {
        Encoding::Identity => raw.clone(),
        packed => match unpack(packed, &raw, settings.limits.body) {
            Ok(body) => body.into(),
            Err(error @ EncodingError::TooLarge { .. }) => {
                return Err(Fault::new(FaultKind::TooLarge, error.to_string()));
            }
            Err(error) => return Err(Fault::invalid(error.to_string())),
        },
    };
    let outline = Outline::read(&body, settings.limits.json_depth)?;
    let lineage = Lineage::find(&asked.headers, &body, &outline);
    Ok(Read {
        counts: asked.path == "/v1/messages",
        asked,
        raw,
        body,
        outline,
        lineage,
    })
}

/// Whether what goes to one backend may go to the other, as far as the caller's key is concerned.
fn may_share_key(from: &Backend, to: &Backend) -> bool {
    from.auth != Auth::Passthrough
        || to.auth != Auth::Passthrough
        || to.share_caller_key
        || from.site() == to.site()
}

fn worth_another(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let wait = number("retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))?;
    // A caller is waiting; longer pauses are its own decision.
    (wait <= Duration::from_secs(30)).then_some(wait)
}

/// None if it is not known.
fn content_encoding(headers: &HeaderMap) -> Option<Encoding> {
    match headers.get(header::CONTENT_ENCODING) {
        None => Some(Encoding::Identity),
        Some(value) => Encoding::from_header(value.to_str().ok()?),
    }
}

/// Tells the client which turn this was, who answered and what was lost.
fn mark(headers: &mut HeaderMap, id: &str, backend: &str, losses: &[Loss]) {
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(headers::TURN, id);
    set(headers::BACKEND, backend);
    if !losses.is_empty() {
        set(headers::LOSS, &Loss::header(losses));
    }
}

/// A reply of our own.
pub fn own_reply(status: u16, body: Vec<u8>, id: &str, retry_after: Option<u64>) -> Reply {
    let mut reply = Response::new(ReplyBody::whole(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(headers::TURN, id.clone());
        headers.insert("request-id", id);
    }
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    reply
}

fn pretty(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| text.to_owned())
}
