//! Requests that are wrong, and paths of others under `/api`.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::Gateway;

use crate::support::{ANTHROPIC, Api, BINARY, text};
use crate::upstreams::SCENARIO;

#[tokio::test]
async fn every_error_is_a_problem_with_a_hint() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "[limits]\nbody = \"2KiB\"\n").await;
    let project = api.project(json!({"title": "t"})).await;
    let long = "x".repeat(4096);
    for (method, path, body, status) in [
        (Method::PUT, "/api/projects".to_owned(), json!({}), 405),
        (Method::DELETE, "/api/providers".to_owned(), Value::Null, 405),
        (Method::GET, format!("{project}/chat"), Value::Null, 405),
        (Method::POST, "/api/runs/x".to_owned(), Value::Null, 405),
        (Method::GET, format!("{project}/nothing"), Value::Null, 404),
        (Method::GET, format!("{project}/"), Value::Null, 404),
        (Method::GET, "/api/runs".to_owned(), Value::Null, 404),
        (Method::GET, "/api/projects/%ff".to_owned(), Value::Null, 404),
        (Method::GET, "/api/projects?limit=0".to_owned(), Value::Null, 400),
        (Method::GET, "/api/projects?limit=x".to_owned(), Value::Null, 400),
        (Method::GET, "/api/projects?in=nodes".to_owned(), Value::Null, 400),
        (Method::GET, format!("{project}/nodes?order=up"), Value::Null, 400),
        (Method::GET, format!("{project}/nodes?branch=none"), Value::Null, 404),
        (Method::POST, "/api/projects".to_owned(), Value::Null, 400),
        (Method::POST, "/api/projects".to_owned(), json!([1]), 400),
        (Method::POST, "/api/projects".to_owned(), json!({"title": 1}), 400),
        (Method::POST, "/api/projects".to_owned(), json!({"titel": "t"}), 400),
        (Method::POST, "/api/projects".to_owned(), json!({"title": "t", "mode": "sealed"}), 400),
        (Method::POST, "/api/projects".to_owned(), json!({"title": long}), 413),
        (Method::POST, format!("{project}/branches"), json!({"name": "a/b"}), 400),
        (Method::POST, format!("{project}/branches"), json!({"name": ""}), 400),
        (Method::POST, format!("{project}/chat"), json!({}), 400),
        (Method::POST, format!("{project}/chat"), json!({"message": 1}), 400),
        (Method::POST, format!("{project}/chat"), json!({"message": "  \n"}), 400),
        (Method::POST, format!("{project}/chat"), json!({"message": [{"type": "foo"}]}), 400),
        (
            Method::POST,
            format!("{project}/chat"),
            json!({"message": [{"type": "text", "text": "x"}, {"type": "image_url"}]}),
            400,
        ),
        (
            Method::POST,
            format!("{project}/chat"),
            json!({"message": [{"type": "thinking", "thinking": "x"}]}),
            400,
        ),
        (
            Method::POST,
            format!("{project}/chat"),
            json!({"message": "x", "clientRequestId": "i".repeat(501)}),
            400,
        ),
        (Method::POST, format!("{project}/chat"), json!({"message": "x", "model": "m"}), 400),
        (
            Method::POST,
            format!("{project}/chat"),
            json!({"message": "x", "expectedhead": "n"}),
            400,
        ),
        (Method::POST, format!("{project}/chat"), json!({"message": "x", "thinking": "huge"}), 400),
        (Method::POST, format!("{project}/edit"), json!({"nodeId": "none", "message": "x"}), 404),
        (Method::POST, format!("{project}/regenerate"), json!({"nodeId": "none"}), 404),
        (Method::POST, format!("{project}/merge"), json!({"from": "a", "into": "main"}), 404),
        (Method::POST, format!("{project}/branches/none/restore"), Value::Null, 404),
    ] {
        let answer = api.send(method.clone(), &path, &body).await;
        let what = format!("{method} {path} {body}: {} {}", answer.status, answer.text());
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(answer.header("content-type"), "application/problem+json", "{what}");
        let problem = answer.json();
        assert_eq!(problem["status"], status, "{what}");
        for member in ["type", "title", "detail", "hint"] {
            assert!(!text(&problem[member]).is_empty(), "{member}: {what}");
        }
        assert_eq!(status == 405, !answer.header("allow").is_empty(), "{what}");
    }
    assert_eq!(api.count(&project).await, 0);
}

#[tokio::test]
async fn ollama_paths_are_not_taken_over() {
    let api = Api::over(&[ANTHROPIC]).await;
    let chat =
        json!({"model": "m", "stream": false, "messages": [{"role": "user", "content": "plain"}]});
    let answer = api.post("/api/chat", chat).await.expect_ok();
    assert!(answer.text().contains("Just a text."), "{}", answer.text());
    for path in ["/api/tags", "/api/version", "/api/ps"] {
        assert!(api.get(path).await.is_object(), "{path}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    let api = Api::over(&[ANTHROPIC]).await;
    let origin = ("origin", "https://evil.example");
    let plain = ("content-type", "text/plain");
    let client = &api.gateway.client;
    let body = json!({"title": "t"}).to_string();
    let answer = client.send(Method::POST, "/api/projects", &[origin, plain], body).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    let preflight = [origin, ("access-control-request-method", "PATCH")];
    let answer = client.send(Method::OPTIONS, "/api/projects", &preflight, "").await;
    assert_eq!(answer.header("access-control-allow-origin"), "");
    let foreign = [("host", "evil.example")];
    let answer = client.send(Method::GET, "/api/projects", &foreign, "").await;
    assert_eq!(answer.status, 421);
}

#[tokio::test]
async fn pages_of_allowed_origins_may_change_projects() {
    let settings = "cors_origins = [\"https://app.example\"]\n";
    let api = Api::with(&[ANTHROPIC], SCENARIO, settings).await;
    let headers = [("origin", "https://app.example"), ("access-control-request-method", "PATCH")];
    let client = &api.gateway.client;
    let answer = client.send(Method::OPTIONS, "/api/projects/x", &headers, "").await;
    assert!(answer.header("access-control-allow-methods").contains("PATCH"));
}

/// Covers: S4-42
#[tokio::test]
async fn providers_say_what_their_models_can_do() {
    let api = Api::over(&[ANTHROPIC]).await;
    let list = api.get("/api/providers").await;
    let provider = &list["providers"][0];
    assert_eq!((text(&provider["id"]), &provider["configured"]), ("claude", &json!(true)));
    assert_eq!(
        (&provider["default"], text(&provider["defaultModel"])),
        (&json!(true), "claude-sonnet-4-5")
    );
    let model = &provider["models"][0];
    assert_eq!(model["id"], "claude-sonnet-4-5");
    assert_eq!((&model["tools"], &model["thinking"]["supported"]), (&json!(true), &json!(true)));
    assert!(model["context"].as_u64() > Some(100_000), "{model}");
}

/// Covers: S4-64
#[tokio::test]
async fn providers_say_nothing_about_unknown_models() {
    let config = r#"
[[backend]]
name = "main"
dialect = "anthropic"
base_url = "http://127.0.0.1:1"
default_model = "claude-opus-5-5"
models = { "a" = "house-model" }
[[backend]]
name = "away"
dialect = "openai_chat"
base_url = "http://127.0.0.1:1"
api_key_env = "A_KEY_THAT_IS_NOT_SET"
default_model = "o1-mini"
"#;
    let api = Api::of(Gateway::start(BINARY, config).await);
    let list = api.get("/api/providers").await;
    let models = |at: usize| list["providers"][at]["models"].clone();
    let (known, unknown) = (&models(0)[0], &models(0)[1]);
    assert_eq!(
        (known["context"].as_u64(), known["maxOutput"].as_u64()),
        (Some(1_000_000), Some(128_000))
    );
    let thinking = &known["thinking"];
    assert_eq!((&thinking["form"], &thinking["canBeOff"]), (&json!("adaptive"), &json!(false)));
    assert_eq!((&known["images"], &known["tools"]), (&json!(true), &json!(true)));
    for member in ["form", "supported", "canBeOff", "byDefault"] {
        assert_eq!(unknown["thinking"][member], Value::Null, "{member}");
    }
    assert_eq!((&unknown["id"], &unknown["context"]), (&json!("house-model"), &Value::Null));
    let away = &list["providers"][1];
    assert_eq!((&away["configured"], &away["default"]), (&json!(false), &json!(false)));
    assert!(text(&away["hint"]).contains("A_KEY_THAT_IS_NOT_SET"), "{away}");
    assert_eq!(models(1)[0]["tools"], false);
}
