//! What the tests of this lane share: clients by name, gateways over simulators, and what stands in a
//! recorded request.

use std::path::Path;

use serde_json::Value;
use throughline_simulator::{Options, Scenario, Variant};
use throughline_testkit::{Answer, Gateway, Seen, Simulator};

use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::gemini::Gemini;
use crate::responses::Responses;
use crate::speaker::{Said, Speaker, go_on, list, text};
use crate::upstreams::{SAYS, UPSTREAMS, Upstream};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// How every envelope begins.
pub(crate) const ENVELOPE: &str = "TLine1";

/// What says that a call was made elsewhere.
const SKIPPED: &str = "skip_thought_signature_validator";

/// The names of backends, in their order.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The clients.
pub(crate) const CLIENTS: [&str; 4] = ["anthropic", "openai_chat", "openai_responses", "gemini"];

/// A client of this dialect that wants thinking and offers a tool.
pub(crate) fn client(dialect: &str) -> Box<dyn Speaker> {
    let mut speaker: Box<dyn Speaker> = match dialect {
        "anthropic" => Box::new(Anthropic::default()),
        "openai_chat" => Box::new(Chat::new(false)),
        "openai_responses" => Box::new(Responses::default()),
        "gemini" => Box::new(Gemini::default()),
        other => panic!("no client of {other}"),
    };
    speaker.think(true);
    speaker.offer_tool();
    speaker
}

/// A row of the matrix.
pub(crate) fn upstream(name: &str) -> Upstream {
    let row = UPSTREAMS.iter().find(|row| row.name == name);
    *row.unwrap_or_else(|| panic!("no upstream {name}"))
}

/// What to build a house of.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    /// Rows of the matrix; the backends are `a`, `b`, `c`.
    pub(crate) upstreams: &'a [&'a str],
    /// What the simulators say.
    pub(crate) scenario: &'a str,
    /// Before the backends.
    pub(crate) settings: &'a str,
    /// In every backend.
    pub(crate) backend: &'a str,
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl Default for Plan<'_> {
    fn default() -> Self {
        Self { upstreams: &[], scenario: SAYS, settings: "", backend: "", environment: &[] }
    }
}

/// A gateway over strict simulators that read none of each other's signatures.
pub(crate) struct House {
    pub(crate) gateway: Gateway,
    pub(crate) simulators: Vec<Simulator>,
}

impl House {
    pub(crate) async fn over(upstreams: &[&str]) -> Self {
        Self::build(&Plan { upstreams, ..Plan::default() }).await
    }

    pub(crate) async fn build(plan: &Plan<'_>) -> Self {
        let mut simulators = Vec::new();
        let mut config = format!("{}\n", plan.settings);
        for (name, row) in NAMES.iter().zip(plan.upstreams) {
            let row = upstream(row);
            let simulator = row.saying(name, plan.scenario).await;
            config.push_str(&row.backend(name, &simulator.url));
            config.push_str(&format!("{}\n", plan.backend));
            simulators.push(simulator);
        }
        Self { gateway: Gateway::start_in(BINARY, &config, plan.environment).await, simulators }
    }

    /// Over one server of the chat dialect that behaves as this model's name says. `backend` is the
    /// rest of its table.
    pub(crate) async fn of_model(model: &str, scenario: &str, backend: &str) -> Self {
        let simulator = Simulator::with(Options {
            scenario: Some(Scenario::from_toml(scenario).expect("a scenario")),
            ..Options::default()
        })
        .await;
        Self::over_chat_server(simulator, model, backend).await
    }

    /// Over one chat server of this variant. `backend` is the rest of its table.
    pub(crate) async fn of_server(
        variant: &str,
        model: &str,
        scenario: &str,
        backend: &str,
    ) -> Self {
        let simulator = Simulator::with(Options {
            scenario: Some(Scenario::from_toml(scenario).expect("a scenario")),
            variant: Some(Variant::named(variant).expect("a variant of the simulator")),
            ..Options::default()
        })
        .await;
        Self::over_chat_server(simulator, model, backend).await
    }

    async fn over_chat_server(simulator: Simulator, model: &str, backend: &str) -> Self {
        let config = format!(
            "[[backend]]\nname = \"a\"\ndialect = \"openai_chat\"\nbase_url = \"{}\"\n\
             models = {{ \"*\" = \"{model}\" }}\n{backend}\n",
            simulator.url
        );
        Self { gateway: Gateway::start(BINARY, &config).await, simulators: vec![simulator] }
    }

    /// Sends the conversation, and keeps the answer.
    pub(crate) async fn hear(&self, speaker: &mut dyn Speaker) -> (Said, Answer) {
        go_on(speaker, &self.gateway.client, "some-model", true).await
    }

    /// The last request that a backend got.
    pub(crate) async fn last(&self, backend: usize) -> Seen {
        self.simulators[backend].last().await
    }

    /// Stops as an operator does, so that all is written.
    pub(crate) async fn stop(&mut self) {
        self.gateway.signal("TERM").await;
        self.gateway.ended().await;
    }

    /// Stops, forgets all that was kept but the keyring, and starts again.
    pub(crate) async fn forget(&mut self) {
        self.stop().await;
        for (path, _) in files(&self.gateway.folder().join("data")) {
            if path.contains("memory.db") {
                std::fs::remove_file(path).expect("a file of ours");
            }
        }
        self.gateway.start_again().await;
    }

    /// The end of every test: no envelope has reached any upstream. Answers what was refused.
    pub(crate) async fn end(self) -> Vec<String> {
        let mut refused = Vec::new();
        for simulator in &self.simulators {
            for seen in simulator.seen().await {
                assert!(!seen.body.contains(ENVELOPE), "{}", seen.body);
                if !seen.refusal.is_empty() {
                    refused.push(seen.refusal);
                }
            }
        }
        refused
    }

    /// As [`House::end`], where nothing may be refused.
    pub(crate) async fn end_in_peace(self) {
        assert_eq!(self.end().await, [""; 0]);
    }
}

/// The files of a folder, with their contents.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .filter(|path| path.is_file())
        .map(|path| {
            let bytes = std::fs::read(&path).unwrap_or_default();
            (path.display().to_string(), bytes)
        })
        .collect()
}

/// How many pieces of thinking a recorded request brings back, in whichever dialect it is: blocks,
/// items, members, signatures.
pub(crate) fn thinking_in(body: &Value) -> usize {
    let says = |value: &Value| usize::from(!text(value).is_empty());
    let signs = |value: &Value| says(value) - usize::from(*value == SKIPPED);
    let mut found = 0;
    for message in list(&body["messages"]) {
        let details = list(&message["reasoning_details"]).count();
        let member = says(&message["reasoning_content"]).max(says(&message["reasoning"]));
        found += member.max(details);
        found += list(&message["content"])
            .filter(|block| matches!(text(&block["type"]), "thinking" | "redacted_thinking"))
            .count();
        found += text(&message["content"]).matches("<think>").count();
        for call in list(&message["tool_calls"]) {
            found += signs(&call["extra_content"]["google"]["thought_signature"]);
        }
    }
    found += list(&body["input"]).filter(|item| item["type"] == "reasoning").count();
    for part in list(&body["contents"]).flat_map(|content| list(&content["parts"])) {
        found += signs(&part["thoughtSignature"]);
    }
    found
}

/// Every envelope in a request, wherever it stands.
pub(crate) fn envelopes(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) if text.starts_with(ENVELOPE) => change(text),
        Value::Array(list) => list.iter_mut().for_each(|value| envelopes(value, change)),
        Value::Object(members) => members.values_mut().for_each(|value| envelopes(value, change)),
        _ => {}
    }
}

/// The fates of a turn's blocks, with their reasons: `left_out origin`.
pub(crate) fn fates(report: &Value) -> Vec<String> {
    list(&report["blocks"])
        .map(|block| {
            let told = format!("{} {}", text(&block["fate"]), text(&block["reason"]));
            told.trim_end().to_owned()
        })
        .collect()
}

/// What a table found wrong: all of its lines are told, not only the first.
#[derive(Default)]
pub(crate) struct Wrong(Vec<String>);

impl Wrong {
    /// Compares one cell.
    #[expect(clippy::needless_pass_by_value, reason = "cells are written in place")]
    pub(crate) fn unless_equal<T, U>(&mut self, what: &str, found: T, expected: U)
    where
        T: std::fmt::Debug + PartialEq<U>,
        U: std::fmt::Debug,
    {
        if found != expected {
            self.0.push(format!("{what}: {found:?} and not {expected:?}"));
        }
    }

    /// Checks one cell.
    pub(crate) fn unless(&mut self, is_so: bool, what: impl Into<String>) {
        if !is_so {
            self.0.push(what.into());
        }
    }

    /// The table's end.
    pub(crate) fn end(self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}
