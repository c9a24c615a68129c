//! Detects the dialect of a request and the backend it pins, from its path and headers alone.

use http::{HeaderMap, header};
use throughline_codec::dialects::anthropic::Anthropic;
use throughline_codec::dialects::gemini::Gemini;
use throughline_codec::dialects::model_paths::is_about_models;
use throughline_codec::dialects::ollama::Ollama;
use throughline_codec::dialects::openai_chat::OpenAiChat;
use throughline_codec::dialects::openai_responses::OpenAiResponses;
use throughline_codec::dialects::{CLIENT, ClientDialect};
use throughline_conversations::responses::Responses;
use throughline_gateway::headers::BACKEND;

use super::admit::is_interactions;

/// A path without its pin, and the backend that the request pins.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PinnedPath {
    /// The path as the dialect knows it.
    pub(super) path: String,
    /// The backend from `/b/{backend}/...`, else from the header `x-throughline-backend`.
    pub(super) pin: Option<String>,
}

impl PinnedPath {
    pub(super) fn read(path: &str, headers: &HeaderMap) -> Self {
        if let Some((backend, path)) = split_pin(path) {
            return Self { path: path.to_owned(), pin: Some(backend.to_owned()) };
        }
        let header = headers.get(BACKEND);
        // A value that is not text names no backend; the empty name is then refused as unknown.
        let pin = header.map(|value| value.to_str().unwrap_or_default().trim().to_owned());
        Self { path: path.to_owned(), pin }
    }
}

/// Splits `/b/{backend}/v1/...` into backend and path.
fn split_pin(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix("/b/")?;
    let slash = rest.find('/')?;
    Some(rest.split_at(slash))
}

/// Detects the dialect of a request. Some paths belong to three dialects; there the headers decide.
pub(super) fn detect_dialect(path: &str, headers: &HeaderMap) -> &'static dyn ClientDialect {
    let by_path = CLIENT.iter().find(|dialect| dialect.operation(path).is_some());
    if let Some(dialect) = by_path {
        return *dialect;
    }
    if path.starts_with("/api/") {
        return &Ollama;
    }
    if Responses::handles(path) {
        return &OpenAiResponses;
    }
    if path.starts_with("/v1beta/") || path.starts_with("/models") || is_interactions(path) {
        return &Gemini;
    }
    let has_vendor_header =
        headers.contains_key("x-goog-api-key") || headers.contains_key("anthropic-version");
    if is_about_models(path) && !has_vendor_header {
        return &OpenAiChat;
    }
    dialect_from_headers(headers)
}

fn dialect_from_headers(headers: &HeaderMap) -> &'static dyn ClientDialect {
    if headers.contains_key("x-goog-api-key") {
        return &Gemini;
    }
    if headers.contains_key("anthropic-version") {
        return &Anthropic;
    }
    // Chat and Responses clients both send a bearer token; their errors look the same.
    if headers.contains_key(header::AUTHORIZATION) { &OpenAiChat } else { &Anthropic }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn path_pins_a_backend() {
        assert_eq!(split_pin("/b/glm/v1/messages"), Some(("glm", "/v1/messages")));
        assert_eq!(split_pin("/v1/messages"), None);
        assert_eq!(split_pin("/b/glm"), None);
    }

    #[test]
    fn pin_in_the_path_wins_over_the_header() {
        let mut headers = HeaderMap::new();
        headers.insert(BACKEND, HeaderValue::from_static(" other "));
        let read = |path: &str| {
            let read = PinnedPath::read(path, &headers);
            (read.path, read.pin)
        };
        let messages = || "/v1/messages".to_owned();
        assert_eq!(read("/b/glm/v1/messages"), (messages(), Some("glm".to_owned())));
        assert_eq!(read("/v1/messages"), (messages(), Some("other".to_owned())));
    }

    #[test]
    fn shared_paths_are_distinguished_by_headers() {
        for (path, header, dialect) in [
            ("/v1/models", None, "openai_chat"),
            ("/v1/models", Some("authorization"), "openai_chat"),
            ("/v1/models", Some("anthropic-version"), "anthropic"),
            ("/v1/models", Some("x-goog-api-key"), "gemini"),
            ("/v1/files", None, "anthropic"),
            ("/v1/files", Some("authorization"), "openai_chat"),
            ("/v1/responses/resp_1", None, "openai_responses"),
            ("/v1beta/files", None, "gemini"),
            ("/v1/interactions", Some("authorization"), "gemini"),
            ("/api/tags", None, "ollama"),
            ("/v1/messages", Some("authorization"), "anthropic"),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(header, HeaderValue::from_static("x"));
            }
            assert_eq!(detect_dialect(path, &headers).name(), dialect, "{path} {header:?}");
        }
    }
}
