//! The examples of docs/conversations.md, docs/tools.md and docs/rooms.md, the calls of docs/users.md, and the OpenAPI document.

use std::process::Stdio;

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway};
use tokio::process::Command;

use crate::support::{ANTHROPIC, Api, BINARY, text};

/// The key of the page's sealed project.
const SEALED_KEY: &str = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc";

const PAGE: &str = include_str!("../../../../docs/conversations.md");
const USERS_PAGE: &str = include_str!("../../../../docs/users.md");

const TOOLS_PAGE: &str = include_str!("../../../../docs/tools.md");
const ROOMS_PAGE: &str = include_str!("../../../../docs/rooms.md");

/// The content of the first code block of this language.
fn code_block(language: &str) -> &'static str {
    code_block_of(PAGE, language)
}

fn code_block_of(page: &'static str, language: &str) -> &'static str {
    let start = format!("```{language}\n");
    let block = page.split(&start).nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap_or_else(|| panic!("no block of {language}"))
}

/// The rows of the table of endpoints: method, path, body and status.
fn examples(page: &str) -> Vec<(Method, String, Value, u16)> {
    let code = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let is_call = |line: &&str| line.starts_with("| `") && line.contains(" /api/");
    let rows = page.lines().filter(is_call);
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let call = code(cells[1]);
        let (method, path) = call.split_once(' ').expect("a method and a path");
        let body = match code(cells[2]).as_str() {
            "" => Value::Null,
            body => serde_json::from_str(body).unwrap_or_else(|error| panic!("{body}: {error}")),
        };
        let status = cells[3].trim().parse().expect("a status");
        (method.parse().expect("a method"), path.to_owned(), body, status)
    })
    .collect()
}

/// The gateway of a user without any key.
async fn zero_config() -> Gateway {
    Gateway::start(BINARY, "").await
}

/// Makes the calls of a page, from top to bottom. `learn` gives the ids that later calls name.
async fn run_examples(
    api: &Api,
    page: &str,
    learn: impl AsyncFn(&Method, &str, &Value, &Answer) -> Vec<(&'static str, String)>,
) {
    let mut ids: Vec<(&str, String)> = Vec::new();
    for (method, path, body, status) in examples(page) {
        let filled = |text: &str| {
            ids.iter().fold(text.to_owned(), |text, (name, id)| text.replace(name, id))
        };
        let path = filled(&path);
        let body = match body {
            Value::Null => Value::Null,
            body => serde_json::from_str(&filled(&body.to_string())).expect("JSON"),
        };
        let answer = api.send(method.clone(), &path, &body).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text());
        ids.extend(learn(&method, &path, &body, &answer).await);
    }
}

#[tokio::test]
async fn every_example_of_the_page_works() {
    let mut api = Api::of(zero_config().await);
    api.present(&[("x-throughline-chat-key", SEALED_KEY)]);
    run_examples(&api, PAGE, async |method, path, body, answer| {
        if path == "/api/projects" && method == Method::POST {
            let name = if body["mode"] == "sealed" { "{sealed}" } else { "{project}" };
            return vec![(name, text(&answer.json()["id"]).to_owned())];
        }
        if !path.ends_with("/chat") {
            return Vec::new();
        }
        let node = answer.header("x-throughline-node").to_owned();
        let project = path.trim_end_matches("/chat");
        let question = api.get(&format!("{project}/nodes/{node}")).await["parent"].clone();
        vec![
            ("{question}", text(&question).to_owned()),
            ("{node}", node),
            ("{run}", answer.header("x-throughline-run").to_owned()),
        ]
    })
    .await;
}

#[tokio::test]
async fn every_example_of_the_page_about_rooms_works() {
    let api = Api::of(zero_config().await);
    run_examples(&api, ROOMS_PAGE, async |method, path, _, answer| {
        let name = match path {
            "/api/rooms" => "{room}",
            path if path.ends_with("/hooks") => "{hook}",
            _ => return Vec::new(),
        };
        match *method == Method::POST {
            true => vec![(name, text(&answer.json()["id"]).to_owned())],
            false => Vec::new(),
        }
    })
    .await;
}

#[tokio::test]
async fn tutorial_about_rooms_works_with_curl() {
    let gateway = zero_config().await;
    let script = code_block_of(ROOMS_PAGE, "sh");
    let out = run_script("sh", &["-eu", "-c", script], &gateway).await;
    for kind in ["THINKING_START", "THINKING_DELTA", "THINKING_END", "TYPING"] {
        assert!(out.contains(&format!(r#""type":"{kind}""#)), "{kind}: {out}");
    }
    assert_eq!(out.matches(r#""type":"MESSAGE""#).count(), 2, "{out}");
    assert_eq!(out.matches(r#""role":"assistant""#).count(), 1, "{out}");
}

async fn run_script(program: &str, arguments: &[&str], gateway: &Gateway) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(gateway.folder())
        .env("BASE", &gateway.url)
        .stdin(Stdio::null())
        .output()
        .await
        .expect("the program runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program}: {out}\n{err}");
    out.into_owned()
}

#[tokio::test]
async fn tutorial_works_with_curl() {
    let gateway = zero_config().await;
    let out = run_script("sh", &["-eu", "-c", code_block("sh")], &gateway).await;
    assert_eq!(out.matches(r#""reason":"completed""#).count(), 3, "{out}");
    assert!(out.contains(r#""payload":"#), "{out}");
    assert!(out.contains(r#""name":"second""#), "{out}");
}

/// Covers: S3-25
#[tokio::test]
async fn examples_join_rooms_and_answer_hooks() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let config = std::fs::read_to_string(format!("{folder}/throughline.toml")).expect("a file");
    let gateway = Gateway::start(BINARY, &config).await;
    let out = run_script("python3", &[&format!("{folder}/room.py")], &gateway).await;
    assert_eq!(out.matches("tutor is thinking: ").count(), 2, "{out}");
    assert_eq!(out.matches("signed: True").count(), 2, "{out}");
    let out = run_script("node", &[&format!("{folder}/room.mjs")], &gateway).await;
    assert!(out.contains("ada: Why does this **** heron"), "{out}");
    assert!(out.contains("simulator's answer"), "{out}");
}

#[tokio::test]
async fn tutorial_about_tools_works_with_curl() {
    // The page names the program as users install it.
    let config =
        code_block_of(TOOLS_PAGE, "toml").replace("\"throughline\"", &format!("{BINARY:?}"));
    let gateway = Gateway::start(BINARY, &config).await;
    let script = code_block_of(TOOLS_PAGE, "sh");
    let out = run_script("sh", &["-eu", "-c", script], &gateway).await;
    assert!(out.contains(r#""modelName":"calc__add""#), "{out}");
    assert_eq!(out.matches(r#""type":"tool_result""#).count(), 2, "{out}");
    assert!(out.contains(r#""reason":"completed""#), "{out}");
    assert!(!out.contains(r#""isError":true"#), "{out}");
}

#[tokio::test]
async fn example_of_a_sealed_project_works_with_curl() {
    let gateway = zero_config().await;
    let out = run_script("bash", &["-eu", "-c", code_block("bash")], &gateway).await;
    assert_eq!(out.matches(r#""reason":"completed""#).count(), 2, "{out}");
    assert!(out.contains(r#""encrypted_thinking_content":"#), "{out}");
}

#[tokio::test]
async fn tutorial_works_with_python() {
    let gateway = zero_config().await;
    let out = run_script("python3", &["-c", code_block("python")], &gateway).await;
    assert!(out.contains("stored as node_"), "{out}");
}

#[tokio::test]
async fn page_has_an_example_of_every_operation() {
    let api = Api::over(&[ANTHROPIC]).await;
    let document = api.get("/api/openapi.json").await;
    let calls =
        [PAGE, USERS_PAGE, ROOMS_PAGE].into_iter().flat_map(str::lines).filter_map(|line| {
            let call = line.strip_prefix("| `")?.split('`').next()?;
            call.split_once(' ')
        });
    let shown: Vec<(String, Vec<String>)> = calls
        .map(|(method, path)| {
            let path = path.split('?').next().unwrap_or_default();
            (method.to_lowercase(), path.split('/').map(str::to_owned).collect())
        })
        .collect();
    let paths = document["paths"].as_object().expect("paths");
    for (path, methods) in paths {
        let pattern: Vec<&str> = path.split('/').collect();
        for method in methods.as_object().expect("methods").keys() {
            let fits = |segments: &[String]| {
                let pairs = segments.iter().zip(&pattern);
                segments.len() == pattern.len()
                    && pairs.into_iter().all(|(one, other)| one == other || other.starts_with('{'))
            };
            let has_example =
                shown.iter().any(|(shown, segments)| shown == method && fits(segments));
            assert!(has_example, "{method} {path}");
        }
    }
    assert_eq!(paths.len(), 49, "{:?}", paths.keys());
}

#[tokio::test]
async fn document_describes_answers_as_they_are() {
    let api = Api::over(&[ANTHROPIC]).await;
    let document = api.get("/api/openapi.json").await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "ponder").await;
    let members = |name: &str| -> Vec<String> {
        let schema = &document["components"]["schemas"][name]["properties"];
        schema.as_object().unwrap_or_else(|| panic!("no {name}")).keys().cloned().collect()
    };
    let nodes = api.nodes(&project, "main").await;
    for (name, value) in [
        ("ProjectView", api.get(&project).await),
        ("BranchView", api.get(&project).await["branches"][0].clone()),
        ("NodeView", nodes[1].clone()),
        ("Graph", api.get(&format!("{project}/graph")).await),
        ("ProviderView", api.get("/api/providers").await["providers"][0].clone()),
    ] {
        let known = members(name);
        for member in value.as_object().expect("an object").keys() {
            assert!(known.contains(member), "{name} has no {member}: {known:?}");
        }
    }
}

#[tokio::test]
async fn docs_page_loads_nothing_from_elsewhere() {
    let api = Api::over(&[ANTHROPIC]).await;
    let client = &api.gateway.client;
    let page = client.get("/api/docs").await.expect_ok();
    let policy = page.header("content-security-policy").to_owned();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    assert!(!page.text().contains("http"), "{}", page.text());
    for (path, content_type) in
        [("/api/docs/page.js", "text/javascript"), ("/api/docs/page.css", "text/css")]
    {
        assert!(page.text().contains(path));
        let part = client.get(path).await.expect_ok();
        assert!(part.header("content-type").starts_with(content_type));
        assert!(!part.text().contains("http"), "{path}");
    }
}
