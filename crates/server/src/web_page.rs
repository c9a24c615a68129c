//! The web page, embedded in the program: its document and its files, with tags for caches and a strict content
//! policy. `build.rs` makes the list of files; `web/` has their sources.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::client_api;
use crate::wiring::App;

/// A file of the page.
struct PageFile {
    /// Its path, as in `/assets/index.js`.
    path: &'static str,
    /// Its `ETag`, with quotes.
    tag: &'static str,
    plain: &'static [u8],
    gzip: Option<&'static [u8]>,
}

/// All files; none if the program was built without Node.
const FILES: &[PageFile] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The paths that show the page. The page itself decides what each one shows.
const PAGE_PATHS: [&str; 5] = ["/", "/p/{project}", "/rooms/{id}", "/inspector", "/unlock"];

/// The document of the page.
const DOCUMENT: &str = "/index.html";

/// Files with a hash of their content in their name never change.
const HASHED: &str = "/assets/";

/// No script, style or connection of another origin, and nothing inline. WebAssembly is needed for Argon2id.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; worker-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Shown at the paths of the page if the program was built without it.
const PLAIN_PAGE: &str = "<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width\">
<title>Throughline</title>
<h1>Throughline is running</h1>
<p>This program was built without its web page.
To get it, install Node 20.19 or newer and build again: <code>cargo build --release</code>.</p>
<p>Everything else works: see <a href=\"/api/docs\">the API of conversations</a>,
<a href=\"/admin/backends\">the backends</a>, <a href=\"/admin/turns\">recent turns</a>
and <a href=\"/metrics\">the metrics</a>.</p>
";

/// The routes of the page and of its files.
pub fn routes() -> Router<Arc<App>> {
    let mut router = Router::new();
    for path in PAGE_PATHS {
        router = router.route(path, or_dispatch(get(page)));
    }
    for file in FILES {
        if file.path != DOCUMENT {
            router = router.route(file.path, or_dispatch(get(page_file)));
        }
    }
    router
}

/// Other methods are the business of the dialects, as on every other path.
fn or_dispatch(route: MethodRouter<Arc<App>>) -> MethodRouter<Arc<App>> {
    route.fallback(client_api::dispatch)
}

/// The document, for browsers. Other clients probe `/` and get the text that they always got.
async fn page(State(app): State<Arc<App>>, request: Request) -> Response {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains("text/html")) {
        return client_api::dispatch(State(app), request).await;
    }
    let mut response = document(find(DOCUMENT), request.headers());
    response.headers_mut().append(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// The document, or the plain page if the program was built without it.
fn document(file: Option<&'static PageFile>, headers: &HeaderMap) -> Response {
    match file {
        Some(file) => serve(file, headers),
        None => html(PLAIN_PAGE.as_bytes()).into_response(),
    }
}

async fn page_file(uri: Uri, headers: HeaderMap) -> Response {
    find(uri.path())
        .map_or_else(|| StatusCode::NOT_FOUND.into_response(), |file| serve(file, &headers))
}

fn find(path: &str) -> Option<&'static PageFile> {
    FILES.iter().find(|file| file.path == path)
}

fn html(body: &'static [u8]) -> impl IntoResponse {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, Bytes::from_static(body))
}

fn serve(file: &PageFile, headers: &HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|tags| tags.split(',').any(|tag| same_tag(tag, file.tag)));
    let compressed = file.gzip.filter(|_| accepts_gzip(headers));
    let cache = match file.path.starts_with(HASHED) && !file.path.ends_with(".json") {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    let fixed = [
        (header::CONTENT_TYPE, content_type(file.path)),
        (header::ETAG, file.tag),
        (header::CACHE_CONTROL, cache),
        (header::VARY, "accept-encoding"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    let mut response = if is_known {
        (StatusCode::NOT_MODIFIED, fixed).into_response()
    } else {
        (fixed, Bytes::from_static(compressed.unwrap_or(file.plain))).into_response()
    };
    if compressed.is_some() && !is_known {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Compares tags as caches do: a proxy that compresses may have made the tag weak.
fn same_tag(candidate: &str, tag: &str) -> bool {
    let candidate = candidate.trim();
    candidate == "*" || candidate.strip_prefix("W/").unwrap_or(candidate) == tag
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted =
        headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_refused =
            |weight: &str| weight.replace(' ', "").trim_start_matches("q=").parse() == Ok(0.0);
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip")) && !parts.any(is_refused)
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        Some("wasm") => "application/wasm",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
    }

    const FILE: PageFile =
        PageFile { path: "/assets/a-1.js", tag: "\"17\"", plain: b"plain", gzip: Some(b"gzip") };

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        for (accepted, expected) in [
            ("gzip, br", true),
            ("br;q=1.0, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("br", false),
        ] {
            let response = serve(&FILE, &headers(header::ACCEPT_ENCODING, accepted));
            assert_eq!(
                response.headers().contains_key(header::CONTENT_ENCODING),
                expected,
                "{accepted}"
            );
        }
    }

    #[tokio::test]
    async fn program_without_the_page_says_how_to_get_it() {
        let response = document(None, &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        let body = axum::body::to_bytes(response.into_body(), 1 << 16).await.unwrap();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.contains("install Node 20.19 or newer and build again"), "{text}");
    }

    #[test]
    fn known_tag_gets_304_without_a_body() {
        for (tags, status) in
            [("\"17\"", 304), ("W/\"17\"", 304), ("\"1\", \"17\"", 304), ("\"1\"", 200)]
        {
            let response = serve(&FILE, &headers(header::IF_NONE_MATCH, tags));
            assert_eq!(response.status(), status, "{tags}");
        }
    }

    #[test]
    fn only_files_with_a_hash_in_their_name_are_immutable() {
        let cache = |path| {
            let response = serve(&PageFile { path, ..FILE }, &HeaderMap::new());
            response.headers()[header::CACHE_CONTROL].to_str().unwrap().to_owned()
        };
        assert!(cache("/assets/a-1.js").contains("immutable"));
        for path in ["/index.html", "/sw.js", "/theme.js", "/assets/files.json"] {
            assert_eq!(cache(path), "no-cache", "{path}");
        }
    }
}
