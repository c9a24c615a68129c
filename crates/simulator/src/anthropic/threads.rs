//! Message threads: the conversation stays at the provider, and a request that continues it has the
//! new messages only. A simulator keeps threads if its options say so.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use super::reply::{Block, Reply};
use super::request::ApiHeaders;
use crate::Options;
use crate::refusal::Refusal;

const BETA: &str = "message-threads-2026-08-12";
/// The store keeps this many messages and drops the oldest first.
const MAX_MESSAGES: usize = 256;

/// The threads of one simulator, by the id of each message.
#[derive(Default)]
pub(crate) struct ThreadStore(Mutex<Threads>);

#[derive(Default)]
struct Threads {
    messages: HashMap<String, StoredMessage>,
    /// Messages that are being continued.
    in_flight: HashSet<String>,
}

/// A conversation up to the end of one message.
struct StoredMessage {
    /// The key that the thread belongs to.
    key: String,
    model: Value,
    system: Option<Value>,
    tools: Option<Value>,
    messages: Vec<Value>,
    paused: bool,
    continued: bool,
    used: Instant,
}

/// A request of a thread.
pub(crate) struct ThreadTurn {
    store: Arc<ThreadStore>,
    key: String,
    /// The message that is continued.
    previous: Option<InFlight>,
}

/// A message that is being continued, as long as this value lives.
struct InFlight {
    store: Arc<ThreadStore>,
    id: String,
}

impl InFlight {
    fn begin(store: &Arc<ThreadStore>, id: &str) -> Result<Self, Refusal> {
        if !store.0.lock().in_flight.insert(id.to_owned()) {
            let what = format!("Message {id} is being continued by another request");
            return Err(coded(StatusCode::CONFLICT, "thread_continue_in_flight", what));
        }
        Ok(Self { store: Arc::clone(store), id: id.to_owned() })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.store.0.lock().in_flight.remove(&self.id);
    }
}

/// Puts the conversation of a thread into the request that names it. A simulator that is not strict
/// ignores the thread if it keeps none, as many servers do.
pub(crate) fn expand(
    store: &Arc<ThreadStore>,
    options: &Options,
    headers: &HeaderMap,
    body: &mut Map<String, Value>,
) -> Result<Option<ThreadTurn>, Refusal> {
    let Some(thread) = body.get("thread").filter(|thread| !thread.is_null()).cloned() else {
        return Ok(None);
    };
    let has_beta = ApiHeaders::read(headers).betas.iter().any(|beta| beta == BETA);
    let Some(lifetime) = options.threads.filter(|_| has_beta) else {
        return match options.strict {
            true => Err(Refusal::extra("thread")),
            false => Ok(None),
        };
    };
    let previous = match (thread["type"].as_str(), thread["previous_message_id"].as_str()) {
        (Some("create"), None) => None,
        (Some("continue"), Some(previous)) => Some(InFlight::begin(store, previous)?),
        _ => return Err(Refusal::invalid("thread.type: Input should be 'create' or 'continue'")),
    };
    body.remove("thread");
    let turn = ThreadTurn { store: Arc::clone(store), key: key_of(headers), previous };
    turn.fill(lifetime, body)?;
    Ok(Some(turn))
}

/// The key of the caller.
fn key_of(headers: &HeaderMap) -> String {
    let keys = ["x-api-key", "authorization"].into_iter();
    let key = keys.filter_map(|name| headers.get(name)).next();
    key.map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()).unwrap_or_default()
}

fn coded(status: StatusCode, code: &'static str, message: String) -> Refusal {
    Refusal { code: Some(code), ..Refusal::new(status, message) }
}

impl ThreadTurn {
    /// Puts the conversation into the request.
    fn fill(&self, lifetime: Duration, body: &mut Map<String, Value>) -> Result<(), Refusal> {
        let Some(previous) = self.previous.as_ref().map(|previous| previous.id.as_str()) else {
            return Ok(());
        };
        let mut threads = self.store.0.lock();
        threads.messages.retain(|_, message| message.used.elapsed() < lifetime);
        let found = threads.messages.get_mut(previous).filter(|message| message.key == self.key);
        let Some(message) = found else {
            return Err(coded(
                StatusCode::NOT_FOUND,
                "thread_not_found",
                format!("Thread not found: {previous}"),
            ));
        };
        if message.continued {
            let what = format!("Message {previous} has already been continued");
            return Err(coded(StatusCode::BAD_REQUEST, "thread_already_continued", what));
        }
        if body.get("model") != Some(&message.model) {
            let what = "The request does not fit its thread, differing field(s): model".to_owned();
            return Err(coded(StatusCode::BAD_REQUEST, "thread_fingerprint_mismatch", what));
        }
        if let Some(kept) = ["system", "tools"].into_iter().find(|name| body.contains_key(*name)) {
            let what = format!("{kept}: not allowed when a thread is continued");
            return Err(coded(StatusCode::BAD_REQUEST, "thread_unsupported_request", what));
        }
        let added = body.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
        if added.is_empty() && !message.paused {
            return Err(Refusal::invalid("messages: at least one message is required"));
        }
        message.used = Instant::now();
        let messages: Vec<Value> = message.messages.iter().cloned().chain(added).collect();
        body.insert("messages".to_owned(), messages.into());
        for (name, value) in [("system", &message.system), ("tools", &message.tools)] {
            if let Some(value) = value {
                body.insert(name.to_owned(), value.clone());
            }
        }
        Ok(())
    }

    /// Keeps the conversation with its reply.
    pub(crate) fn keep(self, body: &Map<String, Value>, reply: &Reply) {
        let mut threads = self.store.0.lock();
        if let Some(previous) = self.previous.as_ref()
            && let Some(message) = threads.messages.get_mut(&previous.id)
        {
            message.continued = true;
        }
        if threads.messages.len() >= MAX_MESSAGES {
            let oldest = threads.messages.iter().min_by_key(|(_, message)| message.used);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                threads.messages.remove(&id);
            }
        }
        let mut messages =
            body.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
        let content: Vec<Value> = reply.blocks.iter().map(Block::json).collect();
        messages.push(json!({"role": "assistant", "content": content}));
        let stored = StoredMessage {
            key: self.key.clone(),
            model: body.get("model").cloned().unwrap_or_default(),
            system: body.get("system").cloned(),
            tools: body.get("tools").cloned(),
            messages,
            paused: reply.stop_reason == "pause_turn",
            continued: false,
            used: Instant::now(),
        };
        threads.messages.insert(reply.id.clone(), stored);
    }
}
