//! What is played in every cell.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::ag_ui::AgUi;
use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::gemini::Gemini;
use crate::lines::Lines;
use crate::ollama::Ollama;
use crate::responses::Responses;
use crate::speaker::{Said, Speaker, go_on};
use crate::ui_stream::UiStream;
use crate::upstreams::Upstream;

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// The clients.
pub(crate) const CLIENTS: &[&str] = &[
    "anthropic",
    "openai_chat",
    "openai_chat, reasoning dropped",
    "openai_responses",
    "openai_responses, history kept here",
    "gemini",
    "ui_stream",
    "ndjson",
    "events",
    "ag_ui",
    "ag_ui, before 1.0",
    "ollama",
    "ollama, ids dropped",
];

/// The scenarios.
pub(crate) const SCENARIOS: &[&str] =
    &["plain", "thinking", "one tool", "parallel tools", "redacted", "tool loop", "switch"];

/// What came of one cell.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The loss headers of its requests, without repeats.
    pub(crate) losses: Vec<String>,
    /// What went wrong.
    pub(crate) wrong: Vec<String>,
}

/// A gateway over an upstream, and over another of the same kind that reads none of its signatures.
pub(crate) struct Stage {
    upstreams: [Upstream; 2],
    one: Simulator,
    other: Simulator,
    gateway: Gateway,
}

impl Stage {
    pub(crate) async fn set(upstream: Upstream, other: Upstream) -> Self {
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

    /// Plays one cell.
    pub(crate) async fn play(&self, client: &str, scenario: &str, stream: bool) -> Outcome {
        match client {
            "anthropic" => self.with(Anthropic::default(), scenario, stream).await,
            "openai_chat" => self.with(Chat::new(true), scenario, stream).await,
            "openai_responses" => self.with(Responses::default(), scenario, stream).await,
            "openai_responses, history kept here" => {
                self.with(Responses::stateful(), scenario, stream).await
            }
            "gemini" => self.with(Gemini::default(), scenario, stream).await,
            "ui_stream" => self.with(UiStream::default(), scenario, stream).await,
            "ndjson" => self.with(Lines::new("/ndjson/chat"), scenario, stream).await,
            "events" => self.with(Lines::new("/v1/stream"), scenario, stream).await,
            "ag_ui" => self.with(AgUi::new(false), scenario, stream).await,
            "ag_ui, before 1.0" => self.with(AgUi::new(true), scenario, stream).await,
            "ollama" => self.with(Ollama::new(true), scenario, stream).await,
            "ollama, ids dropped" => self.with(Ollama::new(false), scenario, stream).await,
            _ => self.with(Chat::new(false), scenario, stream).await,
        }
    }

    async fn with(&self, speaker: impl Speaker, scenario: &str, stream: bool) -> Outcome {
        for simulator in [&self.one, &self.other] {
            simulator.forget().await;
        }
        self.gateway.switch("one").await;
        let mut play = Play {
            stage: self,
            shows: self.upstreams[0].shows,
            speaker,
            stream,
            outcome: Outcome::default(),
        };
        // A cell that breaks off must not hide the others.
        let played = AssertUnwindSafe(play.scenario(scenario)).catch_unwind();
        let broke = played.await.err();
        let mut outcome = play.outcome;
        outcome.wrong.extend(broke.map(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            text.unwrap_or_else(|| "broke off".to_owned())
        }));
        for simulator in [&self.one, &self.other] {
            for seen in simulator.seen().await {
                if !seen.refusal.is_empty() {
                    outcome.wrong.push(format!("refused: {}", seen.refusal));
                }
            }
        }
        outcome
    }
}

/// One cell being played.
struct Play<'a, S> {
    stage: &'a Stage,
    /// Whether the upstream that is asked now shows reasoning.
    shows: bool,
    speaker: S,
    stream: bool,
    outcome: Outcome,
}

impl<S: Speaker> Play<'_, S> {
    async fn scenario(&mut self, scenario: &str) {
        let thinks = scenario != "plain";
        self.speaker.think(thinks);
        match scenario {
            "plain" => {
                self.speaker.user("plain, please");
                self.hear("", "Just a text.", &[]).await;
            }
            "thinking" => {
                self.speaker.user("ponder this");
                self.hear("First this, then that.", "I have thought.", &[]).await;
                self.speaker.user("ponder that");
                self.hear("First this, then that.", "I have thought.", &[]).await;
            }
            "one tool" => {
                self.speaker.offer_tool();
                self.speaker.user("use one tool");
                let said = self.hear("I need a row.", "", &["7"]).await;
                self.speaker.results(&said.calls, "row green");
                self.hear("That is all.", "Blue, then green.", &[]).await;
            }
            "parallel tools" => {
                self.speaker.offer_tool();
                self.speaker.user("use two tools");
                let said = self.hear("I need two rows.", "I look.", &["7", "8"]).await;
                self.speaker.results(&said.calls, "row green");
                self.hear("That is all.", "Blue, then green.", &[]).await;
            }
            "redacted" => {
                self.speaker.user("keep it hidden");
                self.hear_redacted().await;
                self.speaker.user("ponder this");
                self.hear("First this, then that.", "I have thought.", &[]).await;
            }
            "tool loop" | "switch" => {
                self.speaker.offer_tool();
                self.speaker.user("use one tool");
                let said = self.hear("I need a row.", "", &["7"]).await;
                self.speaker.results(&said.calls, "row blue");
                let said = self.hear("Another row.", "", &["9"]).await;
                if scenario == "switch" {
                    self.stage.gateway.switch("two").await;
                    self.shows = self.stage.upstreams[1].shows;
                }
                self.speaker.results(&said.calls, "row green");
                self.hear("That is all.", "Blue, then green.", &[]).await;
                self.speaker.user("ponder this");
                self.hear("First this, then that.", "I have thought.", &[]).await;
            }
            other => panic!("no scenario {other}"),
        }
    }

    async fn go_on(&mut self) -> Said {
        let client = &self.stage.gateway.client;
        let (said, answer) = go_on(&mut self.speaker, client, "some-model", self.stream).await;
        self.note(&answer);
        said
    }

    fn note(&mut self, answer: &Answer) {
        let losses = answer.headers.get("x-throughline-loss");
        let losses = losses.and_then(|value| value.to_str().ok()).unwrap_or_default();
        for loss in losses.split(", ").filter(|loss| !loss.is_empty()) {
            if !self.outcome.losses.iter().any(|known| known == loss) {
                self.outcome.losses.push(loss.to_owned());
            }
        }
    }

    /// Goes on, and compares what is heard.
    async fn hear(&mut self, reasoning: &str, text: &str, keys: &[&str]) -> Said {
        let said = self.go_on().await;
        let calls: Vec<&str> = said
            .calls
            .iter()
            .map(|call| call.arguments["key"].as_str().unwrap_or_default())
            .collect();
        let reasoning = if self.shows { reasoning } else { "" };
        if said.reasoning != reasoning || said.text.trim() != text || calls != keys {
            self.outcome.wrong.push(format!("heard {said:?}, not {reasoning:?} {text:?} {keys:?}"));
        }
        said
    }

    async fn hear_redacted(&mut self) {
        let said = self.go_on().await;
        let seen = said.reasoning.contains("This may be seen.") || !self.shows;
        if !seen || said.text.trim() != "Some was hidden." {
            self.outcome.wrong.push(format!("heard {said:?}"));
        }
    }
}
