//! Projects: `/api/projects` and `/api/projects/{id}`.

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{
    CostView, LeaseRequest, LeaseView, NewProject, ProjectChange, ProjectList, ProjectQuery,
    ProjectView,
};

use utoipa::{IntoParams, ToSchema};

use super::call::{Body, Call, Names, Refusal, page};
use super::openapi::Refused;

/// The parts of a project that can be searched.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes what `list` reads")]
enum SearchedPart {
    Title,
    Content,
}

/// Which projects to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// A part of the title, in any letter case.
    q: Option<String>,
    /// `content` searches contents instead of titles.
    #[param(inline, value_type = Option<SearchedPart>)]
    r#in: Option<String>,
    /// Whether to list deleted projects instead.
    #[serde(default)]
    deleted: bool,
    /// The largest number of entries. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    after: Option<String>,
}

/// Lists projects, newest first, or searches them.
#[utoipa::path(
    get,
    operation_id = "list_projects",
    path = "/api/projects",
    tag = "projects",
    params(ListQuery),
    responses((status = 200, description = "Projects, newest first", body = ProjectList), Refused)
)]
pub(super) async fn list(call: Call) -> Result<Json<ProjectList>, Refusal> {
    let query: ListQuery = call.query()?;
    let in_content = match query.r#in.as_deref() {
        None | Some("title") => false,
        Some("content") => true,
        Some(_) => return Err(Problem::invalid("in", "must be `title` or `content`").into()),
    };
    let page = page(query.limit, query.after)?;
    let query = ProjectQuery {
        search: query.q.filter(|searched| !searched.is_empty()),
        in_content,
        deleted: query.deleted,
        after: page.after,
        limit: page.limit,
    };
    Ok(Json(call.projects().list(&call.caller, query).await?))
}

/// Creates a project with its first branch, `main`.
#[utoipa::path(
    post,
    operation_id = "create_project",
    path = "/api/projects",
    tag = "projects",
    request_body = NewProject,
    responses((status = 201, description = "The project", body = ProjectView), Refused)
)]
pub(super) async fn create(
    call: Call,
    Body(new): Body<NewProject>,
) -> Result<impl IntoResponse, Refusal> {
    let project = call.projects().create(&call.caller, new).await?;
    Ok((StatusCode::CREATED, Json(project)))
}

/// Reads a project.
#[utoipa::path(
    get,
    operation_id = "read_project",
    path = "/api/projects/{id}",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project")),
    responses((status = 200, description = "The project", body = ProjectView), Refused)
)]
pub(super) async fn read(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<ProjectView>, Refusal> {
    Ok(Json(call.projects().get(&call.caller, &id).await?))
}

/// Says what the answers of a project have cost, on all its branches.
#[utoipa::path(
    get,
    path = "/api/projects/{id}/cost",
    operation_id = "project_cost",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project")),
    responses((status = 200, description = "The cost", body = CostView), Refused)
)]
pub(super) async fn cost(call: Call, Names(id): Names<String>) -> Result<Json<CostView>, Refusal> {
    Ok(Json(call.projects().cost(&call.caller, &id).await?))
}

/// Changes the title or the system text.
#[utoipa::path(
    patch,
    operation_id = "change_project",
    path = "/api/projects/{id}",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = ProjectChange,
    responses((status = 200, description = "The changed project", body = ProjectView), Refused)
)]
pub(super) async fn change(
    call: Call,
    Names(id): Names<String>,
    Body(change): Body<ProjectChange>,
) -> Result<Json<ProjectView>, Refusal> {
    Ok(Json(call.projects().change(&call.caller, &id, change).await?))
}

/// Whether a deletion is for good.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    /// Removes it for good, with its nodes.
    #[serde(default)]
    pub(super) purge: bool,
}

/// Deletes a project. It can be restored unless `purge` is true.
#[utoipa::path(
    delete,
    operation_id = "delete_project",
    path = "/api/projects/{id}",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project"), DeleteQuery),
    responses((status = 204, description = "It is deleted"), Refused)
)]
pub(super) async fn delete(call: Call, Names(id): Names<String>) -> Result<StatusCode, Refusal> {
    let DeleteQuery { purge } = call.query()?;
    call.projects().delete(&call.caller, &id, purge).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Brings a deleted project back.
#[utoipa::path(
    post,
    operation_id = "restore_project",
    path = "/api/projects/{id}/restore",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project")),
    responses((status = 200, description = "The project", body = ProjectView), Refused)
)]
pub(super) async fn restore(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<ProjectView>, Refusal> {
    Ok(Json(call.projects().restore(&call.caller, &id).await?))
}

/// Holds the chat key that the request presents for some minutes. Later requests present the lease.
#[utoipa::path(
    post,
    operation_id = "lease_key",
    path = "/api/projects/{id}/lease",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = LeaseRequest,
    responses((status = 201, description = "The lease", body = LeaseView), Refused)
)]
pub(super) async fn lease(
    call: Call,
    Names(id): Names<String>,
    Body(request): Body<LeaseRequest>,
) -> Result<impl IntoResponse, Refusal> {
    let lease = call.projects().lease(&call.caller, &id, request).await?;
    Ok((StatusCode::CREATED, Json(lease)))
}

/// Ends the lease that the request presents, or all leases of the caller on the project. Runs that were
/// started with them stop.
#[utoipa::path(
    delete,
    operation_id = "revoke_lease",
    path = "/api/projects/{id}/lease",
    tag = "projects",
    params(("id" = String, Path, description = "The id of the project")),
    responses((status = 204, description = "The server has forgotten the key"), Refused)
)]
pub(super) async fn revoke_lease(
    call: Call,
    Names(id): Names<String>,
) -> Result<StatusCode, Refusal> {
    call.projects().revoke_lease(&call.caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
