//! Projects: `/api/projects` and `/api/projects/{id}`.

use axum::Json;
use axum::response::IntoResponse;
use http::StatusCode;
use serde::Deserialize;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{
    NewProject, ProjectChange, ProjectList, ProjectQuery, ProjectView,
};

use super::call::{Body, Call, Names, Refusal, page};

/// Which projects to list.
#[derive(Debug, Deserialize)]
pub(super) struct ListQuery {
    /// A part of the title, in any letter case.
    q: Option<String>,
    /// `content` searches contents instead of titles.
    r#in: Option<String>,
    /// Whether to list deleted projects instead.
    #[serde(default)]
    deleted: bool,
    limit: Option<usize>,
    after: Option<String>,
}

/// `GET /api/projects`: lists projects, newest first, or searches them.
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
    Ok(Json(call.projects().list(call.owner(), query).await?))
}

/// `POST /api/projects`: creates a project with its first branch, `main`.
pub(super) async fn create(
    call: Call,
    Body(new): Body<NewProject>,
) -> Result<impl IntoResponse, Refusal> {
    let project = call.projects().create(call.owner(), new).await?;
    Ok((StatusCode::CREATED, Json(project)))
}

/// `GET /api/projects/{id}`
pub(super) async fn read(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<ProjectView>, Refusal> {
    Ok(Json(call.projects().get(call.owner(), &id).await?))
}

/// `PATCH /api/projects/{id}`: changes the title or the system text.
pub(super) async fn change(
    call: Call,
    Names(id): Names<String>,
    Body(change): Body<ProjectChange>,
) -> Result<Json<ProjectView>, Refusal> {
    Ok(Json(call.projects().change(call.owner(), &id, change).await?))
}

/// Whether a deletion is for good.
#[derive(Debug, Deserialize)]
pub(super) struct DeleteQuery {
    /// Removes it for good, with its nodes.
    #[serde(default)]
    pub(super) purge: bool,
}

/// `DELETE /api/projects/{id}`: deletes a project. It can be restored unless `purge` is true.
pub(super) async fn delete(call: Call, Names(id): Names<String>) -> Result<StatusCode, Refusal> {
    let DeleteQuery { purge } = call.query()?;
    call.projects().delete(call.owner(), &id, purge).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /api/projects/{id}/restore`: brings a deleted project back.
pub(super) async fn restore(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<ProjectView>, Refusal> {
    Ok(Json(call.projects().restore(call.owner(), &id).await?))
}
