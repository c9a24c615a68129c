//! The dialects: one row for each, and whose words a request gets that no handler answers.
//!
//! A dialect is a folder with a `DIALECT` row. Everything outside those folders is shared and asks
//! the row for what differs.

use std::fmt;
use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

use crate::refusal::Refusal;
use crate::{RequestId, Simulator};
use crate::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// All dialects. A request that bears no sign of any is the first one's.
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
    /// Its paths, except those of its models.
    pub(crate) routes: fn() -> Router<Arc<Simulator>>,
    /// Its models, once it lists them.
    pub(crate) models: Option<Models>,
    /// Whether a request looks like one of its own, known path or not.
    pub(crate) recognises: fn(&Uri, &HeaderMap) -> bool,
    /// The body of a refusal.
    pub(crate) envelope: fn(&Refusal, &RequestId) -> Value,
    /// What it says with a status that was asked for.
    pub(crate) words: fn(StatusCode) -> &'static str,
    /// The status that stands for the error event where there are no events.
    pub(crate) overloaded: StatusCode,
    /// The event that ends a stream which had begun well, after so many others.
    pub(crate) error_event: fn(usize) -> Bytes,
}

/// How a dialect lists its models.
pub(crate) struct Models {
    /// Where the list stands; a model stands below it.
    pub(crate) paths: &'static [&'static str],
    pub(crate) list: fn() -> Value,
    pub(crate) describe: fn(&str) -> Result<Value, Refusal>,
}

/// A dialect that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no dialect is called `{0}`; there are {names}", names = names())]
pub struct UnknownDialect(String);

fn names() -> String {
    DIALECTS.map(|dialect| dialect.name).join(", ")
}

impl Dialect {
    /// Finds a dialect.
    ///
    /// # Errors
    /// When none is called so; the error names those there are.
    pub fn named(name: &str) -> Result<&'static Self, UnknownDialect> {
        let name = name.trim();
        let found = DIALECTS.into_iter().find(|dialect| dialect.name == name);
        found.ok_or_else(|| UnknownDialect(name.to_owned()))
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for Dialect {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// The dialects one simulator speaks, in the table's order; never none.
pub(crate) struct Spoken(Vec<&'static Dialect>);

impl Spoken {
    /// Those that were asked for, or all.
    pub(crate) fn new(asked: &[&'static Dialect]) -> Self {
        let wanted = |dialect: &&Dialect| {
            asked.is_empty() || asked.iter().any(|one| one.name == dialect.name)
        };
        Self(DIALECTS.into_iter().filter(wanted).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Dialect> {
        self.0.iter().copied()
    }

    /// Whose words a request gets that no handler answers.
    pub(crate) fn of(&self, uri: &Uri, headers: &HeaderMap) -> &'static Dialect {
        whose(&self.0, uri, headers).unwrap_or(DIALECTS[0])
    }
}

/// The first that recognises the request, or the first at all.
pub(crate) fn whose(
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

    fn whose_words(asked: &[&str], path: &str, header: Option<&'static str>) -> &'static str {
        let asked: Vec<_> = asked.iter().map(|name| Dialect::named(name).unwrap()).collect();
        let headers = header.map(|name| (name.parse().unwrap(), "x".parse().unwrap()));
        let headers = headers.into_iter().collect();
        let spoken = Spoken::new(&asked);
        spoken.of(&path.parse().unwrap(), &headers).name
    }

    #[test]
    fn a_request_is_refused_in_the_words_of_its_dialect() {
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
    fn a_dialect_that_is_not_spoken_gives_no_words() {
        let only = ["openai_responses", "gemini"];
        assert_eq!(whose_words(&only, "/v1/messages", None), "gemini");
        assert_eq!(whose_words(&only, "/v1/responses", None), "openai_responses");
        assert_eq!(whose_words(&["anthropic"], "/v1beta/models", None), "anthropic");
    }

    #[test]
    fn an_unknown_dialect_is_told_the_known_ones() {
        let error = Dialect::named("klingon").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no dialect is called `klingon`; there are anthropic, gemini, ollama, openai_chat, openai_responses"
        );
        for dialect in DIALECTS {
            assert_eq!(Dialect::named(dialect.name).unwrap().name(), dialect.name);
        }
    }
}
