//! The Anthropic dialect: its routes and the order in which a request is judged.

mod ask;
mod compose;
mod dialogue;
mod models;
mod modes;
mod prefix;
mod refusal;
mod reply;
mod shape;
mod verify;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value, json};

use self::ask::{Ask, Terms};
use self::compose::Composer;
use self::models::Model;
use self::modes::Plan;
pub(crate) use self::refusal::Refusal;
use self::shape::Endpoint;
use self::verify::{Verified, Verifier};
use crate::fault::{self, Fault, Frame};
use crate::replay::{self, Kind, Replay};
use crate::scenario::Step;
use crate::style::SignatureStyle;
use crate::{RequestId, Simulator, delivery};

/// In a reply that is no stream, so many bytes are an "event" to the faults.
const JSON_EVENT: usize = 32;

const VERSIONS: &[&str] = &["2023-01-01", "2023-06-01", "2026-10-21"];

/// The paths of this dialect.
pub(crate) fn routes() -> Router<Arc<Simulator>> {
    Router::new()
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(count_tokens))
        .route("/v1/models", get(|| async { Json(models::list()) }))
        .route("/v1/models/{name}", get(model))
}

async fn model(Path(name): Path<String>) -> Json<Value> {
    Json(models::describe(&name))
}

async fn messages(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match answer(&simulator, &headers, &body).await {
        Ok(response) => response,
        Err(refusal) => refusal.respond(&id),
    }
}

async fn count_tokens(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let count = || {
        let wishes = Wishes::read(&headers)?;
        wishes.refuse_on_demand()?;
        let style = simulator.style(wishes.style);
        let endpoint = Endpoint::CountTokens;
        let accepted = judge(&simulator, &headers, read(&body)?, endpoint, style)?;
        Ok(Json(json!({ "input_tokens": input_tokens(&accepted.ask) })))
    };
    match count() {
        Ok(counted) => counted.into_response(),
        Err(refusal) => Refusal::respond(refusal, &id),
    }
}

/// A request that passed, or that nobody judged.
struct Accepted {
    ask: Ask,
    plan: Plan,
    model: &'static Model,
    terms: Terms,
    verified: Verified,
}

async fn answer(
    simulator: &Simulator,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Response, Refusal> {
    let mut wishes = Wishes::read(headers)?;
    let json = read(body)?;
    let step = scenario_step(simulator, &json);
    if let Some(step) = &step {
        wishes.faults.extend(step.faults.iter().cloned());
        wishes.style = wishes.style.or(step.signature);
    }
    for fault in &wishes.faults {
        if let Fault::HeadDelay(time) = fault {
            tokio::time::sleep(*time).await;
        }
    }
    wishes.refuse_on_demand()?;
    let style = simulator.style(wishes.style);
    let accepted = judge(simulator, headers, json, Endpoint::Messages, style)?;
    let replay = step.as_ref().and_then(|step| step.replay.as_ref());
    let (status, content) = match replay {
        Some(replay) => (replay.status, Content::replayed(replay)),
        None => {
            let stream = accepted.ask.stream;
            let pings = !wishes.faults.contains(&Fault::NoPing);
            let composer = Composer {
                signer: &simulator.signer,
                seed: simulator.options.seed,
                model: accepted.model,
                plan: &accepted.plan,
                terms: &accepted.terms,
                style,
                step: step.as_ref(),
                deltas: wishes.deltas,
                answer_model: wishes.answer_model,
                input_tokens: input_tokens(&accepted.ask),
            };
            let reply = composer.compose(&accepted.ask, accepted.verified);
            let content = if stream {
                Content::Events(reply.frames(pings))
            } else {
                Content::Json(reply.json().to_string().into())
            };
            (StatusCode::OK, content)
        }
    };
    let breaks = |fault: &Fault| matches!(fault, Fault::Error(_));
    let (content_type, frames) = match content {
        Content::Events(frames) => ("text/event-stream; charset=utf-8", frames),
        Content::Json(_) if wishes.faults.iter().any(breaks) => {
            return Err(Refusal::on_demand(529, None));
        }
        Content::Json(bytes) if wishes.faults.is_empty() => {
            let headers = [(header::CONTENT_TYPE, "application/json")];
            return Ok((status, headers, bytes).into_response());
        }
        Content::Json(bytes) => ("application/json", slices(&bytes)),
    };
    let error = reply::event(&refusal::overloaded()).bytes;
    let steps = fault::steps(frames, &wishes.faults, &error);
    let body = delivery::body(steps, simulator.options.tokens_per_second);
    let headers = [
        (header::CONTENT_TYPE, content_type),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((status, headers, body).into_response())
}

/// What a reply carries.
enum Content {
    Events(Vec<Frame>),
    Json(Bytes),
}

impl Content {
    fn replayed(replay: &Replay) -> Self {
        match replay.kind {
            Kind::Events => Self::Events(replay::events(&replay.bytes)),
            Kind::Json => Self::Json(replay.bytes.clone()),
        }
    }
}

/// The rules in their order: the caller, the shape, the modes, the dialogue, the thinking.
fn judge(
    simulator: &Simulator,
    headers: &HeaderMap,
    body: Map<String, Value>,
    endpoint: Endpoint,
    style: SignatureStyle,
) -> Result<Accepted, Refusal> {
    let strict = simulator.options.strict;
    let terms = Terms::read(headers);
    check_key(simulator, headers)?;
    if strict {
        check_version(&terms)?;
        shape::check(&body, endpoint, &terms)?;
    }
    let sampling: Map<String, Value> = ["temperature", "top_p", "top_k"]
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), body.get(*key)?.clone())))
        .collect();
    let ask = Ask::read(body);
    let model = Model::named(&ask.model);
    let plan = Plan::read(&ask, model);
    if strict {
        modes::check(&ask, &plan, model, &terms)?;
        modes::check_sampling(&sampling, &plan, model, &terms)?;
        dialogue::check(&ask, model)?;
    }
    // A backend that does not sign does not verify either.
    let verified = if strict && style != SignatureStyle::Empty {
        let verifier = Verifier {
            signer: &simulator.signer,
            model,
            plan: &plan,
            prefix_binding: simulator.options.prefix_binding,
        };
        verifier.check(&ask)?
    } else {
        verify::trust(&ask)
    };
    Ok(Accepted {
        ask,
        plan,
        model,
        terms,
        verified,
    })
}

fn check_key(simulator: &Simulator, headers: &HeaderMap) -> Result<(), Refusal> {
    let present = ["x-api-key", "authorization"]
        .iter()
        .any(|name| headers.get(*name).is_some_and(|value| !value.is_empty()));
    if simulator.options.require_key && !present {
        let message = "x-api-key header is required";
        return Err(Refusal::new(StatusCode::UNAUTHORIZED, message));
    }
    Ok(())
}

fn check_version(terms: &Terms) -> Result<(), Refusal> {
    match terms.version.as_deref() {
        None => Err(Refusal::invalid("anthropic-version: header is required")),
        Some(version) if VERSIONS.contains(&version) => Ok(()),
        Some(version) => Err(Refusal::invalid(format!(
            "anthropic-version: \"{version}\" is not a valid version"
        ))),
    }
}

fn read(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(_) => Err(Refusal::invalid("Input should be a valid dictionary")),
        Err(error) => Err(Refusal::invalid(format!(
            "The request body is not valid JSON: {error}"
        ))),
    }
}

fn scenario_step(simulator: &Simulator, body: &Map<String, Value>) -> Option<Step> {
    let progress = simulator.scenario.as_ref()?;
    let ask = Ask::read(body.clone());
    progress.next(&ask.model, &compose::last_said(&ask))
}

/// What the model reads, whatever else the body says.
fn input_tokens(ask: &Ask) -> usize {
    let blocks = ask.turns.iter().flat_map(|turn| &turn.blocks);
    let read = ask.system.iter().chain(&ask.tools).chain(blocks);
    read.map(|part| compose::tokens(&part.to_string())).sum()
}

fn slices(bytes: &Bytes) -> Vec<Frame> {
    let starts = (0..bytes.len()).step_by(JSON_EVENT);
    let slice = |start: usize| Frame {
        bytes: bytes.slice(start..bytes.len().min(start + JSON_EVENT)),
        tokens: 0,
    };
    starts.map(slice).collect()
}

/// What a request asks of the simulator itself, by header.
struct Wishes {
    faults: Vec<Fault>,
    style: Option<SignatureStyle>,
    deltas: Option<usize>,
    answer_model: Option<String>,
}

impl Wishes {
    fn read(headers: &HeaderMap) -> Result<Self, Refusal> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let wrong = |name: &str, error: &dyn std::fmt::Display| {
            Refusal::invalid(format!("{name}: {error}"))
        };
        let mut faults = Vec::new();
        for value in headers.get_all("x-simulator-fault") {
            let value = String::from_utf8_lossy(value.as_bytes());
            faults.extend(fault::read(&value).map_err(|error| wrong("x-simulator-fault", &error))?);
        }
        let style = text("x-simulator-signature").map(str::parse).transpose();
        let deltas = text("x-simulator-deltas")
            .map(|count| count.trim().parse())
            .transpose();
        Ok(Self {
            faults,
            style: style.map_err(|error| wrong("x-simulator-signature", &error))?,
            deltas: deltas
                .map_err(|error: std::num::ParseIntError| wrong("x-simulator-deltas", &error))?,
            answer_model: text("x-simulator-model").map(str::to_owned),
        })
    }

    fn refuse_on_demand(&self) -> Result<(), Refusal> {
        for fault in &self.faults {
            if let Fault::Status { code, retry_after } = fault {
                return Err(Refusal::on_demand(*code, *retry_after));
            }
        }
        Ok(())
    }
}
