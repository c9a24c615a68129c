//! Whole configurations: their values, and their diagnostics.

mod accepted;
mod checked;
mod environment;
mod models;
mod upstream;

use throughline_codec::text::{OnError, ReasoningFormat};
use throughline_conversations::sealed_store::Retention;
use throughline_gateway::backend::{Auth, Cache, Compat, Pricing, RawText, Replay, Timeouts};
use throughline_gateway::route::{Routes, Rule};
use throughline_gateway::settings::{Limits, Policy, Thinking, ToolThinking, Unknown};

use super::*;

pub(super) const ENV: &[(&str, &str)] =
    &[("HOME", "/users/ada"), ("ANTHROPIC_API_KEY", "sk-ant-1"), ("ZAI_API_KEY", "zai-1")];

/// The smallest file with a backend.
pub(super) const BACKEND: &str = r#"
[[backend]]
name = "glm"
dialect = "anthropic"
base_url = "https://api.z.ai/api/anthropic"
"#;

pub(super) fn environment(extra: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = ENV.iter().chain(extra);
    pairs.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

pub(super) fn read_with(text: &str, extra: &[(&str, &str)]) -> Result<Config, Diagnostics> {
    let source = Source { name: "throughline.toml".to_owned(), text: text.to_owned() };
    read(Some(&source), environment(extra), Overrides::default())
}

pub(super) fn good(text: &str) -> Config {
    read_with(text, &[]).unwrap_or_else(|mistakes| panic!("{mistakes}\nin\n{text}"))
}

/// The diagnostics of a text, without the summary line.
pub(super) fn bad(text: &str, extra: &[(&str, &str)]) -> Vec<String> {
    let mistakes = read_with(text, extra).expect_err(text).0;
    mistakes.iter().map(ToString::to_string).collect()
}

/// Checks that each text has exactly one mistake, whose message contains these words.
pub(super) fn each_has_one_mistake(cases: &[(&str, &str)]) {
    for (text, words) in cases {
        let mistakes = bad(text, &[]);
        assert_eq!(mistakes.len(), 1, "{text}\n{mistakes:#?}");
        assert!(mistakes[0].contains(words), "{text}\n{}\nlacks: {words}", mistakes[0]);
    }
}
