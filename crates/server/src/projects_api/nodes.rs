//! Nodes: `/api/projects/{id}/nodes`, and the graph of a project.

use axum::Json;
use serde::Deserialize;
use serde_json::value::RawValue;
use throughline_conversations::projects::content::NodeView;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{Graph, HistoryPage, Order};

use super::call::{Body, Call, Names, Refusal, page};

/// Which nodes to list.
#[derive(Debug, Deserialize)]
pub(super) struct HistoryQuery {
    /// The name of the branch. Default: `main`.
    branch: Option<String>,
    /// `asc` (oldest first, the default) or `desc`.
    order: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

/// `GET /api/projects/{id}/nodes`: the history of a branch.
pub(super) async fn list(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<HistoryPage>, Refusal> {
    let query: HistoryQuery = call.query()?;
    let order = match query.order.as_deref() {
        None | Some("asc") => Order::Ascending,
        Some("desc") => Order::Descending,
        Some(_) => return Err(Problem::invalid("order", "must be `asc` or `desc`").into()),
    };
    let page = page(query.limit, query.after)?;
    let branch = query.branch.as_deref().unwrap_or("main");
    Ok(Json(call.projects().history(call.owner(), &id, branch, order, page).await?))
}

/// `GET /api/projects/{id}/nodes/{node}`
pub(super) async fn read(
    call: Call,
    Names((id, node)): Names<(String, String)>,
) -> Result<Json<NodeView>, Refusal> {
    Ok(Json(call.projects().node(call.owner(), &id, &node).await?))
}

/// A change of a node.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeChange {
    /// Whether the user marked it.
    starred: bool,
}

/// `PATCH /api/projects/{id}/nodes/{node}`: marks a node, or removes the mark.
pub(super) async fn change(
    call: Call,
    Names((id, node)): Names<(String, String)>,
    Body(NodeChange { starred }): Body<NodeChange>,
) -> Result<Json<NodeView>, Refusal> {
    Ok(Json(call.projects().star(call.owner(), &id, &node, starred).await?))
}

/// `GET /api/projects/{id}/nodes/{node}/raw`: the provider's reply as it was captured.
pub(super) async fn raw(
    call: Call,
    Names((id, node)): Names<(String, String)>,
) -> Result<Json<Box<RawValue>>, Refusal> {
    Ok(Json(call.projects().raw(call.owner(), &id, &node).await?))
}

/// A page of the graph.
#[derive(Debug, Deserialize)]
pub(super) struct GraphQuery {
    limit: Option<usize>,
    after: Option<String>,
}

/// `GET /api/projects/{id}/graph`: all nodes of a project, without contents, and its branches.
pub(super) async fn graph(call: Call, Names(id): Names<String>) -> Result<Json<Graph>, Refusal> {
    let query: GraphQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    Ok(Json(call.projects().graph(call.owner(), &id, page).await?))
}
