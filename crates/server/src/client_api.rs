//! The paths clients of a model call. A few lines each: the path of a turn is the gateway's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use throughline_canonical::{Fault, FaultKind};
use throughline_gateway::answer::{Reply, tell};
use throughline_gateway::headers::{BACKEND, TURN};
use throughline_gateway::{Asked, unix_ms};

use crate::wiring::House;

/// How long a sender may pause within a body.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How much of a body that is too large is read to its end.
const MOST_THROWN_AWAY: usize = 256 << 20;
/// How long that may take.
const LONGEST_THROWING_AWAY: Duration = Duration::from_secs(10);

/// Every path that is not the server's own.
pub async fn any(State(house): State<Arc<House>>, request: Request) -> Response {
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let (pin, path) = match pinned_path(head.uri.path()) {
        Some((backend, path)) => (Some(backend.to_owned()), path.to_owned()),
        None => (None, head.uri.path().to_owned()),
    };
    let pin = pin.or_else(|| {
        let named = head.headers.get(BACKEND)?;
        Some(named.to_str().unwrap_or_default().trim().to_owned())
    });
    if !path.starts_with("/v1/") {
        return elsewhere(&house, &head.method, &path);
    }
    let asked = Asked {
        method: head.method,
        path,
        query: head.uri.query().map(ToOwned::to_owned),
        headers: head.headers,
        pin,
        began,
    };
    let read = asked.method == Method::POST
        && matches!(
            asked.path.as_str(),
            "/v1/messages" | "/v1/messages/count_tokens" | "/v1/plan"
        );
    if !read {
        let body = body.map_err(Into::into).boxed_unsync();
        return reply(house.gateway.pass(asked, body).await);
    }
    // A place comes first: without one, nothing of the body is kept.
    let place = match house.gateway.take_place() {
        Ok(place) => place,
        Err(fault) => {
            let told = house.gateway.turn_away(&asked, &fault);
            throw_away(body).await;
            return reply(told);
        }
    };
    let body = match whole(body, house.gateway.settings().limits.body).await {
        Ok(body) => body,
        Err(fault) => return refuse(&house, &fault),
    };
    if asked.path == "/v1/plan" {
        return plan(&house, asked, body);
    }
    reply(house.gateway.turn(asked, body, place).await)
}

/// `/b/{backend}/v1/...` pins a request to a backend.
fn pinned_path(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/b/")?;
    let at = rest.find('/')?;
    Some(rest.split_at(at))
}

/// What would go where, without asking the model.
fn plan(house: &House, mut asked: Asked, body: Bytes) -> Response {
    let query = asked.query.clone().unwrap_or_default();
    let mut dialect = "anthropic".to_owned();
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            "backend" => asked.pin = Some(value.to_owned()),
            "dialect" => value.clone_into(&mut dialect),
            _ => {}
        }
    }
    if dialect != "anthropic" {
        let what = format!("dialect `{dialect}` is not available yet; `anthropic` is");
        return refuse(house, &Fault::invalid(what));
    }
    match house.gateway.report(asked, body) {
        Ok(report) => {
            let id = house.gateway.turns.id(unix_ms());
            let backend = report["backend"].as_str().unwrap_or_default().to_owned();
            ([(TURN, id), (BACKEND, backend)], axum::Json(report)).into_response()
        }
        Err(fault) => refuse(house, &fault),
    }
}

async fn whole(mut body: Body, limit: usize) -> Result<Bytes, Fault> {
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
                return Err(Fault::new(
                    FaultKind::TooLarge,
                    format!(
                        "the request body is larger than {limit} bytes; `limits.body` sets the limit"
                    ),
                ));
            }
            Some(Err(error)) => {
                return Err(Fault::invalid(format!(
                    "the request body broke off: {error}"
                )));
            }
        }
    }
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
fn elsewhere(house: &House, method: &Method, path: &str) -> Response {
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/" | "/api/hello") => (
            StatusCode::OK,
            "Throughline is running. Point a client at this address; see /admin/backends, /admin/turns, /metrics.\n",
        )
            .into_response(),
        (&Method::OPTIONS, _) => StatusCode::NO_CONTENT.into_response(),
        _ => refuse(
            house,
            &Fault::new(FaultKind::NotFound, format!("there is nothing at `{path}`")),
        ),
    }
}

fn refuse(house: &House, fault: &Fault) -> Response {
    reply(tell(fault, &house.gateway.turns.id(unix_ms()), ""))
}

fn reply(reply: Reply) -> Response {
    reply.map(Body::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_name_its_backend() {
        assert_eq!(
            pinned_path("/b/glm/v1/messages"),
            Some(("glm", "/v1/messages"))
        );
        assert_eq!(pinned_path("/v1/messages"), None);
        assert_eq!(pinned_path("/b/glm"), None);
    }
}
