//! Sessions: what a user gets at the log-in, and what is closed without one.

use http::Method;
use serde_json::{Value, json};
use throughline_sealing::{PrivateKey, unwrap_key};

use super::{Person, api, base64url, cookie, from_base64url};
use crate::support::{ANTHROPIC, Api, Database, text};
use crate::upstreams::SCENARIO;

#[tokio::test]
async fn user_logs_in_and_opens_the_own_keys() {
    let api = api().await;
    let mut ada = Person::new(&api.gateway, "Ada");
    let registered = ada.register().await;
    assert_eq!(registered.status, 201, "{}", registered.text());
    assert_eq!(registered.json()["name"], "Ada");
    assert_eq!(registered.header("set-cookie"), "");
    let answer = ada.try_log_in(&ada.keys.auth).await.expect_ok();
    let attributes: Vec<&str> = answer.header("set-cookie").split("; ").skip(1).collect();
    assert_eq!(attributes, ["Max-Age=2592000", "Path=/", "HttpOnly", "SameSite=Strict"]);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert!(cookie(&answer).starts_with("throughline_session="), "{}", cookie(&answer));
    let said = ada.log_in().await;
    let master = ada.open_master(&said, &ada.keys.wrap).expect("the master key");
    assert_eq!(master, ada.master);
    let private = from_base64url(text(&said["wrappedPrivateKey"]));
    let private: PrivateKey = unwrap_key(&private, &master, text(&said["name"])).expect("a key");
    assert_eq!(private, ada.private);
    let session = ada.get("/api/auth/session").await.expect_ok().json();
    assert_eq!(session["wrappedMasterKey"], said["wrappedMasterKey"]);
    assert_eq!(session["kdf"], super::kdf(1));
    let user = ada.get("/api/users/ADA").await.expect_ok().json();
    let public = base64url(ada.private.public_key().as_bytes());
    assert_eq!(user, json!({"name": "Ada", "publicKey": public}));
    assert_eq!(ada.get("/api/users/eve").await.status, 404);
}

#[tokio::test]
async fn api_is_closed_without_a_session_once_a_user_exists() {
    let api = api().await;
    let project = api.project(json!({"title": "Before"})).await;
    let nobody = Person::new(&api.gateway, "nobody");
    let session = nobody.get("/api/auth/session").await;
    assert_eq!((session.status, &session.json()["hasUsers"]), (401, &json!(false)));
    let ada = Person::join(&api.gateway, "ada").await;
    for (method, path) in [
        (Method::GET, "/api/projects"),
        (Method::POST, "/api/projects"),
        (Method::GET, project.as_str()),
        (Method::GET, "/api/runs/run_1"),
        (Method::GET, "/api/providers"),
        (Method::GET, "/api/users/ada"),
        (Method::GET, "/api/auth/session"),
        (Method::POST, "/api/auth/passphrase"),
    ] {
        let body = match path {
            "/api/auth/passphrase" => json!({
                "authKey": "a", "newAuthKey": "a", "kdf": super::kdf(1), "wrappedMasterKey": "a",
            }),
            _ if method == Method::POST => json!({"title": "t"}),
            _ => Value::Null,
        };
        // A key is no session either.
        let answer = api.send(method, path, &body).await;
        assert_eq!(answer.status, 401, "{path}: {}", answer.text());
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert!(text(&answer.json()["hint"]).contains("/api/auth/login"), "{}", answer.text());
    }
    for path in
        ["/api/openapi.json", "/api/docs", "/api/tags", "/api/auth/kdf?name=x", "/v1/models"]
    {
        assert_eq!(api.gateway.client.get(path).await.status, 200, "{path}");
    }
    let chat = json!({"model": "claude-sonnet-4-5", "stream": false,
                      "messages": [{"role": "user", "content": "plain"}]});
    assert_eq!(api.post("/api/chat", chat).await.status, 200, "Ollama's path is another dialect");
    assert_eq!(ada.get("/api/projects").await.expect_ok().json()["projects"], json!([]));
    assert_eq!(ada.get(&project).await.status, 404, "it belongs to a key");
}

#[tokio::test]
async fn projects_of_a_user_are_not_found_by_others() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let eve = Person::join(&api.gateway, "eve").await;
    let project = ada.project(json!({"title": "Mine"})).await;
    let answer =
        ada.post(&format!("{project}/chat"), json!({"message": "plain"})).await.expect_ok();
    let run = format!("/api/runs/{}", answer.header("x-throughline-run"));
    ada.get(&run).await.expect_ok();
    for path in [project.clone(), format!("{project}/nodes"), run.clone(), format!("{run}/events")]
    {
        assert_eq!(eve.get(&path).await.status, 404, "{path}");
    }
    assert_eq!(eve.post(&format!("{run}/stop"), Value::Null).await.status, 404);
    let unknown = eve.get("/api/projects/project_x").await.text().replace("project_x", "ID");
    let id = project.rsplit('/').next().unwrap_or_default();
    assert_eq!(eve.get(&project).await.text().replace(id, "ID"), unknown);
}

#[tokio::test]
async fn log_out_ends_the_session_on_the_server() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let out = ada.post("/api/auth/logout", Value::Null).await;
    assert_eq!(out.status, 204);
    assert!(out.header("set-cookie").starts_with("throughline_session=; Max-Age=0;"));
    assert_eq!(ada.get("/api/auth/session").await.status, 401, "the cookie is of no use");
    assert_eq!(ada.post("/api/auth/logout", Value::Null).await.status, 204);
}

#[tokio::test]
async fn session_survives_a_restart_and_ends_with_its_lifetime() {
    let mut api = api().await;
    let cookie = Person::join(&api.gateway, "ada").await.cookie;
    api.gateway.signal("TERM").await;
    api.gateway.wait_for_exit().await;
    api.gateway.restart().await;
    let mut ada = Person::new(&api.gateway, "ada");
    assert_eq!(ada.get("/api/projects").await.status, 401);
    ada.cookie = cookie;
    ada.get("/api/projects").await.expect_ok();

    let api = Api::with(&[ANTHROPIC], SCENARIO, "[users]\nsession = \"1ms\"\n").await;
    let ada = Person::join(&api.gateway, "ada").await;
    // The first request may still be within the millisecond, not all of them.
    let mut statuses = Vec::new();
    while statuses.len() < 100 && statuses.last() != Some(&401) {
        statuses.push(ada.get("/api/auth/session").await.status);
    }
    assert_eq!(statuses.last(), Some(&401), "{statuses:?}");
}

#[tokio::test]
async fn cookie_over_tls_is_secure_and_bound_to_the_host() {
    let api = api().await;
    let ada = Person::new(&api.gateway, "ada");
    ada.register().await;
    let body = json!({"name": "ada", "authKey": *ada.keys.auth.write()});
    let headers = [("x-forwarded-proto", "https")];
    let answer = ada.open(Method::POST, "/api/auth/login", &headers, &body).await.read_all().await;
    let set = answer.header("set-cookie");
    assert!(set.starts_with("__Host-throughline_session=") && set.ends_with("; Secure"), "{set}");
    let elsewhere = Person { cookie: Some(cookie(&answer)), ..ada.elsewhere() };
    elsewhere.get("/api/auth/session").await.expect_ok();
}

/// A stolen database gives no session and no log-in, and a log at level trace neither.
#[tokio::test]
async fn database_and_log_hold_no_proof_and_no_token() {
    // It searches the files of the database.
    let api = Api::on(Database::Sqlite, &[ANTHROPIC], SCENARIO, "").await;
    let mut ada = Person::join(&api.gateway, "ada").await;
    let project = ada.project(json!({"title": "t"})).await;
    ada.post(&format!("{project}/chat"), json!({"message": "plain"})).await.expect_ok();
    ada.log_in().await;
    let wrong = super::keys_of(99);
    assert_eq!(ada.try_log_in(&wrong.auth).await.status, 401);
    let cookie = ada.cookie.clone().expect("a cookie");
    let token = cookie.split_once('=').expect("a value").1.to_owned();
    let mut secrets = vec![token.into_bytes()];
    for key in [&ada.keys.auth, &ada.code.derive().auth, &wrong.auth] {
        secrets.push(key.write().as_bytes().to_vec());
        secrets.push(key.expose().to_vec());
    }
    secrets.push(from_base64url(cookie.split_once('=').expect("a value").1));
    let mut files = vec![api.gateway.folder().join("log")];
    let data = api.gateway.folder().join("data");
    files.extend(
        std::fs::read_dir(data).expect("a folder").map(|file| file.expect("a file").path()),
    );
    let mut found_hash = false;
    for file in files {
        let bytes = std::fs::read(&file).expect("a file");
        found_hash |= contains(&bytes, ada.private.public_key().as_bytes());
        for secret in &secrets {
            assert!(!contains(&bytes, secret), "{}", file.display());
        }
    }
    assert!(found_hash, "the search reads the database");
}

fn contains(bytes: &[u8], searched: &[u8]) -> bool {
    bytes.windows(searched.len()).any(|window| window == searched)
}
