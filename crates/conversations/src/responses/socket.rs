//! Responses over a WebSocket. The history lives as long as the connection: a client sends new
//! items and the id of the last response even if nothing is stored.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt, Collected};
use serde_json::{Map, Value, json};
use throughline_canonical::Fault;
use throughline_codec::dialects::openai_responses::state::{StatefulRequest, output};
use throughline_gateway::IncomingRequest;
use throughline_gateway::backend::credential_fingerprint;
use throughline_gateway::headers::callers_key;
use throughline_gateway::thinking::random;
use throughline_gateway::turn::request::check_json;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::Responses;
use super::create::{Turn, new_identity};
use super::recording::{Recording, ReplyEvents};
use super::stored::{Ownership, StoredResponse};
use crate::body::drop_body_headers;

/// How many bytes of JSON of a connection's history are remembered.
const MAX_HISTORY_BYTES: usize = 64 << 20;

/// The member by which a client tells streams of requests apart. All are answered in order.
const STREAM_ID: &str = "stream_id";

/// One connection.
#[derive(Debug)]
pub struct Socket {
    responses: Arc<Responses>,
    incoming: IncomingRequest,
    owner: String,
    /// Responses that can be continued, newest last.
    recent: VecDeque<RecentTurn>,
    bytes: usize,
}

/// A conversation up to one response.
#[derive(Debug)]
struct RecentTurn {
    id: String,
    items: Vec<Value>,
    bytes: usize,
}

impl Socket {
    /// A connection that began with this request.
    pub fn new(responses: Arc<Responses>, incoming: IncomingRequest) -> Self {
        Self {
            owner: credential_fingerprint(&callers_key(&incoming)),
            responses,
            incoming,
            recent: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Answers one message of the client, or an error in reading it, with events. Fails only if the
    /// client has disconnected.
    pub async fn take(
        &mut self,
        message: Result<String, Fault>,
        events: &mpsc::Sender<String>,
    ) -> Result<(), mpsc::error::SendError<String>> {
        let parsed = message.and_then(|message| {
            check_json(&self.responses.gateway.settings(), message.as_bytes())?;
            serde_json::from_str::<Map<String, Value>>(&message).map_err(|error| {
                Fault::invalid(format!("the message is not a JSON object: {error}"))
            })
        });
        let stream_id = match &parsed {
            Ok(body) => body.get(STREAM_ID).and_then(Value::as_str).map(str::to_owned),
            Err(_) => None,
        };
        let to = EventSender { events, stream_id };
        let previous = match &parsed {
            Ok(body) => body.get("previous_response_id").and_then(Value::as_str).map(str::to_owned),
            Err(_) => None,
        };
        let answered = match parsed {
            Ok(body) => self.answer(body, &to).await,
            Err(fault) => Err(fault.into()),
        };
        // A client must not continue what has failed: it sends its history again.
        if !matches!(answered, Ok(Answered { failed: false, .. }))
            && let Some(previous) = &previous
        {
            self.forget(previous);
        }
        match answered {
            Ok(answered) => answered.sent,
            Err(Refusal::Fault(fault)) => {
                let (status, body) = self.incoming.dialect.write_fault(&fault, "");
                to.send(error_event(status, &body)).await
            }
            Err(Refusal::Event(event)) => to.send(event).await,
        }
    }

    async fn answer(
        &mut self,
        mut body: Map<String, Value>,
        to: &EventSender<'_>,
    ) -> Result<Answered, Refusal> {
        body.remove(STREAM_ID);
        match body.remove("type").as_ref().and_then(Value::as_str) {
            Some("response.create") => {}
            kind => {
                let kind = kind.unwrap_or_default();
                let what = format!("`{kind}` is not supported; use `response.create`");
                return Err(Fault::at("type", what).into());
            }
        }
        let request = StatefulRequest::new(body);
        request.check()?;
        let store = request.store() && self.responses.stores_responses();
        let mut incoming = self.new_request();
        let span = incoming.span();
        let history = self.history(&request).instrument(span.clone()).await?;
        let (history, mut ownership, history_is_stored) = history;
        let references = request.references();
        let found = self.responses.items(&self.owner, &references).instrument(span).await?;
        let input = request.items(&found, &mut random::id);
        ownership.conversation = request.conversation().map(str::to_owned);
        let past = history.clone().into_iter().chain(input.clone());
        // If the history is not stored, the stored response also gets the items of the history.
        let turn = Turn {
            ownership,
            input: match history_is_stored {
                true => input.clone(),
                false => past.clone().collect(),
            },
        };
        let generates = request.generates();
        let stateful_turn = request.with_history(history, &input, true)?;
        let recorder = stateful_turn.recorder(&new_identity());
        if !generates {
            let response = recorder.queued("completed");
            self.remember(&response, past.collect());
            let mut sent = Ok(());
            for (number, kind) in ["response.created", "response.completed"].iter().enumerate() {
                let event = json!({"type": kind, "sequence_number": number, "response": response});
                sent = to.send(event.to_string()).await;
            }
            return Ok(Answered { sent, failed: false });
        }
        let permit = self.responses.gateway.admit()?;
        drop_body_headers(&mut incoming);
        let events = tokio::select! {
            events = self.responses.gateway.turn_events(incoming, stateful_turn.accepted, permit) => events,
            () = to.events.closed() => return Ok(Answered { sent: Ok(()), failed: false }),
        };
        let events = match events {
            Ok(events) => events,
            Err(finished) => {
                let status = finished.reply.status();
                let whole = finished.reply.into_body().collect().await.map(Collected::to_bytes);
                return Err(Refusal::Event(error_event(
                    status.as_u16(),
                    &whole.unwrap_or_default(),
                )));
            }
        };
        let reply = ReplyEvents::new(events, recorder);
        let mut recording = Recording::new(self.responses.clone(), reply, store.then_some(turn));
        while let Some(events) = recording.next(to.events.closed()).await {
            for event in events {
                // The next loop notices a client that has disconnected.
                let _ = to.send(event.data().to_owned()).await;
            }
        }
        let mut failed = false;
        if let Some(response) = recording.response() {
            failed = response.get("status").is_some_and(|status| status == "failed");
            let items = past.chain(output(response).iter().cloned());
            self.remember(response, items.collect());
        }
        Ok(Answered { sent: Ok(()), failed })
    }

    /// The history of a request, its ownership, and whether the history is stored.
    async fn history(
        &self,
        request: &StatefulRequest,
    ) -> Result<(Vec<Value>, Ownership, bool), Fault> {
        let mut ownership =
            Ownership { owner: self.owner.clone(), parent: None, conversation: None };
        let here = |past: &&RecentTurn| request.previous() == Some(past.id.as_str());
        if let Some(past) = self.recent.iter().rev().find(here) {
            // A stored response can only follow a stored one.
            let stored = self.responses.find(&self.owner, &past.id).await?;
            ownership.parent = stored.map(|_| past.id.clone());
            let history_is_stored = ownership.parent.is_some();
            return Ok((past.items.clone(), ownership, history_is_stored));
        }
        let (turns, head) = self.responses.known_history(&self.owner, request).await?;
        ownership.parent = head;
        let items = turns.iter().flat_map(StoredResponse::items).cloned();
        Ok((items.collect(), ownership, true))
    }

    fn remember(&mut self, response: &Value, items: Vec<Value>) {
        let Some(id) = response.get("id").and_then(Value::as_str) else {
            return;
        };
        let bytes = items.iter().map(|item| item.to_string().len()).sum();
        if self.recent.iter().any(|past| past.id == id) {
            return;
        }
        self.bytes += bytes;
        self.recent.push_back(RecentTurn { id: id.to_owned(), items, bytes });
        while self.bytes > MAX_HISTORY_BYTES && self.recent.len() > 1 {
            let oldest = self.recent.pop_front();
            self.bytes -= oldest.map_or(0, |past| past.bytes);
        }
    }

    /// Forgets a response of this connection. If it is also stored, it can still be continued.
    fn forget(&mut self, id: &str) {
        self.recent.retain(|past| past.id != id);
        self.bytes = self.recent.iter().map(|past| past.bytes).sum();
    }

    /// The connection's first request, as a new request.
    fn new_request(&self) -> IncomingRequest {
        IncomingRequest {
            id: self.responses.gateway.new_turn_id(),
            method: http::Method::POST,
            began: Instant::now(),
            ..self.incoming.clone()
        }
    }
}

/// The end of a message that was answered with a response.
struct Answered {
    sent: Result<(), mpsc::error::SendError<String>>,
    /// Whether the response says that it failed.
    failed: bool,
}

/// Why a message gets no response.
enum Refusal {
    /// A fault that is not written yet.
    Fault(Fault),
    /// An error event.
    Event(String),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Sends the events that answer one message.
struct EventSender<'a> {
    events: &'a mpsc::Sender<String>,
    /// The stream id that the client sent with the message.
    stream_id: Option<String>,
}

impl EventSender<'_> {
    async fn send(&self, mut event: String) -> Result<(), mpsc::error::SendError<String>> {
        if let Some(stream_id) = &self.stream_id
            && event.ends_with('}')
        {
            event.pop();
            event.push_str(&format!(",\"{STREAM_ID}\":{}}}", Value::from(stream_id.as_str())));
        }
        self.events.send(event).await
    }
}

/// An error event in the format of this dialect, which requires a code.
fn error_event(status: u16, body: &[u8]) -> String {
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    let mut error = match body["error"].take() {
        error @ Value::Object(_) => error,
        _ => json!({"type": "server_error", "message": "the backend sent no readable error"}),
    };
    if !error["code"].is_string() {
        error["code"] = error["type"].as_str().unwrap_or("server_error").into();
    }
    json!({"type": "error", "status": status, "error": error}).to_string()
}
