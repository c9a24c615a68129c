//! Shared by the tests of the conversation API: a gateway over simulators, and one caller.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway, Simulator, StreamedAnswer};

use crate::upstreams::{SCENARIO, UPSTREAMS, Upstream};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// The rows of the matrix that most tests use, by backend name.
pub(crate) const ANTHROPIC: (&str, &str) = ("claude", "anthropic, budget");
pub(crate) const GEMINI: (&str, &str) = ("gemini", "gemini 3");
pub(crate) const RESPONSES: (&str, &str) = ("openai_responses", "openai_responses");
pub(crate) const CHAT: (&str, &str) = ("chat", "deepseek-v4");

/// A gateway over simulators, and a caller with a key.
pub(crate) struct Api {
    pub(crate) gateway: Gateway,
    pub(crate) simulators: Vec<Simulator>,
    key: &'static str,
}

impl Api {
    /// Starts a gateway with a backend for each row of the matrix. The first one is the default.
    pub(crate) async fn over(backends: &[(&str, &str)]) -> Self {
        Self::with(backends, SCENARIO, "").await
    }

    /// The same with another scenario, and configuration before the backends.
    pub(crate) async fn with(backends: &[(&str, &str)], scenario: &str, settings: &str) -> Self {
        let mut simulators = Vec::new();
        let mut config = format!("{settings}\n");
        for (name, row) in backends {
            let row = upstream(row);
            let simulator = row.start_with(name, scenario).await;
            config.push_str(&row.backend(name, &simulator.url));
            config.push_str(&format!("default_model = \"{}\"\n", row.model));
            simulators.push(simulator);
        }
        let gateway = Gateway::start(BINARY, &config).await;
        Self { gateway, simulators, key: "ada" }
    }

    /// A gateway without simulators.
    pub(crate) fn of(gateway: Gateway) -> Self {
        Self { gateway, simulators: Vec::new(), key: "ada" }
    }

    /// Opens a request of this caller.
    pub(crate) async fn open(&self, method: Method, path: &str, body: &Value) -> StreamedAnswer {
        let authorization = format!("Bearer {}", self.key);
        let headers =
            [("content-type", "application/json"), ("authorization", authorization.as_str())];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.gateway.client.open(method, path, &headers, body).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.open(method, path, body).await.read_all().await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.send(Method::GET, path, &Value::Null).await.expect_ok().json()
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, &body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &Value::Null).await
    }

    /// Creates a project and returns its path.
    pub(crate) async fn project(&self, new: Value) -> String {
        let answer = self.post("/api/projects", new).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        format!("/api/projects/{}", text(&answer.json()["id"]))
    }

    /// Creates a branch.
    pub(crate) async fn branch(&self, project: &str, new: Value) -> Value {
        let answer = self.post(&format!("{project}/branches"), new).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()
    }

    /// Says something on a branch and returns the lines of the answer.
    pub(crate) async fn say(&self, project: &str, branch: &str, message: &str) -> Vec<Value> {
        self.chat(project, json!({"branch": branch, "message": message})).await
    }

    pub(crate) async fn chat(&self, project: &str, body: Value) -> Vec<Value> {
        lines(&self.post(&format!("{project}/chat"), body).await.expect_ok())
    }

    /// The nodes of a branch, oldest first.
    pub(crate) async fn nodes(&self, project: &str, branch: &str) -> Vec<Value> {
        let page = self.get(&format!("{project}/nodes?branch={branch}&limit=1000")).await;
        page["nodes"].as_array().cloned().expect("a list of nodes")
    }

    /// The number of nodes of a project, on all branches.
    pub(crate) async fn count(&self, project: &str) -> usize {
        let graph = self.get(&format!("{project}/graph?limit=1000")).await;
        graph["nodes"].as_array().map_or(0, Vec::len)
    }

    /// The same gateway for another caller.
    pub(crate) fn with_key(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    /// What the simulators refused.
    pub(crate) async fn refusals(&self) -> Vec<String> {
        let mut refusals = Vec::new();
        for simulator in &self.simulators {
            let received = simulator.received().await.into_iter();
            refusals.extend(received.map(|seen| seen.refusal).filter(|why| !why.is_empty()));
        }
        refusals
    }
}

fn upstream(name: &str) -> Upstream {
    let row = UPSTREAMS.iter().find(|row| row.name == name);
    *row.unwrap_or_else(|| panic!("no upstream {name}"))
}

/// The lines of a JSON-lines answer.
pub(crate) fn lines(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

/// The joined contents of all lines of a type.
pub(crate) fn joined(lines: &[Value], kind: &str) -> String {
    let of_kind = lines.iter().filter(|line| line["type"] == kind);
    of_kind.map(|line| text(&line["content"])).collect()
}

/// The last line.
pub(crate) fn done(lines: &[Value]) -> &Value {
    let last = lines.last().expect("a line");
    assert_eq!(last["type"], "done", "{lines:#?}");
    assert!(last.get("nodeId").is_some(), "{last}");
    last
}

/// The kinds of the blocks of a node.
pub(crate) fn kinds(node: &Value) -> Vec<String> {
    let blocks = node["contentBlocks"].as_array().expect("a list of blocks");
    blocks.iter().map(|block| text(&block["type"]).to_owned()).collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
