//! Branches: `/api/projects/{id}/branches`, and merges.

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use throughline_conversations::projects::{BranchChange, BranchView, Merge, Merged, NewBranch};

use super::call::{Body, Call, Names, Refusal, page};
use super::projects::DeleteQuery;

/// Which branches to list.
#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    /// Whether to list deleted branches instead.
    #[serde(default)]
    deleted: bool,
    limit: Option<usize>,
    after: Option<String>,
}

/// A page of branches.
#[derive(Debug, Serialize)]
pub(super) struct BranchList {
    /// The branches: pinned ones first, then in the order in which they were made.
    branches: Vec<BranchView>,
    /// The value of `after` for the next page.
    next: Option<String>,
}

/// `GET /api/projects/{id}/branches`
pub(super) async fn list(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<BranchList>, Refusal> {
    let query: ListQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    let mut branches = call.projects().branches(call.owner(), &id, query.deleted).await?;
    if let Some(after) = page.after {
        let at = branches.iter().position(|branch| branch.id == after);
        branches.drain(..at.map_or(branches.len(), |at| at + 1));
    }
    let has_more = branches.len() > page.limit;
    branches.truncate(page.limit);
    let next = branches.last().filter(|_| has_more).map(|last| last.id.clone());
    Ok(Json(BranchList { branches, next }))
}

/// `POST /api/projects/{id}/branches`: a new branch. It copies no nodes.
pub(super) async fn create(
    call: Call,
    Names(id): Names<String>,
    Body(new): Body<NewBranch>,
) -> Result<impl IntoResponse, Refusal> {
    let branch = call.projects().create_branch(call.owner(), &id, new).await?;
    Ok((StatusCode::CREATED, Json(branch)))
}

/// `PATCH /api/projects/{id}/branches/{name}`: renames or marks a branch.
pub(super) async fn change(
    call: Call,
    Names((id, name)): Names<(String, String)>,
    Body(change): Body<BranchChange>,
) -> Result<Json<BranchView>, Refusal> {
    Ok(Json(call.projects().change_branch(call.owner(), &id, &name, change).await?))
}

/// `DELETE /api/projects/{id}/branches/{name}`: deletes a branch. It can be restored unless `purge` is
/// true.
pub(super) async fn delete(
    call: Call,
    Names((id, name)): Names<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let DeleteQuery { purge } = call.query()?;
    call.projects().delete_branch(call.owner(), &id, &name, purge).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/projects/{id}/branches/{name}/restore`: brings a deleted branch back.
pub(super) async fn restore(
    call: Call,
    Names((id, name)): Names<(String, String)>,
) -> Result<Json<BranchView>, Refusal> {
    Ok(Json(call.projects().restore_branch(call.owner(), &id, &name).await?))
}

/// `POST /api/projects/{id}/merge`: adds what one branch came to to another one.
pub(super) async fn merge(
    call: Call,
    Names(id): Names<String>,
    Body(merge): Body<Merge>,
) -> Result<impl IntoResponse, Refusal> {
    let merged: Merged = call.projects().merge(call.owner(), &id, merge).await?;
    Ok((StatusCode::CREATED, Json(merged)))
}
