//! A strict simulator on a port of its own, and what it received.

use http::Method;
use serde_json::Value;
use throughline_simulator::Options;
use tokio::net::TcpListener;

use crate::client::Client;

/// A running simulator.
#[derive(Debug)]
pub struct Simulator {
    /// Its address.
    pub url: String,
    /// A client of it.
    pub client: Client,
    task: tokio::task::JoinHandle<()>,
}

/// A request a simulator received.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its method.
    pub method: String,
    /// Its path.
    pub path: String,
    /// Its query, empty if there was none.
    pub query: String,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// Its body.
    pub body: String,
    /// The status it was answered with.
    pub status: u64,
    /// Why it was refused, empty if it was not.
    pub refusal: String,
}

impl Seen {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a JSON body")
    }

    /// A header, none if it was not there.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// The thinking blocks in the body, in order.
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
    /// A strict simulator of this identity.
    pub async fn start(identity: &str) -> Self {
        Self::with(Options { identity: identity.to_owned(), ..Options::default() }).await
    }

    /// A simulator with these options.
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

    /// Everything it received, oldest first.
    pub async fn seen(&self) -> Vec<Seen> {
        let log = self.client.get("/simulator/requests").await.good().json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let requests = log["requests"].as_array().cloned().unwrap_or_default();
        requests
            .iter()
            .map(|request| Seen {
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
            })
            .collect()
    }

    /// Forgets what it received; it keeps the last 256 requests only.
    pub async fn forget(&self) {
        let path = "/simulator/requests";
        let answer = self.client.send(Method::DELETE, path, &[], "").await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }

    /// The last request it received.
    pub async fn last(&self) -> Seen {
        self.seen().await.pop().expect("a request")
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.task.abort();
    }
}
