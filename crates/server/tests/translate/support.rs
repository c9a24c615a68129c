//! Shared by the tests of the translate lane: clients by dialect, gateways over simulators, and
//! checks of recorded requests.

use std::path::Path;

use serde_json::Value;
use throughline_simulator::{Options, Scenario, Variant};
use throughline_testkit::{Answer, DiskKind, Gateway, ReceivedRequest, Simulator};

use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::gemini::Gemini;
use crate::responses::Responses;
use crate::test_client::{ClientView, TestClient, list, send_turn, text};
use crate::upstreams::{SCENARIO, UPSTREAMS, Upstream};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// The prefix of every envelope.
pub(crate) const ENVELOPE: &str = "TLine1";

/// Gemini's signature for calls without a known signature.
const SKIP_VALIDATION: &str = "skip_thought_signature_validator";

/// The backend names, in order.
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The client dialects.
pub(crate) const CLIENTS: [&str; 4] = ["anthropic", "openai_chat", "openai_responses", "gemini"];

/// Creates a client of this dialect that asks for thinking and offers a tool.
pub(crate) fn new_client(dialect: &str) -> Box<dyn TestClient> {
    let mut test_client: Box<dyn TestClient> = match dialect {
        "anthropic" => Box::new(Anthropic::default()),
        "openai_chat" => Box::new(Chat::new(false)),
        "openai_responses" => Box::new(Responses::default()),
        "gemini" => Box::new(Gemini::default()),
        other => panic!("no client of {other}"),
    };
    test_client.set_thinking(true);
    test_client.offer_tool();
    test_client
}

/// Returns a row of the matrix.
pub(crate) fn upstream(name: &str) -> Upstream {
    let row = UPSTREAMS.iter().find(|row| row.name == name);
    *row.unwrap_or_else(|| panic!("no upstream {name}"))
}

/// Returns the client dialects that differ from the dialect of this row.
pub(crate) fn foreign_clients(row: &str) -> impl Iterator<Item = &'static str> {
    let own = upstream(row).dialect;
    CLIENTS.into_iter().filter(move |dialect| *dialect != own)
}

/// How to build a [`TestBed`].
#[derive(Clone, Copy)]
pub(crate) struct BedOptions<'a> {
    /// Rows of the matrix; the backends are `a`, `b`, `c`.
    pub(crate) upstreams: &'a [&'a str],
    /// The scenario of the simulators.
    pub(crate) scenario: &'a str,
    /// Configuration before the backends.
    pub(crate) settings: &'a str,
    /// More lines in every backend.
    pub(crate) backend: &'a str,
    pub(crate) environment: &'a [(&'a str, &'a str)],
    /// The data directory is on a disk that can be filled.
    pub(crate) disk: Option<DiskKind>,
}

impl Default for BedOptions<'_> {
    fn default() -> Self {
        Self {
            upstreams: &[],
            scenario: SCENARIO,
            settings: "",
            backend: "",
            environment: &[],
            disk: None,
        }
    }
}

/// A gateway over strict simulators that read none of each other's signatures.
pub(crate) struct TestBed {
    pub(crate) gateway: Gateway,
    pub(crate) simulators: Vec<Simulator>,
}

impl TestBed {
    pub(crate) async fn over(upstreams: &[&str]) -> Self {
        Self::build(&BedOptions { upstreams, ..BedOptions::default() }).await
    }

    pub(crate) async fn build(options: &BedOptions<'_>) -> Self {
        let mut simulators = Vec::new();
        let mut config = format!("{}\n", options.settings);
        for (name, row) in NAMES.iter().zip(options.upstreams) {
            let row = upstream(row);
            let simulator = row.start_with(name, options.scenario).await;
            config.push_str(&row.backend(name, &simulator.url));
            config.push_str(&format!("{}\n", options.backend));
            simulators.push(simulator);
        }
        let gateway = match options.disk {
            Some(kind) => Gateway::start_on_small_disk(BINARY, &config, kind).await,
            None => Gateway::start_with_env(BINARY, &config, options.environment).await,
        };
        Self { gateway, simulators }
    }

    /// Starts a gateway over one chat server that behaves as this model's name says. `backend` is
    /// the rest of its table.
    pub(crate) async fn of_model(model: &str, scenario: &str, backend: &str) -> Self {
        let identity = Options::default().identity;
        let simulator = Simulator::with_scenario(&identity, scenario).await;
        Self::over_chat_server(simulator, model, backend).await
    }

    /// Starts a gateway over one chat server of this variant. `backend` is the rest of its table.
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

    /// Sends the conversation and keeps the answer.
    pub(crate) async fn send(&self, test_client: &mut dyn TestClient) -> (ClientView, Answer) {
        send_turn(test_client, &self.gateway.client, "some-model", true).await
    }

    /// Returns the last request that a backend received.
    pub(crate) async fn last_received(&self, backend: usize) -> ReceivedRequest {
        self.simulators[backend].last_received().await
    }

    /// Stops the gateway as an operator does, so that everything is written.
    pub(crate) async fn stop(&mut self) {
        self.gateway.signal("TERM").await;
        self.gateway.wait_for_exit().await;
    }

    /// Stops the gateway, deletes everything stored but the keyring, and starts it again.
    pub(crate) async fn reset_memory(&mut self) {
        self.stop().await;
        for (path, _) in files(&self.gateway.folder().join("data")) {
            if path.contains("memory.db") {
                std::fs::remove_file(path).expect("a file of ours");
            }
        }
        self.gateway.restart().await;
    }

    /// Checks at the end of a test that no upstream received an envelope. Returns the refusals.
    pub(crate) async fn into_refusals(self) -> Vec<String> {
        let mut refused = Vec::new();
        for simulator in &self.simulators {
            for seen in simulator.received().await {
                assert!(!seen.body.contains(ENVELOPE), "{}", seen.body);
                if !seen.refusal.is_empty() {
                    refused.push(seen.refusal);
                }
            }
        }
        refused
    }

    /// Like [`TestBed::into_refusals`], and checks that there are none.
    pub(crate) async fn expect_no_refusals(self) {
        assert_eq!(self.into_refusals().await, [""; 0]);
    }
}

/// Returns the files of a folder with their contents.
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

/// Counts the pieces of thinking in a recorded request of any dialect: blocks, items, members,
/// signatures.
pub(crate) fn thinking_in(body: &Value) -> usize {
    let present = |value: &Value| usize::from(!text(value).is_empty());
    let signatures = |value: &Value| present(value) - usize::from(*value == SKIP_VALIDATION);
    let mut found = 0;
    for message in list(&body["messages"]) {
        let details = list(&message["reasoning_details"]).count();
        let members = ["reasoning_content", "reasoning", "thinking"];
        let member = members.iter().map(|name| present(&message[*name])).max().unwrap_or_default();
        found += member.max(details);
        found += list(&message["content"])
            .filter(|block| matches!(text(&block["type"]), "thinking" | "redacted_thinking"))
            .count();
        found += text(&message["content"]).matches("<think>").count();
        for call in list(&message["tool_calls"]) {
            found += signatures(&call["extra_content"]["google"]["thought_signature"]);
        }
    }
    found += list(&body["input"]).filter(|item| item["type"] == "reasoning").count();
    for part in list(&body["contents"]).flat_map(|content| list(&content["parts"])) {
        found += signatures(&part["thoughtSignature"]);
    }
    found
}

/// Returns the losses in the header of an answer that are not about settings.
pub(crate) fn lost_parts(answer: &Answer) -> Vec<&str> {
    let losses = answer.header("x-throughline-loss").split(", ");
    losses.filter(|loss| !loss.is_empty() && !loss.starts_with("setting_adapted")).collect()
}

/// Changes every envelope in a request.
pub(crate) fn envelopes(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) if text.starts_with(ENVELOPE) => change(text),
        Value::Array(list) => list.iter_mut().for_each(|value| envelopes(value, change)),
        Value::Object(members) => members.values_mut().for_each(|value| envelopes(value, change)),
        _ => {}
    }
}

/// The mismatches of a table test. All of them are reported, not only the first.
#[derive(Default)]
pub(crate) struct Mismatches(Vec<String>);

impl Mismatches {
    /// Compares two values.
    #[expect(clippy::needless_pass_by_value, reason = "call sites pass new values")]
    pub(crate) fn check_equal<T, U>(&mut self, case: &str, found: T, expected: U)
    where
        T: std::fmt::Debug + PartialEq<U>,
        U: std::fmt::Debug,
    {
        if found != expected {
            self.0.push(format!("{case}: {found:?} and not {expected:?}"));
        }
    }

    /// Checks a condition.
    pub(crate) fn check(&mut self, holds: bool, case: impl Into<String>) {
        if !holds {
            self.0.push(case.into());
        }
    }

    /// Panics if there are mismatches.
    pub(crate) fn assert_none(self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}
