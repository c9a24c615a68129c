//! Nothing but a purge removes a node: random calls of all operations of the OpenAPI document, valid
//! and not, with the number of nodes checked after each.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, RESPONSES, Random, text};

const STEPS: usize = 600;

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

/// An operation of the API: method, path with names in braces, and the schema of its body.
#[derive(Clone, Debug)]
struct Operation {
    method: Method,
    path: String,
    body: Value,
}

/// All operations that the OpenAPI document has, so that a new one cannot be forgotten.
async fn operations(api: &Api) -> (Vec<Operation>, Value) {
    let document = api.get("/api/openapi.json").await;
    let mut operations = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            operations.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                path: path.clone(),
                body: operation["requestBody"]["content"]["application/json"]["schema"].clone(),
            });
        }
    }
    assert!(operations.len() >= 25, "{operations:?}");
    (operations, document)
}

/// What a random call can name.
struct Names<'a> {
    project: &'a str,
    branch: String,
    node: String,
    run: String,
    new: String,
}

/// A body of this schema, with names that exist where a member is a name.
fn random_body(random: &mut Random, schema: &Value, document: &Value, names: &Names<'_>) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        let schema = &document["components"]["schemas"][name];
        return random_body(random, schema, document, names);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(schemas) = schema[choice].as_array() {
            let schema = &schemas[random.below(schemas.len())];
            return random_body(random, schema, document, names);
        }
    }
    if let Some(parts) = schema["allOf"].as_array() {
        let mut whole = json!({});
        for part in parts {
            if let Value::Object(members) = random_body(random, part, document, names) {
                whole.as_object_mut().expect("an object").extend(members);
            }
        }
        return whole;
    }
    if let Some(values) = schema["enum"].as_array() {
        return values[random.below(values.len())].clone();
    }
    let kind = schema["type"].as_str().or_else(|| schema["type"][0].as_str()).unwrap_or("object");
    match kind {
        "boolean" => json!(random.below(2) == 0),
        "integer" | "number" => json!(random.below(3)),
        "string" => json!("plain"),
        "array" => json!([]),
        "null" => Value::Null,
        _ => {
            let mut members = serde_json::Map::new();
            for (name, member) in schema["properties"].as_object().into_iter().flatten() {
                if random.below(3) == 0 {
                    continue;
                }
                let value = match name.as_str() {
                    "nodeId" | "expectedHead" => json!(names.node),
                    "branch" | "from" | "into" => json!(names.branch),
                    "fromRef" if random.below(2) == 0 => json!(names.node),
                    "fromRef" => json!(names.branch),
                    "name" => json!(names.new),
                    _ => random_body(random, member, document, names),
                };
                members.insert(name.clone(), value);
            }
            Value::Object(members)
        }
    }
}

/// A call that works on most projects, so that there are many nodes.
fn usual_call(random: &mut Random, names: &Names<'_>) -> (Method, String, Value) {
    let Names { project, branch, node, new, .. } = names;
    let post = |path: &str, body: Value| (Method::POST, format!("{project}/{path}"), body);
    match random.below(9) {
        0..=2 => post("chat", json!({"branch": branch, "message": "plain"})),
        3 => {
            let is_automatic = random.below(2) == 0;
            post(
                "chat",
                json!({"branch": branch, "message": "plain", "llmProvider": "openai_responses",
                    "autoBranch": is_automatic}),
            )
        }
        4 => post("edit", json!({"nodeId": node, "message": "plain", "branch": new})),
        5 | 6 => post("regenerate", json!({"nodeId": node})),
        7 => post("merge", json!({"from": branch, "into": new})),
        _ => post("branches", json!({"name": new, "fromRef": node})),
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
    let (operations, document) = operations(&api).await;
    let mut called: HashMap<(Method, String), usize> = HashMap::new();
    let mut nodes: HashMap<String, Vec<String>> = HashMap::new();
    let mut runs = Vec::new();
    let (mut grown, mut purged) = (0, 0);
    for step in 0..STEPS {
        let project = projects[random.below(projects.len())].clone();
        let Some(known) = look(&api, &project).await else {
            let restored = api.post(&format!("{project}/restore"), Value::Null).await;
            assert_eq!(restored.status, 200, "{}", restored.text());
            continue;
        };
        let names = Names {
            project: &project,
            branch: pick(&mut random, &known.branches).to_owned(),
            node: pick(&mut random, &known.nodes).to_owned(),
            run: pick(&mut random, &runs).to_owned(),
            new: format!("b{}", random.below(8)),
        };
        let mut purges = false;
        // The first steps call every operation several times.
        let (method, path, body) = match step % 2 {
            0 => usual_call(&mut random, &names),
            _ => {
                let operation = operations[step / 2 % operations.len()].clone();
                let Operation { method, path, body } = operation;
                *called.entry((method.clone(), path.clone())).or_default() += 1;
                let body = match body {
                    Value::Null => Value::Null,
                    schema => random_body(&mut random, &schema, &document, &names),
                };
                let mut path = path
                    .replace("/api/projects/{id}", &project)
                    .replace("{id}", &names.run)
                    .replace("{name}", &names.branch)
                    .replace("{node}", &names.node);
                purges =
                    method == Method::DELETE && path.contains("/branches/") && random.below(2) == 0;
                if purges {
                    path.push_str("?purge=true");
                }
                (method, path, body)
            }
        };
        let answer = api.send(method.clone(), &path, &body).await;
        if let Some(run) = answer.headers.get("x-throughline-run") {
            runs.push(run.to_str().expect("an id").to_owned());
        }
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
    for Operation { method, path, .. } in operations {
        assert!(called.contains_key(&(method.clone(), path.clone())), "{method} {path}");
    }
    assert!(grown > 100 && purged > 0, "{grown} nodes, {purged} purges");
}
