//! Who guesses names or passphrases learns nothing, and not fast.

use http::Method;
use serde_json::{Value, json};

use super::{Person, api, base64url, keys_of};
use crate::support::text;

#[tokio::test]
async fn unknown_name_and_wrong_passphrase_look_the_same() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let wrong = keys_of(200);
    let known = ada.try_log_in(&wrong.auth).await;
    let eve = Person::new(&api.gateway, "eve");
    let unknown = eve.try_log_in(&wrong.auth).await;
    assert_eq!((known.status, unknown.status), (401, 401));
    assert_eq!(known.text(), unknown.text());
    assert_eq!(known.header("set-cookie"), "");
    // The auth key of the recovery code does not log in.
    assert_eq!(ada.try_log_in(&ada.code.derive().auth).await.status, 401);
    let recover = async |name: &str, body: Value| {
        let mut body = body;
        body["name"] = json!(name);
        body["authKey"] = json!(*wrong.auth.write());
        ada.post("/api/auth/recover", body).await
    };
    for body in [
        json!({}),
        json!({"newAuthKey": *wrong.auth.write(), "kdf": super::kdf(1), "wrappedMasterKey": base64url(&[1; 80])}),
    ] {
        let (known, unknown) = (recover("ada", body.clone()).await, recover("eve", body).await);
        assert_eq!((known.status, unknown.status), (401, 401), "{}", known.text());
        assert_eq!(known.text(), unknown.text());
    }
}

#[tokio::test]
async fn settings_of_unknown_names_are_made_up_and_stable() {
    let mut api = api().await;
    let read = async |api: &crate::support::Api, name: &str| {
        let answer = api.gateway.client.get(&format!("/api/auth/kdf?name={name}")).await;
        answer.expect_ok().json()
    };
    let (eve, bob) = (read(&api, "eve").await, read(&api, "bob").await);
    assert_eq!(read(&api, "%20EVE").await, eve);
    assert_ne!(bob["salt"], eve["salt"]);
    let ada = Person::join(&api.gateway, "ada").await;
    let known = ada.get("/api/auth/kdf?name=Ada").await.expect_ok().json();
    assert_eq!(known, super::kdf(1));
    let shape = |settings: &Value| {
        let mut settings = settings.clone();
        settings["salt"] = json!(text(&settings["salt"]).len());
        settings
    };
    assert_eq!(shape(&known), shape(&eve));
    api.gateway.kill().await;
    api.gateway.restart().await;
    assert_eq!(read(&api, "eve").await, eve, "a restart changes nothing");
}

#[tokio::test]
async fn names_are_unique_in_any_letter_case() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "Zoë").await;
    for name in ["zoë", " ZOË ", "Zoe\u{308}"] {
        let mut body = ada.registration();
        body["name"] = json!(name);
        let answer = ada.post("/api/auth/register", body).await;
        assert_eq!(answer.status, 409, "{name}: {}", answer.text());
        assert_eq!(answer.json()["type"], "/problems/name-taken");
    }
    ada.get("/api/users/ZO%C3%8B").await.expect_ok();
}

#[tokio::test]
async fn wrong_registrations_are_refused_with_the_member() {
    let api = api().await;
    let ada = Person::new(&api.gateway, "ada");
    let set = |path: &str, value: Value| {
        let mut body = ada.registration();
        *body.pointer_mut(path).expect("a member") = value;
        body
    };
    for (body, member) in [
        (set("/name", json!("a\nb")), "name"),
        (set("/authKey", json!(base64url(&[1; 31]))), "authKey"),
        (set("/authKey", json!("+++")), "authKey"),
        (set("/kdf/memoryKiB", json!(65535)), "kdf"),
        (set("/kdf/iterations", json!(2)), "kdf"),
        (set("/kdf/algorithm", json!("scrypt")), "kdf.algorithm"),
        (set("/kdf/salt", json!(base64url(&[1; 8]))), "kdf"),
        (set("/wrappedMasterKey", json!("")), "wrappedMasterKey"),
        (set("/recovery/authKey", json!("")), "recovery.authKey"),
        (set("/recovery/wrappedMasterKey", json!("!")), "recovery.wrappedMasterKey"),
        (set("/publicKey", json!(base64url(&[1; 33]))), "publicKey"),
        (set("/wrappedPrivateKey", json!(base64url(&[1; 2000]))), "wrappedPrivateKey"),
    ] {
        let answer = ada.post("/api/auth/register", body).await;
        assert_eq!(answer.status, 400, "{member}: {}", answer.text());
        assert!(
            text(&answer.json()["detail"]).starts_with(&format!("{member}:")),
            "{}",
            answer.text()
        );
    }
    for pointer in ["", "/kdf", "/recovery"] {
        let mut body = ada.registration();
        body.pointer_mut(pointer).expect("an object")["masterKey"] = json!("x");
        let answer = ada.post("/api/auth/register", body).await;
        assert_eq!(answer.status, 400, "{pointer}");
        assert!(answer.text().contains("masterKey"), "{}", answer.text());
    }
    for (path, body) in [
        ("/api/auth/login", json!({"name": "a", "authKey": "b", "passphrase": "c"})),
        ("/api/auth/recover", json!({"name": "a", "authKey": "b", "code": "c"})),
    ] {
        assert_eq!(ada.post(path, body).await.status, 400, "{path}");
    }
    ada.register().await;
    assert_eq!(ada.register().await.status, 409, "the last one was right");
}

#[tokio::test]
async fn guesses_are_limited_by_name_and_by_address() {
    let api = api().await;
    let mut ada = Person::join(&api.gateway, "ada").await;
    let wrong = keys_of(200);
    let mut last = ada.try_log_in(&wrong.auth).await;
    for _ in 0..9 {
        assert_eq!(last.status, 401);
        last = ada.try_log_in(&wrong.auth).await;
    }
    let refused = loop {
        if last.status == 429 {
            break last;
        }
        last = ada.try_log_in(&wrong.auth).await;
    };
    assert_eq!(refused.header("content-type"), "application/problem+json");
    let wait: u64 = refused.header("retry-after").parse().expect("seconds");
    assert!((1..=6).contains(&wait), "{wait}");
    assert_eq!(ada.try_log_in(&ada.keys.auth).await.status, 429, "the right one waits too");
    ada.get("/api/auth/session").await.expect_ok();
    // Other addresses are not locked out of the name.
    let elsewhere = json!({"name": "ada", "authKey": *ada.keys.auth.write()});
    let headers = [("x-forwarded-for", "192.0.2.9")];
    let answer = ada.open(Method::POST, "/api/auth/login", &headers, &elsewhere).await;
    answer.read_all().await.expect_ok();
    // Another name is free, until the address has tried too many.
    let from = async |address: &str, name: String| {
        let body = json!({"name": name, "authKey": *wrong.auth.write()});
        let headers = [("x-forwarded-for", address)];
        ada.open(Method::POST, "/api/auth/login", &headers, &body).await.read_all().await.status
    };
    let mut statuses = Vec::new();
    for number in 0..200 {
        statuses.push(from("192.0.2.1", format!("name {number}")).await);
    }
    assert_eq!(statuses[..100], [401; 100]);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(from("192.0.2.2", "name 1".to_owned()).await, 401);
    // Who is right may do it often.
    ada.name = "bob";
    ada.register().await;
    for _ in 0..30 {
        ada.log_in().await;
    }
}
