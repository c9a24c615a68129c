//! The planted fact: the first turn of a conversation contains a fact, and every later answer must
//! prove that the model has read it. The backend changes between the turns. So each way to carry a
//! conversation is tried between each two upstreams, and a loss cannot hide behind a good answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::Method;
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::anthropic::Anthropic;
use crate::chat::Chat;
use crate::gemini::Gemini;
use crate::ollama::Ollama;
use crate::responses::Responses;
use crate::support::{BINARY, ENVELOPE, upstream};
use crate::test_client::{TestClient, text, try_turn};

/// The backends: at least one for each upstream dialect, and two where only the maker of a part can
/// read it.
const BACKENDS: [(&str, &str); 8] = [
    ("anthropic", "anthropic, budget"),
    ("anthropic-bound", "anthropic, bound"),
    ("gemini", "gemini 3"),
    ("responses", "openai_responses"),
    ("responses-other", "openai_responses"),
    ("chat", "openai"),
    ("chat-open", "deepseek-v4"),
    ("ollama", "ollama"),
];

/// Which of two backends answers each turn: a switch at every turn, and one after two turns.
const SCHEDULES: [[usize; 4]; 2] = [[0, 1, 0, 1], [0, 0, 1, 1]];

/// Only the first message has the words before the fact, so no answer can pass the fact on.
const FACT: &str = "heron47";
const LATER: &str = "So what was it";
const SCENARIO: &str = r#"
[[step]]
when = { contains = "Write a summary of the conversation" }
say = [{ text = "the code is ", recall = "the code is " }]
[[step]]
when = { contains = "So what was it" }
say = [{ thinking = "I look at what was said." }, { text = "It was: ", recall = "the code is " }]
[[step]]
when = { contains = "Please note" }
say = [{ thinking = "I keep it in mind." }, { text = "Noted." }]
"#;

/// A gateway over all backends.
struct Bed {
    gateway: Gateway,
    simulators: Vec<Simulator>,
}

impl Bed {
    async fn start() -> Self {
        let (mut config, mut simulators) = (String::new(), Vec::new());
        for (name, row) in BACKENDS {
            let row = upstream(row);
            let simulator = row.start_with(name, SCENARIO).await;
            config.push_str(&row.backend(name, &simulator.url));
            simulators.push(simulator);
        }
        Self { gateway: Gateway::start(BINARY, &config).await, simulators }
    }

    /// Creates a conversation that the gateway stores.
    async fn new_conversation(&self) -> String {
        let headers = [("authorization", "Bearer key"), ("content-type", "application/json")];
        let client = &self.gateway.client;
        let made = client.send(Method::POST, "/v1/conversations", &headers, "{}").await;
        text(&made.expect_ok().json()["id"]).to_owned()
    }

    /// A client that carries its conversation in this way.
    async fn client(&self, carrier: &str) -> Box<dyn TestClient> {
        let mut client: Box<dyn TestClient> = match carrier {
            "history, anthropic" => Box::new(Anthropic::default()),
            "history, openai_chat" => Box::new(Chat::new(true)),
            "history, openai_responses" => Box::new(Responses::default()),
            "history, gemini" => Box::new(Gemini::default()),
            "history, ollama" => Box::new(Ollama::new(true, true)),
            "previous_response_id" => Box::new(Responses::stateful()),
            "conversation" => Box::new(Responses::in_conversation(&self.new_conversation().await)),
            "message thread" => Box::new(Anthropic::threaded()),
            "compaction block" => Box::new(Anthropic::compacting()),
            "compaction item" => Box::new(Responses::compacting()),
            other => panic!("no client carries its conversation by {other}"),
        };
        client.set_thinking(true);
        client
    }

    /// What upstreams refused since the last call, and envelopes that reached one.
    async fn upstream_faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (simulator, (name, _)) in self.simulators.iter().zip(BACKENDS) {
            for seen in simulator.received().await {
                if !seen.refusal.is_empty() {
                    faults.push(format!("{name} refused: {}", seen.refusal));
                }
                if seen.body.contains(ENVELOPE) {
                    faults.push(format!("{name} got an envelope"));
                }
            }
            simulator.clear_received().await;
        }
        faults
    }
}

/// The fates of the turns after the first one.
#[derive(Default)]
struct Tally {
    proven: usize,
    /// Refusals by their code, and the pairs of backends with one.
    refused: BTreeMap<String, Vec<(&'static str, &'static str)>>,
    faults: String,
}

/// The code of an error, in any dialect.
fn code_of(answer: &Answer) -> String {
    let error = &answer.json()["error"];
    let codes = [&error["details"]["error_code"], &error["code"], &error["status"]];
    let code = codes.into_iter().find_map(|code| code.as_str());
    code.unwrap_or_default().to_owned()
}

/// Runs one conversation between two backends.
async fn run(bed: &Bed, carrier: &str, pair: [usize; 2], schedule: [usize; 4], tally: &mut Tally) {
    let mut client = bed.client(carrier).await;
    let [from, to] = pair.map(|at| BACKENDS[at].0);
    // Both kinds of replies are carried on.
    let stream = schedule == SCHEDULES[0];
    for (turn, which) in schedule.into_iter().enumerate() {
        bed.gateway.switch(BACKENDS[pair[which]].0).await;
        // Each conversation is another one, so that its messages have their own ids.
        let first = format!("Please note, {from} and {to}, {schedule:?}: the code is {FACT}.");
        client.push_user(if turn == 0 { &first } else { LATER });
        let case = format!("{carrier}, {from} > {to}, turn {} of {schedule:?}", turn + 1);
        let answer = try_turn(&mut *client, &bed.gateway.client, "some-model", stream).await;
        if answer.status != 200 {
            let code = code_of(&answer);
            if turn == 0 || code.is_empty() {
                let _ = writeln!(tally.faults, "{case}: {} {}", answer.status, answer.text());
            }
            let pairs = tally.refused.entry(code).or_default();
            if !pairs.contains(&(from, to)) {
                pairs.push((from, to));
            }
            return;
        }
        let view = client.read(&answer.text(), stream);
        if turn == 0 {
            continue;
        }
        match view.text.trim() == format!("It was: {FACT}") {
            true => tally.proven += 1,
            false => {
                let _ = writeln!(tally.faults, "{case}: silent loss: {:?}", view.text);
            }
        }
    }
}

/// Runs a carrier between all pairs of backends.
#[allow(clippy::print_stdout, reason = "a run shows how many answers prove the fact")]
async fn run_all(carrier: &str) -> Tally {
    let bed = Bed::start().await;
    let mut tally = Tally::default();
    let all = || 0..BACKENDS.len();
    let pairs = all().flat_map(|from| all().map(move |to| [from, to]));
    for pair in pairs.filter(|[from, to]| from != to) {
        for schedule in SCHEDULES {
            run(&bed, carrier, pair, schedule, &mut tally).await;
        }
        for fault in bed.upstream_faults().await {
            let [from, to] = pair.map(|at| BACKENDS[at].0);
            let _ = writeln!(tally.faults, "{carrier}, {from} > {to}: {fault}");
        }
    }
    println!("{carrier}: {} answers prove the fact, refused: {:?}", tally.proven, tally.refused);
    tally
}

/// The carrier loses nothing, and nothing is refused.
async fn check_whole(carrier: &str) {
    let tally = run_all(carrier).await;
    assert!(tally.faults.is_empty(), "{}", tally.faults);
    assert_eq!(tally.refused, BTreeMap::new());
    let pairs = BACKENDS.len() * (BACKENDS.len() - 1);
    assert_eq!(tally.proven, pairs * SCHEDULES.len() * 3);
}

/// Writes a test for each carrier, so that they run side by side.
macro_rules! carriers {
    ($($test:ident => $carrier:literal;)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                check_whole($carrier).await;
            }
        )+
    };
}

carriers! {
    history_of_anthropic_keeps_the_fact => "history, anthropic";
    history_of_openai_chat_keeps_the_fact => "history, openai_chat";
    history_of_openai_responses_keeps_the_fact => "history, openai_responses";
    history_of_gemini_keeps_the_fact => "history, gemini";
    history_of_ollama_keeps_the_fact => "history, ollama";
    previous_response_keeps_the_fact => "previous_response_id";
    conversation_keeps_the_fact => "conversation";
    message_thread_keeps_the_fact => "message thread";
    compaction_block_keeps_the_fact => "compaction block";
}

/// An item that a backend encrypted is refused everywhere else. All others are summaries that the
/// gateway carries.
#[tokio::test]
async fn compaction_item_keeps_the_fact_or_is_refused_by_name() {
    let tally = run_all("compaction item").await;
    assert!(tally.faults.is_empty(), "{}", tally.faults);
    // Its maker compacts by itself where two turns in a row go to it. The third turn goes elsewhere.
    let made = ["responses", "responses-other"].into_iter().flat_map(|maker| {
        let others = BACKENDS.iter().map(|(name, _)| *name).filter(move |name| *name != maker);
        others.map(move |other| (maker, other))
    });
    let refused = BTreeMap::from([("invalid_encrypted_content".to_owned(), made.collect())]);
    assert_eq!(tally.refused, refused);
    let refused = tally.refused.values().map(Vec::len).sum::<usize>();
    let pairs = BACKENDS.len() * (BACKENDS.len() - 1);
    assert_eq!(tally.proven, (pairs - refused) * SCHEDULES.len() * 3 + refused * (3 + 1));
}
