//! The paths clients of a model call. A few lines each: the path of a turn is the gateway's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::anthropic::{self, Anthropic};
use throughline_codec::dialects::gemini::Gemini;
use throughline_codec::dialects::ollama::{Ollama, Page};
use throughline_codec::dialects::openai_chat::OpenAiChat;
use throughline_codec::dialects::openai_responses::OpenAiResponses;
use throughline_codec::dialects::segments::has_dot_segments;
use throughline_codec::dialects::ui_stream;
use throughline_codec::dialects::{self, CLIENT, ClientDialect, openai_responses};
use throughline_conversations::responses::Responses;
use throughline_gateway::headers::{BACKEND, TURN};
use throughline_gateway::models::is_about_models;
use throughline_gateway::turn::error_reply::{Reply, error_response};
use throughline_gateway::{IncomingRequest, unix_ms};

use crate::ollama_api;
use crate::socket;
use crate::wiring::House;

/// Asks what would be sent, without sending it.
const PLAN: &str = "/v1/plan";
/// Where providers have their paths. What we do not know of them may be known to a backend.
const PROVIDERS: [&str; 3] = ["/v1/", "/v1beta/", "/models"];
/// How long a sender may pause within a body.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How much of a body that is too large is read to its end.
const MOST_THROWN_AWAY: usize = 256 << 20;
/// How long that may take.
const LONGEST_THROWING_AWAY: Duration = Duration::from_secs(10);

/// Every path that is not the server's own.
pub async fn any(State(house): State<Arc<House>>, request: Request) -> Response {
    let began = Instant::now();
    let (mut head, body) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut head, &house).await;
    let (pin, path) = match pinned_path(head.uri.path()) {
        Some((backend, path)) => (Some(backend.to_owned()), path.to_owned()),
        None => (None, head.uri.path().to_owned()),
    };
    let pin = pin.or_else(|| {
        let named = head.headers.get(BACKEND)?;
        Some(named.to_str().unwrap_or_default().trim().to_owned())
    });
    if has_dot_segments(&path) {
        let fault = Fault::invalid("path: `.` and `..` cannot be parts of it");
        return refuse(&house, spoken(&path, &head.headers), &fault);
    }
    // Backends differ in what they make of such a path, and some would tell of what is somebody else's.
    let versioned = path.starts_with("/v1/") || path.starts_with("/v1beta/");
    if versioned && path.contains("//") || Responses::is_misspelled(&path) {
        let what = format!(
            "there is nothing at `{path}`; write it without empty or encoded parts, and responses and \
             conversations under `/v1/`"
        );
        let fault = Fault::new(FaultKind::NotFound, what);
        return refuse(&house, spoken(&path, &head.headers), &fault);
    }
    let served = PROVIDERS.iter().any(|start| path.starts_with(start));
    let page = Page::at(&path);
    if !served && page.is_none() && CLIENT.iter().all(|row| row.operation(&path).is_none()) {
        return elsewhere(&house, &head.method, &path, &head.headers);
    }
    let asked = IncomingRequest {
        dialect: spoken(&path, &head.headers),
        method: head.method,
        path,
        query: head.uri.query().map(ToOwned::to_owned),
        headers: head.headers,
        pin,
        began,
        reply_id: None,
    };
    if socket::is_asked_for(&asked) {
        return socket::open(&house, asked, upgrade).await;
    }
    if Responses::knows(&asked.path) {
        return match whole(body, house.gateway.settings().limits.body).await {
            Ok(body) => house.responses.state(asked, body).await.map(Body::new),
            Err(fault) => reply(house.gateway.reject(&asked, &fault)),
        };
    }
    if let Some(page) = page {
        return ollama_api::answer(&house, asked, page, body).await;
    }
    let known = asked.path == PLAN || asked.dialect.operation(&asked.path).is_some();
    // Probes pass: what they learn is about the backend. One that speaks another dialect knows nothing
    // of such a path.
    let probes = [Method::HEAD, Method::OPTIONS].contains(&asked.method)
        && dialects::passthrough(asked.dialect.name()).is_some();
    if known && asked.method == Method::OPTIONS && !probes {
        return StatusCode::NO_CONTENT.into_response();
    }
    if known && asked.method != Method::POST && !probes {
        return refuse_method(&house, &asked);
    }
    if !known || asked.method != Method::POST {
        let body = body.map_err(Into::into).boxed_unsync();
        if asked.method == Method::GET && is_about_models(&asked.path) {
            return reply(house.gateway.models(asked, body).await);
        }
        return reply(house.gateway.pass(asked, body).await);
    }
    // A place comes first: without one, nothing of the body is kept.
    let place = match house.gateway.admit() {
        Ok(place) => place,
        Err(fault) => {
            let told = house.gateway.reject(&asked, &fault);
            throw_away(body).await;
            return reply(told);
        }
    };
    let body = match whole(body, house.gateway.settings().limits.body).await {
        Ok(body) => body,
        Err(fault) => return reply(house.gateway.reject(&asked, &fault)),
    };
    if asked.path == PLAN {
        return plan(&house, asked, body).await;
    }
    if asked.dialect.name() == openai_responses::NAME {
        let answer = house.responses.create(asked, body, place).await;
        return answer.map(Body::new);
    }
    reply(house.gateway.turn(asked, body, place).await)
}

/// `/b/{backend}/v1/...` pins a request to a backend.
fn pinned_path(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/b/")?;
    let at = rest.find('/')?;
    Some(rest.split_at(at))
}

/// Whose words a request is in. Three dialects share some paths; then the headers tell.
fn spoken(path: &str, headers: &HeaderMap) -> &'static dyn ClientDialect {
    let by_path = CLIENT.iter().find(|dialect| dialect.operation(path).is_some());
    if let Some(dialect) = by_path {
        return *dialect;
    }
    if path.starts_with("/api/") {
        return &Ollama;
    }
    if Responses::knows(path) {
        return &OpenAiResponses;
    }
    if path.starts_with("/v1beta/") || path.starts_with("/models") {
        return &Gemini;
    }
    let models = is_about_models(path);
    let unmarked = |name: &str| !headers.contains_key(name);
    if models && unmarked("x-goog-api-key") && unmarked("anthropic-version") {
        return &OpenAiChat;
    }
    marked(headers)
}

/// Whose headers these are.
fn marked(headers: &HeaderMap) -> &'static dyn ClientDialect {
    if headers.contains_key("x-goog-api-key") {
        return &Gemini;
    }
    if headers.contains_key("anthropic-version") {
        return &Anthropic;
    }
    // A bearer's key says nothing: clients of two dialects send one.
    if headers.contains_key(header::AUTHORIZATION) { &OpenAiChat } else { &Anthropic }
}

fn refuse_method(house: &House, asked: &IncomingRequest) -> Response {
    refuse_all_but(house, asked, "POST")
}

/// Tells which method a path takes.
pub(crate) fn refuse_all_but(
    house: &House,
    asked: &IncomingRequest,
    taken: &'static str,
) -> Response {
    let (method, path) = (&asked.method, &asked.path);
    let what = format!("`{path}` does not take {method}; ask with {taken}");
    let mut told = refuse(house, asked.dialect, &Fault::new(FaultKind::WrongMethod, what));
    let allowed = HeaderValue::from_static(taken);
    told.headers_mut().insert(header::ALLOW, allowed);
    told
}

/// What would go where, without asking the model.
async fn plan(house: &House, mut asked: IncomingRequest, body: Bytes) -> Response {
    let query = asked.query.take().unwrap_or_default();
    let mut dialect = anthropic::NAME;
    let mut model = String::new();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "backend" => asked.pin = Some(value.to_owned()),
            "dialect" => dialect = value,
            "model" => value.clone_into(&mut model),
            _ => {}
        }
    }
    let Some(dialect) = dialects::client(dialect) else {
        let known: Vec<_> = CLIENT.iter().map(|dialect| dialect.name()).collect();
        let known = known.join(", ");
        let what = format!("there is no dialect `{dialect}`; known are {known}");
        return refuse(house, asked.dialect, &Fault::invalid(what));
    };
    asked.dialect = dialect;
    asked.path = dialect.path_for(&model);
    match house.gateway.report(asked, body).await {
        Ok(report) => {
            let id = house.gateway.turns.id(unix_ms());
            let backend = report["backend"].as_str().unwrap_or_default().to_owned();
            ([(TURN, id), (BACKEND, backend)], axum::Json(report)).into_response()
        }
        Err(fault) => refuse(house, dialect, &fault),
    }
}

pub(crate) async fn whole(mut body: Body, limit: usize) -> Result<Bytes, Fault> {
    let mut limited = Limited::new(&mut body, limit);
    let mut all = BytesMut::new();
    loop {
        // A place is taken while the body comes; a sender that stops sending must not keep it.
        let Ok(frame) = tokio::time::timeout(LONGEST_PAUSE, limited.frame()).await else {
            return Err(Fault::invalid(format!(
                "the rest of the request body did not come within {} s",
                LONGEST_PAUSE.as_secs()
            )));
        };
        match frame {
            None => return Ok(all.freeze()),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    all.extend_from_slice(&data);
                }
            }
            Some(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => {
                throw_away(body).await;
                return Err(too_large(limit));
            }
            Some(Err(error)) => {
                return Err(Fault::invalid(format!("the request body broke off: {error}")));
            }
        }
    }
}

/// What is said of a request that is larger than this.
pub(crate) fn too_large(limit: usize) -> Fault {
    let what =
        format!("the request body is larger than {limit} bytes; `limits.body` sets the limit");
    Fault::new(FaultKind::TooLarge, what)
}

/// Reads what is left of a body, within bounds: a sender that is cut off while it sends gets a
/// broken connection in place of the answer.
async fn throw_away(mut body: Body) {
    let reading = async {
        let mut left = MOST_THROWN_AWAY;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            match left.checked_sub(length) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    // Whoever takes longer is cut off.
    let _ = tokio::time::timeout(LONGEST_THROWING_AWAY, reading).await;
}

/// Probes that clients send at their start, and paths nobody serves.
fn elsewhere(house: &House, method: &Method, path: &str, headers: &HeaderMap) -> Response {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/" | "/api/hello") => (
            StatusCode::OK,
            "Throughline is running. Point a client at this address; see /admin/backends, /admin/turns, /metrics.\n",
        )
            .into_response(),
        (&Method::OPTIONS, _) => StatusCode::NO_CONTENT.into_response(),
        // No reply is kept while it is written, so there is none to go on with.
        (&Method::GET, path) if ui_stream::resumes(path) => StatusCode::NO_CONTENT.into_response(),
        _ => {
            // Most often an address that was set up without its `/v1`.
            let meant = format!("/v1{path}");
            let (dialect, hint) = match CLIENT.iter().find(|row| row.operation(&meant).is_some()) {
                Some(dialect) => (*dialect, format!("; `{meant}` is served")),
                None => (spoken(path, headers), String::new()),
            };
            let what = format!("there is nothing at `{path}`{hint}");
            refuse(house, dialect, &Fault::new(FaultKind::NotFound, what))
        }
    }
}

pub(crate) fn refuse(house: &House, dialect: &dyn ClientDialect, fault: &Fault) -> Response {
    reply(error_response(dialect, fault, &house.gateway.turns.id(unix_ms()), ""))
}

pub(crate) fn reply(reply: Reply) -> Response {
    reply.map(Body::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_name_its_backend() {
        assert_eq!(pinned_path("/b/glm/v1/messages"), Some(("glm", "/v1/messages")));
        assert_eq!(pinned_path("/v1/messages"), None);
        assert_eq!(pinned_path("/b/glm"), None);
    }
}
