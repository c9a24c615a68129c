//! Runs the commands of the README as they are written there. A block after `<!-- recipe: NAME -->` is
//! run here, or by a script in `conformance/`. With a file after the name it is the content of that file.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use throughline_testkit::{Conversation, Simulator};
use tokio::process::Command;

use crate::support::{BINARY, RunningCommand, folder, start};

const README: &str = include_str!("../../../../README.md");
/// The scripts that run recipes with clients that people install.
const CONFORMANCE: [&str; 2] = [
    include_str!("../../../../conformance/node/sdks/agents.js"),
    include_str!("../../../../conformance/python/sdks/readme_recipes.py"),
];
/// The recipes that the tests of this file run.
const RUN_HERE: [&str; 6] =
    ["quick-start", "several-backends", "switch", "see-the-switch", "parse", "conversations"];
/// Languages of blocks that only show something. A JSON block with a recipe is a file.
const SHOWN: [&str; 2] = ["", "json"];
/// The address that the README uses.
const ADDRESS: &str = "127.0.0.1:8484";

/// A fenced block of the README.
#[derive(Debug)]
struct CodeBlock {
    /// The name and the file of its recipe.
    recipe: Option<(&'static str, Option<&'static str>)>,
    language: &'static str,
    text: &'static str,
}

fn code_blocks() -> Vec<CodeBlock> {
    let parts: Vec<&'static str> = README.split("```").collect();
    let pairs = parts.chunks_exact(2);
    let blocks = pairs.map(|pair| {
        let last_line = pair[0].trim_end().lines().next_back().unwrap_or_default();
        let words =
            last_line.strip_prefix("<!-- recipe: ").and_then(|line| line.strip_suffix(" -->"));
        let recipe = words.map(|words| match words.split_once(' ') {
            Some((name, file)) => (name, Some(file)),
            None => (words, None),
        });
        let (language, text) = pair[1].split_once('\n').unwrap();
        CodeBlock { recipe, language, text }
    });
    blocks.collect()
}

/// The text of a recipe's file, or its commands.
fn recipe(name: &str, file: Option<&str>) -> &'static str {
    let blocks = code_blocks();
    let block = blocks.iter().find(|block| block.recipe == Some((name, file)));
    block.unwrap_or_else(|| panic!("the README has no recipe `{name}` {file:?}")).text
}

#[test]
fn every_command_block_is_run() {
    let blocks = code_blocks();
    assert!(blocks.len() > 20, "{} blocks", blocks.len());
    for block in &blocks {
        let Some((name, _)) = block.recipe else {
            assert!(SHOWN.contains(&block.language), "no test runs this block: {block:?}");
            continue;
        };
        let quoted = format!("\"{name}\"");
        let is_run = RUN_HERE.contains(&name) || CONFORMANCE.iter().any(|it| it.contains(&quoted));
        assert!(is_run, "no test runs the recipe `{name}`");
    }
    let named: BTreeSet<&str> = blocks.iter().filter_map(|block| Some(block.recipe?.0)).collect();
    for name in RUN_HERE {
        assert!(named.contains(name), "the README has no recipe `{name}`");
    }
}

/// A command of a transcript and the output that follows it.
struct Step {
    command: String,
    output: String,
}

/// The lines after `$ ` are commands. A command goes on in the next line after a `|`.
fn transcript(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let command = line.strip_prefix("$ ");
        match (command, steps.last_mut()) {
            (None, Some(step)) if goes_on => step.command.push_str(&format!("\n{line}")),
            (None, Some(step)) => step.output.push_str(&format!("{line}\n")),
            (command, _) => steps.push(Step {
                command: command.expect("a command first").to_owned(),
                output: String::new(),
            }),
        }
        goes_on = (goes_on || command.is_some()) && line.ends_with('|');
    }
    steps
}

/// Runs a line of shell in a folder in which `throughline` is installed. Returns what it prints.
async fn shell(folder: &Path, line: &str, environment: &[(&str, &str)]) -> String {
    let programs = folder.join("bin");
    if !programs.exists() {
        std::fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(BINARY, programs.join("throughline")).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-ec", line])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("HOME", folder)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .await
        .unwrap();
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{line}: {out}\n{err}");
    out.into_owned()
}

/// The listener of commands that would use the README's address.
const ANY_PORT: (&str, &str) = ("THROUGHLINE_LISTEN", "127.0.0.1:0");

/// A running gateway in its folder, as `throughline serve` starts it there.
struct Served {
    folder: TempDir,
    gateway: RunningCommand,
}

impl Served {
    async fn start(config: &str, environment: &[(&str, &str)]) -> Self {
        let folder = folder();
        std::fs::write(folder.path().join("throughline.toml"), config).unwrap();
        let environment = [&[ANY_PORT], environment].concat();
        let gateway = start(folder.path(), &["serve"], &environment).await;
        Self { folder, gateway }
    }

    async fn run(&self, line: &str) -> String {
        let line = line.replace(&format!("http://{ADDRESS}"), &self.gateway.url);
        let address = self.gateway.url.trim_start_matches("http://");
        let line = line.replace(ADDRESS, address);
        shell(self.folder.path(), &line, &[("THROUGHLINE_URL", &self.gateway.url)]).await
    }

    async fn get(&self, path: &str) -> Value {
        self.gateway.client.get(path).await.expect_ok().json()
    }
}

/// The commands of a block, without their comments.
fn commands(block: &'static str) -> Vec<&'static str> {
    let lines = block.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim_end());
    lines.filter(|line| !line.is_empty()).collect()
}

#[tokio::test]
async fn quick_start_serves_without_configuration() {
    let [serve, ci] = commands(recipe("quick-start", None))[..] else { panic!("two commands") };
    // Cargo would build the binary again, so run the one that was built for the tests.
    let arguments = serve.strip_prefix("cargo run --release -- ").expect("cargo runs the binary");
    let folder = folder();
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let gateway = start(folder.path(), &arguments, &[ANY_PORT]).await;
    assert_eq!(gateway.client.get("/healthz").await.status, 200);
    // This test is a part of that command.
    let alias = include_str!("../../../../.cargo/config.toml");
    assert!(alias.contains("xtask = \"run --quiet --package xtask --\""), "{alias}");
    let steps = include_str!("../../../../xtask/src/main.rs");
    let name = ci.strip_prefix("cargo xtask ").expect("a task");
    assert!(steps.contains(&format!("Some((&\"{name}\", rest))")), "no task is called `{name}`");
}

#[tokio::test]
async fn several_backends_start_without_keys_and_with_them() {
    let config = recipe("several-backends", Some("throughline.toml"));
    let without_keys = Served::start(config, &[]).await;
    let backends = without_keys.get("/admin/backends").await;
    assert_eq!(backends["active"], "simulator", "{backends}");

    let (anthropic, gemini, glm) =
        (Simulator::start("a").await, Simulator::start("g").await, Simulator::start("z").await);
    let mut config = config.to_owned();
    for (address, simulator) in [
        ("https://api.anthropic.com", &anthropic),
        ("https://generativelanguage.googleapis.com", &gemini),
        ("https://api.z.ai/api/anthropic", &glm),
    ] {
        assert!(config.contains(&format!("\"{address}\"")), "{address}");
        config = config.replace(address, &simulator.url);
    }
    let keys = [("ANTHROPIC_API_KEY", "a"), ("GEMINI_API_KEY", "g"), ("ZAI_API_KEY", "z")];
    let served = Served::start(&config, &keys).await;
    let example = recipe("first-example", None);
    let (_, request) = example.split_once("-d '").expect("a body");
    let request = request.trim_end().trim_end_matches('\'');
    std::fs::write(served.folder.path().join("request.json"), request).unwrap();
    served.run(example).await;

    let [switch, turns, stats, plan, keys_status, doctor] = commands(recipe("switch", None))[..]
    else {
        panic!("six commands")
    };
    assert_eq!(served.run(switch).await, "active: glm (was anthropic)\n");
    served.run(example).await;
    let turns = served.run(turns).await;
    assert!(
        turns.contains("anthropic > glm") && turns.contains("anthropic > anthropic"),
        "{turns}"
    );
    assert!(served.run(stats).await.contains("blocks"), "what the memory holds");
    assert!(served.run(plan).await.contains("glm"), "the plan names its backend");
    assert_eq!(glm.received().await.len(), 1, "a plan sends nothing");
    let status = served.run(keys_status).await;
    assert!(status.contains("seals, and opens"), "{status}");
    // A check of the listener, beside the server that has it, would fail.
    drop(served.gateway);
    let environment = [&keys[..], &[ANY_PORT]].concat();
    let checked = shell(served.folder.path(), doctor, &environment).await;
    assert!(checked.lines().all(|line| line.starts_with("ok  ")), "{checked}");
}

/// The cells of a row of `throughline turns` that do not change from run to run.
fn stable_cells(row: &str) -> Vec<&str> {
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    let [_time, _turn, _lineage, route, _model, status, end, _tokens, _ms, blocks, losses, ..] =
        cells[..]
    else {
        panic!("{row}")
    };
    vec![route, status, end, blocks, losses]
}

/// Claude Code itself is run by `conformance/node/sdks/agents.js`. Here its questions come from a client
/// that keeps its history as it does.
#[tokio::test]
async fn switch_of_the_transcript_gives_what_it_shows() {
    let served = Served::start(recipe("see-the-switch", Some("throughline.toml")), &[]).await;
    let mut conversation = Conversation::new("see the switch");
    for Step { command, output } in transcript(recipe("see-the-switch", None)) {
        if let Some((_, question)) = command.split_once("-p ") {
            assert!(command.starts_with("claude "), "{command}");
            let question = question.trim_matches('"');
            let (message, _) = conversation.ask(&served.gateway.client, question).await;
            assert!(output.contains(question) && message.to_string().contains(question));
            continue;
        }
        let printed = served.run(&command).await;
        if command != "throughline turns" {
            assert_eq!(printed, output, "{command}");
            continue;
        }
        let (mut printed, mut shown) = (printed.lines(), output.lines());
        let words = |line: Option<&str>| -> Vec<String> {
            line.unwrap()
                .split("  ")
                .map(|word| word.trim().to_owned())
                .filter(|word| !word.is_empty())
                .collect()
        };
        assert_eq!(words(printed.next()), words(shown.next()), "the heads of the table");
        let (printed, shown): (Vec<_>, Vec<_>) =
            (printed.map(stable_cells).collect(), shown.map(stable_cells).collect());
        assert_eq!(printed, shown);
    }
    let (_, report) = README.split_once("`GET /admin/turns` reports its two blocks").unwrap();
    let shown = report.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    let turns = served.get("/admin/turns").await;
    let facts = |blocks: &Value| -> Vec<Value> {
        let fact = |block: &Value| {
            serde_json::json!([
                block["kind"],
                block["fate"],
                block["reason"],
                block["origin"]["backend"]
            ])
        };
        blocks.as_array().unwrap().iter().map(fact).collect()
    };
    assert_eq!(facts(&turns["turns"][0]["blocks"]), facts(&shown));
}

#[tokio::test]
async fn parser_prints_what_the_readme_shows() {
    let folder = folder();
    for Step { command, output } in transcript(recipe("parse", None)) {
        assert_eq!(shell(folder.path(), &command, &[]).await, output, "{command}");
    }
}

#[tokio::test]
async fn conversation_is_stored_as_the_readme_shows() {
    let served = Served::start("", &[]).await;
    let [create, chat] = commands(recipe("conversations", None))[..] else {
        panic!("two commands")
    };
    let project: Value = serde_json::from_str(&served.run(create).await).unwrap();
    let chat = chat.replace("PROJECT", project["id"].as_str().unwrap());
    let printed = served.run(&chat).await;
    assert!(printed.contains(r#""reason":"completed""#), "{printed}");
}
