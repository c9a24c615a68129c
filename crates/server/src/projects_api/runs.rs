//! Runs: `/api/runs/{id}`.

use axum::Json;
use axum::response::Response;
use throughline_conversations::projects::RunView;

use super::call::{Call, Names, Refusal};
use super::openapi::{Refused, StreamedEvent};
use super::stream::{EventsQuery, Reading};

/// Reads a run: whether it is in progress, or how it ended.
#[utoipa::path(
    get,
    operation_id = "read_run",
    path = "/api/runs/{id}",
    tag = "runs",
    params(("id" = String, Path, description = "The id of the run")),
    responses((status = 200, description = "The run", body = RunView), Refused)
)]
pub(super) async fn read(call: Call, Names(id): Names<String>) -> Result<Json<RunView>, Refusal> {
    Ok(Json(call.projects().run(&call.caller, &id).await?))
}

/// Reads the events of a run after a cursor, those so far and those to come.
#[utoipa::path(
    get,
    operation_id = "read_run_events",
    path = "/api/runs/{id}/events",
    tag = "runs",
    params(("id" = String, Path, description = "The id of the run"), EventsQuery),
    responses((status = 200, description = "The events of the run", content((String = "application/x-ndjson"), (StreamedEvent = "text/event-stream"))), Refused)
)]
pub(super) async fn events(call: Call, Names(id): Names<String>) -> Result<Response, Refusal> {
    Reading::read(&call)?.open(&call, &id).await
}

/// Stops a run. Its node keeps the received part.
#[utoipa::path(
    post,
    operation_id = "stop_run",
    path = "/api/runs/{id}/stop",
    tag = "runs",
    params(("id" = String, Path, description = "The id of the run")),
    responses((status = 200, description = "The run", body = RunView), Refused)
)]
pub(super) async fn stop(call: Call, Names(id): Names<String>) -> Result<Json<RunView>, Refusal> {
    Ok(Json(call.projects().stop(&call.caller, &id).await?))
}
