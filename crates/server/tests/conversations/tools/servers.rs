//! Servers: both transports, both lifecycles, lists with pages, servers that are down.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::{SCENARIO, api, of_type, server};
use crate::support::{ANTHROPIC, Api, BINARY, done, text};

/// An MCP server over HTTP.
struct HttpServer {
    url: String,
    child: Child,
}

impl HttpServer {
    async fn start(listen: &str, protocol: &str) -> Self {
        let mut child = Command::new(BINARY)
            .args(["simulate-mcp", "--listen", listen, "--protocol", protocol])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a server");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = lines.next_line().await.expect("a line").expect("a line");
        let url = line.rsplit(' ').next().expect("an address").to_owned();
        Self { url, child }
    }

    fn config(&self) -> String {
        format!("[[mcp]]\nname = \"calc\"\nurl = \"{}\"\n", self.url)
    }
}

async fn check_sum(api: &Api) {
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": "the sum", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    assert_eq!(of_type(&lines, "tool_result")[0]["content"], "5", "{lines:#?}");
}

#[tokio::test]
async fn tools_work_over_both_transports_with_either_lifecycle() {
    for protocol in ["stateless", "handshake"] {
        let api = api(&server("calc", &["--protocol", protocol], "")).await;
        check_sum(&api).await;
        check_version(&api, protocol).await;
        let http = HttpServer::start("127.0.0.1:0", protocol).await;
        let api = Api::with(&[ANTHROPIC], SCENARIO, &http.config()).await;
        check_sum(&api).await;
        check_version(&api, protocol).await;
    }
}

async fn check_version(api: &Api, protocol: &str) {
    let servers = api.get("/api/tools").await;
    let server = &servers["servers"][0];
    let expected = if protocol == "stateless" { "2026-07-28" } else { "2025-11-25" };
    assert_eq!((text(&server["state"]), text(&server["protocol"])), ("connected", expected));
}

#[tokio::test]
async fn list_has_the_tools_of_all_pages_that_are_allowed() {
    let more = "allow = [\"a*\", \"echo\"]\napprove = [\"ask\"]";
    let api = api(&server("calc", &["--page", "3"], more)).await;
    let servers = api.get("/api/tools").await;
    let server = &servers["servers"][0];
    assert_eq!((&server["name"], &server["transport"]), (&json!("calc"), &json!("stdio")));
    let tools = server["tools"].as_array().expect("tools").iter();
    let tools: Vec<(&str, &str, bool)> = tools
        .map(|tool| {
            let approval = tool["needsApproval"].as_bool().expect("a flag");
            (text(&tool["name"]), text(&tool["modelName"]), approval)
        })
        .collect();
    let expected = [
        ("calc/add", "calc__add", false),
        ("calc/echo", "calc__echo", false),
        ("calc/ask", "calc__ask", true),
    ];
    assert_eq!(tools, expected);
    assert_eq!(server["tools"][0]["parameters"]["required"], json!(["a", "b"]));
}

#[tokio::test]
async fn changed_list_is_read_again() {
    for protocol in ["stateless", "handshake"] {
        let scenario = format!(
            "[[step]]\nwhen = {{ contains = \"more tools\" }}\nsay = [{{ tool = {{ name = \"calc__grow\", input = {{}} }} }}]\n{SCENARIO}"
        );
        let settings = server("calc", &["--protocol", protocol], "");
        let api = Api::with(&[ANTHROPIC], &scenario, &settings).await;
        let names = async || {
            let servers = api.get("/api/tools").await;
            let tools = servers["servers"][0]["tools"].as_array().cloned().unwrap_or_default();
            tools.iter().map(|tool| text(&tool["name"]).to_owned()).collect::<Vec<_>>()
        };
        assert!(!names().await.contains(&"calc/grown".to_owned()));
        let project = api.project(json!({"title": "t"})).await;
        let lines = api.chat(&project, json!({"message": "more tools", "tools": ["calc"]})).await;
        assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
        throughline_testkit::wait_until("the list has the new tool", async || {
            names().await.contains(&"calc/grown".to_owned())
        })
        .await;
    }
}

#[tokio::test]
async fn unknown_and_unreachable_servers_are_refused_before_anything_is_stored() {
    let dead = "[[mcp]]\nname = \"dead\"\ncommand = [\"/does/not/exist\"]\n\
        [[mcp]]\nname = \"gone\"\nurl = \"http://127.0.0.1:1/mcp\"\n";
    let api = api(&format!("{}{dead}", server("calc", &[], ""))).await;
    let project = api.project(json!({"title": "t"})).await;
    for (tools, status, words) in [
        (json!(["nothing"]), 400, "there is no MCP server `nothing`"),
        (json!(["calc/nothing"]), 400, "has no tool `nothing`"),
        (json!(["dead"]), 502, "cannot run `/does/not/exist`"),
        (json!(["gone"]), 502, "the MCP server `gone` cannot be used"),
        (json!(["calc", {"name": "calc__add"}]), 400, "also the name of a tool"),
    ] {
        let answer =
            api.post(&format!("{project}/chat"), json!({"message": "plain", "tools": tools})).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        assert!(text(&answer.json()["detail"]).contains(words), "{}", answer.text());
    }
    assert_eq!(api.count(&project).await, 0);
    let servers = api.get("/api/tools").await;
    let states: Vec<&str> = servers["servers"]
        .as_array()
        .expect("servers")
        .iter()
        .map(|server| text(&server["state"]))
        .collect();
    assert_eq!(states, ["connected", "failed", "failed"]);
    check_sum(&api).await;
}

#[tokio::test]
async fn server_that_was_down_is_used_when_it_is_back() {
    let mut http = HttpServer::start("127.0.0.1:0", "both").await;
    let address = http.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
    let api = Api::with(&[ANTHROPIC], SCENARIO, &http.config()).await;
    check_sum(&api).await;
    http.child.kill().await.expect("the server ends");
    // Its tools are known, so the model may call them; it gets an error.
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": "the sum", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let result: &Value = of_type(&lines, "tool_result")[0];
    assert_eq!(result["isError"], true);
    assert!(text(&result["content"]).contains("the MCP server `calc` cannot be used"), "{result}");
    let _back = HttpServer::start(&address, "both").await;
    check_sum(&api).await;
}
