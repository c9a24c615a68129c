//! The lists of models. Several dialects share these paths; the request decides which one answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use crate::dialect::{self, Dialect, Models, ServedDialects};
use crate::refusal::Refusal;
use crate::{RequestId, Simulator};

/// Routes for all paths under which these dialects list models.
pub(crate) fn routes(dialects: &ServedDialects) -> Router<Arc<Simulator>> {
    let models = dialects.iter().filter_map(|dialect| dialect.models.as_ref());
    let paths: BTreeSet<&str> = models.flat_map(|models| models.paths).copied().collect();
    paths.into_iter().fold(Router::new(), |router, path| {
        router
            .route(path, get(list))
            // All dialects use the same parameter name, because the router allows only one.
            .route(&format!("{path}/{{name}}"), get(describe))
    })
}

async fn list(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    answer(&simulator, &id, &uri, &headers, |models| Ok((models.list)()))
}

async fn describe(
    State(simulator): State<Arc<Simulator>>,
    Extension(id): Extension<RequestId>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    answer(&simulator, &id, &uri, &headers, |models| (models.describe)(&name))
}

fn answer(
    simulator: &Simulator,
    id: &RequestId,
    uri: &Uri,
    headers: &HeaderMap,
    write: impl FnOnce(&Models) -> Result<Value, Refusal>,
) -> Response {
    let here = |dialect: &&'static Dialect| {
        let paths = dialect.models.iter().flat_map(|models| models.paths);
        paths.copied().any(|path| is_below(uri.path(), path))
    };
    let candidates: Vec<&'static Dialect> = simulator.dialects.iter().filter(here).collect();
    let dialect = dialect::find_dialect(&candidates, uri, headers)
        .unwrap_or_else(|| simulator.dialects.for_request(uri, headers));
    let written = match &dialect.models {
        Some(models) => write(models),
        None => Err(Refusal::new(StatusCode::NOT_FOUND, "Not found")),
    };
    match written {
        Ok(written) => Json(written).into_response(),
        Err(refusal) => refusal.respond(dialect, id),
    }
}

fn is_below(path: &str, list: &str) -> bool {
    path.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
