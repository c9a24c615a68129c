//! Rooms over real HTTP: people and models talk, with hooks, tools and several readers.

mod answers;
mod hooks;
mod instances;
mod readers;
mod sealed;
mod settings;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::StreamedAnswer;
use tokio::time::timeout;

use crate::support::{ANTHROPIC, Api, text};

/// How long a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the model does.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "talk to each other" }
say = [{ text = "Well, @two and @one, what do you say to talk to each other?" }]
[[step]]
when = { contains = "ask two" }
say = [{ thinking = "Two knows." }, { text = "@two, what do you think?" }]
[[step]]
when = { contains = "the sum" }
say = [{ thinking = "I add." }, { tool = { name = "calc__add", input = { a = 2, b = 3 } } }]
[[step]]
when = { contains = "" }
say = [{ thinking = "First thought. Second thought." }, { text = "The answer is 42." }]
"#;

/// A gateway for rooms, whose hooks may be at loopback addresses.
async fn api() -> Api {
    api_with("").await
}

async fn api_with(settings: &str) -> Api {
    let hooks = "[hooks]\nallow_private = true\nattempts = 3\nfirst_pause = \"50ms\"\n";
    Api::with(&[ANTHROPIC], SCENARIO, &format!("{hooks}{settings}")).await
}

/// A room with these members: the id of the channel, and its metadata.
async fn room(api: &Api, members: &[(&str, Value)]) -> String {
    for (id, _) in members {
        let channel = json!({"id": id, "thinkingBudget": 2048});
        let made = api.post("/api/channels", channel).await;
        assert!([201, 409].contains(&made.status), "{}", made.text());
    }
    let made = api.post("/api/rooms", json!({"title": "A room"})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let path = format!("/api/rooms/{}", text(&made.json()["id"]));
    for (id, metadata) in members {
        bind(api, &path, id, "intelligence", metadata.clone()).await;
    }
    path
}

pub(crate) async fn bind(api: &Api, room: &str, channel: &str, category: &str, metadata: Value) {
    let binding = json!({"channel": channel, "category": category, "metadata": metadata});
    let bound = api.post(&format!("{room}/channels"), binding).await;
    assert_eq!(bound.status, 200, "{}", bound.text());
}

/// Says something. Returns its node and the runs that answer.
pub(crate) async fn say(api: &Api, room: &str, content: &str) -> (String, Vec<String>) {
    let message = json!({"participant": "ada", "content": content});
    let said = api.post(&format!("{room}/messages"), message).await;
    assert_eq!(said.status, 202, "{}", said.text());
    let said = said.json();
    let runs = said["runs"].as_array().expect("a list");
    (text(&said["nodeId"]).to_owned(), runs.iter().map(|run| text(run).to_owned()).collect())
}

/// The events of a room, as one reader gets them.
pub(crate) struct Events {
    stream: StreamedAnswer,
    pending: String,
    pub(crate) seen: Vec<Value>,
}

impl Events {
    pub(crate) async fn open(api: &Api, room: &str, query: &str) -> Self {
        let path = format!("{room}/events{query}");
        let stream = api.open(Method::GET, &path, &Value::Null).await;
        assert_eq!(stream.status, 200, "{path}");
        Self { stream, pending: String::new(), seen: Vec::new() }
    }

    /// The next event. `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((frame, rest)) = self.pending.split_once("\n\n") {
                let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
                let event: Option<Value> =
                    data.map(|data| serde_json::from_str(data).expect("JSON"));
                if let Some(event) = &event {
                    let id = frame.lines().find_map(|line| line.strip_prefix("id: "));
                    let seq = event["seq"].as_u64().map(|seq| seq.to_string());
                    assert_eq!(id.map(str::to_owned), seq, "{frame}");
                }
                self.pending = rest.to_owned();
                if let Some(event) = event {
                    self.seen.push(event.clone());
                    return Some(event);
                }
                continue;
            }
            let piece = timeout(PATIENCE, self.stream.next()).await.unwrap_or_else(|_| {
                panic!("no event in time; seen so far: {:#?}", self.seen);
            });
            self.pending.push_str(std::str::from_utf8(&piece?).expect("text"));
        }
    }

    /// Reads until an event is as wanted, and returns it.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("ended: {:#?}", self.seen));
            if wanted(&event) {
                return event;
            }
        }
    }

    /// Reads until a channel has answered. Returns the node.
    pub(crate) async fn answer_of(&mut self, channel: &str) -> Value {
        let event = self.until(|event| event["type"] == "MESSAGE" && event["channel"] == channel);
        event.await["data"].clone()
    }

    /// The types of all events so far, without repetitions in a row.
    fn types(&self) -> Vec<&str> {
        let mut types: Vec<&str> = self.seen.iter().map(|event| text(&event["type"])).collect();
        types.dedup();
        types
    }
}
