//! Channels: `/api/channels`.

use axum::Json;
use http::StatusCode;
use serde::Deserialize;
use throughline_conversations::rooms::{ChannelChange, ChannelList, ChannelView, NewChannel};
use utoipa::IntoParams;

use super::call::{Body, Call, Names, Refusal, page};
use super::openapi::Refused;

/// Which part of a list to show.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// The largest number of entries. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    pub(super) limit: Option<usize>,
    /// The `next` of the page before.
    pub(super) after: Option<String>,
}

/// Lists channels.
#[utoipa::path(
    get,
    path = "/api/channels",
    tag = "rooms",
    params(PageQuery),
    responses((status = 200, description = "The channels", body = ChannelList), Refused)
)]
pub(super) async fn list_channels(call: Call) -> Result<Json<ChannelList>, Refusal> {
    let query: PageQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    Ok(Json(call.rooms().list_channels(&call.caller, page).await?))
}

/// Creates a channel: a member that many rooms can have.
#[utoipa::path(
    post,
    path = "/api/channels",
    tag = "rooms",
    request_body = NewChannel,
    responses((status = 201, description = "The channel", body = ChannelView), Refused)
)]
pub(super) async fn create_channel(
    call: Call,
    Body(new): Body<NewChannel>,
) -> Result<(StatusCode, Json<ChannelView>), Refusal> {
    let made = call.rooms().create_channel(&call.caller, new).await?;
    Ok((StatusCode::CREATED, Json(made)))
}

/// Reads a channel.
#[utoipa::path(
    get,
    path = "/api/channels/{id}",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the channel")),
    responses((status = 200, description = "The channel", body = ChannelView), Refused)
)]
pub(super) async fn read_channel(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<ChannelView>, Refusal> {
    Ok(Json(call.rooms().get_channel(&call.caller, &id).await?))
}

/// Changes a channel. Rooms use it from their next answer on.
#[utoipa::path(
    patch,
    path = "/api/channels/{id}",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the channel")),
    request_body = ChannelChange,
    responses((status = 200, description = "The channel", body = ChannelView), Refused)
)]
pub(super) async fn change_channel(
    call: Call,
    Names(id): Names<String>,
    Body(change): Body<ChannelChange>,
) -> Result<Json<ChannelView>, Refusal> {
    Ok(Json(call.rooms().change_channel(&call.caller, &id, change).await?))
}

/// Removes a channel. Its messages stay.
#[utoipa::path(
    delete,
    path = "/api/channels/{id}",
    tag = "rooms",
    params(("id" = String, Path, description = "The id of the channel")),
    responses((status = 204, description = "It is removed"), Refused)
)]
pub(super) async fn delete_channel(
    call: Call,
    Names(id): Names<String>,
) -> Result<StatusCode, Refusal> {
    call.rooms().delete_channel(&call.caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
