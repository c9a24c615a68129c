//! Projects: defaults, search, pages, deletion, and who may see them.

use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, RESPONSES, text};
use crate::upstreams::SCENARIO;

fn titles(list: &Value) -> Vec<&str> {
    let projects = list["projects"].as_array().expect("a list of projects");
    projects.iter().map(|project| text(&project["title"])).collect()
}

/// Covers: S4-48, S4-49
#[tokio::test]
async fn first_branch_has_the_configured_defaults() {
    let settings = "[projects]\nprovider = \"openai_responses\"\nmodel = \"gpt-6-large\"\n";
    let api = Api::with(&[ANTHROPIC, RESPONSES], SCENARIO, settings).await;
    for (new, provider, model) in [
        (json!({"title": "t"}), "openai_responses", "gpt-6-large"),
        (json!({"title": "t", "provider": " ", "model": ""}), "openai_responses", "gpt-6-large"),
        (json!({"title": "t", "model": "other"}), "openai_responses", "other"),
        (json!({"title": "t", "provider": " CLAUDE "}), "claude", "claude-sonnet-4-5"),
        // A provider that is named has its own default model.
        (json!({"title": "t", "provider": "openai_responses"}), "openai_responses", "gpt-6.1-sol"),
    ] {
        let project = api.post("/api/projects", new.clone()).await;
        assert_eq!(project.status, 201, "{}", project.text());
        let branch = &project.json()["branches"][0];
        let found = (text(&branch["name"]), text(&branch["provider"]), text(&branch["model"]));
        assert_eq!(found, ("main", provider, model), "{new}");
        assert_eq!(branch["head"], Value::Null);
    }
}

#[tokio::test]
async fn projects_are_found_by_title_and_by_content() {
    let api = Api::over(&[ANTHROPIC]).await;
    let herons = api.project(json!({"title": "Herons in May"})).await;
    api.project(json!({"title": "Trains"})).await;
    api.say(&herons, "main", "plain: the Kingfisher waits").await;
    assert_eq!(titles(&api.get("/api/projects?q=HERON").await), ["Herons in May"]);
    assert_eq!(titles(&api.get("/api/projects?q=kingfisher").await), [""; 0]);
    let found = api.get("/api/projects?q=kingfisher&in=content").await;
    assert_eq!(titles(&found), ["Herons in May"]);
    let snippet = text(&found["projects"][0]["matches"][0]["snippet"]);
    assert!(snippet.contains("Kingfisher"), "{snippet}");
}

#[tokio::test]
async fn pages_have_every_project_once() {
    let api = Api::over(&[ANTHROPIC]).await;
    for number in 0..5 {
        api.project(json!({"title": format!("p{number}")})).await;
    }
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/api/projects?limit=2&after={after}")).await;
        seen.extend(titles(&page).into_iter().map(str::to_owned));
        match page["next"].as_str() {
            Some(next) => after = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, ["p4", "p3", "p2", "p1", "p0"]);
}

#[tokio::test]
async fn deleted_project_comes_back_whole_until_it_is_purged() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "Old", "system": "Be terse."})).await;
    api.say(&project, "main", "plain").await;
    let renamed = api.patch(&project, json!({"title": "New"})).await.expect_ok().json();
    assert_eq!((&renamed["title"], &renamed["system"]), (&json!("New"), &json!("Be terse.")));
    assert_eq!(api.delete(&project).await.status, 204);
    let gone = api.send(http::Method::GET, &project, &Value::Null).await;
    assert_eq!(gone.status, 404);
    assert!(text(&gone.json()["hint"]).contains("/restore"), "{}", gone.text());
    assert_eq!(titles(&api.get("/api/projects").await), [""; 0]);
    assert_eq!(titles(&api.get("/api/projects?deleted=true").await), ["New"]);
    let restored = api.post(&format!("{project}/restore"), Value::Null).await.expect_ok().json();
    assert_eq!(restored["deletedAt"], Value::Null);
    assert_eq!(api.count(&project).await, 2);
    assert_eq!(api.delete(&format!("{project}?purge=true")).await.status, 204);
    let restored = api.post(&format!("{project}/restore"), Value::Null).await;
    assert_eq!(restored.status, 404, "{}", restored.text());
    assert_eq!(titles(&api.get("/api/projects?deleted=true").await), [""; 0]);
}

#[tokio::test]
async fn other_callers_see_nothing() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "Mine"})).await;
    let answer =
        api.post(&format!("{project}/chat"), json!({"message": "plain"})).await.expect_ok();
    let run = format!("/api/runs/{}", answer.header("x-throughline-run"));
    let node = format!("{project}/nodes/{}", answer.header("x-throughline-node"));
    let eve = api.with_key("eve");
    assert_eq!(titles(&eve.get("/api/projects").await), [""; 0]);
    for path in [
        project.clone(),
        format!("{project}/branches"),
        format!("{project}/nodes"),
        format!("{project}/graph"),
        node.clone(),
        format!("{node}/raw"),
        run.clone(),
        format!("{run}/events"),
    ] {
        let answer = eve.send(http::Method::GET, &path, &Value::Null).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    for (path, body) in [
        (format!("{project}/chat"), json!({"message": "hi"})),
        (format!("{project}/preview"), json!({"message": "hi"})),
        (format!("{project}/restore"), Value::Null),
        (format!("{run}/stop"), Value::Null),
    ] {
        assert_eq!(eve.post(&path, body).await.status, 404, "{path}");
    }
    assert_eq!(eve.delete(&format!("{project}?purge=true")).await.status, 404);
    // A node of another project is not found either.
    let own = eve.project(json!({"title": "Own"})).await;
    let foreign = node.rsplit('/').next().unwrap_or_default();
    let answer = eve.send(http::Method::GET, &format!("{own}/nodes/{foreign}"), &Value::Null).await;
    assert_eq!(answer.status, 404);
}
