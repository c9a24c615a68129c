//! Sealed projects: the server stores what it cannot read, and answers with the key of each request.

use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use throughline_sealing::{ChatKey, FieldPath};
use throughline_testkit::Simulator;

use crate::support::{ANTHROPIC, Api, Database, GEMINI, RESPONSES, done, joined, lines, text};
use crate::tables::{Tables, dump};

pub(crate) const CHAT_KEY: &str = "x-throughline-chat-key";
const LEASE: &str = "x-throughline-lease";

/// Every kind of content has a word of its own that appears nowhere else.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "promptmark" }
say = [
  { thinking = "I weigh thinkingmark with care." }, { text = "So answermark it is." },
  { tool = { name = "lookup", input = { key = "argumentmark" } } },
]
[[step]]
when = { contains = "resultmark" }
say = [{ thinking = "Another thinkingmark." }, { text = "The end is answermark." }]
[[step]]
when = { contains = "go on" }
say = [{ thinking = "First this, then that." }, { text = "I have thought." }]
[[step]]
when = { contains = "stall" }
fault = "stall:event=8,ms=600000"
say = [{ thinking = "One. Two. Three. Four. Five. Six. Seven." }, { text = "Never." }]
"#;

const MARKS: [&str; 7] = [
    "promptmark",
    "thinkingmark",
    "answermark",
    "argumentmark",
    "resultmark",
    "titlemark",
    "systemmark",
];

fn key(byte: u8) -> ChatKey {
    ChatKey::new([byte; 32])
}

/// A gateway whose caller has the key of a sealed project, and the path of the project.
async fn sealed_project(backends: &[(&str, &str)], settings: &str, title: &str) -> (Api, String) {
    let mut api = Api::with(backends, SCENARIO, settings).await;
    let project = seal_project(&mut api, title).await;
    (api, project)
}

/// Gives the caller a key, and makes a project that is sealed under it.
async fn seal_project(api: &mut Api, title: &str) -> String {
    api.present(&[(CHAT_KEY, &key(1).write())]);
    let new = json!({"title": title, "mode": "sealed", "keyCheck": key(1).key_check().to_string()});
    api.project(new).await
}

fn open(value: &Value, chat: &str, node: &str, field: &str) -> String {
    let envelope = BASE64_URL_SAFE_NO_PAD.decode(text(value)).expect("base64url");
    let path = FieldPath { chat, node, field };
    String::from_utf8(key(1).open(path, &envelope).expect("the key opens it")).expect("a text")
}

fn id_of(project: &str) -> &str {
    project.strip_prefix("/api/projects/").expect("the path of a project")
}

/// Covers: S0-3, S0-25, S0-26, S0-27, S0-28, S0-29, S0-30, S0-61, S0-63, C-14, C-15
#[tokio::test]
async fn sealed_project_shows_ciphertext_flags_and_counts_without_its_key() {
    let (mut api, project) = sealed_project(&[ANTHROPIC], "", "titlemark").await;
    let chat = json!({"message": "promptmark", "thinking": "medium"});
    let lines = api.chat(&project, chat).await;
    assert_eq!(joined(&lines, "thinking"), "I weigh thinkingmark with care.");
    let answer = text(&done(&lines)["nodeId"]).to_owned();
    let open_nodes = api.nodes(&project, "main").await;
    let run = lines_run(&api, &project).await;

    api.present(&[]);
    let (shown, id) = (api.get(&project).await, id_of(&project));
    assert_eq!((&shown["title"], &shown["mode"]), (&Value::Null, &json!("sealed")));
    assert_eq!(open(&shown["encrypted_title"], id, "", "title"), "titlemark");
    let list = api.get("/api/projects").await;
    assert_eq!(list["projects"][0]["encrypted_title"], shown["encrypted_title"]);
    assert_eq!(api.get("/api/projects?q=titlemark").await["projects"], json!([]));

    let nodes = api.nodes(&project, "main").await;
    assert_eq!(nodes.len(), 2);
    for (locked, opened) in nodes.iter().zip(&open_nodes) {
        assert!(locked.get("content").is_none() && locked.get("contentBlocks").is_none());
        assert!(locked.get("thinking_content").is_none(), "{locked}");
        let node = text(&locked["id"]);
        let field = |name: &str| open(&locked[format!("encrypted_{name}")], id, node, name);
        assert_eq!(field("content"), text(&opened["content"]));
        let blocks: Value = serde_json::from_str(&field("content_blocks")).expect("JSON");
        assert_eq!(blocks, opened["contentBlocks"]);
        for flag in ["has_thinking", "thinking_token_count", "usage", "provider", "modelUsed"] {
            assert_eq!(locked[flag], opened[flag], "{flag}");
        }
    }
    assert_eq!(nodes[1]["has_thinking"], true);
    let thinking = &nodes[1]["encrypted_thinking_content"];
    assert_eq!(open(thinking, id, &answer, "thinking_content"), "I weigh thinkingmark with care.");
    let signatures =
        open(&nodes[1]["encrypted_thinking_signature"], id, &answer, "thinking_signature");
    let signatures: Vec<String> = serde_json::from_str(&signatures).expect("a list");
    assert_eq!(signatures.len(), 1);
    let single = api.get(&format!("{project}/nodes/{answer}")).await;
    assert!(text(&single["encrypted_raw_response"]).len() > 100, "{single}");

    assert_eq!(api.count(&project).await, 4);
    assert_eq!(api.get(&format!("{project}/branches")).await["branches"][0]["name"], "main");
    let merge = json!({"from": "main", "into": "other"});
    for (method, path, body) in [
        (Method::GET, format!("{project}/nodes/{answer}/raw"), Value::Null),
        (Method::GET, format!("/api/runs/{run}/events"), Value::Null),
        (Method::POST, format!("{project}/preview"), json!({"message": "x"})),
        (Method::POST, format!("{project}/chat"), json!({"message": "x"})),
        (
            Method::POST,
            format!("{project}/edit"),
            json!({"nodeId": nodes[0]["id"], "message": "x"}),
        ),
        (Method::POST, format!("{project}/regenerate"), json!({"nodeId": answer})),
        (Method::POST, format!("{project}/merge"), merge),
        (Method::POST, format!("{project}/lease"), json!({})),
        (Method::PATCH, project.clone(), json!({"title": "x"})),
    ] {
        let refused = api.send(method, &path, &body).await;
        assert_eq!(refused.status, 423, "{path}: {}", refused.text());
        assert!(text(&refused.json()["hint"]).contains("x-throughline-chat-key"), "{path}");
    }
    assert_eq!(api.nodes(&project, "main").await, nodes, "nothing was stored");
}

/// The run of the newest turn.
async fn lines_run(api: &Api, project: &str) -> String {
    let chat = json!({"message": "go on", "branch": "runs"});
    api.branch(project, json!({"name": "runs", "fromRef": "main"})).await;
    let stream = api.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let run = stream.headers["x-throughline-run"].to_str().expect("an id").to_owned();
    stream.read_all().await;
    run
}

/// The words that a text contains: as they are, or as `pg_dump` writes bytes.
fn marks_in<'a>(text: &'a str) -> impl Iterator<Item = &'static str> + 'a {
    let hex = |mark: &str| mark.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    MARKS.into_iter().filter(move |mark| text.contains(mark) || text.contains(&hex(mark)))
}

/// All files below a folder that contain one of the words.
fn files_with_marks(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files_with_marks(&path, found);
            continue;
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        found.extend(marks_in(&text).map(|mark| format!("{mark} in {}", path.display())));
    }
}

/// Where one of the words is stored: in the files of the gateway, its log included, in its database, and in
/// the files of its bus.
pub(crate) fn stored_marks(api: &Api) -> Vec<String> {
    let mut found = Vec::new();
    files_with_marks(api.gateway.folder(), &mut found);
    if let Some(database) = &api.database {
        let dump = dump(&database.url);
        assert!(dump.contains("COPY public.node "), "the dump has all tables");
        found.extend(marks_in(&dump).map(|mark| format!("{mark} in the database")));
    }
    if let Some(redis) = &api.redis {
        assert!(redis.command(&["KEYS", "*"]).contains("throughline:run:"), "the bus was used");
        files_with_marks(redis.save(), &mut found);
    }
    found
}

/// A conversation in which every kind of content has its word. Returns a signature.
async fn say_all_marks(api: &Api, project: &str) -> String {
    api.patch(project, json!({"system": "systemmark"})).await.expect_ok();
    let tools = json!([{"name": "lookup", "parameters": {"type": "object"}}]);
    let chat = json!({"message": "promptmark", "thinking": "medium", "tools": tools});
    let lines = api.chat(project, chat).await;
    let call = lines.iter().find(|line| line["type"] == "tool_call").expect("a call");
    let results = json!([{"id": call["id"], "content": "resultmark"}]);
    let chat = json!({"toolResults": results, "thinking": "medium", "tools": tools});
    let lines = api.chat(project, chat).await;
    assert_eq!(joined(&lines, "text"), "The end is answermark.");
    let nodes = api.nodes(project, "main").await;
    let signature = text(&nodes[1]["contentBlocks"][0]["signature"]).to_owned();
    assert!(signature.len() > 20, "{}", nodes[1]);
    signature
}

/// Writes words into the database as they are, to see that the search finds them.
async fn plant_marks(api: &Api) {
    let mut tables = Tables::of(api).await;
    let node = tables.texts("SELECT id FROM node ORDER BY id").await.swap_remove(0);
    tables.set("sealed", "node", &format!("id = '{node}'"), b"TF answermark").await;
    tables.execute("UPDATE project SET facts = 'titlemark'").await;
    tables.close().await;
    let redis = api.redis.as_ref().expect("a bus");
    redis.command(&["SET", "planted", "resultmark"]);
}

/// Covers: S0-3, S0-62, C-15, C-33, X-24
#[tokio::test]
async fn contents_are_neither_stored_nor_in_the_log() {
    let everything = "[debug_log]\nenabled = true\nfull_body = true\n";
    for database in [Database::Sqlite, Database::Postgres] {
        let mut api = Api::with_bus(database, &[ANTHROPIC], SCENARIO, everything).await;
        let project = seal_project(&mut api, "titlemark").await;
        let signature = say_all_marks(&api, &project).await;
        assert_eq!(stored_marks(&api), [""; 0], "{database:?}");
        let log = api.gateway.log();
        let written_key = key(1).write();
        for secret in MARKS.iter().copied().chain([signature.as_str(), written_key.as_str()]) {
            assert!(!log.contains(secret), "{secret} is in the log");
        }
        let turns = api.gateway.turns().await;
        assert!(!json!(turns).to_string().contains("mark"), "{turns:?}");
        assert!(log.contains("Turn ended"), "the log is on");
        plant_marks(&api).await;
        let found = stored_marks(&api).join(" ");
        for planted in ["answermark in", "titlemark in", "resultmark in"] {
            assert!(found.contains(planted), "{planted}: {found}");
        }
    }
}

/// Covers: C-15, X-24
#[tokio::test]
async fn contents_of_managed_projects_are_not_stored_as_they_are() {
    for database in [Database::Sqlite, Database::Postgres] {
        let api = Api::with_bus(database, &[ANTHROPIC], SCENARIO, "").await;
        let project = api.project(json!({"title": "titlemark"})).await;
        say_all_marks(&api, &project).await;
        assert_eq!(stored_marks(&api), [""; 0], "{database:?}");
        plant_marks(&api).await;
        let found = stored_marks(&api).join(" ");
        for planted in ["answermark in", "titlemark in", "resultmark in"] {
            assert!(found.contains(planted), "{planted}: {found}");
        }
    }
}

#[tokio::test]
async fn arguments_and_results_of_tools_are_sealed() {
    let scenario = r#"
[[step]]
when = { contains = "use it" }
say = [{ thinking = "thinkingmark" }, { tool = { name = "calc__echo", input = { text = "argumentmark" } } }]
[[step]]
when = { contains = "argumentmark" }
say = [{ text = "answered" }]
"#;
    let settings = crate::tools::server("calc", &[], "");
    let mut api = Api::with(&[ANTHROPIC], scenario, &settings).await;
    let project = seal_project(&mut api, "t").await;
    let lines = api.chat(&project, json!({"message": "use it", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let result = lines.iter().find(|line| line["type"] == "tool_result").expect("a result");
    assert_eq!(result["content"], "argumentmark");
    assert_eq!(stored_marks(&api), [""; 0]);
}

/// Covers: X-16
#[tokio::test]
async fn wrong_key_is_refused_and_nothing_is_stored() {
    let (mut api, project) = sealed_project(&[ANTHROPIC], "", "").await;
    api.say(&project, "main", "go on").await;
    let before = api.nodes(&project, "main").await;
    for (wrong, status, kind) in
        [(key(2).write().to_string(), 409, "/problems/wrong-key"), ("short".to_owned(), 400, "")]
    {
        api.present(&[(CHAT_KEY, &wrong)]);
        for (path, body) in [
            ("chat", json!({"message": "x"})),
            ("edit", json!({"nodeId": before[0]["id"], "message": "x"})),
            ("lease", json!({})),
        ] {
            let refused = api.post(&format!("{project}/{path}"), body).await;
            assert_eq!(refused.status, status, "{path}: {}", refused.text());
            assert!(text(&refused.json()["type"]).contains(kind), "{}", refused.text());
            assert!(!refused.text().contains(&wrong) || status == 409, "{}", refused.text());
        }
    }
    api.present(&[(CHAT_KEY, &key(1).write())]);
    assert_eq!(api.nodes(&project, "main").await, before);
    let check = key(2).key_check().to_string();
    for (new, status) in [
        (json!({"mode": "sealed", "keyCheck": check}), 409),
        (json!({"mode": "sealed"}), 400),
        (json!({"mode": "sealed", "keyCheck": "x"}), 400),
        (json!({"keyCheck": check}), 400),
        (json!({"mode": "open"}), 400),
    ] {
        let refused = api.post("/api/projects", new.clone()).await;
        assert_eq!(refused.status, status, "{new}: {}", refused.text());
    }
    api.present(&[]);
    let new = json!({"mode": "sealed", "keyCheck": check, "title": "titlemark"});
    assert_eq!(api.post("/api/projects", new).await.status, 423, "who would seal the title?");
    let new = json!({"mode": "sealed", "keyCheck": check});
    assert_eq!(api.post("/api/projects", new).await.status, 201);
}

/// Covers: S0-5
#[tokio::test]
async fn signed_conversation_continues_after_a_restart_under_a_fresh_lease() {
    for backend in [ANTHROPIC, ("bound", "anthropic, bound"), GEMINI, RESPONSES] {
        let (mut api, project) = sealed_project(&[backend], "", "").await;
        let tools = json!([{"name": "lookup", "parameters": {"type": "object"}}]);
        let chat = json!({"message": "promptmark", "thinking": "medium", "tools": tools});
        let lines = api.chat(&project, chat).await;
        let call = lines.iter().find(|line| line["type"] == "tool_call").expect("a call");
        api.gateway.kill().await;
        api.gateway.restart().await;
        let lease = api.post(&format!("{project}/lease"), json!({"minutes": 5})).await;
        assert_eq!(lease.status, 201, "{}", lease.text());
        let lease = text(&lease.json()["lease"]).to_owned();
        api.present(&[(LEASE, &lease)]);
        let results = json!([{"id": call["id"], "content": "resultmark"}]);
        let chat = json!({"toolResults": results, "thinking": "medium", "tools": tools});
        let lines = api.chat(&project, chat).await;
        assert_eq!(joined(&lines, "text"), "The end is answermark.", "{}", backend.0);
        assert_eq!(api.refusals().await, Vec::<String>::new(), "{}", backend.0);
        let received = api.simulators[0].last_received().await;
        let body = &received.body;
        assert!(body.contains("resultmark") && body.contains("promptmark"), "{body}");
        api.gateway.kill().await;
        api.gateway.restart().await;
        let refused = api.post(&format!("{project}/chat"), json!({"message": "go on"})).await;
        assert_eq!(refused.status, 423, "a lease ends with the process");
    }
}

/// Nothing of a sealed turn is remembered, not even that a backend refused its thinking.
#[tokio::test]
async fn refused_thinking_of_an_open_loop_is_left_out_and_the_turn_goes_on() {
    for earlier in [None, Some("go on")] {
        let (mut api, project) = sealed_project(&[ANTHROPIC], "", "").await;
        if let Some(message) = earlier {
            api.chat(&project, json!({"message": message, "thinking": "medium"})).await;
        }
        let tools = json!([{"name": "lookup", "parameters": {"type": "object"}}]);
        let chat = json!({"message": "promptmark", "thinking": "medium", "tools": tools});
        let lines = api.chat(&project, chat).await;
        let call = lines.iter().find(|line| line["type"] == "tool_call").expect("a call");
        // The provider has lost the key of its signatures.
        let other = Simulator::with_scenario("another identity", SCENARIO).await;
        let file = api.gateway.folder().join("throughline.toml");
        let config = std::fs::read_to_string(file).expect("a file");
        api.gateway.kill().await;
        api.gateway.configure(&config.replace(&api.simulators[0].url, &other.url));
        api.gateway.restart().await;
        let results = json!([{"id": call["id"], "content": "resultmark"}]);
        let chat = json!({"toolResults": results, "thinking": "medium", "tools": tools});
        let lines = api.chat(&project, chat).await;
        assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
        let seen = other.received().await;
        let (answered, refused) = seen.split_last().expect("requests");
        assert_eq!(refused.len(), if earlier.is_some() { 2 } else { 1 }, "one for each turn");
        for seen in refused {
            assert!(seen.refusal.contains("Invalid `signature`"), "{}", seen.refusal);
        }
        assert_eq!(answered.thinking(), [Value::Null; 0]);
    }
}

#[tokio::test]
async fn revoked_lease_stops_its_run_and_its_readers_within_a_second() {
    let (mut api, project) = sealed_project(&[ANTHROPIC], "", "").await;
    let lease = api.post(&format!("{project}/lease"), json!({})).await.json();
    api.present(&[(LEASE, text(&lease["lease"]))]);
    let chat = json!({"message": "stall", "thinking": "medium"});
    let mut stream = api.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let run = stream.headers["x-throughline-run"].to_str().expect("an id").to_owned();
    assert!(stream.next().await.is_some(), "thinking has begun");
    let revoked = Instant::now();
    assert_eq!(api.delete(&format!("{project}/lease")).await.status, 204);
    while stream.next().await.is_some() {}
    assert!(revoked.elapsed() < Duration::from_secs(1), "{:?}", revoked.elapsed());
    assert_eq!(api.post(&format!("{project}/chat"), chat).await.status, 423);
    assert_eq!(api.delete(&format!("{project}/lease")).await.status, 404);
    api.present(&[(CHAT_KEY, &key(1).write())]);
    // A reader with the key sees the end of the run when it is stored.
    let events = api.send(Method::GET, &format!("/api/runs/{run}/events"), &Value::Null).await;
    assert_eq!(done(&lines(&events))["reason"], "cancelled");
    assert_eq!(api.get(&format!("/api/runs/{run}")).await["status"], "cancelled");
    let nodes = api.nodes(&project, "main").await;
    assert!(text(&nodes[1]["thinking_content"]).starts_with("One."), "{nodes:?}");
}

#[tokio::test]
async fn answer_of_a_killed_server_is_stored_when_the_key_arrives() {
    let (mut api, project) = sealed_project(&[ANTHROPIC], "", "").await;
    let chat = json!({"message": "stall", "thinking": "medium"});
    let mut stream = api.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let run = stream.headers["x-throughline-run"].to_str().expect("an id").to_owned();
    let seen = String::from_utf8(stream.next().await.expect("a line").to_vec()).expect("UTF-8");
    let line: Value = serde_json::from_str(seen.lines().next().expect("a line")).expect("JSON");
    let seen = text(&line["content"]);
    assert!(!seen.is_empty(), "{line}");
    api.gateway.kill().await;
    api.gateway.restart().await;
    // A reader waits until another process has ended the run. With a shared database that takes seconds.
    let events = api.send(Method::GET, &format!("/api/runs/{run}/events"), &Value::Null).await;
    assert_eq!(done(&lines(&events))["reason"], "interrupted");
    api.present(&[]);
    let status = api.get(&format!("/api/runs/{run}")).await["status"].clone();
    assert_eq!(status, "interrupted", "the run ends without the key");
    assert_eq!(api.nodes(&project, "main").await.len(), 1);
    api.present(&[(CHAT_KEY, &key(1).write())]);
    let nodes = api.nodes(&project, "main").await;
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    assert_eq!(nodes[1]["status"], "interrupted");
    assert!(text(&nodes[1]["thinking_content"]).starts_with(seen), "{nodes:?}");
    let lines = api.say(&project, "main", "go on").await;
    assert_eq!(joined(&lines, "text"), "I have thought.");
    assert_eq!(api.nodes(&project, "main").await.len(), 4);
}

/// Covers: X-24
#[tokio::test]
async fn error_of_a_provider_is_not_recorded_with_its_words() {
    let scenario = r#"
[[step]]
fault = "error:event=2"
say = [{ text = "x" }]
"#;
    let mut api = Api::with(&[ANTHROPIC], scenario, "").await;
    api.present(&[(CHAT_KEY, &key(1).write())]);
    let check = key(1).key_check().to_string();
    let project = api.project(json!({"mode": "sealed", "keyCheck": check})).await;
    api.say(&project, "main", "promptmark").await;
    let turn = api.gateway.last_turn().await;
    assert!(text(&turn["error"]).starts_with("the backend reported an error"), "{turn}");
}
