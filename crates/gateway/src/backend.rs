//! A backend: its address, its dialect and credential, and the domain whose signatures it reads.

use std::time::Duration;

use http::Uri;
use throughline_canonical::Fault;
use throughline_canonical::thinking::hex;
use throughline_codec::dialects::UpstreamDialect;
use throughline_codec::dialects::profile::Profile;
use throughline_codec::text::{OnError, ReasoningFormat};

use crate::upstream::Client;

/// One configured backend. Many fields: each one is a setting of the operator.
#[derive(Debug)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// The dialect it speaks.
    pub dialect: &'static dyn UpstreamDialect,
    /// The variant of the dialect.
    pub profile: &'static Profile,
    /// How raw model text is parsed, if the backend sends it.
    pub raw_text: RawText,
    /// The base URL, without a trailing slash or version.
    pub base_url: String,
    /// The signature domain. Backends of one domain read each other's signatures.
    pub domain: String,
    /// The credential that it gets.
    pub auth: Auth,
    /// Whether a caller's key may go here after a switch from another site.
    pub share_caller_key: bool,
    /// Patterns of model names, and the model's name at this backend.
    pub models: Vec<(String, String)>,
    /// The model to use if the request names none.
    pub default_model: Option<String>,
    /// How the thinking setting must be changed.
    pub compat: Option<Compat>,
    /// Whether a request is refused if the caller would get something else than it asked for.
    pub strict_settings: bool,
    /// How much of the history is sent back.
    pub replay: Replay,
    /// What happens to breakpoints for the prompt cache.
    pub cache: Cache,
    /// Whether its tokens cost what the catalog says, or nothing.
    pub pricing: Pricing,
    /// The number of retries after 429 and 5xx.
    pub retries: u32,
    /// The timeouts.
    pub timeouts: Timeouts,
    /// The connections to it. No other backend shares them.
    pub client: Client,
}

/// How raw model text is parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawText {
    /// The family of the model. `None` chooses by its name; `none` disables parsing.
    pub family: Option<String>,
    /// Where reasoning is put.
    pub reasoning_format: ReasoningFormat,
    /// What to do with a call that cannot be parsed.
    pub on_error: OnError,
}

/// The credential that a backend gets.
#[derive(Clone, PartialEq, Eq)]
pub enum Auth {
    /// No credential, not even the caller's.
    None,
    /// This key instead of the caller's.
    Key(String),
    /// The caller's own key.
    Passthrough,
    /// The environment variable that should hold the key and is not set. The backend is off.
    Missing(String),
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::None => "None",
            Self::Key(_) => "Key(hidden)",
            Self::Passthrough => "Passthrough",
            Self::Missing(_) => "Missing",
        })
    }
}

/// How a thinking setting is changed for a backend that accepts only one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// Adaptive thinking becomes a budget: this one, or as much as fits.
    Budget(Option<u64>),
    /// A budget becomes adaptive thinking with an effort.
    Adaptive,
    /// The setting is not sent.
    Off,
}

/// How much of the history is sent back to the backend that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// All of it.
    Verbatim,
    /// Only the model's latest turn.
    LatestTurn,
    /// Nothing.
    None,
}

/// What the tokens of a backend cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pricing {
    /// What the catalog says.
    #[default]
    List,
    /// Nothing.
    Free,
}

/// What happens to breakpoints for the provider's prompt cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// The client's breakpoints are sent. If a translated request has none, the gateway sets some.
    Auto,
    /// The client's breakpoints are sent.
    Client,
    /// No breakpoints are sent.
    Off,
}

/// The timeouts of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For opening a connection.
    pub connect: Duration,
    /// For the head of the reply.
    pub first_byte: Duration,
    /// Whether `first_byte` also applies to whole replies. Their head arrives when they are
    /// complete, so they may take the total time unless the operator sets this.
    pub first_byte_for_whole: bool,
    /// For the next bytes of the reply.
    pub idle: Duration,
    /// For the whole reply.
    pub total: Duration,
}

impl Timeouts {
    /// The timeout for the head of a reply.
    pub fn head(&self, streamed: bool) -> Duration {
        if streamed || self.first_byte_for_whole { self.first_byte } else { self.total }
    }
}

impl Backend {
    /// What the operator has to do before this backend can be used; `None` if it can be used.
    pub fn off(&self) -> Option<String> {
        match &self.auth {
            Auth::Missing(variable) => Some(format!("set {variable}")),
            _ => None,
        }
    }

    /// Fails if this backend is off.
    pub fn check_on(&self) -> Result<(), Fault> {
        let Some(to_do) = self.off() else {
            return Ok(());
        };
        let name = &self.name;
        Err(Fault::invalid(format!(
            "backend `{name}` is off because its key is missing; {to_do} and restart the gateway"
        )))
    }

    /// This backend's name of a model. `None` if the name does not change.
    pub fn map_model(&self, requested: &str) -> Option<&str> {
        longest_match(self.models.iter().map(|(pattern, name)| (pattern.as_str(), name)), requested)
            .map(String::as_str)
    }

    /// The model of a request, by this backend's name. Empty if neither the request nor the backend
    /// names one.
    pub fn model_for<'a>(&'a self, requested: Option<&'a str>) -> &'a str {
        requested
            .map(|requested| self.map_model(requested).unwrap_or(requested))
            .or(self.default_model.as_deref())
            .unwrap_or_default()
    }

    /// The model names in the configuration.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mapped = self.models.iter().map(|(pattern, _)| pattern.as_str());
        mapped.filter(|pattern| !pattern.contains('*')).chain(self.default_model.as_deref())
    }

    /// The URL of a path of the dialect, such as `/v1/messages`.
    pub fn address(&self, path: &str, query: Option<&str>) -> Result<Uri, http::uri::InvalidUri> {
        let mut address = join_url(&self.base_url, path);
        if let Some(query) = query {
            address.push('?');
            address.push_str(query);
        }
        address.parse()
    }

    /// Scheme, host and port: the receiver of everything that is sent to this backend.
    pub fn site(&self) -> String {
        let uri: Uri = self.base_url.parse().unwrap_or_default();
        format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map(http::uri::Authority::as_str).unwrap_or_default()
        )
    }
}

/// Joins a base URL and a path of the dialect. If the base URL ends in a version, such as `/v3`, it
/// replaces the version of the path.
pub fn join_url(base: &str, path: &str) -> String {
    let location = base.split_once("://").map_or(base, |(_, rest)| rest);
    let last = location.rsplit_once('/').map_or("", |(_, last)| last);
    let own = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    match own {
        Some((version, rest)) if is_version(last) && is_version(version) => {
            format!("{base}/{rest}")
        }
        _ => format!("{base}{path}"),
    }
}

/// Whether a segment is a version: `v1`, `v1beta`, `v1beta1`.
pub fn is_version(segment: &str) -> bool {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let Some(number) = segment.strip_prefix('v') else {
        return false;
    };
    let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    let (number, stage) = number.split_at(end);
    let stage = ["alpha", "beta"].iter().find_map(|word| stage.strip_prefix(word)).unwrap_or(stage);
    !number.is_empty() && digits(stage)
}

/// A fingerprint of a credential. It distinguishes credentials without storing them.
pub fn credential_fingerprint(credential: &str) -> String {
    use sha2::{Digest, Sha256};
    if credential.is_empty() {
        return String::new();
    }
    hex(&Sha256::digest(credential.as_bytes())[..8])
}

/// The value of the matching pattern with the longest literal part. A pattern is a name, or the
/// beginning of one followed by `*`.
pub fn longest_match<'a, V>(patterns: impl Iterator<Item = (&'a str, V)>, name: &str) -> Option<V> {
    patterns
        .filter(|(pattern, _)| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => *pattern == name,
        })
        // A whole name is a longer literal than any beginning of it.
        .max_by_key(|(pattern, _)| (!pattern.ends_with('*'), pattern.len()))
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_literal_prefix_wins() {
        let rows = [("*", 1), ("claude-*", 2), ("claude-opus-*", 3), ("claude-opus-5", 4)];
        let find = |name| longest_match(rows.iter().copied(), name);
        assert_eq!(find("gpt"), Some(1));
        assert_eq!(find("claude-haiku"), Some(2));
        assert_eq!(find("claude-opus-4"), Some(3));
        assert_eq!(find("claude-opus-5"), Some(4));
        assert_eq!(longest_match([("a", 1)].into_iter(), "ab"), None);
    }

    #[test]
    fn version_in_the_base_url_replaces_the_version_of_the_path() {
        for (base, path, address) in [
            ("https://h/api/v3", "/v1/chat/completions", "https://h/api/v3/chat/completions"),
            ("https://h/v1", "/v4/models", "https://h/v1/models"),
            (
                "https://h/v2alpha",
                "/v1beta/models/m:generateContent",
                "https://h/v2alpha/models/m:generateContent",
            ),
            ("https://h/v1beta1", "/v1/messages", "https://h/v1beta1/messages"),
            ("https://h", "/v1/messages", "https://h/v1/messages"),
            ("https://v1", "/v1/messages", "https://v1/v1/messages"),
            ("https://h/vast", "/v1/messages", "https://h/vast/v1/messages"),
            ("https://h/v1/account", "/v1/messages", "https://h/v1/account/v1/messages"),
            (
                "https://h/v1",
                "/publishers/google/models/m",
                "https://h/v1/publishers/google/models/m",
            ),
            ("https://h/v8-engine", "/v1/messages", "https://h/v8-engine/v1/messages"),
        ] {
            assert_eq!(join_url(base, path), address);
        }
    }

    #[test]
    fn keys_do_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", Auth::Key("sk-secret".into())), "Key(hidden)");
        assert_eq!(credential_fingerprint("sk-secret").len(), 16);
    }
}
