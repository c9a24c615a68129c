//! Branches: `/api/projects/{id}/branches`, and merges.

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use throughline_conversations::projects::{BranchChange, BranchView, Merge, Merged, NewBranch};

use utoipa::{IntoParams, ToSchema};

use super::call::{Body, Call, Names, Refusal, page};
use super::openapi::Refused;
use super::projects::DeleteQuery;

/// Which branches to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Whether to list deleted branches instead.
    #[serde(default)]
    deleted: bool,
    /// The largest number of entries. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    after: Option<String>,
}

/// A page of branches.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BranchList {
    /// The branches: pinned ones first, then in the order in which they were made.
    branches: Vec<BranchView>,
    /// The value of `after` for the next page.
    next: Option<String>,
}

/// Lists branches: pinned ones first, then in the order in which they were made.
#[utoipa::path(
    get,
    operation_id = "list_branches",
    path = "/api/projects/{id}/branches",
    tag = "branches",
    params(("id" = String, Path, description = "The id of the project"), ListQuery),
    responses((status = 200, description = "Branches, pinned ones first", body = BranchList), Refused)
)]
pub(super) async fn list(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<BranchList>, Refusal> {
    let query: ListQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    let mut branches = call.projects().branches(&call.caller, &id, query.deleted).await?;
    if let Some(after) = page.after {
        let at = branches.iter().position(|branch| branch.id == after);
        branches.drain(..at.map_or(branches.len(), |at| at + 1));
    }
    let has_more = branches.len() > page.limit;
    branches.truncate(page.limit);
    let next = branches.last().filter(|_| has_more).map(|last| last.id.clone());
    Ok(Json(BranchList { branches, next }))
}

/// Creates a branch. It copies no nodes.
#[utoipa::path(
    post,
    operation_id = "create_branch",
    path = "/api/projects/{id}/branches",
    tag = "branches",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = NewBranch,
    responses((status = 201, description = "The branch", body = BranchView), Refused)
)]
pub(super) async fn create(
    call: Call,
    Names(id): Names<String>,
    Body(new): Body<NewBranch>,
) -> Result<impl IntoResponse, Refusal> {
    let branch = call.projects().create_branch(&call.caller, &id, new).await?;
    Ok((StatusCode::CREATED, Json(branch)))
}

/// Renames or marks a branch.
#[utoipa::path(
    patch,
    operation_id = "change_branch",
    path = "/api/projects/{id}/branches/{name}",
    tag = "branches",
    params(("id" = String, Path, description = "The id of the project"), ("name" = String, Path, description = "The name of the branch")),
    request_body = BranchChange,
    responses((status = 200, description = "The changed branch", body = BranchView), Refused)
)]
pub(super) async fn change(
    call: Call,
    Names((id, name)): Names<(String, String)>,
    Body(change): Body<BranchChange>,
) -> Result<Json<BranchView>, Refusal> {
    Ok(Json(call.projects().change_branch(&call.caller, &id, &name, change).await?))
}

/// Deletes a branch. It can be restored unless `purge` is true.
#[utoipa::path(
    delete,
    operation_id = "delete_branch",
    path = "/api/projects/{id}/branches/{name}",
    tag = "branches",
    params(("id" = String, Path, description = "The id of the project"), ("name" = String, Path, description = "The name of the branch"), DeleteQuery),
    responses((status = 204, description = "It is deleted"), Refused)
)]
pub(super) async fn delete(
    call: Call,
    Names((id, name)): Names<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let DeleteQuery { purge } = call.query()?;
    call.projects().delete_branch(&call.caller, &id, &name, purge).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Brings a deleted branch back.
#[utoipa::path(
    post,
    operation_id = "restore_branch",
    path = "/api/projects/{id}/branches/{name}/restore",
    tag = "branches",
    params(("id" = String, Path, description = "The id of the project"), ("name" = String, Path, description = "The name of the branch")),
    responses((status = 200, description = "The branch", body = BranchView), Refused)
)]
pub(super) async fn restore(
    call: Call,
    Names((id, name)): Names<(String, String)>,
) -> Result<Json<BranchView>, Refusal> {
    Ok(Json(call.projects().restore_branch(&call.caller, &id, &name).await?))
}

/// Merges a branch into another: adds a node with its result.
#[utoipa::path(
    post,
    operation_id = "merge_branch",
    path = "/api/projects/{id}/merge",
    tag = "branches",
    params(("id" = String, Path, description = "The id of the project")),
    request_body = Merge,
    responses((status = 201, description = "The node that was added", body = Merged), Refused)
)]
pub(super) async fn merge(
    call: Call,
    Names(id): Names<String>,
    Body(merge): Body<Merge>,
) -> Result<impl IntoResponse, Refusal> {
    let merged: Merged = call.projects().merge(&call.caller, &id, merge).await?;
    Ok((StatusCode::CREATED, Json(merged)))
}
