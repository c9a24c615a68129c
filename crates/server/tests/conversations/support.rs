//! Shared by the tests of the conversation API: a gateway over simulators, and one caller.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway, PostgresDatabase, Redis, Simulator, StreamedAnswer};

use crate::bus::redis_settings;
use crate::upstreams::{SCENARIO, UPSTREAMS, Upstream};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// The keyring of instances that share a database.
const KEYRING: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The rows of the matrix that most tests use, by backend name.
pub(crate) const ANTHROPIC: (&str, &str) = ("claude", "anthropic, budget");
pub(crate) const GEMINI: (&str, &str) = ("gemini", "gemini 3");
pub(crate) const RESPONSES: (&str, &str) = ("openai_responses", "openai_responses");
/// A server that is known to store responses.
pub(crate) const STORING: (&str, &str) = ("storing", "openai_responses");
pub(crate) const CHAT: (&str, &str) = ("chat", "deepseek-v4");

/// A gateway over simulators, and a caller with a key.
pub(crate) struct Api {
    pub(crate) gateway: Gateway,
    pub(crate) simulators: Vec<Simulator>,
    key: &'static str,
    /// Headers of all requests, such as the key of a sealed project.
    headers: Vec<(&'static str, String)>,
    /// The database, if it is Postgres.
    pub(crate) database: Option<PostgresDatabase>,
    /// The server of the bus, if this test reads its files.
    pub(crate) redis: Option<Redis>,
}

/// The stores that the API can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

impl Database {
    /// The store of tests that do not name one. `TEST_STORE=postgres` runs all of them on
    /// Postgres.
    pub(crate) fn chosen() -> Self {
        match std::env::var("TEST_STORE").as_deref() {
            Ok("postgres") => Self::Postgres,
            Ok("" | "sqlite") | Err(_) => Self::Sqlite,
            Ok(other) => panic!("TEST_STORE is `{other}`; use `sqlite` or `postgres`"),
        }
    }
}

impl Api {
    /// Starts a gateway with a backend for each row of the matrix. The first one is the default.
    pub(crate) async fn over(backends: &[(&str, &str)]) -> Self {
        Self::with(backends, SCENARIO, "").await
    }

    /// The same with another scenario, and configuration before the backends.
    pub(crate) async fn with(backends: &[(&str, &str)], scenario: &str, settings: &str) -> Self {
        Self::on(Database::chosen(), backends, scenario, settings).await
    }

    /// The same on a store.
    pub(crate) async fn on(
        store: Database,
        backends: &[(&str, &str)],
        scenario: &str,
        settings: &str,
    ) -> Self {
        let (simulators, mut config) = simulators(backends, scenario, settings).await;
        let database = (store == Database::Postgres).then(PostgresDatabase::new);
        if let Some(database) = &database {
            config.push_str(&format!("[store]\nurl = \"{}\"\n", database.url));
        }
        let gateway = Gateway::start(BINARY, &config).await;
        Self { database, simulators, ..Self::of(gateway) }
    }

    /// The same with a bus.
    pub(crate) async fn with_bus(
        store: Database,
        backends: &[(&str, &str)],
        scenario: &str,
        settings: &str,
    ) -> Self {
        let redis = Redis::start();
        let settings = format!("{settings}{}", redis_settings(&redis));
        Self { redis: Some(redis), ..Self::on(store, backends, scenario, &settings).await }
    }

    /// The same without the detailed log, for tests with thousands of requests.
    pub(crate) async fn quiet(backends: &[(&str, &str)], scenario: &str) -> Self {
        let (simulators, config) = simulators(backends, scenario, "").await;
        let gateway = Gateway::start_with_configured_log(BINARY, &config).await;
        Self { simulators, ..Self::of(gateway) }
    }

    /// Two instances on one database. The first one has the simulators.
    pub(crate) async fn instances(
        database: &PostgresDatabase,
        backends: &[(&str, &str)],
        scenario: &str,
        settings: &str,
    ) -> [Self; 2] {
        let (simulators, config) = simulators(backends, scenario, settings).await;
        let config = format!("{config}[store]\nurl = \"{}\"\n", database.url);
        let environment = [("THROUGHLINE_KEYRING", KEYRING)];
        let gateway = Gateway::start_with_env(BINARY, &config, &environment).await;
        let other = Gateway::start_with_env(BINARY, &config, &environment).await;
        [Self { simulators, ..Self::of(gateway) }, Self::of(other)]
    }

    /// A gateway without simulators.
    pub(crate) fn of(gateway: Gateway) -> Self {
        let (simulators, headers) = (Vec::new(), Vec::new());
        Self { gateway, simulators, key: "ada", headers, database: None, redis: None }
    }

    /// Opens a request of this caller.
    pub(crate) async fn open(&self, method: Method, path: &str, body: &Value) -> StreamedAnswer {
        let authorization = format!("Bearer {}", self.key);
        let mut headers =
            vec![("content-type", "application/json"), ("authorization", authorization.as_str())];
        headers.extend(self.headers.iter().map(|(name, value)| (*name, value.as_str())));
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

    /// Sends these headers with all requests from now on.
    pub(crate) fn present(&mut self, headers: &[(&'static str, &str)]) {
        self.headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
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

/// Starts the simulators of some backends, and returns the configuration.
async fn simulators(
    backends: &[(&str, &str)],
    scenario: &str,
    settings: &str,
) -> (Vec<Simulator>, String) {
    let mut simulators = Vec::new();
    let mut config = format!("{settings}\n");
    for (name, row) in backends {
        let row = upstream(row);
        let simulator = row.start_with(name, scenario).await;
        config.push_str(&row.backend(name, &simulator.url));
        config.push_str(&format!("default_model = \"{}\"\n", row.model));
        if *name == STORING.0 {
            config.push_str("variant = \"openai\"\n");
        }
        simulators.push(simulator);
    }
    (simulators, config)
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

/// A small generator of random numbers, the same in every run of a test. The seed is not zero.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).expect("a small number")
    }
}

/// The formats of streams.
pub(crate) const FORMATS: [&str; 4] = ["ndjson", "sse", "ag-ui", "ui"];

/// The run of a streamed answer.
pub(crate) fn run_of(answer: &StreamedAnswer) -> String {
    assert_eq!(answer.status, 200);
    answer.headers["x-throughline-run"].to_str().expect("an id").to_owned()
}

/// The cursors of a stream, each with the length of the stream up to and including its frame. A frame
/// at the end that is not complete is left out.
pub(crate) fn cursors(format: &str, stream: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut length = 0;
    let end = if format == "ndjson" { "\n" } else { "\n\n" };
    for frame in stream.split_inclusive(end).filter(|frame| frame.ends_with(end)) {
        length += frame.len();
        let cursor = match format {
            "ndjson" => {
                let line: Value = serde_json::from_str(frame).expect("a line");
                line["seq"].as_u64().expect("a number").to_string()
            }
            _ => {
                let id = frame.lines().find_map(|line| line.strip_prefix("id: "));
                id.unwrap_or_else(|| panic!("no id: {frame}")).to_owned()
            }
        };
        found.push((cursor, length));
    }
    found
}

/// Checks that every frame of a stream has a cursor of its own, and that they rise.
pub(crate) fn check_cursors(format: &str, stream: &str) {
    let place = |cursor: &str| -> (u64, u64) {
        let (number, part) = cursor.split_once('.').unwrap_or((cursor, "0"));
        (number.parse().expect("a number"), part.parse().expect("a number"))
    };
    let places: Vec<_> = cursors(format, stream).iter().map(|(cursor, _)| place(cursor)).collect();
    assert!(!places.is_empty() && places.is_sorted_by(|one, next| one < next), "{stream}");
}
