//! Reads the parts of a request, and writes errors as problems (RFC 9457).

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRequest, FromRequestParts, OriginalUri, Path, Query, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use throughline_canonical::Fault;
use throughline_codec::dialects::stored::Stored;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{Caller, Projects};
use throughline_conversations::rooms::Rooms;
use throughline_conversations::store::Page;
use throughline_gateway::IncomingRequest;
use throughline_gateway::headers::callers_key;
use throughline_sealing::ChatKey;
use zeroize::Zeroizing;

use super::visitor::Visitor;
use crate::client_api::body::read_body;
use crate::wiring::App;

/// The `content-type` of an error.
const PROBLEM: &str = "application/problem+json";
/// The header with the key of a sealed project.
const CHAT_KEY: &str = "x-throughline-chat-key";
/// The header with a lease, instead of the key.
const LEASE: &str = "x-throughline-lease";
/// The length of a page that names no limit.
const DEFAULT_LIMIT: usize = 100;
/// The longest page.
const MAX_LIMIT: usize = 1_000;

/// An error as an answer.
pub(super) struct Refusal(Problem);

impl<E: Into<Problem>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, body) = self.0.write();
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response =
            (status, [(header::CONTENT_TYPE, PROBLEM)], body.to_string()).into_response();
        if let Some(seconds) = self.0.fault().retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A request without its body: who calls, and with which query.
pub(super) struct Call {
    pub(super) app: Arc<App>,
    pub(super) caller: Caller,
    uri: http::Uri,
}

impl FromRequestParts<Arc<App>> for Call {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let visitor = Visitor::from_request_parts(parts, app).await?;
        let session = app.users.identify(visitor.token.as_ref()).await?;
        let incoming = IncomingRequest {
            id: app.gateway.new_turn_id(),
            method: parts.method.clone(),
            dialect: &Stored,
            path: String::new(),
            query: parts.uri.query().map(ToOwned::to_owned),
            headers: parts.headers.clone(),
            pin: None,
            private: false,
            began: Instant::now(),
        };
        let key = callers_key(&incoming);
        let mut headers = incoming.headers;
        let lease = take_text(&mut headers, LEASE)?;
        let chat_key = take_text(&mut headers, CHAT_KEY)?.map(Zeroizing::new);
        let chat_key = chat_key.map(|text| ChatKey::read(&text)).transpose();
        let chat_key = chat_key.map_err(|error| Problem::invalid(CHAT_KEY, error))?;
        let mut caller = Caller { key: chat_key, lease, ..Caller::new(&key, headers) };
        if let Some(session) = session {
            caller.session = Some(session.token);
            caller.owner = session.user;
        }
        Ok(Self { app: Arc::clone(app), caller, uri: parts.uri.clone() })
    }
}

/// Takes a header out, so that it reaches neither a log nor a backend.
fn take_text(headers: &mut HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let Some(value) = headers.remove(name) else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Problem::invalid(name, "must be ASCII text"))?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

impl Call {
    pub(super) fn projects(&self) -> &Arc<Projects> {
        &self.app.projects
    }

    pub(super) fn rooms(&self) -> &Arc<Rooms> {
        &self.app.rooms
    }

    /// The query, as it was sent.
    pub(super) fn query_text(&self) -> Option<&str> {
        self.uri.query()
    }

    /// Reads the query. Unknown members are ignored: the caller's key may be among them.
    pub(super) fn query<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let read = Query::try_from_uri(&self.uri);
        let Query(query) = read.map_err(|error| Fault::at("query", error))?;
        Ok(query)
    }
}

/// The page that a query asks for.
pub(super) fn page(limit: Option<usize>, after: Option<String>) -> Result<Page, Refusal> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(Problem::invalid("limit", format!("must be 1 to {MAX_LIMIT}")).into());
    }
    Ok(Page { after: after.filter(|after| !after.is_empty()), limit })
}

/// The names in the path. A path that is no text names nothing.
pub(super) struct Names<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Names<T> {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        match Path::from_request_parts(parts, app).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(_) => Err(Problem::not_found("path", parts.uri.path()).into()),
        }
    }
}

/// The body, read from JSON.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        let bytes = read_body(request.into_body(), app.gateway.settings().limits.body).await?;
        parse(&bytes).map(Self)
    }
}

fn parse<T: DeserializeOwned>(bytes: &Bytes) -> Result<T, Refusal> {
    let is_object = bytes.trim_ascii_start().first() == Some(&b'{');
    if !is_object {
        return Err(Fault::invalid("the body must be a JSON object").into());
    }
    serde_json::from_slice(bytes)
        .map_err(|error| Fault::invalid(format!("the body is not valid: {error}")).into())
}

/// The path as the client sent it, also within nested routes.
pub(super) fn full_path(request: &Request) -> String {
    let original = request.extensions().get::<OriginalUri>();
    original.map_or_else(|| request.uri().path().to_owned(), |uri| uri.path().to_owned())
}
