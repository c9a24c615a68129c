//! One long conversation on SQLite and on Postgres: all answers of the API are equal, and so are the
//! bytes of the providers' replies.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, Database, FORMATS, RESPONSES, text};
use crate::upstreams::SCENARIO;

/// The beginnings of ids that differ from server to server.
const IDS: [&str; 4] = ["project_", "branch_", "node_", "run_"];
/// The shortest id that is looked for without its kind.
const MIN_BARE_ID: usize = 12;
/// The digits of a time in milliseconds.
const TIME_DIGITS: usize = 13;

/// Writes ids in the order in which they appear, and no times.
#[derive(Default)]
struct Normalizer {
    known: HashMap<String, usize>,
}

impl Normalizer {
    fn write(&mut self, text: &str) -> String {
        let mut out = self.write_ids(text);
        // Some formats write an id without its kind.
        for (id, number) in &self.known {
            if let Some((_, bare)) = id.split_once('_')
                && bare.len() > MIN_BARE_ID
            {
                out = out.replace(bare, &format!("<{number}>"));
            }
        }
        out
    }

    fn write_ids(&mut self, text: &str) -> String {
        let is_part = |letter: &char| letter.is_ascii_alphanumeric();
        let mut out = String::new();
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let id = IDS.iter().find(|start| rest.starts_with(**start));
            let starts_word = !out.ends_with(|before: char| before.is_ascii_alphanumeric());
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let length = match id {
                Some(start) if starts_word => {
                    start.len() + rest[start.len()..].chars().take_while(is_part).count()
                }
                _ if digits == TIME_DIGITS && starts_word => {
                    out.push_str("TIME");
                    rest = &rest[digits..];
                    continue;
                }
                _ => {
                    out.push(letter);
                    rest = &rest[letter.len_utf8()..];
                    continue;
                }
            };
            let next = self.known.len();
            let number = *self.known.entry(rest[..length].to_owned()).or_insert(next);
            out.push_str(&format!("<{number}>"));
            rest = &rest[length..];
        }
        out
    }
}

/// A conversation with one server, and everything that it answered.
struct Session {
    api: Api,
    normalizer: Normalizer,
    answers: Vec<String>,
}

impl Session {
    async fn call(&mut self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.api.send(method.clone(), path, &body).await;
        let call = format!("{method} {path} {body}\n{}\n{}", answer.status, answer.text());
        let written = self.normalizer.write(&call);
        self.answers.push(written);
        serde_json::from_slice(&answer.body).unwrap_or_default()
    }

    async fn get(&mut self, path: &str) -> Value {
        self.call(Method::GET, path, Value::Null).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        self.call(Method::POST, path, body).await
    }

    /// Says something, and reads the run in every format.
    async fn say(&mut self, project: &str, body: Value) {
        self.post(&format!("{project}/chat"), body).await;
        let node = self.head(project).await;
        let history = self.api.get(&format!("{project}/nodes/{node}")).await;
        assert!(history["id"].is_string(), "{history}");
    }

    /// The newest node of the newest branch.
    async fn head(&mut self, project: &str) -> String {
        let branches = self.get(&format!("{project}/branches")).await;
        let last = branches["branches"].as_array().and_then(|list| list.last());
        text(&last.expect("a branch")["head"]).to_owned()
    }

    /// Reads everything that a project has.
    async fn read_all(&mut self, project: &str) {
        let graph = self.get(&format!("{project}/graph")).await;
        self.get(project).await;
        for branch in graph["branches"].as_array().expect("branches").clone() {
            let name = text(&branch["name"]);
            for query in ["", "&order=desc", "&limit=2", "&order=desc&limit=1"] {
                self.get(&format!("{project}/nodes?branch={name}{query}")).await;
            }
        }
        for node in graph["nodes"].as_array().expect("nodes").clone() {
            let node = text(&node["id"]).to_owned();
            self.get(&format!("{project}/nodes/{node}")).await;
            self.get(&format!("{project}/nodes/{node}/raw")).await;
        }
    }
}

/// The conversation: every operation at least once, with success and with a mistake.
async fn converse(session: &mut Session) {
    let tool = json!({"name": "lookup", "parameters": {"type": "object",
        "properties": {"key": {"type": "string"}}}});
    session.get("/api/providers").await;
    let made =
        session.post("/api/projects", json!({"title": "Herons", "system": "Be brief."})).await;
    let project = format!("/api/projects/{}", text(&made["id"]));
    session.post("/api/projects", json!({"title": "Other"})).await;
    session.post("/api/projects", json!({"title": "Wrong", "provider": "nobody"})).await;
    let ask = |words: &str| json!({"message": words, "thinking": "medium", "tools": [tool]});
    session.say(&project, ask("ponder")).await;
    session.say(&project, ask("one tool")).await;
    let head = session.head(&project).await;
    let node = session.get(&format!("{project}/nodes/{head}")).await;
    let blocks = node["contentBlocks"].as_array().expect("blocks").clone();
    let call = blocks.iter().find(|block| block["type"] == "tool_call").expect("a call");
    let results = json!([{"id": call["id"], "content": "row green"}]);
    session
        .say(&project, json!({"toolResults": results, "thinking": "medium", "tools": [tool]}))
        .await;
    session.say(&project, json!({"message": "hidden", "thinking": "high"})).await;
    // Mistakes.
    session.post(&format!("{project}/chat"), json!({"message": ""})).await;
    session.post(&format!("{project}/chat"), json!({"message": "x", "expectedHead": head})).await;
    session.post(&format!("{project}/chat"), json!({"message": "x", "branch": "none"})).await;
    session
        .post(&format!("{project}/chat"), json!({"message": "x", "llmProvider": RESPONSES.0}))
        .await;
    session.get("/api/projects/project_nothing").await;
    session.get("/api/runs/run_nothing").await;
    // Another branch, with another provider.
    let branches = format!("{project}/branches");
    let other = json!({"name": "second", "fromRef": "main", "provider": RESPONSES.0});
    session.post(&branches, other.clone()).await;
    session.post(&branches, other).await;
    session.say(&project, json!({"branch": "second", "message": "plain"})).await;
    session
        .post(&format!("{project}/preview"), json!({"branch": "second", "message": "more"}))
        .await;
    let merge = json!({"from": "second", "into": "main"});
    session.post(&format!("{project}/merge"), merge).await;
    let page = session.get(&format!("{project}/nodes?branch=second")).await;
    let question = page["nodes"][0]["id"].clone();
    let edit = json!({"nodeId": question, "message": "plain", "branch": "third"});
    session.post(&format!("{project}/edit"), edit).await;
    let head = session.head(&project).await;
    session.post(&format!("{project}/regenerate"), json!({"nodeId": head})).await;
    session.post(&format!("{project}/regenerate"), json!({"nodeId": question})).await;
    // Changes.
    let at_branch = format!("{branches}/second");
    for change in
        [json!({"pinned": true, "starred": true}), json!({"name": "main"}), json!({"model": "x"})]
    {
        session.call(Method::PATCH, &at_branch, change).await;
    }
    session.call(Method::PATCH, &format!("{project}/nodes/{head}"), json!({"starred": true})).await;
    session.call(Method::PATCH, &project, json!({"title": "Grey herons", "system": ""})).await;
    session.call(Method::DELETE, &format!("{branches}/third"), Value::Null).await;
    session.get(&format!("{branches}?deleted=true")).await;
    session.post(&format!("{branches}/third/restore"), Value::Null).await;
    session.read_all(&project).await;
    read_run(session, &project).await;
    // Lists and searches.
    for query in ["", "?limit=1", "?q=heron", "?q=thought&in=content", "?deleted=true", "?limit=0"]
    {
        session.get(&format!("/api/projects{query}")).await;
    }
    session.call(Method::DELETE, &project, Value::Null).await;
    session.get(&project).await;
    session.get("/api/projects?deleted=true").await;
    session.post(&format!("{project}/restore"), Value::Null).await;
    session.call(Method::DELETE, &format!("{branches}/second?purge=true"), Value::Null).await;
    session.read_all(&project).await;
    session.call(Method::DELETE, &format!("{project}?purge=true"), Value::Null).await;
    session.get(&project).await;
}

/// The log of a run, in every format and from a cursor on.
async fn read_run(session: &mut Session, project: &str) {
    let chat = json!({"branch": "third", "message": "ponder", "clientRequestId": "once"});
    let path = format!("{project}/chat");
    let first = session.api.post(&path, chat.clone()).await.expect_ok();
    let run = format!("/api/runs/{}", first.header("x-throughline-run"));
    session.post(&path, chat).await;
    session.get(&run).await;
    for format in FORMATS {
        for query in ["", "&after=3", "&kinds=text", "&after=999"] {
            session.get(&format!("{run}/events?format={format}{query}")).await;
        }
    }
    session.post(&format!("{run}/stop"), Value::Null).await;
}

///
#[tokio::test]
async fn sqlite_and_postgres_give_equal_answers() {
    let mut answers = Vec::new();
    for store in [Database::Sqlite, Database::Postgres] {
        let api = Api::on(store, &[ANTHROPIC, RESPONSES], SCENARIO, "").await;
        let (normalizer, answers_of_it) = (Normalizer::default(), Vec::new());
        let mut session = Session { api, normalizer, answers: answers_of_it };
        converse(&mut session).await;
        assert_eq!(session.api.refusals().await, [""; 0], "{store:?}");
        answers.push(session.answers);
    }
    let [sqlite, postgres] = &answers[..] else { panic!("two stores") };
    for (one, other) in sqlite.iter().zip(postgres) {
        assert_eq!(one, other);
    }
    assert_eq!(sqlite.len(), postgres.len());
    // The conversation had what it is about.
    for part in ["\"payload\":", "thinking_signature", "\n409\n", "\n404\n", "\n204\n"] {
        assert!(sqlite.iter().any(|answer| answer.contains(part)), "{part}");
    }
}
