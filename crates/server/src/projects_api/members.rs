//! Members and keys of projects: `/api/projects/{id}/members` and `/api/projects/{id}/key`.

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use throughline_conversations::projects::{MemberList, MemberView, NewMember, NextKey, OwnKey};

use super::call::{Body, Call, Names, Refusal};
use super::openapi::Refused;

/// Lists the owner and the members.
#[utoipa::path(
    get,
    operation_id = "list_members",
    path = "/api/projects/{id}/members",
    tag = "members",
    params(("id" = String, Path, description = "The id of the project")),
    responses((status = 200, description = "The owner, then the members", body = MemberList), Refused)
)]
pub(super) async fn list(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<MemberList>, Refusal> {
    Ok(Json(call.projects().members(&call.caller, &id).await?))
}

/// Shares a project with a user, or replaces a user's wrapped key.
#[utoipa::path(
    post,
    operation_id = "add_member",
    path = "/api/projects/{id}/members",
    tag = "members",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = NewMember,
    responses((status = 201, description = "The member", body = MemberView), Refused)
)]
pub(super) async fn add(
    call: Call,
    Names(id): Names<String>,
    Body(new): Body<NewMember>,
) -> Result<impl IntoResponse, Refusal> {
    let member = call.projects().add_member(&call.caller, &id, new).await?;
    Ok((StatusCode::CREATED, Json(member)))
}

/// Removes a member, or leaves. What the member reads ends within a second.
#[utoipa::path(
    delete,
    operation_id = "remove_member",
    path = "/api/projects/{id}/members/{name}",
    tag = "members",
    params(("id" = String, Path, description = "The id of the project"), ("name" = String, Path, description = "The name of the user")),
    responses((status = 204, description = "The member is removed"), Refused)
)]
pub(super) async fn remove(
    call: Call,
    Names((id, name)): Names<(String, String)>,
) -> Result<StatusCode, Refusal> {
    call.projects().remove_member(&call.caller, &id, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The present key of a project, sealed for the caller.
#[utoipa::path(
    get,
    operation_id = "read_member_key",
    path = "/api/projects/{id}/key",
    tag = "members",
    params(("id" = String, Path, description = "The id of the project")),
    responses((status = 200, description = "The wrapped key", body = OwnKey), Refused)
)]
pub(super) async fn key(call: Call, Names(id): Names<String>) -> Result<Json<OwnKey>, Refusal> {
    Ok(Json(call.projects().own_key(&call.caller, &id).await?))
}

/// Sets the next key of a sealed project. The request presents the present one.
#[utoipa::path(
    put,
    operation_id = "set_next_key",
    path = "/api/projects/{id}/key",
    tag = "members",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = NextKey,
    responses((status = 200, description = "The next key, sealed for the caller", body = OwnKey), Refused)
)]
pub(super) async fn set_next_key(
    call: Call,
    Names(id): Names<String>,
    Body(next): Body<NextKey>,
) -> Result<Json<OwnKey>, Refusal> {
    Ok(Json(call.projects().set_next_key(&call.caller, &id, next).await?))
}
