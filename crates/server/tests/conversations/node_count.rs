//! Nothing but a purge removes a node: random calls of all endpoints, valid and not, with the number
//! of nodes checked after each.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, RESPONSES, Random, text};

const STEPS: usize = 400;

/// One of a list, or sometimes a name that nothing has.
fn pick<'a>(random: &mut Random, list: &'a [String]) -> &'a str {
    if list.is_empty() || random.below(12) == 0 {
        return "nobody";
    }
    &list[random.below(list.len())]
}

/// What the test knows about one project.
#[derive(Default)]
struct Known {
    branches: Vec<String>,
    nodes: Vec<String>,
}

/// Reads the graph of a project. `None` if it is deleted.
async fn look(api: &Api, project: &str) -> Option<Known> {
    let answer = api.send(Method::GET, &format!("{project}/graph?limit=1000"), &Value::Null).await;
    if answer.status == 404 {
        return None;
    }
    let graph = answer.expect_ok().json();
    let names = |list: &str, member: &str| -> Vec<String> {
        let entries = graph[list].as_array().expect("a list");
        entries.iter().map(|entry| text(&entry[member]).to_owned()).collect()
    };
    Some(Known { branches: names("branches", "name"), nodes: names("nodes", "id") })
}

/// One random call. Returns its method, path and body, and whether it purges something.
fn random_call(random: &mut Random, project: &str, known: &Known) -> (Method, String, Value, bool) {
    let branch = pick(random, &known.branches).to_owned();
    let node = pick(random, &known.nodes).to_owned();
    let name = format!("b{}", random.below(8));
    let at_branch = format!("{project}/branches/{branch}");
    let post = |path: String, body: Value| (Method::POST, path, body, false);
    match random.below(20) {
        0..=3 => post(format!("{project}/chat"), json!({"branch": branch, "message": "plain"})),
        4 => post(
            format!("{project}/chat"),
            json!({"branch": branch, "message": "ponder", "expectedHead": node}),
        ),
        5 => post(
            format!("{project}/chat"),
            json!({"branch": branch, "message": "plain", "llmProvider": "openai_responses",
                "autoBranch": random.below(2) == 0}),
        ),
        6 => post(
            format!("{project}/edit"),
            json!({"nodeId": node, "message": "plain", "branch": name}),
        ),
        7 | 8 => post(format!("{project}/regenerate"), json!({"nodeId": node})),
        9 => post(format!("{project}/merge"), json!({"from": branch, "into": name})),
        10 => post(format!("{project}/branches"), json!({"name": name, "fromRef": node})),
        11 => post(format!("{project}/branches"), json!({"name": name, "fromRef": branch})),
        12 => (Method::PATCH, at_branch, json!({"name": name, "pinned": true}), false),
        13 => (Method::DELETE, at_branch, Value::Null, false),
        14 => post(format!("{project}/branches/{name}/restore"), Value::Null),
        15 => (Method::PATCH, format!("{project}/nodes/{node}"), json!({"starred": true}), false),
        16 => (Method::DELETE, project.to_owned(), Value::Null, false),
        17 => (Method::PATCH, project.to_owned(), json!({"title": name}), false),
        18 => post(format!("{project}/preview"), json!({"branch": branch, "message": "plain"})),
        _ if random.below(4) == 0 => {
            (Method::DELETE, format!("{at_branch}?purge=true"), Value::Null, true)
        }
        _ => post(format!("{project}/chat"), json!({"branch": branch, "massage": "plain"})),
    }
}

#[tokio::test]
async fn no_call_but_a_purge_removes_a_node() {
    let api = Api::over(&[ANTHROPIC, RESPONSES]).await;
    let mut random = Random(0x5eed_1234_5678_9abc);
    let mut projects = Vec::new();
    for _ in 0..3 {
        projects.push(api.project(json!({"title": "t"})).await);
    }
    let mut nodes: HashMap<String, Vec<String>> = HashMap::new();
    let (mut grown, mut purged) = (0, 0);
    for step in 0..STEPS {
        let project = projects[random.below(projects.len())].clone();
        let Some(known) = look(&api, &project).await else {
            let restored = api.post(&format!("{project}/restore"), Value::Null).await;
            assert_eq!(restored.status, 200, "{}", restored.text());
            continue;
        };
        let (method, path, body, purges) = random_call(&mut random, &project, &known);
        let answer = api.send(method.clone(), &path, &body).await;
        let what = format!("step {step}: {method} {path} {body}: {}", answer.text());
        assert!(answer.status < 500, "{what}");
        let Some(now) = look(&api, &project).await else {
            continue;
        };
        let before = nodes.insert(project, now.nodes.clone()).unwrap_or_default();
        if purges && answer.status == 204 {
            purged += 1;
            continue;
        }
        grown += now.nodes.len() - before.len().min(now.nodes.len());
        let missing: Vec<&String> = before.iter().filter(|id| !now.nodes.contains(id)).collect();
        assert!(missing.is_empty(), "{missing:?} {what}");
    }
    assert!(grown > 100 && purged > 0, "{grown} nodes, {purged} purges");
    assert_eq!(api.refusals().await, [""; 0]);
}
