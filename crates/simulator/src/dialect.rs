//! The dialects: one row for each, and the choice of a dialect for requests that no handler
//! answers.
//!
//! A dialect is a folder with a `DIALECT` row. Code outside these folders is shared and takes the
//! differences from the row.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use crate::refusal::Refusal;
use crate::{RequestId, Simulator};
use crate::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// All dialects. The first one answers requests that no dialect recognises.
static DIALECTS: [&Dialect; 5] = [
    &anthropic::DIALECT,
    &gemini::DIALECT,
    &ollama::DIALECT,
    &openai_chat::DIALECT,
    &openai_responses::DIALECT,
];

/// A dialect that the simulator speaks.
pub struct Dialect {
    pub(crate) name: &'static str,
    /// Its routes, except those of its models.
    pub(crate) routes: fn() -> Router<Arc<Simulator>>,
    /// Its models, if it lists them.
    pub(crate) models: Option<Models>,
    /// Whether a request looks like one of this dialect, even if its path is unknown.
    pub(crate) recognises: fn(&Uri, &HeaderMap) -> bool,
    /// The body of a refusal.
    pub(crate) error_body: fn(&Refusal, &RequestId) -> Value,
    /// The message of a refusal that a status fault asks for.
    pub(crate) status_message: fn(StatusCode) -> &'static str,
    /// The status that replaces the error event in replies without events.
    pub(crate) overloaded_status: StatusCode,
    /// The error event that ends a stream after this many other events.
    pub(crate) error_event: fn(usize) -> Bytes,
}

/// How a dialect lists its models.
pub(crate) struct Models {
    /// The paths of the list; each model is one level below.
    pub(crate) paths: &'static [&'static str],
    pub(crate) list: fn() -> Value,
    pub(crate) describe: fn(&str) -> Result<Value, Refusal>,
}

/// The error for an unknown dialect name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect `{0}`; use one of {names}", names = names())]
pub struct UnknownDialect(String);

fn names() -> String {
    DIALECTS.map(|dialect| dialect.name).join(", ")
}

impl Dialect {
    /// Finds a dialect.
    ///
    /// # Errors
    /// If the name is unknown; the error lists the known names.
    pub fn named(name: &str) -> Result<&'static Self, UnknownDialect> {
        let name = name.trim();
        let found = DIALECTS.into_iter().find(|dialect| dialect.name == name);
        found.ok_or_else(|| UnknownDialect(name.to_owned()))
    }

    /// The name, as in options and headers.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// The dialects of one simulator, in the table's order; there is at least one.
pub(crate) struct ServedDialects(Vec<&'static Dialect>);

impl ServedDialects {
    /// The named dialects, or all of them if none is named.
    pub(crate) fn new(chosen: &[&'static Dialect]) -> Self {
        let wanted = |dialect: &&Dialect| {
            chosen.is_empty() || chosen.iter().any(|one| one.name == dialect.name)
        };
        Self(DIALECTS.into_iter().filter(wanted).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Dialect> {
        self.0.iter().copied()
    }

    /// The dialect that refuses a request which no handler answers.
    pub(crate) fn for_request(&self, uri: &Uri, headers: &HeaderMap) -> &'static Dialect {
        find_dialect(&self.0, uri, headers).unwrap_or(DIALECTS[0])
    }
}

/// The first dialect that recognises the request, else the first of the list.
pub(crate) fn find_dialect(
    candidates: &[&'static Dialect],
    uri: &Uri,
    headers: &HeaderMap,
) -> Option<&'static Dialect> {
    let mut all = candidates.iter().copied();
    let claims = all.clone().find(|one| (one.recognises)(uri, headers));
    claims.or_else(|| all.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whose_words(chosen: &[&str], path: &str, header: Option<&'static str>) -> &'static str {
        let chosen: Vec<_> = chosen.iter().map(|name| Dialect::named(name).unwrap()).collect();
        let headers = header.map(|name| (name.parse().unwrap(), "x".parse().unwrap()));
        let headers = headers.into_iter().collect();
        let dialects = ServedDialects::new(&chosen);
        dialects.for_request(&path.parse().unwrap(), &headers).name
    }

    #[test]
    fn unknown_path_selects_the_dialect_by_header_and_path() {
        for (path, header, dialect) in [
            ("/nowhere", None, "anthropic"),
            ("/nowhere", Some("anthropic-version"), "anthropic"),
            ("/nowhere", Some("x-api-key"), "anthropic"),
            ("/nowhere", Some("x-goog-api-key"), "gemini"),
            ("/nowhere", Some("authorization"), "openai_chat"),
            ("/v1/messages/batches", Some("authorization"), "anthropic"),
            ("/v1/models/m:embedContent", None, "gemini"),
            ("/v1beta/models", None, "gemini"),
            ("/models/m?a=b&key=k", None, "gemini"),
            ("/v1/chat/completions", None, "openai_chat"),
            ("/api/v1/chat/completions", None, "openai_chat"),
            ("/api/chat", Some("authorization"), "ollama"),
            ("/api/embed", None, "ollama"),
            ("/v1/responses/1", None, "openai_responses"),
        ] {
            assert_eq!(whose_words(&[], path, header), dialect, "{path} {header:?}");
        }
    }

    #[test]
    fn unknown_dialect_error_lists_the_known_names() {
        let error = Dialect::named("klingon").unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown dialect `klingon`; use one of anthropic, gemini, ollama, openai_chat, openai_responses"
        );
        for dialect in DIALECTS {
            assert_eq!(Dialect::named(dialect.name).unwrap().name(), dialect.name);
        }
    }
}
