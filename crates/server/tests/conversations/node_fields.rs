//! What a node shows, and where the store has it.

use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, Database, done, text};
use crate::tables::Tables;

/// Two blocks of thinking, each with a signature of its own.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "First." }, { text = "One." }, { thinking = "Second." }, { text = " Two." }]
"#;

/// The contents of the blocks of a kind.
fn of_kind<'a>(node: &'a Value, kind: &str, member: &str) -> Vec<&'a str> {
    let blocks = node["contentBlocks"].as_array().expect("a list of blocks").iter();
    blocks.filter(|block| block["type"] == kind).map(|block| text(&block[member])).collect()
}

async fn answer(api: &Api, project: &str) -> Value {
    let chat = json!({"message": "ponder", "thinking": "medium"});
    let node = text(&done(&api.chat(project, chat).await)["nodeId"]).to_owned();
    api.get(&format!("{project}/nodes/{node}")).await
}

/// Covers: S4-13, S0-31, C-29
#[tokio::test]
async fn text_and_thinking_of_a_node_come_from_its_blocks() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let node = answer(&api, &project).await;
    assert_eq!(node["content"], of_kind(&node, "text", "text").concat());
    assert_eq!(node["content"], "One. Two.");
    assert_eq!(node["thinking_content"], of_kind(&node, "thinking", "thinking").join("\n\n"));
    assert_eq!(node["thinking_content"], "First.\n\nSecond.");
    assert_eq!(node["has_thinking"], true);
    // Each block has its signature, and there is no other place for one.
    let signatures = of_kind(&node, "thinking", "signature");
    assert_eq!(signatures.len(), 2);
    assert!(signatures.iter().all(|one| one.len() > 8) && signatures[0] != signatures[1]);
    let members: Vec<&String> = node.as_object().expect("an object").keys().collect();
    let is_other = |name: &&&String| name.contains("signature") || name.contains("embed");
    assert_eq!(members.iter().find(is_other), None, "{members:?}");
}

/// Covers: S4-17, S4-47
#[tokio::test]
async fn blocks_are_in_the_content_of_a_node_and_its_raw_reply_in_a_table_of_its_own() {
    let api = Api::on(Database::Sqlite, &[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let node = text(&answer(&api, &project).await["id"]).to_owned();
    let mut tables = Tables::of(&api).await;
    assert_eq!(tables.texts("SELECT node FROM raw_response").await, [node.as_str()]);
    let columns = tables.texts("SELECT name FROM pragma_table_info('node')").await;
    assert!(columns.iter().any(|column| column == "sealed"), "{columns:?}");
    for word in ["block", "raw"] {
        assert!(!columns.iter().any(|column| column.contains(word)), "{columns:?}");
    }
    // Without the table, the node still has its blocks.
    tables.execute("DELETE FROM raw_response").await;
    tables.close().await;
    let shown = api.get(&format!("{project}/nodes/{node}")).await;
    assert_eq!(of_kind(&shown, "thinking", "thinking"), ["First.", "Second."]);
    let path = format!("{project}/nodes/{node}/raw");
    assert_eq!(api.send(http::Method::GET, &path, &Value::Null).await.status, 404);
}
