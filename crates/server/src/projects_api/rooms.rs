//! Rooms: `/api/rooms`, with their members, messages and decisions.

use axum::Json;
use http::StatusCode;
use serde::Deserialize;
use throughline_conversations::projects::{ApprovalRequest, CostView, HistoryPage};
use throughline_conversations::rooms::{
    NewBinding, NewMessage, NewRoom, RoomChange, RoomList, RoomView, SaidMessage,
};
use utoipa::IntoParams;

use super::call::{Body, Call, Names, Refusal, page};
use super::channels::PageQuery;
use super::nodes::{OrderName, read_order};
use super::openapi::Refused;

/// Lists rooms, newest first.
#[utoipa::path(
    get,
    path = "/api/rooms",
    tag = "rooms",
    params(PageQuery),
    responses((status = 200, description = "The rooms", body = RoomList), Refused)
)]
pub(super) async fn list_rooms(call: Call) -> Result<Json<RoomList>, Refusal> {
    let query: PageQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    Ok(Json(call.rooms().list(&call.caller, page).await?))
}

/// Creates a room, on a branch of a project or with a project of its own.
#[utoipa::path(
    post,
    path = "/api/rooms",
    tag = "rooms",
    request_body = NewRoom,
    responses((status = 201, description = "The room", body = RoomView), Refused)
)]
pub(super) async fn create_room(
    call: Call,
    Body(new): Body<NewRoom>,
) -> Result<(StatusCode, Json<RoomView>), Refusal> {
    Ok((StatusCode::CREATED, Json(call.rooms().create(&call.caller, new).await?)))
}

/// Reads a room.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    responses((status = 200, description = "The room", body = RoomView), Refused)
)]
pub(super) async fn read_room(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<RoomView>, Refusal> {
    Ok(Json(call.rooms().get(&call.caller, &id).await?))
}

/// Changes a room.
#[utoipa::path(
    patch,
    path = "/api/rooms/{id}",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    request_body = RoomChange,
    responses((status = 200, description = "The room", body = RoomView), Refused)
)]
pub(super) async fn change_room(
    call: Call,
    Names(id): Names<String>,
    Body(change): Body<RoomChange>,
) -> Result<Json<RoomView>, Refusal> {
    Ok(Json(call.rooms().change(&call.caller, &id, change).await?))
}

/// Removes a room. Its messages stay in the project.
#[utoipa::path(
    delete,
    path = "/api/rooms/{id}",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    responses((status = 204, description = "It is removed"), Refused)
)]
pub(super) async fn delete_room(
    call: Call,
    Names(id): Names<String>,
) -> Result<StatusCode, Refusal> {
    call.rooms().delete(&call.caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a channel a member, or changes what the room changes of it.
#[utoipa::path(
    post,
    path = "/api/rooms/{id}/channels",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    request_body = NewBinding,
    responses((status = 200, description = "The room", body = RoomView), Refused)
)]
pub(super) async fn bind(
    call: Call,
    Names(id): Names<String>,
    Body(new): Body<NewBinding>,
) -> Result<Json<RoomView>, Refusal> {
    Ok(Json(call.rooms().bind(&call.caller, &id, new).await?))
}

/// Removes a member.
#[utoipa::path(
    delete,
    path = "/api/rooms/{id}/channels/{channel}",
    tag = "rooms",
    params(
        ("id" = String, Path, description = "The id of the room"),
        ("channel" = String, Path, description = "The id of the channel")
    ),
    responses((status = 204, description = "It is no member any more"), Refused)
)]
pub(super) async fn unbind(
    call: Call,
    Names((id, channel)): Names<(String, String)>,
) -> Result<StatusCode, Refusal> {
    call.rooms().unbind(&call.caller, &id, &channel).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which messages to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct MessagesQuery {
    /// `asc` (oldest first, the default) or `desc`.
    #[param(inline, value_type = Option<OrderName>)]
    order: Option<String>,
    /// The largest number of entries. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The `next` of the page before.
    after: Option<String>,
}

/// Lists the messages of a room.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}/messages",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room"), MessagesQuery),
    responses((status = 200, description = "The messages", body = HistoryPage), Refused)
)]
pub(super) async fn messages(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<HistoryPage>, Refusal> {
    let query: MessagesQuery = call.query()?;
    let order = read_order(query.order.as_deref())?;
    let page = page(query.limit, query.after)?;
    let found = call.rooms().messages(&call.caller, &id, order, page).await?;
    Ok(Json(found))
}

/// Says what the answers in a room have cost, and the part of each member.
#[utoipa::path(
    get,
    path = "/api/rooms/{id}/cost",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    responses((status = 200, description = "The cost", body = CostView), Refused)
)]
pub(super) async fn room_cost(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<CostView>, Refusal> {
    Ok(Json(call.rooms().cost(&call.caller, &id).await?))
}

/// Says something. The members that it addresses as `@channel` answer.
#[utoipa::path(
    post,
    path = "/api/rooms/{id}/messages",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the room")),
    request_body = NewMessage,
    responses((status = 202, description = "It is stored", body = SaidMessage), Refused)
)]
pub(super) async fn say(
    call: Call,
    Names(id): Names<String>,
    Body(new): Body<NewMessage>,
) -> Result<(StatusCode, Json<SaidMessage>), Refusal> {
    Ok((StatusCode::ACCEPTED, Json(call.rooms().say(&call.caller, &id, new).await?)))
}

/// Approves or denies a call of a member that waits for a person.
#[utoipa::path(
    post,
    path = "/api/rooms/{id}/approvals/{call}",
    tag = "rooms",
    params(
        ("id" = String, Path, description = "The id of the room"),
        ("call" = String, Path, description = "The id of the call")
    ),
    request_body = ApprovalRequest,
    responses((status = 204, description = "The run goes on"), Refused)
)]
pub(super) async fn approve_in_room(
    call: Call,
    Names((id, tool_call)): Names<(String, String)>,
    Body(request): Body<ApprovalRequest>,
) -> Result<StatusCode, Refusal> {
    call.rooms().approve(&call.caller, &id, &tool_call, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
