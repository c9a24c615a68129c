//! The commands that ask a running gateway.

use serde_json::{Value, json};
use throughline_testkit::{Conversation, Gateway, Simulator};

use crate::support::{BINARY, configured, folder, run};

struct Served {
    gateway: Gateway,
    _simulators: [Simulator; 2],
}

/// A gateway with a conversation that has changed its backend.
async fn served() -> Served {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over(BINARY, &[("a", &a), ("b", &b)], "").await;
    let mut talk = Conversation::new("s");
    talk.say(&gateway.client, "Hello.").await;
    gateway.switch("b").await;
    talk.say(&gateway.client, "Again.").await;
    Served { gateway, _simulators: [a, b] }
}

impl Served {
    async fn says(&self, arguments: &[&str]) -> String {
        let all = [arguments, &["--url", &self.gateway.url]].concat();
        run(folder().path(), &all, &[]).await.good()
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        let all = [arguments, &["--json"]].concat();
        let said = self.says(&all).await;
        assert_eq!(said.lines().count(), 1, "{said}");
        serde_json::from_str(&said).unwrap()
    }
}

/// The cells of a table's line.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

#[tokio::test]
async fn backends_are_shown_with_the_active_one_marked() {
    let served = served().await;
    let said = served.says(&["backends"]).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    assert!(lines[0].contains("name") && lines[0].contains("base url"));
    let [a, b] = &served._simulators;
    assert_eq!(cells(lines[1]), ["a", "anthropic", "yes", "a", &a.url]);
    assert_eq!(cells(lines[2]), ["*", "b", "anthropic", "yes", "b", &b.url]);
    let answer = served.gateway.client.get("/admin/backends").await.json();
    assert_eq!(served.json(&["backends"]).await, answer);
}

#[tokio::test]
async fn the_kind_of_server_stands_beside_its_dialect() {
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
    let said = run(folder().path(), &["backends", "--url", url], &[]).await.good();
    let shown: Vec<&str> =
        said.lines().skip(1).map(|line| cells(line.trim_start_matches('*'))[1]).collect();
    assert_eq!(shown, ["openai_chat (vllm)", "openai_responses", "gemini"]);
}

#[tokio::test]
async fn a_switch_says_what_it_did() {
    let served = served().await;
    assert_eq!(served.says(&["switch", "a"]).await, "active: a (was b)\n");
    let said = served.json(&["switch", "b"]).await;
    assert_eq!(said, json!({"active": "b", "previous": "a"}));
    let url = served.gateway.url.as_str();
    run(folder().path(), &["switch", "glm", "--url", url], &[])
        .await
        .bad(1, &["no backend `glm`", "`a`, `b`"]);
    let backends = served.json(&["backends"]).await;
    assert_eq!(backends["active"], "b");
}

#[tokio::test]
async fn statistics_are_shown() {
    let served = served().await;
    let answer = served.gateway.statistics().await;
    assert_eq!(served.json(&["stats"]).await, answer);
    let said = served.says(&["stats"]).await;
    for (name, value) in [
        ("blocks in use", &answer["total"]),
        ("highest session number", &answer["session"]),
        ("conversations", &answer["lineages"]),
    ] {
        let value = value.to_string();
        let found = said.lines().any(|line| cells(line) == [name, &value]);
        assert!(found, "{name} {value} not in\n{said}");
    }
    let lineage = served.gateway.turns().await[0]["lineage"].clone();
    let lineage = lineage.as_str().unwrap();
    let of = served.json(&["stats", "--lineage", lineage]).await;
    assert_eq!(of["lineages"], 1);
    let url = served.gateway.url.as_str();
    for unknown in ["nobody", "a b", "a&b=c", "é"] {
        let arguments = ["stats", "--lineage", unknown, "--url", url];
        run(folder().path(), &arguments, &[]).await.bad(1, &["no such lineage"]);
    }
}

#[tokio::test]
async fn turns_are_shown_newest_first() {
    let served = served().await;
    let turns = served.gateway.turns().await;
    let said = served.says(&["turns"]).await;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (turn, line) in turns.iter().zip(&lines[1..]) {
        let cells = cells(line);
        assert_eq!(cells[0], turn["id"].as_str().unwrap());
        assert_eq!(cells[2], turn["backend"].as_str().unwrap());
        assert_eq!(cells[4], "200");
        assert_eq!(cells[5], "completed");
    }
    assert!(lines[1].ends_with("thinking_omitted=1"), "{said}");
    let said = served.json(&["turns", "--limit", "1"]).await;
    assert_eq!(said, json!({"turns": [turns[0]]}));
}

#[tokio::test]
async fn the_address_comes_from_where_it_is_configured() {
    let served = served().await;
    let listen = served.gateway.url.trim_start_matches("http://");
    let folder = configured(&format!("listen = \"{listen}\"\n"));
    let by_file = run(folder.path(), &["backends"], &[]).await.good();
    let by_variable = [("THROUGHLINE_URL", served.gateway.url.as_str())];
    let by_variable = run(crate::support::folder().path(), &["backends"], &by_variable).await;
    let slashed = format!("{}/", served.gateway.url);
    assert_eq!(by_file, by_variable.good());
    assert_eq!(by_file, run(folder.path(), &["backends", "--url", &slashed], &[]).await.good());
}

/// Whoever asks need not be able to serve.
#[tokio::test]
async fn the_address_is_found_in_a_configuration_with_mistakes_elsewhere() {
    let served = served().await;
    let listen = served.gateway.url.trim_start_matches("http://");
    let backend = "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"http://127.0.0.1:1\"\napi_key_env = \"NOT_SET_HERE\"\n";
    let asked = ["switch", "a"];
    let by_file = configured(&format!("listen = \"{listen}\"\n{backend}"));
    run(by_file.path(), &["serve"], &[]).await.bad(2, &["NOT_SET_HERE"]);
    run(by_file.path(), &asked, &[]).await.good();
    // The variable wins, as it does for `serve`.
    let wrong = configured(&format!("listen = \"127.0.0.1:1\"\n{backend}"));
    let variable = [("THROUGHLINE_LISTEN", listen)];
    run(wrong.path(), &asked, &variable).await.good();
    run(wrong.path(), &asked, &[]).await.bad(1, &["http://127.0.0.1:1:", "throughline doctor"]);
    run(configured(backend).path(), &asked, &[("THROUGHLINE_LISTEN", listen)]).await.good();
    // Where the address itself cannot be found, the mistakes are told.
    for broken in [format!("listen = 5\n{backend}"), "listen = = 5".to_owned()] {
        run(configured(&broken).path(), &asked, &[]).await.bad(2, &["throughline.toml:1:"]);
    }
    let missing = [&asked[..], &["--config", "nowhere.toml"]].concat();
    run(folder().path(), &missing, &[]).await.bad(2, &["nowhere.toml"]);
}

#[tokio::test]
async fn without_a_gateway_they_say_so() {
    let nobody = "http://127.0.0.1:1";
    for command in [&["backends"][..], &["switch", "a"], &["stats"], &["turns"]] {
        for json in [&[][..], &["--json"]] {
            let arguments = [command, &["--url", nobody], json].concat();
            run(folder().path(), &arguments, &[])
                .await
                .bad(
                    1,
                    &["cannot reach a gateway at http://127.0.0.1:1: connection refused; is `throughline serve` running?"],
                );
        }
    }
}

/// Something else may be listening there.
#[tokio::test]
async fn an_answer_of_something_else_is_told() {
    let other = Simulator::start("a").await;
    run(folder().path(), &["stats", "--url", &other.url], &[]).await.bad(1, &[]);
}
