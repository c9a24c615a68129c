//! Model lists of all backends, in the dialect of the client.

use http::Method;
use serde_json::Value;
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::support::BINARY;

/// Starts a gateway over two backends of different dialects, one of them with mapped names.
async fn two_backends() -> (Simulator, Gateway) {
    let simulator = Simulator::start("a").await;
    let config = format!(
        r#"
[[backend]]
name = "claude"
dialect = "anthropic"
base_url = "{url}"
api_key = "key-a"
models = {{ "house-model" = "claude-opus-5", "gpt-*" = "claude-sonnet-5" }}
default_model = "claude-opus-5"

[[backend]]
name = "gem"
dialect = "gemini"
base_url = "{url}"
api_key = "key-g"

[[route.rules]]
model = "gemini-*"
backend = "gem"
"#,
        url = simulator.url
    );
    let gateway = Gateway::start(BINARY, &config).await;
    (simulator, gateway)
}

async fn get(gateway: &Gateway, path: &str, header: (&str, &str)) -> Answer {
    gateway.client.send(Method::GET, path, &[header], "").await
}

const ANTHROPIC: (&str, &str) = ("anthropic-version", "2023-06-01");
const GOOGLE: (&str, &str) = ("x-goog-api-key", "k");
const BEARER: (&str, &str) = ("authorization", "Bearer k");

fn names(list: &Value, member: &str) -> Vec<String> {
    let models = list.as_array().expect("a list").iter();
    models.map(|model| model[member].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn all_models_are_listed_once_in_three_dialects() {
    let (simulator, gateway) = two_backends().await;
    let anthropic = get(&gateway, "/v1/models", ANTHROPIC).await.expect_ok().json();
    let ids = names(&anthropic["data"], "id");
    assert_eq!(ids[..2], ["house-model", "claude-opus-5"]);
    assert!(ids.iter().any(|id| id.starts_with("gemini-")), "{ids:?}");
    assert!(!ids.iter().any(|id| id.contains('*')), "{ids:?}");
    let mut once = ids.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "{ids:?}");
    assert_eq!(anthropic["has_more"], false);
    assert_eq!(anthropic["data"][0]["type"], "model");

    for header in [BEARER, ("accept", "*/*")] {
        let openai = get(&gateway, "/v1/models", header).await.expect_ok().json();
        assert_eq!(openai["object"], "list");
        assert_eq!(names(&openai["data"], "id"), ids);
    }
    let prefixed: Vec<String> = ids.iter().map(|id| format!("models/{id}")).collect();
    for path in ["/v1/models", "/v1beta/models", "/models"] {
        let gemini = get(&gateway, path, GOOGLE).await.expect_ok().json();
        assert_eq!(names(&gemini["models"], "name"), prefixed);
    }
    // Each backend got one request, in its own dialect and with its own key.
    let asked: Vec<(String, String)> = simulator
        .received()
        .await
        .into_iter()
        .map(|seen| {
            let key = |name: &str| {
                let mut headers = seen.headers.iter();
                headers.find(|(key, _)| key == name).map(|(_, value)| value.clone())
            };
            let key = key("x-api-key").or(key("x-goog-api-key")).unwrap_or_default();
            (seen.path, key)
        })
        .collect();
    let expected = [("/v1/models", "key-a"), ("/v1beta/models", "key-g")];
    assert_eq!(asked.len(), 2, "{asked:?}");
    for (path, key) in expected {
        assert!(asked.contains(&(path.to_owned(), key.to_owned())), "{asked:?}");
    }
}

#[tokio::test]
async fn single_model_comes_from_its_backend_or_is_not_found() {
    let (_simulator, gateway) = two_backends().await;
    let model = get(&gateway, "/v1/models/house-model", ANTHROPIC).await;
    assert_eq!(model.expect_ok().json()["id"], "house-model");
    let model = get(&gateway, "/v1/models/house-model", BEARER).await;
    assert_eq!(model.expect_ok().json()["object"], "model");
    let unknown = get(&gateway, "/v1/models/nobodys", BEARER).await;
    assert_eq!(unknown.status, 404);
    let reported = unknown.json();
    let message = reported["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("`nobodys`"), "{reported}");
    let unknown = get(&gateway, "/v1beta/models/nobodys", GOOGLE).await;
    assert_eq!(unknown.json()["error"]["status"], "NOT_FOUND");
}

#[tokio::test]
async fn unreachable_backend_hides_only_its_own_models() {
    let (simulator, gateway) = two_backends().await;
    drop(simulator);
    let list = get(&gateway, "/v1/models", BEARER).await.expect_ok().json();
    assert_eq!(names(&list["data"], "id"), ["house-model", "claude-opus-5"]);
}

/// A switch to the other site would be rejected, so its list is not requested either.
#[tokio::test]
async fn callers_key_is_not_sent_to_another_site_for_a_list() {
    let (one, other) = (Simulator::start("a").await, Simulator::start("b").await);
    let backend = |name: &str, simulator: &Simulator, more: &str| {
        format!(
            "[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\nauth = \"passthrough\"\n{more}\n",
            simulator.url
        )
    };
    for (more, asked) in [("", 0), ("share_caller_key = true", 1)] {
        let config = backend("one", &one, "") + &backend("other", &other, more);
        let gateway = Gateway::start(BINARY, &config).await;
        get(&gateway, "/v1/models", BEARER).await.expect_ok();
        assert_eq!(other.received().await.len(), asked, "{more}");
    }
    assert_eq!(one.received().await.len(), 2);
}

#[tokio::test]
async fn model_with_a_route_rule_comes_from_its_backend() {
    let (simulator, gateway) = two_backends().await;
    let reported = get(&gateway, "/v1beta/models/gemini-3-pro-preview", GOOGLE).await;
    assert_eq!(reported.expect_ok().json()["name"], "models/gemini-3-pro-preview");
    let seen = simulator.last_received().await;
    assert_eq!(seen.path, "/v1beta/models/gemini-3-pro-preview");
}

#[tokio::test]
async fn model_list_is_paged_as_the_dialect_requires() {
    let (_simulator, gateway) = two_backends().await;
    let all = get(&gateway, "/v1/models", ANTHROPIC).await.expect_ok().json();
    let all = names(&all["data"], "id");
    let (mut listed, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/models?limit=3{after}");
        let page = get(&gateway, &path, ANTHROPIC).await.expect_ok().json();
        listed.extend(names(&page["data"], "id"));
        if page["has_more"] == false {
            break;
        }
        assert_eq!(page["data"].as_array().map(Vec::len), Some(3));
        after = format!("&after_id={}", page["last_id"].as_str().expect("an id"));
    }
    assert_eq!(listed, all);
    let (mut listed, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1beta/models?pageSize=2{token}");
        let page = get(&gateway, &path, GOOGLE).await.expect_ok().json();
        listed.extend(names(&page["models"], "name"));
        let Some(next) = page["nextPageToken"].as_str() else {
            break;
        };
        token = format!("&pageToken={next}");
    }
    let prefixed: Vec<String> = all.iter().map(|id| format!("models/{id}")).collect();
    assert_eq!(listed, prefixed);
    let refused = get(&gateway, "/v1/models?limit=-4", ANTHROPIC).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["error"]["type"], "invalid_request_error");
}

/// A mapped name has the known properties of the model it maps to.
#[tokio::test]
async fn mapped_model_has_the_properties_of_its_target() {
    let (_simulator, gateway) = two_backends().await;
    let path = "/v1/models/house-model";
    let model = get(&gateway, path, ANTHROPIC).await.expect_ok().json();
    assert!(model["max_tokens"].as_u64() > Some(10_000), "{model}");
    assert!(model["max_input_tokens"].as_u64() > Some(100_000), "{model}");
    let thinking = &model["capabilities"]["thinking"];
    assert_eq!(thinking["supported"], true, "{model}");
    assert_eq!(thinking["types"]["adaptive"]["supported"], true, "{model}");
    assert_eq!(thinking["types"]["enabled"]["supported"], false, "{model}");
    let effort = &model["capabilities"]["effort"];
    assert_eq!(effort["high"]["supported"], true, "{model}");
    let path = "/v1beta/models/house-model";
    let model = get(&gateway, path, GOOGLE).await.expect_ok().json();
    assert_eq!(model["thinking"], true, "{model}");
}
