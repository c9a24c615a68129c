//! What the flows share: two backends behind a gateway, and short forms of what all three report.

use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Answer, Client, Conversation, Gateway, Simulator};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// No block at all.
pub(crate) const NOTHING: [Value; 0] = [];

pub(crate) const POLICIES: [&str; 2] = ["origin", "session"];

/// Each policy, with streams and without.
pub(crate) const WAYS: [(&str, bool); 4] =
    [("origin", true), ("origin", false), ("session", true), ("session", false)];

/// Two simulators `a` and `b` of different identity behind one gateway; `a` is active.
pub(crate) struct Pair {
    pub(crate) a: Simulator,
    pub(crate) b: Simulator,
    pub(crate) gateway: Gateway,
}

impl Pair {
    /// With these settings before the backends.
    pub(crate) async fn start(settings: &str) -> Self {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        Self::of(a, b, settings, ["", ""]).await
    }

    /// Under a policy, everything else left to the defaults.
    pub(crate) async fn under(policy: &str) -> Self {
        Self::start(&format!("[thinking]\npolicy = \"{policy}\"")).await
    }

    /// With simulators of one's own, and more lines for each backend.
    pub(crate) async fn of(
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

    /// Everything either simulator refused. Most flows expect nothing here.
    pub(crate) async fn refusals(&self) -> Vec<String> {
        let mut all = self.a.seen().await;
        all.extend(self.b.seen().await);
        all.into_iter().map(|seen| seen.refusal).filter(|refusal| !refusal.is_empty()).collect()
    }

    /// How many blocks are held, as [`held`] says it.
    pub(crate) async fn held(&self) -> Value {
        counts(&self.gateway.statistics().await)
    }

    /// As [`Pair::held`], of the conversation an answer belongs to.
    pub(crate) async fn held_by(&self, answer: &Answer) -> Value {
        let lineage = self.turn(answer).await["lineage"].clone();
        let path = format!("/admin/thinking?lineage={}", lineage.as_str().unwrap());
        counts(&self.client().get(&path).await.good().json())
    }

    /// What `/admin/turns` says of an answer.
    pub(crate) async fn turn(&self, answer: &Answer) -> Value {
        turn(&self.gateway, answer).await
    }
}

/// A `[[backend]]` table for a simulator.
pub(crate) fn backend(name: &str, simulator: &Simulator, more: &str) -> String {
    format!(
        "[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n{more}\n",
        simulator.url
    )
}

/// A simulator that follows a scenario.
pub(crate) async fn scripted(identity: &str, scenario: &str) -> Simulator {
    Simulator::with(Options {
        identity: identity.to_owned(),
        scenario: Some(Scenario::from_toml(scenario).unwrap()),
        ..Options::default()
    })
    .await
}

/// A simulator that binds each block to the conversation before it.
pub(crate) async fn binding(identity: &str) -> Simulator {
    Simulator::with(Options {
        identity: identity.to_owned(),
        prefix_binding: true,
        ..Options::default()
    })
    .await
}

/// A conversation that streams or does not.
pub(crate) fn talk(session: &str, stream: bool) -> Conversation {
    let mut talk = Conversation::new(session);
    talk.stream = stream;
    talk
}

/// Statistics in short: blocks of the present session that were confirmed and not, and the
/// session number. Nothing of an older session.
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

/// What `/admin/turns` says of an answer.
pub(crate) async fn turn(gateway: &Gateway, answer: &Answer) -> Value {
    let id = answer.header("x-throughline-turn");
    let turns = gateway.turns().await;
    let found = turns.into_iter().find(|turn| turn["id"] == id);
    found.unwrap_or_else(|| panic!("no turn {id}"))
}

/// The fate of each block in a report, such as `1.0 left_out origin`.
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

/// The thinking in messages, in order.
pub(crate) fn thinking(messages: &[&Value]) -> Vec<Value> {
    let blocks = messages
        .iter()
        .flat_map(|message| message["content"].as_array().cloned().unwrap_or_default());
    blocks.filter(is_thinking).collect()
}

pub(crate) fn is_thinking(block: &Value) -> bool {
    block["type"] == "thinking" || block["type"] == "redacted_thinking"
}

/// Takes the thinking out of a message of a conversation, as a client that shortens its history.
pub(crate) fn cut_thinking(talk: &mut Conversation, message: usize) {
    let content = talk.body["messages"][message]["content"].as_array_mut();
    content.unwrap().retain(|block| !is_thinking(block));
}

/// Goes back to so many messages, as a client that takes back what it said.
pub(crate) fn go_back(talk: &mut Conversation, messages: usize) {
    let all = talk.body["messages"].as_array_mut();
    all.unwrap().truncate(messages);
}

/// Makes what was just registered older than a threshold of one millisecond. Time passing is
/// what is being tested here, so this is not a wait for something else.
pub(crate) async fn grow_old() {
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
}
