//! Webhooks of rooms: `/api/rooms/{id}/hooks`.

use axum::Json;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use throughline_conversations::rooms::{HookView, NewHook};
use utoipa::ToSchema;

use super::call::{Body, Call, Names, Refusal, page};
use super::channels::PageQuery;
use super::openapi::Refused;

/// The webhooks of a room.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct HookList {
    /// The hooks, in the order in which they are called.
    hooks: Vec<HookView>,
}

/// Calls of webhooks that failed too often.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct DeadCalls {
    /// The calls, oldest first.
    #[schema(value_type = Vec<Object>)]
    dead: Vec<Value>,
    /// The value of `after` for the next page.
    next: Option<String>,
}

/// Lists the webhooks of a room.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}/hooks",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    responses((status = 200, description = "The hooks", body = HookList), Refused)
)]
pub(super) async fn list_hooks(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<HookList>, Refusal> {
    Ok(Json(HookList { hooks: call.rooms().list_hooks(&call.caller, &id).await? }))
}

/// Adds a webhook.
#[utoipa::path(
    post,
    path = "/api/rooms/{id}/hooks",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    request_body = NewHook,
    responses((status = 201, description = "The hook", body = HookView), Refused)
)]
pub(super) async fn add_hook(
    call: Call,
    Names(id): Names<String>,
    Body(new): Body<NewHook>,
) -> Result<(StatusCode, Json<HookView>), Refusal> {
    Ok((StatusCode::CREATED, Json(call.rooms().add_hook(&call.caller, &id, new).await?)))
}

/// Removes a webhook.
#[utoipa::path(
    delete,
    path = "/api/rooms/{id}/hooks/{hook}",
    tag = "rooms",
    params(
        ("id" = String, Path, description = "The id of the room"),
        ("hook" = String, Path, description = "The id of the hook")
    ),
    responses((status = 204, description = "It is removed"), Refused)
)]
pub(super) async fn remove_hook(
    call: Call,
    Names((id, hook)): Names<(String, String)>,
) -> Result<StatusCode, Refusal> {
    call.rooms().remove_hook(&call.caller, &id, &hook).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists calls of webhooks that failed too often.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}/hooks/dead",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room"), PageQuery),
    responses((status = 200, description = "The calls", body = DeadCalls), Refused)
)]
pub(super) async fn dead_calls(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<DeadCalls>, Refusal> {
    let query: PageQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    let limit = page.limit;
    let dead = call.rooms().dead_calls(&call.caller, &id, page).await?;
    let last = dead.last().filter(|_| dead.len() == limit);
    let next = last.and_then(|last| last["id"].as_str()).map(str::to_owned);
    Ok(Json(DeadCalls { dead, next }))
}

/// Makes a call again that failed too often.
#[utoipa::path(
    post,
    path = "/api/rooms/{id}/hooks/dead/{call}/replay",
    tag = "rooms",
    params(
        ("id" = String, Path, description = "The id of the room"),
        ("call" = String, Path, description = "The id of the call")
    ),
    responses((status = 202, description = "It is made again"), Refused)
)]
pub(super) async fn replay_call(
    call: Call,
    Names((id, dead)): Names<(String, String)>,
) -> Result<StatusCode, Refusal> {
    call.rooms().replay_call(&call.caller, &id, &dead).await?;
    Ok(StatusCode::ACCEPTED)
}
