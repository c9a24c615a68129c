//! Tools of MCP servers: `/api/tools`, and decisions about their calls.

use axum::Json;
use http::StatusCode;
use serde::Serialize;
use throughline_conversations::projects::ApprovalRequest;
use throughline_tools::ServerView;
use utoipa::ToSchema;

use super::call::{Body, Call, Names, Refusal};
use super::openapi::Refused;

/// All MCP servers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ToolServerList {
    /// The servers, in the order of the configuration.
    #[schema(value_type = Vec<Object>)]
    servers: Vec<ServerView>,
}

/// The MCP servers of the configuration: their state, and the tools that models may call. Servers that
/// are not connected are asked now.
#[utoipa::path(
    get,
    operation_id = "list_tools",
    path = "/api/tools",
    tag = "tools",
    responses((status = 200, description = "All MCP servers", body = ToolServerList), Refused)
)]
pub(super) async fn list(call: Call) -> Result<Json<ToolServerList>, Refusal> {
    Ok(Json(ToolServerList { servers: call.projects().tool_servers().await }))
}

/// Approves or denies a call that waits for a person, or answers what its tool asks.
#[utoipa::path(
    post,
    operation_id = "approve_call",
    path = "/api/runs/{id}/approvals/{call}",
    tag = "tools",
    params(
        ("id" = String, Path, description = "The id of the run"),
        ("call" = String, Path, description = "The id of the call")
    ),
    request_body = ApprovalRequest,
    responses((status = 204, description = "The run goes on"), Refused)
)]
pub(super) async fn approve(
    call: Call,
    Names((id, tool_call)): Names<(String, String)>,
    Body(request): Body<ApprovalRequest>,
) -> Result<StatusCode, Refusal> {
    call.projects().approve(&call.caller, &id, &tool_call, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
