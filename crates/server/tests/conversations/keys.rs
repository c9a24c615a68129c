//! `throughline keys`: opens every row of both databases, names exactly what is damaged, and changes
//! keys without losing anything.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};

use http::Method;
use serde_json::{Value, json};
use throughline_sealing::ChatKey;
use throughline_testkit::run_command;

use crate::support::{ANTHROPIC, Api, BINARY, Database, text};
use crate::tables::Tables;
use crate::upstreams::SCENARIO;

const CHAT_KEY: &str = "x-throughline-chat-key";
const DATA_DIR: (&str, &str) = ("THROUGHLINE_DATA_DIR", "data");
const CONFIG: [&str; 2] = ["--config", "throughline.toml"];

/// Runs `throughline keys` beside the gateway.
async fn keys(api: &Api, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let arguments = [&["keys"], arguments, &CONFIG[..]].concat();
    let environment = [&[DATA_DIR], environment].concat();
    run_command(BINARY, api.gateway.folder(), &arguments, &environment).await
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("a text")
}

/// The lines of an answer that has to succeed.
async fn succeed(api: &Api, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let output = keys(api, arguments, environment).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    out(&output)
}

fn key() -> ChatKey {
    ChatKey::new([1; 32])
}

/// A gateway with every kind of stored content: a managed project, a sealed one, a stored response and
/// a turn in the vault. Returns the paths of both projects.
async fn filled(database: Database) -> (Api, [String; 2]) {
    let settings = "[hooks]\nallow_private = true\n";
    let mut api = Api::on(database, &[ANTHROPIC], SCENARIO, settings).await;
    let managed = api.project(json!({"title": "Herons"})).await;
    let check = key().key_check().to_string();
    api.present(&[(CHAT_KEY, &key().write())]);
    let sealed = json!({"title": "Storks", "mode": "sealed", "keyCheck": check});
    fill_rooms(&api, [json!({"title": "Open"}), sealed.clone()]).await;
    let sealed = api.project(sealed).await;
    for project in [&managed, &sealed] {
        for message in ["ponder", "plain"] {
            api.chat(project, json!({"message": message, "thinking": "medium"})).await;
        }
    }
    let response = json!({"model": "claude", "input": "ponder", "reasoning": {"effort": "medium"}});
    api.send(Method::POST, "/v1/responses", &response).await.expect_ok();
    let tools = json!([{"type": "function", "function": {"name": "lookup",
        "parameters": {"type": "object"}}}]);
    let chat = json!({"model": "claude", "reasoning_effort": "medium", "tools": tools,
        "messages": [{"role": "user", "content": "one tool"}]});
    api.send(Method::POST, "/v1/chat/completions", &chat).await.expect_ok();
    // The vault is written in the background.
    api.gateway.signal("TERM").await;
    api.gateway.wait_for_exit().await;
    (api, [managed, sealed])
}

/// What `throughline keys verify` writes on a terminal, control characters included.
async fn verify_on_a_terminal(api: &Api) -> String {
    let command = format!("'{BINARY}' keys verify --config throughline.toml");
    let mut script = tokio::process::Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    script.current_dir(api.gateway.folder()).env(DATA_DIR.0, DATA_DIR.1);
    let output = script.stdin(Stdio::null()).output().await.expect("`script` runs");
    assert!(output.status.success(), "{output:?}");
    out(&output)
}

#[tokio::test]
async fn verify_shows_a_bar_on_a_terminal_and_removes_it() {
    let (api, _) = filled(Database::chosen()).await;
    let shown = verify_on_a_terminal(&api).await;
    assert!(shown.contains("\r[") && shown.contains(" rows, 0 damaged"), "{shown:?}");
    let (bar, result) = shown.rsplit_once("\r\x1b[2K").expect("the bar is removed");
    assert!(bar.contains('%') && !result.contains('['), "{shown:?}");
    assert!(result.contains("intact"), "{shown:?}");
    // Elsewhere there is no bar.
    let output = keys(&api, &["verify"], &[]).await;
    assert!(output.status.success(), "{output:?}");
    assert!(!output.stderr.contains(&b'\r') && !output.stdout.contains(&b'\r'), "{output:?}");
}

/// Adds a channel, and a room in a project of each of these kinds. A hook does not answer, so its call waits.
async fn fill_rooms(api: &Api, projects: [Value; 2]) {
    assert_eq!(api.post("/api/channels", json!({"id": "tutor"})).await.status, 201);
    for project in projects {
        let project = api.project(project).await;
        let made = api.post("/api/rooms", json!({"title": "R", "project": id_of(&project)})).await;
        let room = format!("/api/rooms/{}", text(&made.json()["id"]));
        let hook = json!({"trigger": "before_message", "secret": "s", "url": "http://127.0.0.1:1"});
        assert_eq!(api.post(&format!("{room}/hooks"), hook).await.status, 201);
        let message = json!({"participant": "ada", "content": "hello"});
        assert_eq!(api.post(&format!("{room}/messages"), message).await.status, 202);
    }
}

fn id_of(project: &str) -> &str {
    project.strip_prefix("/api/projects/").expect("the path of a project")
}

/// The damage that `verify` reports, and its last line.
fn report(output: &Output) -> (BTreeSet<[String; 3]>, Value) {
    let mut lines: Vec<Value> =
        out(output).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let last = lines.pop().expect("a result");
    let damage = lines.iter().map(|line| {
        assert!(!text(&line["reason"]).is_empty(), "{line}");
        ["table", "id", "field"].map(|name| text(&line[name]).to_owned())
    });
    (damage.collect(), last)
}

fn is(id: &str) -> String {
    format!("id = '{id}'")
}

/// Damages rows in every table, and returns what a report must name.
async fn damage(tables: &mut Tables, [managed, sealed]: [&str; 2]) -> BTreeSet<[String; 3]> {
    let mut expected = BTreeSet::new();
    let mut expect = |table: &str, id: &str, field: &str| {
        expected.insert([table, id, field].map(str::to_owned));
    };
    let of = |project: &str| format!("SELECT id FROM node WHERE project = '{project}' ORDER BY id");
    let nodes = tables.texts(&of(managed)).await;
    let sealed_nodes = tables.texts(&of(sealed)).await;
    assert_eq!((nodes.len(), sealed_nodes.len()), (4, 4));
    // A byte is flipped: in the last field, in a key id, in a title.
    let flip = |bytes: &mut Vec<u8>| *bytes.last_mut().expect("a byte") ^= 1;
    tables.change("sealed", "node", &is(&nodes[0]), flip).await;
    expect("node", &nodes[0], "node");
    let thinking = "encrypted_thinking_content";
    tables.change(thinking, "node", &is(&nodes[1]), |bytes| bytes[4] ^= 1).await;
    expect("node", &nodes[1], "thinking_content");
    tables.change("sealed", "project", &is(sealed), flip).await;
    expect("project", sealed, "title");
    // A value is cut.
    tables.change("sealed", "node", &is(&nodes[2]), |bytes| bytes.truncate(40)).await;
    expect("node", &nodes[2], "node");
    let pieces = "SELECT log.run || '/' || log.first FROM log JOIN run ON run.id = log.run
        WHERE scope LIKE 'project:%' ORDER BY log.run, log.first";
    let log = tables.texts(pieces).await.swap_remove(0);
    let (run, first) = log.split_once('/').expect("a run and a number");
    let piece = format!("run = '{run}' AND first = {first}");
    tables.change("sealed", "log", &piece, |bytes| bytes.truncate(bytes.len() - 1)).await;
    expect("log", &log, "sealed");
    // Rows are swapped.
    tables.swap("sealed", "node", [&is(&sealed_nodes[0]), &is(&sealed_nodes[2])]).await;
    for node in [&sealed_nodes[0], &sealed_nodes[2]] {
        for field in ["node", "content", "content_blocks"] {
            expect("node", node, field);
        }
    }
    let raw = [&nodes[1], &sealed_nodes[3]].map(|node| format!("node = '{node}'"));
    tables.swap("raw_response", "raw_response", [&raw[0], &raw[1]]).await;
    expect("raw_response", &nodes[1], "raw_response");
    expect("raw_response", &sealed_nodes[3], "raw_response");
    // Rooms: a log of each, a call of a hook, a channel.
    let entries = "SELECT room || '/' || number FROM room_log ORDER BY room";
    let entries = tables.texts(entries).await;
    let rooms: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry.strip_suffix("/1"))
        .map(|room| format!("room = '{room}' AND number = 1"))
        .collect();
    assert_eq!((entries.len(), rooms.len()), (2, 2), "{entries:?}");
    tables.swap("sealed", "room_log", [&rooms[0], &rooms[1]]).await;
    for entry in &entries {
        expect("room_log", entry, "sealed");
    }
    for (table, id) in [("delivery", "id"), ("channel", "owner || '/' || id"), ("room", "id")] {
        let ids = tables.texts(&format!("SELECT {id} FROM {table} ORDER BY id")).await;
        tables.change("sealed", table, &format!("{id} = '{}'", ids[0]), flip).await;
        expect(table, &ids[0], "sealed");
    }
    // Stored responses and the vault.
    let response = tables.texts("SELECT id FROM node WHERE project IS NULL").await.swap_remove(0);
    tables.change("sealed", "node", &is(&response), |bytes| bytes.truncate(10)).await;
    expect("node", &response, "sealed");
    let record = "SELECT CAST(min(id) AS TEXT) FROM vault_record";
    let record = tables.texts(record).await.swap_remove(0);
    tables.change("sealed", "vault_record", &format!("id = {record}"), |bytes| bytes[1] ^= 1).await;
    expect("vault_record", &record, "sealed");
    expected
}

/// Covers: case 46, X-15
#[tokio::test]
async fn verify_names_exactly_the_damaged_rows() {
    for database in [Database::Sqlite, Database::Postgres] {
        let (api, [managed, sealed]) = filled(database).await;
        let chat_keys = format!("# of a project\n{}\n", *key().write());
        std::fs::write(api.gateway.folder().join("chat-keys"), chat_keys).expect("a file");
        let with_keys = ["verify", "--json", "--chat-keys", "chat-keys"];

        let intact = keys(&api, &with_keys, &[]).await;
        let (damaged, result) = report(&intact);
        assert!(intact.status.success() && damaged.is_empty(), "{intact:?}");
        assert_eq!(result["intact"], result["rows"]);
        let rows = result["rows"].as_u64().expect("a number");
        let (_, locked) = report(&keys(&api, &["verify", "--json"], &[]).await);
        let not_judged = locked["notJudged"].as_u64().expect("a number");
        assert!(not_judged > 6, "project, nodes, replies and logs: {locked}");
        assert_eq!(locked["intact"].as_u64(), Some(rows - not_judged));

        let mut tables = Tables::of(&api).await;
        let expected = damage(&mut tables, [id_of(&managed), id_of(&sealed)]).await;
        tables.close().await;
        let output = keys(&api, &with_keys, &[]).await;
        let (damaged, result) = report(&output);
        assert_eq!(damaged, expected, "{database:?}");
        assert_eq!(output.status.code(), Some(1));
        let damaged_rows: BTreeSet<_> = expected.iter().map(|[table, id, _]| (table, id)).collect();
        assert_eq!(result["damaged"], damaged_rows.len());
        assert_eq!(result["rows"], rows);
        assert_eq!(result["notJudged"], 0);

        // Without the chat key, the swapped rows of the sealed project cannot be judged.
        let (damaged, _) = report(&keys(&api, &["verify", "--json"], &[]).await);
        let is_known = |row: &&[String; 3]| !expected.contains(*row);
        assert_eq!(damaged.iter().find(is_known), None);
        assert!(damaged.len() > 5 && damaged.len() < expected.len(), "{damaged:?}");

        let people = keys(&api, &["verify"], &[]).await;
        let shown = out(&people);
        assert!(shown.contains("damaged: vault_record "), "{shown}");
        assert!(shown.contains("changed after sealing"), "{shown}");
        assert!(shown.contains("not judged: the chat keys"), "{shown}");
        let all = format!("{shown}{}", String::from_utf8_lossy(&people.stderr));
        assert!(!all.contains("panicked") && !all.contains('\r'), "{all}");
    }
}

#[tokio::test]
async fn verify_explains_wrong_input() {
    let (api, _) = filled(Database::Sqlite).await;
    std::fs::write(api.gateway.folder().join("wrong"), "# keys\nnonsense\n").expect("a file");
    for (arguments, code, words) in [
        (&["verify", "--chat-keys", "wrong"][..], 2, "wrong:2: not a chat key"),
        (&["verify", "--chat-keys", "none"], 1, "cannot read `none`"),
        (&["verify", "--keyring", "none"], 1, "there is no keyring `none`"),
        (&["verify", "--keyring", "wrong"], 1, "`wrong` is not a valid keyring"),
    ] {
        let output = keys(&api, arguments, &[]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(words) && !error.contains("nonsense"), "{error}");
    }
    // Another keyring opens nothing that is managed.
    let other = "HwABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4=";
    std::fs::write(api.gateway.folder().join("other"), other).expect("a file");
    let output = keys(&api, &["verify", "--keyring", "other"], &[]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("the key that sealed this is not on the keyring"), "{output:?}");
}

///
#[tokio::test]
async fn rotated_keyring_reads_old_rows_and_seals_new_ones() {
    for database in [Database::Sqlite, Database::Postgres] {
        let (mut api, [managed, _]) = filled(database).await;
        let status = |text: String| -> Value { serde_json::from_str(&text).expect("JSON") };
        let before = status(succeed(&api, &["status", "--json"], &[]).await);
        let old = before["keys"][0].clone();
        assert_eq!((&old["current"], &before["keys"][1]), (&json!(true), &Value::Null));
        assert!(text(&old["made"]).starts_with("20"), "{before}");
        let old_rows = old["rows"].as_u64().expect("a number");
        assert!(old_rows > 10, "{before}");
        assert_eq!(before["projects"], json!({"managed": 2, "sealed": 2}));
        assert!(before["rowsUnderChatKeys"].as_u64() > Some(6), "{before}");

        let rotated = succeed(&api, &["rotate"], &[]).await;
        assert!(rotated.contains(text(&old["id"])), "{rotated}");
        api.gateway.restart().await;
        let nodes = api.nodes(&managed, "main").await;
        assert_eq!(nodes.len(), 4);
        assert!(nodes.iter().all(|node| !text(&node["content"]).is_empty()), "{nodes:?}");
        api.say(&managed, "main", "plain").await;

        let after = status(succeed(&api, &["status", "--json"], &[]).await);
        let [new, kept] = [&after["keys"][0], &after["keys"][1]];
        assert_eq!((&new["current"], &kept["current"]), (&json!(true), &json!(false)));
        assert_eq!((&kept["id"], &kept["made"]), (&old["id"], &old["made"]));
        assert_eq!(kept["rows"], old_rows, "nothing was sealed again");
        assert!(new["rows"].as_u64() > Some(2), "{after}");
        assert_eq!(after["rowsUnderUnknownKeys"], 0);
        let shown = succeed(&api, &["status"], &[]).await;
        assert!(shown.contains("seals, and opens") && shown.contains("2 sealed"), "{shown}");
        let verified = succeed(&api, &["verify"], &[]).await;
        assert!(verified.contains(" 0 damaged"), "{verified}");
    }
}

#[tokio::test]
async fn rotation_of_a_shared_keyring_prints_both_steps_and_writes_nothing() {
    let (api, _) = filled(Database::Sqlite).await;
    let [one, two] = [
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "HwABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4=",
    ];
    let shared = format!("{one},{two}");
    let keyring = std::fs::read(api.gateway.folder().join("data/keyring")).expect("a file");
    let variable = [("THROUGHLINE_KEYRING", shared.as_str())];
    let values = succeed(&api, &["rotate", "--json"], &variable).await;
    let values: Value = serde_json::from_str(&values).expect("JSON");
    let first: Vec<&str> = text(&values["first"]).split(',').collect();
    let then: Vec<&str> = text(&values["then"]).split(',').collect();
    assert_eq!((first[0], first[2], first.len()), (one, two, 3));
    assert_eq!((then[0], then[1], then[2]), (first[1], one, two));
    assert_eq!(std::fs::read(api.gateway.folder().join("data/keyring")).expect("a file"), keyring);
}

#[tokio::test]
async fn lost_keyring_is_restored_with_the_recovery_code() {
    let (mut api, [managed, _]) = filled(Database::Sqlite).await;
    let keyring = api.gateway.folder().join("data/keyring");
    let backup = ["recovery", "create", "--out", "backup"];
    let code = succeed(&api, &backup, &[]).await;
    let given = [("THROUGHLINE_RECOVERY_CODE", code.trim())];
    let sealed = std::fs::read_to_string(api.gateway.folder().join("backup")).expect("a file");
    let keys_before = std::fs::read_to_string(&keyring).expect("a file");
    let secret = keys_before.split('#').next().expect("a key").trim();
    assert!(!sealed.contains(secret) && !sealed.contains(code.trim()), "{sealed}");
    assert!(!keys(&api, &backup, &[]).await.status.success(), "a backup is never replaced");
    let checked = succeed(&api, &["recovery", "check", "backup"], &given).await;
    assert!(checked.contains("has all keys"), "{checked}");

    // A new key is missing in the backup, and stays when the backup is restored.
    succeed(&api, &["rotate"], &[]).await;
    let stale = keys(&api, &["recovery", "check", "backup"], &given).await;
    assert_eq!(stale.status.code(), Some(1));
    let rotated = std::fs::read_to_string(&keyring).expect("a file");
    succeed(&api, &["recovery", "restore", "backup"], &given).await;
    assert_eq!(std::fs::read_to_string(&keyring).expect("a file"), rotated);

    for (code, words) in [
        ("ABCD", "not a recovery code"),
        ("006H-M9SM-8575-PT3N-GA7S-SADP-RF8D-VTQQ-G", "another recovery code"),
    ] {
        let wrong = [("THROUGHLINE_RECOVERY_CODE", code)];
        let output = keys(&api, &["recovery", "restore", "backup"], &wrong).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(words), "{error}");
    }
    std::fs::remove_file(&keyring).expect("a file");
    let lost = keys(&api, &["verify"], &[]).await;
    let error = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(error.contains("keys recovery restore"), "{error}");
    succeed(&api, &["recovery", "restore", "backup"], &given).await;
    assert_eq!(std::fs::read_to_string(&keyring).expect("a file"), keys_before);
    api.gateway.restart().await;
    assert_eq!(api.nodes(&managed, "main").await.len(), 4);
}
