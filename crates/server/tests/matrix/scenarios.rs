//! The scenarios of the matrix.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use futures_util::FutureExt;
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::ag_ui::AgUi;
use crate::anthropic::Anthropic;
use crate::canonical::CanonicalClient;
use crate::chat::Chat;
use crate::gemini::{Dropped, Gemini};
use crate::ollama::Ollama;
use crate::responses::Responses;
use crate::table::panic_text;
use crate::test_client::{ClientView, TestClient, send_turn};
use crate::ui_stream::UiStream;
use crate::upstreams::Upstream;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// The names of the clients.
pub(crate) const CLIENTS: &[&str] = &[
    "anthropic",
    "anthropic, thinking dropped",
    "anthropic, history kept here",
    "anthropic, compaction",
    "openai_chat",
    "openai_chat, reasoning dropped",
    "openai_responses",
    "openai_responses, reasoning dropped",
    "openai_responses, history kept here",
    "openai_responses, compaction",
    "gemini",
    "gemini, ids and signatures dropped",
    "gemini, all dropped",
    "ui_stream",
    "ndjson",
    "events",
    "ag_ui",
    "ag_ui, before 1.0",
    "ollama",
    "ollama, ids dropped",
    "ollama, all dropped",
];

/// The names of the scenarios.
pub(crate) const SCENARIOS: &[&str] = &[
    "plain",
    "thinking",
    "one tool",
    "no arguments",
    "parallel tools",
    "redacted",
    "tool loop",
    "cache",
    "switch",
];

/// Counts the conversations.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);

/// Creates the client with this name.
pub(crate) fn test_client(name: &str) -> Box<dyn TestClient> {
    match name {
        "anthropic" => Box::new(Anthropic::default()),
        "anthropic, thinking dropped" => Box::new(Anthropic::without_thinking()),
        "anthropic, history kept here" => Box::new(Anthropic::threaded()),
        "anthropic, compaction" => Box::new(Anthropic::compacting()),
        "openai_chat" => Box::new(Chat::new(true)),
        "openai_chat, reasoning dropped" => Box::new(Chat::new(false)),
        "openai_responses" => Box::new(Responses::default()),
        "openai_responses, reasoning dropped" => Box::new(Responses::without_reasoning()),
        "openai_responses, history kept here" => Box::new(Responses::stateful()),
        "openai_responses, compaction" => Box::new(Responses::compacting()),
        "gemini" => Box::new(Gemini::default()),
        "gemini, ids and signatures dropped" => {
            Box::new(Gemini::dropping(Dropped::IdsAndSignatures))
        }
        "gemini, all dropped" => Box::new(Gemini::dropping(Dropped::All)),
        "ui_stream" => Box::new(UiStream::default()),
        "ndjson" => Box::new(CanonicalClient::new("/ndjson/chat")),
        "events" => Box::new(CanonicalClient::new("/v1/stream")),
        "ag_ui" => Box::new(AgUi::new(false)),
        "ag_ui, before 1.0" => Box::new(AgUi::new(true)),
        "ollama" => Box::new(Ollama::new(true, true)),
        "ollama, ids dropped" => Box::new(Ollama::new(false, true)),
        "ollama, all dropped" => Box::new(Ollama::new(false, false)),
        other => panic!("no test client is called `{other}`"),
    }
}

/// The result of one cell.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The losses in the reply headers, without duplicates.
    pub(crate) losses: Vec<String>,
    /// Everything that was not as expected.
    pub(crate) mismatches: Vec<String>,
}

/// A gateway over an upstream and over a second one that reads none of its signatures.
pub(crate) struct TestBed {
    upstreams: [Upstream; 2],
    one: Simulator,
    other: Simulator,
    gateway: Gateway,
}

impl TestBed {
    pub(crate) async fn start(upstream: Upstream, other: Upstream) -> Self {
        let (one, two) = (upstream.start("one").await, other.start("two").await);
        let config =
            format!("{}{}", upstream.backend("one", &one.url), other.backend("two", &two.url));
        Self {
            upstreams: [upstream, other],
            gateway: Gateway::start(BINARY, &config).await,
            one,
            other: two,
        }
    }

    /// Runs one cell.
    pub(crate) async fn run_cell(&self, client: &str, scenario: &str, stream: bool) -> Outcome {
        let mut test_client = test_client(client);
        // The conversations of other cells begin with the same words.
        let session = format!("{scenario} {}", SESSIONS.fetch_add(1, Relaxed));
        test_client.history().session = Some(Box::leak(session.into()));
        for simulator in [&self.one, &self.other] {
            simulator.clear_received().await;
        }
        self.gateway.switch("one").await;
        let mut run = ScenarioRun {
            bed: self,
            client,
            shows_reasoning: self.upstreams[0].shows_reasoning,
            test_client,
            stream,
            outcome: Outcome::default(),
        };
        // A panic in one cell must not hide the other cells.
        let result = AssertUnwindSafe(run.run(scenario)).catch_unwind();
        let panicked = result.await.err();
        let mut outcome = run.outcome;
        outcome.mismatches.extend(panicked.map(panic_text));
        for simulator in [&self.one, &self.other] {
            for seen in simulator.received().await {
                if !seen.refusal.is_empty() {
                    outcome.mismatches.push(format!("refused: {}", seen.refusal));
                }
            }
        }
        outcome
    }
}

/// One run of a scenario.
struct ScenarioRun<'a> {
    bed: &'a TestBed,
    /// The client's name.
    client: &'a str,
    /// Whether the current upstream shows reasoning.
    shows_reasoning: bool,
    test_client: Box<dyn TestClient>,
    stream: bool,
    outcome: Outcome,
}

impl ScenarioRun<'_> {
    async fn run(&mut self, scenario: &str) {
        let thinking = scenario != "plain";
        self.test_client.set_thinking(thinking);
        match scenario {
            "plain" => {
                self.test_client.push_user("plain, please");
                self.expect_reply("", "Just a text.", &[]).await;
            }
            "thinking" => {
                self.test_client.push_user("ponder this");
                self.expect_reply("First this, then that.", "I have thought.", &[]).await;
                self.test_client.push_user("ponder that");
                self.expect_reply("First this, then that.", "I have thought.", &[]).await;
            }
            "one tool" => {
                self.test_client.offer_tool();
                self.test_client.push_user("use one tool");
                let view = self.expect_reply("I need a row.", "", &["7"]).await;
                self.test_client.push_results(&view.calls, "row green");
                self.expect_reply("That is all.", "Blue, then green.", &[]).await;
            }
            "no arguments" => {
                self.test_client.offer_tool();
                self.test_client.push_user("no arguments, please");
                let view = self.expect_reply("I need all rows.", "", &[""]).await;
                self.test_client.push_results(&view.calls, "row green");
                self.expect_reply("That is all.", "Blue, then green.", &[]).await;
            }
            "parallel tools" => {
                self.test_client.offer_tool();
                self.test_client.push_user("use two tools");
                let view = self.expect_reply("I need two rows.", "I look.", &["7", "8"]).await;
                self.test_client.push_results(&view.calls, "row green");
                self.expect_reply("That is all.", "Blue, then green.", &[]).await;
            }
            "redacted" => {
                self.test_client.push_user("keep it hidden");
                self.expect_redacted_reply().await;
                self.test_client.push_user("ponder this");
                self.expect_reply("First this, then that.", "I have thought.", &[]).await;
            }
            "cache" => self.run_cached().await,
            "tool loop" | "switch" => {
                self.test_client.offer_tool();
                self.test_client.push_user("use one tool");
                let view = self.expect_reply("I need a row.", "", &["7"]).await;
                self.test_client.push_results(&view.calls, "row blue");
                let view = self.expect_reply("Another row.", "", &["9"]).await;
                if scenario == "switch" {
                    self.bed.gateway.switch("two").await;
                    self.shows_reasoning = self.bed.upstreams[1].shows_reasoning;
                }
                self.test_client.push_results(&view.calls, "row green");
                self.expect_reply("That is all.", "Blue, then green.", &[]).await;
                self.test_client.push_user("ponder this");
                self.expect_reply("First this, then that.", "I have thought.", &[]).await;
            }
            other => panic!("no scenario {other}"),
        }
    }

    /// Sends a long system text twice. The second time, it comes from the upstream's cache.
    async fn run_cached(&mut self) {
        let upstream = self.bed.upstreams[0];
        let history = self.test_client.history();
        history.system = "Rows have a key and a colour. ".repeat(700);
        history.sets_breakpoints = upstream.gets_breakpoints_of(self.client);
        self.test_client.push_user("ponder this");
        self.expect_reply("First this, then that.", "I have thought.", &[]).await;
        self.test_client.push_user("ponder that");
        self.expect_reply("First this, then that.", "I have thought.", &[]).await;
        let share = self.bed.one.last_received().await.cache;
        if upstream.has_cache() && share.hit_rate() < 0.9 {
            self.outcome.mismatches.push(format!("too little came from the cache: {share:?}"));
        }
    }

    async fn send_turn(&mut self) -> ClientView {
        let client = &self.bed.gateway.client;
        let (view, answer) =
            send_turn(&mut *self.test_client, client, "some-model", self.stream).await;
        self.record_losses(&answer);
        view
    }

    fn record_losses(&mut self, answer: &Answer) {
        let losses = answer.headers.get("x-throughline-loss");
        let losses = losses.and_then(|value| value.to_str().ok()).unwrap_or_default();
        for loss in losses.split(", ").filter(|loss| !loss.is_empty()) {
            if !self.outcome.losses.iter().any(|known| known == loss) {
                self.outcome.losses.push(loss.to_owned());
            }
        }
    }

    /// Sends a turn and compares what the client sees.
    async fn expect_reply(&mut self, reasoning: &str, text: &str, keys: &[&str]) -> ClientView {
        let view = self.send_turn().await;
        let calls: Vec<&str> = view
            .calls
            .iter()
            .map(|call| call.arguments["key"].as_str().unwrap_or_default())
            .collect();
        let reasoning = if self.shows_reasoning { reasoning } else { "" };
        if view.reasoning != reasoning || view.text.trim() != text || calls != keys {
            self.outcome
                .mismatches
                .push(format!("the client saw {view:?}, not {reasoning:?} {text:?} {keys:?}"));
        }
        view
    }

    async fn expect_redacted_reply(&mut self) {
        let view = self.send_turn().await;
        let seen = view.reasoning.contains("This may be seen.") || !self.shows_reasoning;
        if !seen || view.text.trim() != "Some was hidden." {
            self.outcome.mismatches.push(format!("the client saw {view:?}"));
        }
    }
}

#[test]
fn every_client_dialect_has_a_test_client() {
    for dialect in throughline_codec::dialects::CLIENT {
        assert!(CLIENTS.contains(&dialect.name()), "{} is not in CLIENTS", dialect.name());
    }
}
