//! The provider registry: `/api/providers`.

use axum::Json;
use serde::Serialize;
use throughline_conversations::projects::providers::ProviderView;

use utoipa::ToSchema;

use super::call::{Call, Refusal};
use super::openapi::Refused;

/// All providers.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ProviderList {
    providers: Vec<ProviderView>,
}

/// The backends and models that a branch can have, and what they can do.
#[utoipa::path(
    get,
    operation_id = "list_providers",
    path = "/api/providers",
    tag = "providers",
    responses((status = 200, description = "All backends", body = ProviderList), Refused)
)]
pub(super) async fn list(call: Call) -> Result<Json<ProviderList>, Refusal> {
    Ok(Json(ProviderList { providers: call.projects().providers() }))
}
