//! A strict simulator on a port of its own, and the requests it received.

use http::Method;
use serde_json::Value;
use throughline_simulator::{Options, Scenario};
use tokio::net::TcpListener;

use crate::client::Client;

/// A running simulator.
#[derive(Debug)]
pub struct Simulator {
    /// The base URL.
    pub url: String,
    /// A client for this simulator.
    pub client: Client,
    task: tokio::task::JoinHandle<()>,
}

/// A request a simulator received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The HTTP method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, or an empty string.
    pub query: String,
    /// Names and values of the headers.
    pub headers: Vec<(String, String)>,
    /// The body as text.
    pub body: String,
    /// The status of the simulator's answer.
    pub status: u64,
    /// Why the simulator refused the request, or an empty string.
    pub refusal: String,
    /// The tokens of the prompt, and how many of them came from the prompt cache.
    pub cache: CacheShare,
}

/// How much of one or more prompts came from the prompt cache, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheShare {
    /// All tokens.
    pub prompt: u64,
    /// Tokens that came from the cache.
    pub read: u64,
    /// Tokens that were written to the cache.
    pub write: u64,
}

impl CacheShare {
    /// Adds the tokens of another prompt.
    pub fn add(&mut self, other: Self) {
        self.prompt += other.prompt;
        self.read += other.read;
        self.write += other.write;
    }

    /// The share of tokens that came from the cache.
    pub fn hit_rate(&self) -> f64 {
        match self.prompt {
            0 => 0.0,
            prompt => self.read as f64 / prompt as f64,
        }
    }
}

impl ReceivedRequest {
    /// Parses the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the Anthropic thinking blocks in the body, in order.
    pub fn thinking(&self) -> Vec<Value> {
        let body = self.json();
        let messages = body["messages"].as_array().cloned().unwrap_or_default();
        messages
            .iter()
            .flat_map(|message| message["content"].as_array().cloned().unwrap_or_default())
            .filter(|block| block["type"] == "thinking" || block["type"] == "redacted_thinking")
            .collect()
    }
}

impl Simulator {
    /// Starts a strict simulator. It accepts only signatures of its own `identity`.
    pub async fn start(identity: &str) -> Self {
        Self::with(Options { identity: identity.to_owned(), ..Options::default() }).await
    }

    /// Like [`Simulator::start`], with a scenario in TOML.
    pub async fn with_scenario(identity: &str, scenario: &str) -> Self {
        Self::with(Options {
            identity: identity.to_owned(),
            scenario: Some(Scenario::from_toml(scenario).expect("a valid scenario")),
            ..Options::default()
        })
        .await
    }

    /// Starts a simulator with these options.
    pub async fn with(options: Options) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let task = tokio::spawn(async move {
            throughline_simulator::serve(listener, options, std::future::pending())
                .await
                .expect("the simulator runs");
        });
        Self { client: Client::new(&url), url, task }
    }

    /// Returns the requests it received, oldest first.
    pub async fn received(&self) -> Vec<ReceivedRequest> {
        let log = self.client.get("/simulator/requests").await.expect_ok().json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let requests = log["requests"].as_array().cloned().unwrap_or_default();
        requests
            .iter()
            .map(|request| ReceivedRequest {
                method: text(&request["method"]),
                path: text(&request["path"]),
                query: text(&request["query"]),
                headers: request["headers"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|pair| (text(&pair[0]), text(&pair[1])))
                    .collect(),
                body: text(&request["body_text"]),
                status: request["status"].as_u64().unwrap_or_default(),
                refusal: text(&request["refusal"]),
                cache: read_cache(&request["cache"]),
            })
            .collect()
    }

    /// Clears the list of received requests. The list keeps the last 256 requests only.
    pub async fn clear_received(&self) {
        let path = "/simulator/requests";
        let answer = self.client.send(Method::DELETE, path, &[], "").await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    /// Returns the last request it received.
    pub async fn last_received(&self) -> ReceivedRequest {
        self.received().await.pop().expect("a request")
    }
}

fn read_cache(cache: &Value) -> CacheShare {
    let count = |name: &str| cache[name].as_u64().unwrap_or_default();
    CacheShare { prompt: count("prompt"), read: count("read"), write: count("write") }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.task.abort();
    }
}
