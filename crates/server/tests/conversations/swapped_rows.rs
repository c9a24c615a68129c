//! Rows, fields, nodes and chats that were swapped in the database: the API answers with a typed error, or
//! shows the item of a list as damaged, and never gives a wrong text.

use http::Method;
use serde_json::{Value, json};
use throughline_sealing::ChatKey;

use crate::support::{ANTHROPIC, Api, Database, done, lines, text};
use crate::tables::Tables;

const CHAT_KEY: &str = "x-throughline-chat-key";

/// Every text has a word of its own.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "question one" }
say = [{ thinking = "Thought one." }, { text = "Answer one." }]
[[step]]
when = { contains = "question two" }
say = [{ thinking = "Thought two." }, { text = "Answer two." }]
"#;

/// Two projects under one key, each with one turn, and what the database has of them.
struct Chats {
    api: Api,
    tables: Tables,
    projects: [String; 2],
    questions: [String; 2],
    answers: [String; 2],
    runs: [String; 2],
}

impl Chats {
    async fn new(database: Database, is_sealed: bool) -> Self {
        let mut api = Api::on(database, &[ANTHROPIC], SCENARIO, "").await;
        let key = ChatKey::new([5; 32]);
        let mut new = json!({"title": "Title one", "system": "System one."});
        if is_sealed {
            api.present(&[(CHAT_KEY, &key.write())]);
            new["mode"] = json!("sealed");
            new["keyCheck"] = json!(key.key_check().to_string());
        }
        let mut chats = [const { String::new() }; 8].to_vec();
        for (at, word) in ["one", "two"].into_iter().enumerate() {
            new["title"] = json!(format!("Title {word}"));
            let project = api.project(new.clone()).await;
            let chat = json!({"message": format!("question {word}"), "thinking": "medium"});
            let stream = api.open(Method::POST, &format!("{project}/chat"), &chat).await;
            chats[at + 6] = crate::support::run_of(&stream);
            stream.read_all().await;
            let nodes = api.nodes(&project, "main").await;
            for (place, node) in [2, 4].into_iter().zip(&nodes) {
                chats[at + place] = text(&node["id"]).to_owned();
            }
            chats[at] = project;
        }
        let tables = Tables::of(&api).await;
        let pair = |at: usize| [chats[at].clone(), chats[at + 1].clone()];
        let [projects, questions, answers, runs] = [pair(0), pair(2), pair(4), pair(6)];
        Self { tables, projects, questions, answers, runs, api }
    }

    /// Checks that a request gets the error of a value that does not open, which names the value.
    async fn expect_unreadable(&self, method: Method, path: &str, body: Value, id: &str) {
        let answer = self.api.send(method, path, &body).await;
        assert_eq!(answer.status, 500, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), "application/problem+json");
        let problem = answer.json();
        assert_eq!(problem["type"], "/problems/unreadable", "{path}: {problem}");
        assert_eq!(problem["code"], "unreadable");
        let detail = text(&problem["detail"]);
        assert!(detail.contains(id), "{path}: {problem}");
        assert!(text(&problem["hint"]).contains("keys verify"), "{problem}");
        assert_no_text(&answer.text());
    }

    /// Checks that a list shows one of its items as damaged.
    async fn expect_damaged_item(&self, path: &str, list: &str, id: &str) {
        let answer = self.api.get(path).await;
        let items = answer[list].as_array().expect("a list");
        let item = items.iter().find(|item| item["id"] == id);
        assert_damaged(item.unwrap_or_else(|| panic!("no {id} in {path}: {answer}")), id);
    }

    async fn expect_whole(&self) {
        for (at, word) in ["one", "two"].into_iter().enumerate() {
            let project = &self.projects[at];
            assert_eq!(self.api.get(project).await["title"], format!("Title {word}"));
            let nodes = self.api.nodes(project, "main").await;
            assert_eq!(nodes[0]["content"], format!("question {word}"));
            assert_eq!(nodes[1]["content"], format!("Answer {word}."));
            assert_eq!(nodes[1]["thinking_content"], format!("Thought {word}."));
        }
    }
}

/// Checks that an item is shown as damaged, without a text.
fn assert_damaged(item: &Value, id: &str) {
    let problem = &item["problem"];
    assert_eq!(problem["type"], "/problems/unreadable", "{item}");
    assert!(text(&problem["detail"]).contains(id), "{item}");
    assert!(text(&problem["hint"]).contains("keys verify"), "{item}");
    assert_no_text(&item.to_string());
}

fn assert_no_text(shown: &str) {
    for text in ["Answer", "Thought", "question", "Title", "System"] {
        assert!(!shown.contains(text), "{shown}");
    }
}

fn is(id: &str) -> String {
    format!("id = '{id}'")
}

fn id_of(project: &str) -> &str {
    project.strip_prefix("/api/projects/").expect("the path of a project")
}

/// Nodes are swapped: within a chat, and between chats.
async fn swapped_nodes(chats: &mut Chats) {
    let [project, _] = chats.projects.clone();
    let [question, _] = chats.questions.clone();
    let [answer, other] = chats.answers.clone();
    for rows in [[&question, &answer], [&answer, &other]] {
        let rows_are = rows.map(|id| is(id));
        chats.tables.swap("sealed", "node", [&rows_are[0], &rows_are[1]]).await;
        for node in rows.into_iter().filter(|node| **node != other) {
            let path = format!("{project}/nodes/{node}");
            chats.expect_unreadable(Method::GET, &path, Value::Null, node).await;
        }
        let first = if rows[0] == &question { &question } else { &answer };
        for path in ["nodes", "nodes?limit=1000&order=asc"] {
            chats.expect_damaged_item(&format!("{project}/{path}"), "nodes", first).await;
        }
        let preview = json!({"message": "more"});
        let path = format!("{project}/preview");
        chats.expect_unreadable(Method::POST, &path, preview, first).await;
        // A turn has started when the history is read: its stream says so.
        let said = chats.api.say(&project, "main", "question one").await;
        assert_eq!(done(&said)["reason"], "error", "{said:?}");
        let error = said.iter().find(|line| line["type"] == "error").expect("an error");
        assert!(text(&error["message"]).contains(first.as_str()), "{error}");
        assert_no_text(&json!(said).to_string());
        chats.tables.swap("sealed", "node", [&rows_are[0], &rows_are[1]]).await;
    }
    // The graph has no contents.
    chats.api.get(&format!("{project}/graph")).await;
}

/// The fields of one row are swapped, and columns of two rows.
async fn swapped_fields(chats: &mut Chats) {
    let [answer, other] = chats.answers.clone();
    let columns = "encrypted_thinking_content = encrypted_thinking_signature,
        encrypted_thinking_signature = encrypted_thinking_content";
    let swap = format!("UPDATE node SET {columns} WHERE {}", is(&answer));
    chats.tables.execute(&swap).await;
    let rows = [is(&answer), is(&other)];
    chats.tables.swap("encrypted_thinking_content", "node", [&rows[0], &rows[1]]).await;
    // What the API shows comes from the node itself.
    chats.expect_whole().await;
    chats.tables.swap("encrypted_thinking_content", "node", [&rows[0], &rows[1]]).await;
    chats.tables.execute(&swap).await;
}

/// A node gets the id of another one, or moves into another chat.
async fn moved_rows(chats: &mut Chats) {
    let [project, other_project] = chats.projects.clone();
    let [answer, other] = chats.answers.clone();
    let move_to = |node: &str, project: &str| {
        format!("UPDATE node SET project = '{}' WHERE {}", id_of(project), is(node))
    };
    chats.tables.execute(&move_to(&other, &project)).await;
    let path = format!("{project}/nodes/{other}");
    chats.expect_unreadable(Method::GET, &path, Value::Null, &other).await;
    chats.tables.execute(&move_to(&other, &other_project)).await;
    let rename = |from: &str, to: &str| format!("UPDATE node SET id = '{to}' WHERE {}", is(from));
    for (from, to) in [(&*answer, "aside"), (&*other, &*answer), ("aside", &*other)] {
        chats.tables.execute(&rename(from, to)).await;
    }
    let path = format!("{other_project}/nodes/{answer}");
    chats.expect_unreadable(Method::GET, &path, Value::Null, &answer).await;
    for (from, to) in [(&*answer, "aside"), (&*other, &*answer), ("aside", &*other)] {
        chats.tables.execute(&rename(from, to)).await;
    }
}

/// Titles, providers' replies, logs and runs are swapped.
async fn swapped_others(chats: &mut Chats) {
    let [project, other_project] = chats.projects.clone();
    let rows = [is(id_of(&project)), is(id_of(&other_project))];
    chats.tables.swap("sealed", "project", [&rows[0], &rows[1]]).await;
    let id = id_of(&project);
    assert_damaged(&chats.api.get(&project).await, id);
    chats.expect_unreadable(Method::PATCH, &project, json!({"title": "x"}), id).await;
    chats.expect_damaged_item("/api/projects", "projects", id).await;
    chats.tables.swap("sealed", "project", [&rows[0], &rows[1]]).await;

    let raw = chats.answers.clone().map(|node| format!("node = '{node}'"));
    chats.tables.swap("raw_response", "raw_response", [&raw[0], &raw[1]]).await;
    let path = format!("{project}/nodes/{}/raw", chats.answers[0]);
    let answer = chats.answers[0].clone();
    chats.expect_unreadable(Method::GET, &path, Value::Null, &answer).await;
    chats.tables.swap("raw_response", "raw_response", [&raw[0], &raw[1]]).await;

    let [run, other_run] = chats.runs.clone();
    let pieces = |run: &str| {
        format!("run = '{run}' AND first = (SELECT min(first) FROM log WHERE run = '{run}')")
    };
    let logs = [pieces(&run), pieces(&other_run)];
    chats.tables.swap("sealed", "log", [&logs[0], &logs[1]]).await;
    let events = format!("/api/runs/{run}/events");
    let read = chats.api.send(Method::GET, &events, &Value::Null).await;
    let shown = lines(&read);
    assert_eq!(shown[0]["type"], "error", "{shown:?}");
    let what = format!("cannot read the stored value of `{run}`");
    assert!(text(&shown[0]["message"]).starts_with(&what), "{shown:?}");
    assert_eq!((shown.len(), &done(&shown)["reason"]), (2, &json!("error")));
    assert_no_text(&read.text());
    chats.tables.swap("sealed", "log", [&logs[0], &logs[1]]).await;
    let runs = [is(&run), is(&other_run)];
    chats.tables.swap("sealed", "run", [&runs[0], &runs[1]]).await;
    for path in [format!("/api/runs/{run}"), events.clone()] {
        chats.expect_unreadable(Method::GET, &path, Value::Null, &run).await;
    }
    chats.tables.swap("sealed", "run", [&runs[0], &runs[1]]).await;
}

/// Covers: case 46, X-15, S0-60
#[tokio::test]
async fn swapped_rows_are_errors_over_the_api() {
    for database in [Database::Sqlite, Database::Postgres] {
        for is_sealed in [false, true] {
            let mut chats = Chats::new(database, is_sealed).await;
            chats.expect_whole().await;
            swapped_fields(&mut chats).await;
            moved_rows(&mut chats).await;
            swapped_others(&mut chats).await;
            chats.expect_whole().await;
            swapped_nodes(&mut chats).await;
            let log = chats.api.gateway.log();
            assert!(!log.contains("panicked"), "{log}");
            assert_no_text(&log.replace("System", "").replace("Title", ""));
        }
    }
}

/// Without the key, a client gets the ciphertext of a swapped row, and cannot open it.
///
/// Covers: case 46
#[tokio::test]
async fn client_cannot_open_a_swapped_field() {
    use base64::Engine;
    use throughline_sealing::{FieldPath, OpenError};

    let mut chats = Chats::new(Database::chosen(), true).await;
    let [answer, other] = chats.answers.clone().map(|node| is(&node));
    chats.tables.swap("sealed", "node", [&answer, &other]).await;
    chats.api.present(&[]);
    let project = chats.projects[0].clone();
    let node = chats.api.get(&format!("{project}/nodes/{}", chats.answers[0])).await;
    for field in ["content", "content_blocks"] {
        let envelope = text(&node[format!("encrypted_{field}")]);
        let envelope = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(envelope).expect("base64url");
        let path = FieldPath { chat: id_of(&project), node: &chats.answers[0], field };
        let opened = ChatKey::new([5; 32]).open(path, &envelope);
        assert_eq!(opened, Err(OpenError::Altered), "{field}");
    }
}
