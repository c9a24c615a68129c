//! Models that call tools of MCP servers: one run, one answer, however many rounds.

mod approvals;
mod failures;
mod formats;
mod interrupted;
mod loops;
mod servers;

use serde_json::Value;

use crate::support::{ANTHROPIC, Api, BINARY, text};

/// What the model does.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "sum" }
say = [{ thinking = "I add." }, { text = "Let me add." }, { tool = { name = "calc__add", input = { a = 2, b = 3 } } }]
[[step]]
when = { contains = "then again" }
say = [{ thinking = "First." }, { tool = { name = "calc__echo", input = { text = "once more" } } }]
[[step]]
when = { contains = "once more" }
say = [{ thinking = "Second." }, { tool = { name = "calc__add", input = { a = 2, b = 3 } } }]
[[step]]
when = { contains = "both at once" }
say = [{ thinking = "Two." }, { tool = { name = "calc__add", input = { a = 2, b = 3 } } }, { tool = { name = "calc__echo", input = { text = "echo" } } }]
[[step]]
when = { contains = "mixed" }
say = [{ thinking = "Mine and yours." }, { tool = { name = "own", input = { key = "7" } } }, { tool = { name = "calc__add", input = { a = 2, b = 3 } } }]
[[step]]
when = { contains = "forever" }
say = [{ thinking = "Again." }, { tool = { name = "calc__echo", input = { text = "forever" } } }]
[[step]]
when = { contains = "please wait" }
say = [{ thinking = "I wait." }, { tool = { name = "calc__wait", input = {} } }]
[[step]]
when = { contains = "add and wait" }
say = [{ thinking = "Both." }, { tool = { name = "calc__add", input = { a = 2, b = 3 } } }, { tool = { name = "calc__wait", input = {} } }]
[[step]]
when = { contains = "please crash" }
say = [{ tool = { name = "calc__crash", input = {} } }]
[[step]]
when = { contains = "then nothing" }
say = [{ tool = { name = "calc__echo", input = { text = "say nothing" } } }]
[[step]]
when = { contains = "say nothing" }
say = []
[[step]]
when = { contains = "please fail" }
say = [{ tool = { name = "calc__fail", input = {} } }]
[[step]]
when = { contains = "very long" }
say = [{ tool = { name = "calc__huge", input = { bytes = 100000 } } }]
[[step]]
when = { contains = "show me" }
say = [{ tool = { name = "calc__picture", input = {} } }]
[[step]]
when = { contains = "invented" }
say = [{ tool = { name = "calc__nothing", input = {} } }]
[[step]]
when = { contains = "greet me" }
say = [{ tool = { name = "calc__ask", input = {} } }]
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
say = [{ thinking = "Now I know." }, { text = "It is done." }]
when = { contains = "" }
"#;

/// The configuration of an MCP server, with more lines.
pub(crate) fn server(name: &str, arguments: &[&str], more: &str) -> String {
    let mut command = vec![BINARY, "simulate-mcp"];
    command.extend(arguments);
    format!("[[mcp]]\nname = \"{name}\"\ncommand = {command:?}\n{more}\n")
}

/// A gateway with the server `calc`.
async fn api(settings: &str) -> Api {
    Api::with(&[ANTHROPIC], SCENARIO, settings).await
}

/// The lines of a type.
fn of_type<'a>(lines: &'a [Value], kind: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["type"] == kind).collect()
}

/// The newest node of the main branch.
async fn newest(api: &Api, project: &str) -> Value {
    api.nodes(project, "main").await.pop().expect("a node")
}

/// The texts of the results of a node.
fn results(node: &Value) -> Vec<String> {
    let blocks = node["contentBlocks"].as_array().expect("blocks");
    let results = blocks.iter().filter(|block| block["type"] == "tool_result");
    results.map(|block| text(&block["content"][0]["text"]).to_owned()).collect()
}
