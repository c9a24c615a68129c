//! Shared by the flows: a gateway over two backends, and short forms of their reports.

use serde_json::{Value, json};
use throughline_simulator::Options;
use throughline_testkit::{Answer, Client, Conversation, Gateway, Simulator};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// An empty list of blocks.
pub(crate) const NO_BLOCKS: [Value; 0] = [];

pub(crate) const POLICIES: [&str; 2] = ["origin", "session"];

/// Each policy, streamed and not streamed.
pub(crate) const POLICIES_AND_STREAMING: [(&str, bool); 4] =
    [("origin", true), ("origin", false), ("session", true), ("session", false)];

/// A gateway over two simulators `a` and `b` that read none of each other's signatures. `a` is
/// active.
pub(crate) struct Pair {
    pub(crate) a: Simulator,
    pub(crate) b: Simulator,
    pub(crate) gateway: Gateway,
}

impl Pair {
    /// Starts a pair with these settings before the backends.
    pub(crate) async fn start(settings: &str) -> Self {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        Self::with_simulators(a, b, settings, ["", ""]).await
    }

    /// Starts a pair with a policy and defaults for everything else.
    pub(crate) async fn with_policy(policy: &str) -> Self {
        Self::start(&format!("[thinking]\npolicy = \"{policy}\"")).await
    }

    /// Starts a pair with these simulators and more lines for each backend.
    pub(crate) async fn with_simulators(
        a: Simulator,
        b: Simulator,
        settings: &str,
        backends: [&str; 2],
    ) -> Self {
        let config = format!(
            "{settings}\n{}{}",
            backend("a", &a, backends[0]),
            backend("b", &b, backends[1])
        );
        let gateway = Gateway::start(BINARY, &config).await;
        Self { a, b, gateway }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.gateway.client
    }

    /// Returns everything that either simulator refused. Most flows expect an empty list.
    pub(crate) async fn refusals(&self) -> Vec<String> {
        let mut all = self.a.received().await;
        all.extend(self.b.received().await);
        all.into_iter().map(|seen| seen.refusal).filter(|refusal| !refusal.is_empty()).collect()
    }

    /// Returns how many blocks the gateway holds, in the form of [`held`].
    pub(crate) async fn held(&self) -> Value {
        counts(&self.gateway.statistics().await)
    }

    /// Like [`Pair::held`], for the lineage of one answer.
    pub(crate) async fn held_in_lineage_of(&self, answer: &Answer) -> Value {
        let lineage = self.turn(answer).await["lineage"].clone();
        let path = format!("/admin/thinking?lineage={}", lineage.as_str().unwrap());
        counts(&self.client().get(&path).await.expect_ok().json())
    }

    /// Returns the turn of an answer.
    pub(crate) async fn turn(&self, answer: &Answer) -> Value {
        self.gateway.turn_of(answer).await
    }
}

/// A `[[backend]]` table for a simulator.
pub(crate) fn backend(name: &str, simulator: &Simulator, more: &str) -> String {
    format!(
        "[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n{more}\n",
        simulator.url
    )
}

/// Starts a simulator that binds each block to the conversation before it.
pub(crate) async fn binding_simulator(identity: &str) -> Simulator {
    Simulator::with(Options {
        identity: identity.to_owned(),
        prefix_binding: true,
        ..Options::default()
    })
    .await
}

/// Creates a conversation, streamed or not.
pub(crate) fn new_conversation(session: &str, stream: bool) -> Conversation {
    let mut conversation = Conversation::new(session);
    conversation.stream = stream;
    conversation
}

/// Returns the expected statistics: confirmed and unconfirmed blocks of the current session, the
/// session number, and no older blocks.
pub(crate) fn held(confirmed: u64, unconfirmed: u64, session: u64) -> Value {
    json!({
        "total": confirmed + unconfirmed,
        "confirmed": confirmed,
        "unconfirmed": unconfirmed,
        "current_session": confirmed + unconfirmed,
        "old_session": 0,
        "session": session,
    })
}

fn counts(statistics: &Value) -> Value {
    let mut counts = held(0, 0, 0);
    for (name, count) in counts.as_object_mut().unwrap() {
        *count = statistics[name].clone();
    }
    counts
}

/// Returns the path and the fate of each block in a report, such as `1.0 left_out origin`.
pub(crate) fn fates(report: &Value) -> Vec<String> {
    let blocks = report["blocks"].as_array().unwrap();
    let fate = |block: &Value| {
        let path = block["path"].as_str().unwrap();
        let path = path.replace("messages.", "").replace(".content.", ".");
        let fate = block["fate"].as_str().unwrap();
        match block["reason"].as_str() {
            Some(reason) => format!("{path} {fate} {reason}"),
            None => format!("{path} {fate}"),
        }
    };
    blocks.iter().map(fate).collect()
}

pub(crate) fn loss(answer: &Answer) -> &str {
    answer.header("x-throughline-loss")
}

/// Returns the thinking blocks of messages, in order.
pub(crate) fn thinking_in(messages: &[&Value]) -> Vec<Value> {
    let blocks = messages
        .iter()
        .flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    blocks.filter(is_thinking).collect()
}

pub(crate) fn is_thinking(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// Removes the thinking of one message, as a client does that shortens its history.
pub(crate) fn cut_thinking(conversation: &mut Conversation, message: usize) {
    let content = conversation.body["messages"][message]["content"].as_array_mut();
    content.unwrap().retain(|block| !is_thinking(block));
}

/// Truncates the history to this many messages, as a client does that edits an earlier message.
pub(crate) fn truncate_to(conversation: &mut Conversation, messages: usize) {
    let all = conversation.body["messages"].as_array_mut();
    all.unwrap().truncate(messages);
}

/// Waits until new blocks are older than a threshold of one millisecond. The test is about this
/// time.
pub(crate) async fn pass_threshold() {
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
}
