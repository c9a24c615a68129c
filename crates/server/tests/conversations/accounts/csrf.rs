//! A page of another origin cannot use the cookie of a user.

use http::Method;
use serde_json::{Value, json};

use super::{Person, api};

#[tokio::test]
async fn only_own_pages_change_something_with_a_session() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let own = api.gateway.url.clone();
    let body = json!({"title": "t"});
    let send = async |method: Method, path: &str, headers: &[(&str, &str)], body: &Value| {
        ada.open(method, path, headers, body).await.read_all().await
    };
    for (headers, status) in [
        (vec![], 201),
        (vec![("origin", own.as_str())], 201),
        (vec![("origin", own.as_str()), ("sec-fetch-site", "same-origin")], 201),
        (vec![("sec-fetch-site", "cross-site")], 403),
        // A page on another port of the same host is of the same site: the cookie is sent.
        (vec![("sec-fetch-site", "same-site")], 403),
        (vec![("origin", "http://127.0.0.1:9")], 403),
        (vec![("origin", "https://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("content-type", "text/plain")], 403),
        (vec![("content-type", "application/x-www-form-urlencoded")], 403),
    ] {
        let answer = send(Method::POST, "/api/projects", &headers, &body).await;
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.text());
    }
    let evil = [("origin", "https://evil.example")];
    for (method, path) in [
        (Method::DELETE, "/api/projects/project_x?purge=true"),
        (Method::PATCH, "/api/projects/project_x"),
        (Method::POST, "/api/auth/logout"),
        (Method::POST, "/api/auth/passphrase"),
    ] {
        let answer = send(method, path, &evil, &body).await;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
    }
    // Reading is safe: the browser does not show the answer to the page.
    let read = send(Method::GET, "/api/projects", &evil, &Value::Null).await;
    assert_eq!(read.status, 200);
    assert_eq!(read.header("access-control-allow-origin"), "");
    ada.get("/api/auth/session").await.expect_ok();
}

#[tokio::test]
async fn other_pages_cannot_log_a_browser_in() {
    let api = api().await;
    let eve = Person::join(&api.gateway, "eve").await;
    let visitor = Person::new(&api.gateway, "eve");
    let body = json!({"name": "eve", "authKey": *eve.keys.auth.write()});
    for headers in [
        [("origin", "https://evil.example")],
        [("sec-fetch-site", "cross-site")],
        [("content-type", "text/plain")],
    ] {
        for path in ["/api/auth/login", "/api/auth/register", "/api/auth/recover"] {
            let answer = visitor.open(Method::POST, path, &headers, &body).await.read_all().await;
            assert_eq!(answer.status, 403, "{path} {headers:?}: {}", answer.text());
            assert_eq!(answer.header("set-cookie"), "");
        }
    }
}

#[tokio::test]
async fn provider_never_gets_the_cookie_of_a_session() {
    let api = api().await;
    let mut ada = Person::join(&api.gateway, "ada").await;
    ada.cookie = ada.cookie.map(|cookie| format!("theirs=1; {cookie}"));
    let turn = json!({"model": "claude-sonnet-4-5", "max_tokens": 2000,
                      "messages": [{"role": "user", "content": "plain"}]});
    let anthropic = [("anthropic-version", "2023-06-01")];
    let answer = ada.open(Method::POST, "/v1/messages", &anthropic, &turn).await.read_all().await;
    answer.expect_ok();
    let project = ada.project(json!({"title": "t"})).await;
    ada.post(&format!("{project}/chat"), json!({"message": "plain"})).await.expect_ok();
    let received = api.simulators[0].received().await;
    let cookies = received.iter().flat_map(|request| &request.headers);
    let cookies = cookies.filter(|(name, _)| name == "cookie").map(|(_, value)| value.as_str());
    assert_eq!(cookies.collect::<Vec<_>>(), ["theirs=1"], "others are the client's matter");
    assert_eq!(received.len(), 2);
}
