//! The lists of models: paths that several dialects share, each answered by the one that is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Json, Router};
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use crate::dialect::{self, Dialect, Models, Spoken};
use crate::refusal::Refusal;
use crate::{RequestId, Simulator};

/// The paths under which any of these dialects lists models.
pub(crate) fn routes(spoken: &Spoken) -> Router<Arc<Simulator>> {
    let models = spoken.iter().filter_map(|dialect| dialect.models.as_ref());
    let paths: BTreeSet<&str> = models.flat_map(|models| models.paths).copied().collect();
    paths.into_iter().fold(Router::new(), |router, path| {
        router
            .route(path, get(list))
            // The same spelling in all dialects: the router takes no second name for a place.
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
    let candidates: Vec<&'static Dialect> = simulator.spoken.iter().filter(here).collect();
    let asked = dialect::whose(&candidates, uri, headers);
    let asked = asked.unwrap_or_else(|| simulator.spoken.of(uri, headers));
    let written = match &asked.models {
        Some(models) => write(models),
        None => Err(Refusal::new(StatusCode::NOT_FOUND, "Not found")),
    };
    match written {
        Ok(written) => Json(written).into_response(),
        Err(refusal) => refusal.respond(asked, id),
    }
}

fn is_below(path: &str, list: &str) -> bool {
    path.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::post;

    #[test]
    fn a_list_is_above_its_models_only() {
        assert!(is_below("/v1/models", "/v1/models"));
        assert!(is_below("/v1/models/a:b", "/v1/models"));
        assert!(!is_below("/v1/models-of-others", "/v1/models"));
        assert!(!is_below("/v1beta/models", "/v1/models"));
    }

    /// The router would panic on two handlers or two names for one place.
    #[test]
    fn a_dialect_may_post_where_models_are_described() {
        let posts = Router::new().route("/v1/models/{name}", post(|| async {}));
        let _: Router<Arc<Simulator>> = routes(&Spoken::new(&[])).merge(posts);
    }
}
