//! Commands that query a running gateway.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Gateway, Simulator};

use crate::support::{BINARY, folder, folder_with_config, run};

struct TestServer {
    gateway: Gateway,
    _simulators: [Simulator; 2],
}

/// Starts a gateway with a conversation that switched its backend.
async fn start_server() -> TestServer {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over_simulators(BINARY, &[("a", &a), ("b", &b)], "").await;
    let mut conversation = Conversation::new("s");
    conversation.ask(&gateway.client, "Hello.").await;
    gateway.switch("b").await;
    conversation.ask(&gateway.client, "Again.").await;
    TestServer { gateway, _simulators: [a, b] }
}

impl TestServer {
    async fn run(&self, arguments: &[&str]) -> String {
        let all = [arguments, &["--url", &self.gateway.url]].concat();
        run(folder().path(), &all, &[]).await.expect_ok()
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let all = [arguments, &["--json"]].concat();
        let output = self.run(&all).await;
        assert_eq!(output.lines().count(), 1, "{output}");
        serde_json::from_str(&output).unwrap()
    }
}

/// Splits a table row into its cells.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[tokio::test]
async fn backends_marks_the_active_one() {
    let server = start_server().await;
    let output = server.run(&["backends"]).await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 3, "{output}");
    assert!(lines[0].contains("name") && lines[0].contains("base url"));
    let [a, b] = &server._simulators;
    assert_eq!(cells(lines[1]), ["a", "anthropic", "yes", "a", &a.url]);
    assert_eq!(cells(lines[2]), ["*", "b", "anthropic", "yes", "b", &b.url]);
    let answer = server.gateway.client.get("/admin/backends").await.json();
    assert_eq!(server.json(&["backends"]).await, answer);
}

#[tokio::test]
async fn backends_shows_the_variant_with_the_dialect() {
    let config = [
        ("own", "openai_chat", "base_url = \"http://127.0.0.1:1/v1\""),
        ("gpt", "openai_responses", "base_url = \"http://127.0.0.1:2/v1\""),
        ("pretended", "simulator", "variant = \"gemini\""),
    ]
    .map(|(name, dialect, line)| {
        format!("[[backend]]\nname = \"{name}\"\ndialect = \"{dialect}\"\n{line}\n")
    });
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let url = gateway.url.as_str();
    let output = run(folder().path(), &["backends", "--url", url], &[]).await.expect_ok();
    let shown: Vec<&str> =
        output.lines().skip(1).map(|line| cells(line.trim_start_matches('*'))[1]).collect();
    assert_eq!(shown, ["openai_chat (vllm)", "openai_responses", "gemini"]);
}

#[tokio::test]
async fn switch_reports_both_backends() {
    let server = start_server().await;
    assert_eq!(server.run(&["switch", "a"]).await, "active: a (was b)\n");
    let output = server.json(&["switch", "b"]).await;
    assert_eq!(output, json!({"active": "b", "previous": "a"}));
    let url = server.gateway.url.as_str();
    run(folder().path(), &["switch", "glm", "--url", url], &[])
        .await
        .expect_error(1, &["no backend `glm`", "`a`, `b`"]);
    let backends = server.json(&["backends"]).await;
    assert_eq!(backends["active"], "b");
}

#[tokio::test]
async fn stats_shows_every_count() {
    let server = start_server().await;
    let answer = server.gateway.statistics().await;
    assert_eq!(server.json(&["stats"]).await, answer);
    let output = server.run(&["stats"]).await;
    for (name, value) in [
        ("blocks in use", &answer["total"]),
        ("highest session number", &answer["session"]),
        ("conversations", &answer["lineages"]),
    ] {
        let value = value.to_string();
        let found = output.lines().any(|line| cells(line) == [name, &value]);
        assert!(found, "{name} {value} not in\n{output}");
    }
    let lineage = server.gateway.turns().await[0]["lineage"].clone();
    let lineage = lineage.as_str().unwrap();
    let of = server.json(&["stats", "--lineage", lineage]).await;
    assert_eq!(of["lineages"], 1);
    let url = server.gateway.url.as_str();
    for unknown in ["nobody", "a b", "a&b=c", "é"] {
        let arguments = ["stats", "--lineage", unknown, "--url", url];
        run(folder().path(), &arguments, &[]).await.expect_error(1, &["no such lineage"]);
    }
}

#[tokio::test]
async fn turns_are_listed_newest_first() {
    let server = start_server().await;
    let turns = server.gateway.turns().await;
    let output = server.run(&["turns"]).await;
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines.len(), 3, "{output}");
    for (turn, line) in turns.iter().zip(&lines[1..]) {
        let cells = cells(line);
        let usage = &turn["usage"];
        assert!(cells[0].starts_with("20") && cells[0].ends_with('Z'), "{line}");
        let expected = [
            turn["id"].as_str().unwrap(),
            turn["lineage"].as_str().unwrap(),
            &format!("anthropic > {}", turn["backend"].as_str().unwrap()),
            "claude-sonnet-4-5",
            "200",
            "completed",
            &format!("{} > {}", usage["input"], usage["output"]),
            &format!("{}/{}", turn["ms"]["first_byte"], turn["ms"]["total"]),
        ];
        assert_eq!(cells[1..9], expected, "{line}");
    }
    assert!(lines[1].ends_with("thinking_omitted=1"), "{output}");
    let output = server.json(&["turns", "--limit", "1"]).await;
    assert_eq!(output, json!({"turns": [turns[0]]}));
}

#[tokio::test]
async fn turns_show_the_fate_of_each_block_on_request() {
    let server = start_server().await;
    let output = server.run(&["turns", "--blocks"]).await;
    let lines: Vec<&str> = output.lines().collect();
    // The second turn sent the block of the first.
    assert_eq!(cells(lines[2]), ["block", "kind", "fate", "origin"], "{output}");
    let expected =
        ["messages.1.content.0", "thinking", "left_out (origin)", "made by claude-sonnet-4-5 at a"];
    assert_eq!(cells(lines[3]), expected, "{output}");
    assert_eq!(lines.len(), 5, "{output}");
}

#[tokio::test]
async fn turns_show_errors_and_fallbacks() {
    let b = Simulator::start("b").await;
    let backend = |name: &str, url: &str| {
        format!("[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{url}\"\n")
    };
    let config = [
        "[route]\nfallback = [\"b\"]\n".to_owned(),
        backend("a", "http://127.0.0.1:1"),
        backend("b", &b.url),
    ];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    Conversation::new("s").ask(&gateway.client, "Hello.").await;
    let body = json!({"model": "m", "max_tokens": 9, "messages": []});
    gateway.client.post("/b/a/v1/messages", &[], &body).await;
    let all = ["turns", "--url", &gateway.url];
    let output = run(folder().path(), &all, &[]).await.expect_ok();
    let lines: Vec<&str> = output.lines().collect();
    assert!(lines[1].contains("cannot reach backend `a`"), "{output}");
    assert_eq!(cells(lines[2])[3], "anthropic > b (fallback)", "{output}");
    let output = run(folder().path(), &["backends", "--url", &gateway.url], &[]).await.expect_ok();
    assert!(output.contains("no; unreachable, next try in "), "{output}");
}

#[tokio::test]
async fn plan_shows_what_would_be_sent() {
    let server = start_server().await;
    let mut conversation = Conversation::new("planned");
    server.gateway.switch("a").await;
    conversation.ask(&server.gateway.client, "Hello.").await;
    let folder = folder();
    let mut body = conversation.body;
    let next = json!({"role": "user", "content": "Again."});
    body["messages"].as_array_mut().unwrap().push(next);
    std::fs::write(folder.path().join("request.json"), body.to_string()).unwrap();
    let url = server.gateway.url.as_str();
    let plan = async |more: &[&str]| {
        let all = [&["plan", "request.json", "--url", url][..], more].concat();
        run(folder.path(), &all, &[]).await
    };
    let output = plan(&["--backend", "b"]).await.expect_ok();
    for words in [
        "backend   b\n",
        "model     claude-sonnet-4-5\n",
        "lane      through (the body is edited in place)\n",
        "lost      thinking_omitted=1;reason=origin\n",
        "left_out (origin)",
        "made by claude-sonnet-4-5 at a",
    ] {
        assert!(output.contains(words), "{output}\nlacks: {words}");
    }
    let output = plan(&["--backend", "a"]).await.expect_ok();
    assert!(output.contains("lost      nothing\n"), "{output}");
    let report: Value =
        serde_json::from_str(&plan(&["--backend", "b", "--json"]).await.expect_ok()).unwrap();
    let path = "/v1/plan?dialect=anthropic&backend=b";
    let expected = server.gateway.client.post(path, &[], &body).await.expect_ok().json();
    assert_eq!(report, expected);

    plan(&["--backend", "glm"]).await.expect_error(1, &["no backend `glm`", "`a`, `b`"]);
    plan(&["--dialect", "latin"]).await.expect_error(1, &["unknown dialect `latin`"]);
    // The dialect writes its errors in its own form.
    for dialect in ["openai_chat", "gemini", "ndjson", "ollama", "ag_ui"] {
        std::fs::write(folder.path().join("request.json"), "{\"messages\": 7}").unwrap();
        let error = plan(&["--dialect", dialect]).await;
        assert_eq!(error.code, 1, "{dialect}: {error:?}");
        assert!(!error.err.starts_with('{') && !error.err.is_empty(), "{dialect}: {}", error.err);
    }
    run(folder.path(), &["plan", "nowhere.json", "--url", url], &[])
        .await
        .expect_error(2, &["cannot read `nowhere.json`"]);
}

#[tokio::test]
async fn address_comes_from_flag_variable_or_configuration() {
    let server = start_server().await;
    let listen = server.gateway.url.trim_start_matches("http://");
    let folder = folder_with_config(&format!("listen = \"{listen}\"\n"));
    let by_file = run(folder.path(), &["backends"], &[]).await.expect_ok();
    let by_variable = [("THROUGHLINE_URL", server.gateway.url.as_str())];
    let by_variable = run(crate::support::folder().path(), &["backends"], &by_variable).await;
    let slashed = format!("{}/", server.gateway.url);
    assert_eq!(by_file, by_variable.expect_ok());
    assert_eq!(
        by_file,
        run(folder.path(), &["backends", "--url", &slashed], &[]).await.expect_ok()
    );
}

/// The query needs only the address, not a configuration that could be served.
#[tokio::test]
async fn address_is_read_from_a_configuration_with_other_mistakes() {
    let server = start_server().await;
    let listen = server.gateway.url.trim_start_matches("http://");
    let backend = "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"http://127.0.0.1:1\"\napi_key_env = \"NOT_SET_HERE\"\n";
    let switch = ["switch", "a"];
    let by_file = folder_with_config(&format!("listen = \"{listen}\"\n{backend}"));
    run(by_file.path(), &["serve"], &[]).await.expect_error(2, &["NOT_SET_HERE"]);
    run(by_file.path(), &switch, &[]).await.expect_ok();
    // The variable wins, as it does for `serve`.
    let wrong = folder_with_config(&format!("listen = \"127.0.0.1:1\"\n{backend}"));
    let variable = [("THROUGHLINE_LISTEN", listen)];
    run(wrong.path(), &switch, &variable).await.expect_ok();
    run(wrong.path(), &switch, &[])
        .await
        .expect_error(1, &["http://127.0.0.1:1:", "throughline doctor"]);
    run(folder_with_config(backend).path(), &switch, &[("THROUGHLINE_LISTEN", listen)])
        .await
        .expect_ok();
    // If the address itself cannot be read, the mistakes are reported.
    for broken in [format!("listen = 5\n{backend}"), "listen = = 5".to_owned()] {
        run(folder_with_config(&broken).path(), &switch, &[])
            .await
            .expect_error(2, &["throughline.toml:1:"]);
    }
    let missing = [&switch[..], &["--config", "nowhere.toml"]].concat();
    run(folder().path(), &missing, &[]).await.expect_error(2, &["nowhere.toml"]);
}

#[tokio::test]
async fn missing_gateway_is_reported() {
    let no_gateway = "http://127.0.0.1:1";
    for command in [&["backends"][..], &["switch", "a"], &["stats"], &["turns"]] {
        for json in [&[][..], &["--json"]] {
            let arguments = [command, &["--url", no_gateway], json].concat();
            run(folder().path(), &arguments, &[])
                .await
                .expect_error(
                    1,
                    &["cannot reach a gateway at http://127.0.0.1:1: connection refused; is `throughline serve` running?"],
                );
        }
    }
}

/// Another program may listen on this port.
#[tokio::test]
async fn answer_of_another_program_is_reported() {
    let other = Simulator::start("a").await;
    run(folder().path(), &["stats", "--url", &other.url], &[]).await.expect_error(1, &[]);
}
