//! `POST /v1/plan`: reports what would be sent for a request, without sending it.

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use throughline_canonical::Fault;
use throughline_codec::dialects::{self, CLIENT, anthropic};
use throughline_gateway::IncomingRequest;
use throughline_gateway::headers::{BACKEND, TURN};
use throughline_gateway::turn::error_reply::error_response;
use tracing::Instrument;

use super::{into_response, refuse};
use crate::wiring::App;

/// Where plans are asked for.
pub(super) const PATH: &str = "/v1/plan";

/// Answers with the report. The query names the body's dialect, and optionally backend and model.
pub(super) async fn plan(app: &App, mut request: IncomingRequest, body: Bytes) -> Response {
    let query = request.query.take().unwrap_or_default();
    let mut dialect = anthropic::NAME;
    let mut model = String::new();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "backend" => request.pin = Some(value.to_owned()),
            "dialect" => dialect = value,
            "model" => value.clone_into(&mut model),
            _ => {}
        }
    }
    let Some(dialect) = dialects::client(dialect) else {
        let known: Vec<_> = CLIENT.iter().map(|dialect| dialect.name()).collect();
        let message =
            format!("unknown dialect `{dialect}`; known dialects are {}", known.join(", "));
        return refuse(app, request.dialect, &Fault::invalid(message));
    };
    request.dialect = dialect;
    request.path = dialect.path_for(&model);
    let (id, span) = (request.id.clone(), request.span());
    let body = match dialect.name() {
        anthropic::NAME => app.threads.expand(&mut request, body).instrument(span.clone()).await,
        _ => Ok(body),
    };
    let report = match body {
        Ok(body) => app.gateway.report(request, body).instrument(span).await,
        Err(fault) => Err(fault),
    };
    match report {
        Ok(report) => {
            let backend = report["backend"].as_str().unwrap_or_default().to_owned();
            ([(TURN, id), (BACKEND, backend)], axum::Json(report)).into_response()
        }
        Err(fault) => into_response(error_response(dialect, &fault, &id, "")),
    }
}
