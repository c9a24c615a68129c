//! Damaged rows: a list shows them as damaged, and hides none of the others.

use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, Database, text};
use crate::tables::Tables;

const SCENARIO: &str = r#"
[[step]]
when = { contains = "question" }
say = [{ text = "The heron stands still." }]
"#;

/// The ids of the items of a list, and whether each one is shown as damaged.
fn items<'a>(list: &'a Value, name: &str) -> Vec<(&'a str, bool)> {
    let items = list[name].as_array().unwrap_or_else(|| panic!("no {name}: {list}"));
    let is_damaged = |item: &Value| item["problem"]["type"] == "/problems/unreadable";
    items.iter().map(|item| (text(&item["id"]), is_damaged(item))).collect()
}

fn id_of(project: &str) -> String {
    project.rsplit('/').next().unwrap_or_default().to_owned()
}

async fn damage(tables: &mut Tables, column: &str, table: &str, row: &str) {
    let flip = |bytes: &mut Vec<u8>| {
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
    };
    tables.change(column, table, row, flip).await;
}

/// A project with a question and its answer.
async fn talk(api: &Api, title: &str) -> (String, Vec<String>) {
    let project = api.project(json!({ "title": title })).await;
    api.say(&project, "main", &format!("question about the {title}")).await;
    let nodes = api.nodes(&project, "main").await;
    (project, nodes.iter().map(|node| text(&node["id"]).to_owned()).collect())
}

async fn check_projects(api: &Api, tables: &mut Tables) {
    let (one, _) = talk(api, "heron").await;
    let (other, _) = talk(api, "heron and stork").await;
    let [first, second] = [id_of(&one), id_of(&other)];
    damage(tables, "sealed", "project", &format!("id = '{first}'")).await;
    let list = api.get("/api/projects").await;
    assert_eq!(items(&list, "projects"), [(&*second, false), (&*first, true)]);
    assert_eq!(list["projects"][0]["title"], "heron and stork");
    // What a search cannot look at is named, and the rest is found.
    let found = api.get("/api/projects?q=heron").await;
    assert_eq!(items(&found, "projects"), [(&*second, false)]);
    assert!(text(&found["unreadable"][0]["detail"]).contains(&first), "{found}");
    // Branches and messages of the damaged project are there.
    let shown = api.get(&one).await;
    assert_eq!(shown["problem"]["type"], "/problems/unreadable", "{shown}");
    assert_eq!((&shown["title"], &shown["branches"][0]["name"]), (&Value::Null, &json!("main")));
    assert_eq!(api.nodes(&one, "main").await[1]["content"], "The heron stands still.");
}

async fn check_nodes(api: &Api, tables: &mut Tables) {
    let (project, nodes) = talk(api, "egret").await;
    damage(tables, "sealed", "node", &format!("id = '{}'", nodes[0])).await;
    for order in ["asc", "desc"] {
        let list = api.get(&format!("{project}/nodes?order={order}")).await;
        let mut shown = items(&list, "nodes");
        shown.sort_unstable();
        assert_eq!(shown, [(&*nodes[0], true), (&*nodes[1], false)]);
    }
    let found = api.get("/api/projects?q=stands%20still&in=content").await;
    let matches = &found["projects"][0]["matches"];
    assert_eq!(matches[0]["nodeId"], *nodes[1], "{found}");
    assert!(text(&found["unreadable"][0]["detail"]).contains(&nodes[0]), "{found}");
    // Branches and the graph have no contents.
    let branches = api.get(&format!("{project}/branches")).await;
    assert_eq!(branches["branches"][0]["head"], *nodes[1]);
    assert_eq!(api.count(&project).await, 2);
}

async fn check_rooms(api: &Api, tables: &mut Tables) {
    let mut rooms = Vec::new();
    for (name, title) in [("owl", "One"), ("kite", "Two")] {
        let channel = json!({"id": name, "provider": ANTHROPIC.0});
        assert_eq!(api.post("/api/channels", channel).await.status, 201);
        let room = api.post("/api/rooms", json!({ "title": title })).await.json();
        rooms.push(text(&room["id"]).to_owned());
    }
    for content in ["first", "second", "third"] {
        let path = format!("/api/rooms/{}/messages", rooms[1]);
        let said = json!({"participant": "ada", "content": content});
        assert_eq!(api.post(&path, said).await.status, 202);
    }
    damage(tables, "sealed", "channel", "id = 'kite'").await;
    damage(tables, "sealed", "room", &format!("id = '{}'", rooms[0])).await;
    let list = api.get("/api/channels").await;
    assert_eq!(items(&list, "channels"), [("kite", true), ("owl", false)]);
    let list = api.get("/api/rooms").await;
    assert_eq!(items(&list, "rooms"), [(&*rooms[1], false), (&*rooms[0], true)]);
    assert_eq!(list["rooms"][0]["title"], "Two");
    // One event of a log: the others are still shown, with their numbers.
    let row = format!("room = '{}' AND number = 2", rooms[1]);
    damage(tables, "sealed", "room_log", &row).await;
    let path = format!("/api/rooms/{}/events?after=0", rooms[1]);
    let mut stream = api.open(http::Method::GET, &path, &Value::Null).await;
    let mut shown = String::new();
    while !shown.contains("third") {
        let piece = stream.next().await.unwrap_or_else(|| panic!("the stream has ended: {shown}"));
        shown.push_str(std::str::from_utf8(&piece).expect("text"));
    }
    assert!(shown.contains("first") && !shown.contains("second"), "{shown}");
    assert!(shown.contains(r#""kind":"unreadable""#), "{shown}");
}

#[tokio::test]
async fn damaged_row_is_shown_and_hides_no_other() {
    for database in [Database::Sqlite, Database::Postgres] {
        let api = Api::on(database, &[ANTHROPIC], SCENARIO, "").await;
        let mut tables = Tables::of(&api).await;
        check_projects(&api, &mut tables).await;
        check_nodes(&api, &mut tables).await;
        check_rooms(&api, &mut tables).await;
        tables.close().await;
    }
}
