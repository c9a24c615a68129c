//! The operator's paths: backends, switch, statistics, turns, health and metrics.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_gateway::cool_down::CoolDown;
use throughline_gateway::turn::log::Turn;
use tokio::sync::broadcast::error::RecvError;

use crate::wiring::App;

type AppState = State<Arc<App>>;

/// Turns in a list without `limit`.
const DEFAULT_TURNS: usize = 50;

/// Whether a path is for operators. Web pages of other origins may not call it.
pub fn is_operator_path(path: &str) -> bool {
    path.starts_with("/admin/") || ["/healthz", "/readyz", "/metrics"].contains(&path)
}

/// `GET /admin/backends`: every backend, and which one is active.
pub async fn backends(State(app): AppState) -> Response {
    let gateway = &app.gateway;
    let backends: Vec<_> = gateway
        .settings()
        .backends
        .iter()
        .map(|backend| {
            let models: serde_json::Map<_, _> = backend
                .models
                .iter()
                .map(|(pattern, name)| (pattern.clone(), name.clone().into()))
                .collect();
            let mut entry = json!({
                "name": backend.name,
                "dialect": backend.dialect.name(),
                "variant": backend.profile.name,
                "base_url": backend.base_url,
                "domain": backend.domain,
                "healthy": backend.off().is_none() && gateway.healthy(&backend.name),
                "models": models,
                "default_model": backend.default_model,
            });
            let cool_downs = gateway.cool_downs(&backend.name);
            if !cool_downs.is_empty() {
                entry["cool_down"] = cool_downs.iter().map(cool_down).collect();
            }
            if let Some(to_do) = backend.off() {
                entry["off"] = to_do.into();
            }
            entry
        })
        .collect();
    Json(json!({"active": &*gateway.active(), "backends": backends})).into_response()
}

fn cool_down(cool_down: &CoolDown) -> Value {
    json!({
        "model": cool_down.model,
        "reason": cool_down.failure.to_string(),
        "failures": cool_down.failures,
        "seconds": cool_down.remaining.as_secs_f64().ceil() as u64,
    })
}

/// The body of `POST /admin/switch`.
#[derive(Debug, Deserialize)]
pub struct SwitchRequest {
    backend: String,
}

/// `POST /admin/switch`: makes another backend the active one.
pub async fn switch(State(app): AppState, body: axum::body::Bytes) -> Response {
    let Ok(SwitchRequest { backend }) = serde_json::from_slice(&body) else {
        let example = r#"expected a body such as {"backend":"glm"}"#;
        return refuse(&Fault::invalid(example));
    };
    match app.gateway.switch(&backend).await {
        Ok(previous) => Json(json!({"active": backend, "previous": &*previous})).into_response(),
        Err(fault) => refuse(&fault),
    }
}

/// The query of `GET /admin/thinking`.
#[derive(Debug, Deserialize)]
pub struct ThinkingQuery {
    lineage: Option<String>,
}

/// `GET /admin/thinking`: counts of the thinking memory, whole or of one lineage.
pub async fn thinking(State(app): AppState, Query(query): Query<ThinkingQuery>) -> Response {
    match app.gateway.memory.statistics(query.lineage.as_deref()) {
        Some(statistics) => Json(statistics).into_response(),
        None => refuse(&Fault::new(
            FaultKind::NotFound,
            "no such lineage; `GET /admin/turns` lists them",
        )),
    }
}

/// The query of `GET /admin/turns`.
#[derive(Debug, Deserialize)]
pub struct TurnsQuery {
    limit: Option<usize>,
    after: Option<String>,
    bodies: Option<bool>,
}

impl TurnsQuery {
    /// Removes the bodies unless they were asked for. Without `bodies`, they are there.
    fn project(&self, turn: Turn) -> Turn {
        if self.bodies.unwrap_or(true) { turn } else { turn.without_bodies() }
    }
}

/// `GET /admin/turns`: recent turns, newest first.
pub async fn turns(State(app): AppState, Query(query): Query<TurnsQuery>) -> Response {
    let turns =
        app.gateway.turns.list(query.limit.unwrap_or(DEFAULT_TURNS), query.after.as_deref());
    let turns: Vec<_> = turns.into_iter().map(|turn| query.project(turn)).collect();
    Json(json!({ "turns": turns })).into_response()
}

/// `GET /admin/turns/{id}`: one turn.
pub async fn turn(State(app): AppState, Path(id): Path<String>) -> Response {
    match app.gateway.turns.find(&id) {
        Some(turn) => Json(turn).into_response(),
        None => refuse(&Fault::new(
            FaultKind::NotFound,
            "no such turn; the gateway keeps the last thousand, see `GET /admin/turns`",
        )),
    }
}

/// `GET /admin/turns/stream`: each turn as it ends, until the server stops.
pub async fn turns_stream(
    State(app): AppState,
    Query(query): Query<TurnsQuery>,
) -> impl IntoResponse {
    let watching = (app.gateway.turns.listen(), app.stopping.subscribe(), query);
    let events = stream::unfold(watching, |(mut news, mut stopping, query)| async {
        loop {
            let turn = tokio::select! {
                turn = news.recv() => turn,
                _ = stopping.wait_for(|stop| *stop) => return None,
            };
            match turn {
                Ok(turn) => {
                    // The turn is no longer kept.
                    let Some(turn) = turn.upgrade() else {
                        continue;
                    };
                    let turn = query.project(turn.lock().clone());
                    let id = turn.id.clone();
                    let event = sse::Event::default().event("turn").id(id).json_data(turn);
                    let event = Ok::<_, Infallible>(event.unwrap_or_default());
                    return Some((event, (news, stopping, query)));
                }
                // A slow reader misses turns; `GET /admin/turns?after=` has them.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Sse::new(events).keep_alive(sse::KeepAlive::default())
}

/// `GET /healthz`: 200 while the process runs.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: 200 if turns can be served, else 503 with the reasons. What is slower than it should be
/// is a warning.
pub async fn readyz(State(app): AppState) -> Response {
    let (mut reasons, responses) =
        tokio::join!(app.gateway.check_stores(), app.responses.check_store());
    reasons.extend(responses);
    let active = app.gateway.active();
    match app.gateway.settings().backend(&active).map(|backend| backend.check_on()) {
        None => reasons.push(format!("the active backend `{active}` is not configured")),
        Some(Err(fault)) => reasons.push(fault.message),
        Some(Ok(())) => {}
    }
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let warnings: Vec<String> = app.runs.bus.health().failure().into_iter().collect();
    let state = json!({"ready": reasons.is_empty(), "reasons": reasons, "warnings": warnings});
    (status, Json(state)).into_response()
}

/// `GET /metrics`: counters and histograms for Prometheus.
pub async fn metrics(State(app): AppState) -> Response {
    let content_type = [(http::header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (content_type, crate::metrics::render(&app)).into_response()
}

fn refuse(fault: &Fault) -> Response {
    let status = throughline_codec::dialects::fault_status(fault.kind);
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    (status, Json(json!({"error": {"kind": fault.kind, "message": fault.message}}))).into_response()
}
