//! Nodes: `/api/projects/{id}/nodes`, and the graph of a project.

use axum::Json;
use serde::Deserialize;
use serde_json::value::RawValue;
use throughline_conversations::projects::content::NodeView;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{Graph, HistoryPage, Order};

use utoipa::{IntoParams, ToSchema};

use super::call::{Body, Call, Names, Refusal, page};
use super::openapi::Refused;

/// The orders of a history.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes `Order`")]
pub(super) enum OrderName {
    Asc,
    Desc,
}

/// Which nodes to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryQuery {
    /// The name of the branch. Default: `main`.
    branch: Option<String>,
    /// `asc` (oldest first, the default) or `desc`.
    #[param(inline, value_type = Option<OrderName>)]
    order: Option<String>,
    /// The largest number of entries. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    after: Option<String>,
}

/// The order that a query asks for.
pub(super) fn read_order(name: Option<&str>) -> Result<Order, Problem> {
    match name {
        None | Some("asc") => Ok(Order::Ascending),
        Some("desc") => Ok(Order::Descending),
        Some(_) => Err(Problem::invalid("order", "must be `asc` or `desc`")),
    }
}

/// The history of a branch.
#[utoipa::path(
    get,
    operation_id = "list_nodes",
    path = "/api/projects/{id}/nodes",
    tag = "nodes",
    params(("id" = String, Path, description = "The id of the project"), HistoryQuery),
    responses((status = 200, description = "Nodes of the branch", body = HistoryPage), Refused)
)]
pub(super) async fn list(
    call: Call,
    Names(id): Names<String>,
) -> Result<Json<HistoryPage>, Refusal> {
    let query: HistoryQuery = call.query()?;
    let order = read_order(query.order.as_deref())?;
    let page = page(query.limit, query.after)?;
    let branch = query.branch.as_deref().unwrap_or("main");
    Ok(Json(call.projects().history(&call.caller, &id, branch, order, page).await?))
}

/// Reads a node.
#[utoipa::path(
    get,
    operation_id = "read_node",
    path = "/api/projects/{id}/nodes/{node}",
    tag = "nodes",
    params(("id" = String, Path, description = "The id of the project"), ("node" = String, Path, description = "The id of the node")),
    responses((status = 200, description = "The node", body = NodeView), Refused)
)]
pub(super) async fn read(
    call: Call,
    Names((id, node)): Names<(String, String)>,
) -> Result<Json<NodeView>, Refusal> {
    Ok(Json(call.projects().node(&call.caller, &id, &node).await?))
}

/// A change of a node.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeChange {
    /// Whether the user marked it.
    starred: bool,
}

/// Marks a node, or removes the mark.
#[utoipa::path(
    patch,
    operation_id = "change_node",
    path = "/api/projects/{id}/nodes/{node}",
    tag = "nodes",
    params(("id" = String, Path, description = "The id of the project"), ("node" = String, Path, description = "The id of the node")),
    request_body = NodeChange,
    responses((status = 200, description = "The changed node", body = NodeView), Refused)
)]
pub(super) async fn change(
    call: Call,
    Names((id, node)): Names<(String, String)>,
    Body(NodeChange { starred }): Body<NodeChange>,
) -> Result<Json<NodeView>, Refusal> {
    Ok(Json(call.projects().star(&call.caller, &id, &node, starred).await?))
}

/// The provider's reply as it was captured.
#[utoipa::path(
    get,
    operation_id = "read_raw_reply",
    path = "/api/projects/{id}/nodes/{node}/raw",
    tag = "nodes",
    params(("id" = String, Path, description = "The id of the project"), ("node" = String, Path, description = "The id of the node")),
    responses((status = 200, description = "The reply, in an envelope", body = Object), Refused)
)]
pub(super) async fn raw(
    call: Call,
    Names((id, node)): Names<(String, String)>,
) -> Result<Json<Box<RawValue>>, Refusal> {
    Ok(Json(call.projects().raw(&call.caller, &id, &node).await?))
}

/// A page of the graph.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct GraphQuery {
    /// The largest number of entries. Default: 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The value of `next` of the page before.
    after: Option<String>,
}

/// All nodes of a project, without contents, and its branches.
#[utoipa::path(
    get,
    operation_id = "read_graph",
    path = "/api/projects/{id}/graph",
    tag = "nodes",
    params(("id" = String, Path, description = "The id of the project"), GraphQuery),
    responses((status = 200, description = "The nodes and branches", body = Graph), Refused)
)]
pub(super) async fn graph(call: Call, Names(id): Names<String>) -> Result<Json<Graph>, Refusal> {
    let query: GraphQuery = call.query()?;
    let page = page(query.limit, query.after)?;
    Ok(Json(call.projects().graph(&call.caller, &id, page).await?))
}
