//! Runs: `/api/runs/{id}`.

use axum::Json;
use axum::response::Response;
use throughline_conversations::projects::RunView;

use super::call::{Call, Names, Refusal};
use super::stream::Reading;

/// `GET /api/runs/{id}`: whether it is in progress, or how it ended.
pub(super) async fn read(call: Call, Names(id): Names<String>) -> Result<Json<RunView>, Refusal> {
    Ok(Json(call.projects().run(call.owner(), &id).await?))
}

/// `GET /api/runs/{id}/events`: its events after a cursor, those so far and those to come.
pub(super) async fn events(call: Call, Names(id): Names<String>) -> Result<Response, Refusal> {
    Reading::read(&call)?.open(&call, &id).await
}

/// `POST /api/runs/{id}/stop`: stops it. Its node keeps what had arrived.
pub(super) async fn stop(call: Call, Names(id): Names<String>) -> Result<Json<RunView>, Refusal> {
    Ok(Json(call.projects().stop(call.owner(), &id).await?))
}
