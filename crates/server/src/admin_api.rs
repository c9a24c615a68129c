//! The operator's side: backends, switch, statistics, turns, health.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use throughline_canonical::{Fault, FaultKind};
use tokio::sync::broadcast::error::RecvError;

use crate::metrics;
use crate::wiring::House;

type TheHouse = State<Arc<House>>;

/// Whether a path is the operator's. Pages from elsewhere have no business there.
pub fn is_operators(path: &str) -> bool {
    path.starts_with("/admin/") || ["/healthz", "/readyz", "/metrics"].contains(&path)
}

/// `GET /admin/backends`
pub async fn backends(State(house): TheHouse) -> Response {
    let gateway = &house.gateway;
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
            json!({
                "name": backend.name,
                "dialect": backend.dialect.name(),
                "variant": backend.variant,
                "base_url": backend.base_url,
                "domain": backend.domain,
                "healthy": gateway.healthy(&backend.name),
                "models": models,
                "default_model": backend.default_model,
            })
        })
        .collect();
    Json(json!({"active": &*gateway.active(), "backends": backends})).into_response()
}

/// What `POST /admin/switch` takes.
#[derive(Debug, Deserialize)]
pub struct Switch {
    backend: String,
}

/// `POST /admin/switch`
pub async fn switch(State(house): TheHouse, body: axum::body::Bytes) -> Response {
    let Ok(Switch { backend }) = serde_json::from_slice(&body) else {
        let example = r#"expected a body such as {"backend":"glm"}"#;
        return refuse(&Fault::invalid(example));
    };
    match house.gateway.switch(&backend) {
        Ok(previous) => Json(json!({"active": backend, "previous": &*previous})).into_response(),
        Err(fault) => refuse(&fault),
    }
}

/// What `GET /admin/thinking` takes.
#[derive(Debug, Deserialize)]
pub struct Which {
    lineage: Option<String>,
}

/// `GET /admin/thinking`
pub async fn thinking(State(house): TheHouse, Query(which): Query<Which>) -> Response {
    match house.gateway.memory.statistics(which.lineage.as_deref()) {
        Some(statistics) => Json(statistics).into_response(),
        None => refuse(&Fault::new(
            FaultKind::NotFound,
            "there is no such lineage; `GET /admin/turns` names them",
        )),
    }
}

/// What `GET /admin/turns` takes.
#[derive(Debug, Deserialize)]
pub struct Page {
    limit: Option<usize>,
    after: Option<String>,
}

/// `GET /admin/turns`
pub async fn turns(State(house): TheHouse, Query(page): Query<Page>) -> Response {
    let turns = house.gateway.turns.list(page.limit.unwrap_or(50), page.after.as_deref());
    Json(json!({ "turns": turns })).into_response()
}

/// `GET /admin/turns/stream`: each turn as it ends, until the server stops.
pub async fn turns_stream(State(house): TheHouse) -> impl IntoResponse {
    let watching = (house.gateway.turns.listen(), house.stopping.subscribe());
    let events = stream::unfold(watching, |(mut news, mut stopping)| async {
        loop {
            let turn = tokio::select! {
                turn = news.recv() => turn,
                _ = stopping.wait_for(|stop| *stop) => return None,
            };
            match turn {
                Ok(turn) => {
                    // A slow reader misses turns that are no longer kept, too.
                    let Some(turn) = turn.upgrade() else {
                        continue;
                    };
                    let turn = turn.lock().clone();
                    let id = turn.id.clone();
                    let event = sse::Event::default().event("turn").id(id).json_data(turn);
                    let event = Ok::<_, Infallible>(event.unwrap_or_default());
                    return Some((event, (news, stopping)));
                }
                // A slow reader misses turns; `GET /admin/turns?after=` has them.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    Sse::new(events).keep_alive(sse::KeepAlive::default())
}

/// `GET /healthz`
pub async fn healthy() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub async fn ready(State(house): TheHouse) -> Response {
    let mut reasons = Vec::new();
    if !house.gateway.store_works() {
        reasons.push("the thinking memory cannot be written".to_owned());
    }
    let active = house.gateway.active();
    if house.gateway.settings().backend(&active).is_none() {
        reasons.push(format!("the active backend `{active}` is not configured"));
    }
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({"ready": reasons.is_empty(), "reasons": reasons}))).into_response()
}

/// `GET /metrics`
pub async fn numbers(State(house): TheHouse) -> Response {
    let kind = [(http::header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, metrics::render(&house.gateway)).into_response()
}

fn refuse(fault: &Fault) -> Response {
    let (status, _) = throughline_codec::dialects::anthropic::client_reply::error(fault, "");
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
    (status, Json(json!({"error": {"kind": fault.kind, "message": fault.message}}))).into_response()
}
