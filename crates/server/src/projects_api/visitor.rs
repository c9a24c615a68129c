//! Who sends a request, before it is known whether they are logged in: the address, the session's
//! cookie, and whether a page of another origin is behind it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts, OriginalUri};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use throughline_canonical::FaultKind;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::users::token::SessionToken;

use super::call::Refusal;
use crate::session_cookie;
use crate::wiring::App;

const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const FETCH_SITE: &str = "sec-fetch-site";

/// Who sends a request.
pub(super) struct Visitor {
    pub(super) app: Arc<App>,
    /// The address, for limits.
    pub(super) address: String,
    /// The token of the session, if the request has one.
    pub(super) token: Option<SessionToken>,
    /// Whether the request came over TLS.
    is_secure: bool,
}

impl FromRequestParts<Arc<App>> for Visitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Refusal> {
        let is_secure = is_secure(&parts.headers, app.is_cross_origin(&parts.headers));
        let token = session_cookie::read(&parts.headers, is_secure);
        let changes = !matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
        let has_cookie = session_cookie::is_present(&parts.headers);
        if changes && (has_cookie || is_about_users(parts)) {
            check_origin(app, &parts.headers)?;
        }
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        let address = address(peer.map(|ConnectInfo(peer)| peer.ip()), &parts.headers);
        // A provider must not get it.
        session_cookie::remove(&mut parts.headers);
        Ok(Self { app: Arc::clone(app), address, token, is_secure })
    }
}

impl Visitor {
    /// The cookie of a new session.
    pub(super) fn cookie(&self, token: &SessionToken, lifetime: Duration) -> HeaderValue {
        session_cookie::write(&token.write(), lifetime.as_secs(), self.is_secure)
    }

    /// The cookie that removes the one of a session.
    pub(super) fn no_cookie(&self) -> HeaderValue {
        session_cookie::write("", 0, self.is_secure)
    }
}

/// Whether the path is one under which users log in. Nested routes see only the rest of their path.
fn is_about_users(parts: &Parts) -> bool {
    let whole = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |OriginalUri(uri)| uri);
    whole.path().starts_with("/api/auth/")
}

/// Whether a request came over TLS, as a proxy or the browser says. A caller that says so without
/// TLS gets a cookie that its browser does not send, and nothing else.
fn is_secure(headers: &HeaderMap, is_cross_origin: bool) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let last = text(FORWARDED_PROTO).rsplit(',').next().unwrap_or_default().trim();
    let is_secure_page = !is_cross_origin && text("origin").starts_with("https://");
    last.eq_ignore_ascii_case("https") || is_secure_page
}

/// Refuses what a page of another origin may have sent with the user's cookie. Browsers say where a
/// request comes from; programs that are not browsers say nothing, and have no cookies of others.
fn check_origin(app: &App, headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |why: &str, hint: &str| {
        Err(Problem::new(FaultKind::Forbidden, "cross-origin", why).hint(hint))
    };
    let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
    let is_foreign = site.is_some_and(|site| site != b"same-origin" && site != b"none");
    if is_foreign || app.is_cross_origin(headers) {
        let hint = "only pages of this server may change something with a session";
        return refused("cross-origin requests are not allowed", hint);
    }
    let is_empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    let has_body = !is_empty || headers.contains_key(header::TRANSFER_ENCODING);
    if has_body && !is_json(headers) {
        let hint = "send `content-type: application/json`";
        return refused("the body must be JSON, and its `content-type` must say so", hint);
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.unwrap_or_default().split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/json")
}

/// The address that limits count. A proxy on this machine says for whom it asks. A network gives one
/// home all addresses of a /64.
fn address(peer: Option<IpAddr>, headers: &HeaderMap) -> String {
    let forwarded = || {
        let list = headers.get_all(FORWARDED_FOR).iter().next_back()?.to_str().ok()?;
        list.rsplit(',').next()?.trim().parse::<IpAddr>().ok()
    };
    let address = match peer {
        Some(peer) if peer.to_canonical().is_loopback() => forwarded().or(Some(peer)),
        peer => peer,
    };
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).to_string()
        }
        Some(address) => address.to_string(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        headers
    }

    #[test]
    fn only_a_proxy_on_this_machine_names_another_address() {
        let forwarded = headers(&[("x-forwarded-for", "10.0.0.1, 192.0.2.7")]);
        let count = |peer: &str, headers: &HeaderMap| {
            address(Some(peer.parse().expect("an address")), headers)
        };
        assert_eq!(count("127.0.0.1", &forwarded), "192.0.2.7");
        assert_eq!(count("::ffff:127.0.0.1", &forwarded), "192.0.2.7");
        assert_eq!(count("198.51.100.1", &forwarded), "198.51.100.1");
        assert_eq!(count("127.0.0.1", &HeaderMap::new()), "127.0.0.1");
        assert_eq!(count("127.0.0.1", &headers(&[("x-forwarded-for", "nonsense")])), "127.0.0.1");
        assert_eq!(count("2001:db8:1:2:3:4:5:6", &forwarded), "2001:db8:1:2::");
    }

    #[test]
    fn request_over_tls_is_recognised_by_proxy_or_origin() {
        for (name, value, expected) in [
            ("x-forwarded-proto", "https", true),
            ("x-forwarded-proto", "http, HTTPS", true),
            ("x-forwarded-proto", "https, http", false),
            ("origin", "https://chat.example", true),
            ("origin", "http://localhost:8484", false),
            ("host", "https", false),
        ] {
            assert_eq!(is_secure(&headers(&[(name, value)]), false), expected, "{name}: {value}");
        }
        assert!(!is_secure(&headers(&[("origin", "https://evil.example")]), true));
    }
}
