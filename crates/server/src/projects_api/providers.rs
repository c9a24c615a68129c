//! The provider registry: `/api/providers`.

use axum::Json;
use serde::Serialize;
use throughline_conversations::projects::providers::ProviderView;

use super::call::{Call, Refusal};

/// All providers.
#[derive(Debug, Serialize)]
pub(super) struct ProviderList {
    providers: Vec<ProviderView>,
}

/// `GET /api/providers`: the backends and models that a branch can have, and what they can do.
pub(super) async fn list(call: Call) -> Result<Json<ProviderList>, Refusal> {
    Ok(Json(ProviderList { providers: call.projects().providers() }))
}
