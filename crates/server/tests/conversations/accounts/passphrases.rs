//! A new passphrase, and a forgotten one.

use serde_json::{Value, json};
use throughline_sealing::{MasterKey, PassphraseSettings, RecoveryCode, unwrap_key};

use super::{Person, api, base64url, cookie, from_base64url, kdf, keys_of};
use crate::support::text;

#[tokio::test]
async fn new_passphrase_ends_the_other_sessions_and_changes_one_key() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let mut other = ada.elsewhere();
    let before = other.log_in().await;
    let bob = Person::join(&api.gateway, "bob").await;
    let new = keys_of(201);
    let change = |key: &str| {
        json!({
            "authKey": key, "newAuthKey": *new.auth.write(), "kdf": kdf(2),
            "wrappedMasterKey": ada.wrapped_master(&new.wrap, 9),
        })
    };
    let wrong = ada.post("/api/auth/passphrase", change(&new.auth.write())).await;
    assert_eq!(wrong.status, 401, "{}", wrong.text());
    other.get("/api/auth/session").await.expect_ok();
    let changed = ada.post("/api/auth/passphrase", change(&ada.keys.auth.write())).await;
    let changed = changed.expect_ok().json();
    assert_eq!(ada.open_master(&changed, &new.wrap), Some(ada.master.clone()));
    assert_eq!(changed["wrappedPrivateKey"], before["wrappedPrivateKey"]);
    assert_eq!(other.get("/api/auth/session").await.status, 401);
    ada.get("/api/auth/session").await.expect_ok();
    bob.get("/api/auth/session").await.expect_ok();
    assert_eq!(ada.try_log_in(&ada.keys.auth).await.status, 401, "the old one is over");
    ada.try_log_in(&new.auth).await.expect_ok();
    assert_eq!(ada.get("/api/auth/kdf?name=ada").await.json(), kdf(2));
}

#[tokio::test]
async fn recovery_code_opens_the_master_key_and_sets_a_passphrase() {
    let api = api().await;
    let mut ada = Person::join(&api.gateway, "ada").await;
    let lost = ada.elsewhere();
    let code = ada.code.derive();
    // The first step proves the code and changes nothing.
    let proof = json!({"name": "ADA", "authKey": *code.auth.write()});
    let opened = lost.post("/api/auth/recover", proof).await.expect_ok();
    assert_eq!(opened.header("set-cookie"), "");
    let master: MasterKey = lost.open_master(&opened.json(), &code.wrap).expect("the master key");
    assert_eq!(master, ada.master);
    ada.get("/api/auth/session").await.expect_ok();
    // The second one sets the passphrase, and a new code.
    let (new, next) = (keys_of(202), RecoveryCode::new([203; 20]));
    let mut body = json!({
        "name": "ada", "authKey": *code.auth.write(), "newAuthKey": *new.auth.write(), "kdf": kdf(3),
        "wrappedMasterKey": lost.wrapped_master(&new.wrap, 8),
        "recovery": {
            "authKey": *next.derive().auth.write(),
            "wrappedMasterKey": lost.wrapped_master(&next.derive().wrap, 7),
        },
    });
    let set = lost.post("/api/auth/recover", body.clone()).await.expect_ok();
    assert_eq!(lost.open_master(&set.json(), &new.wrap), Some(ada.master.clone()));
    assert_eq!(ada.get("/api/auth/session").await.status, 401, "all sessions have ended");
    ada.cookie = Some(cookie(&set));
    ada.get("/api/auth/session").await.expect_ok();
    assert_eq!(ada.try_log_in(&ada.keys.auth).await.status, 401);
    ada.try_log_in(&new.auth).await.expect_ok();
    assert_eq!(
        lost.post("/api/auth/recover", body.clone()).await.status,
        401,
        "the code is used up"
    );
    // A code that stays valid, and members that do not come alone.
    body["authKey"] = json!(*next.derive().auth.write());
    body.as_object_mut().expect("an object").remove("recovery");
    for _ in 0..2 {
        lost.post("/api/auth/recover", body.clone()).await.expect_ok();
    }
    for member in ["newAuthKey", "kdf", "wrappedMasterKey"] {
        let mut part = body.clone();
        part.as_object_mut().expect("an object").remove(member);
        let answer = lost.post("/api/auth/recover", part).await;
        assert_eq!(answer.status, 400, "{member}: {}", answer.text());
    }
}

/// With Argon2id, as a browser does it: the settings come from the server.
#[tokio::test]
async fn passphrase_alone_is_enough_to_log_in_from_a_new_device() {
    let api = api().await;
    let passphrase = "drei Reiher im Mai";
    let settings = |value: &Value| {
        let number = |name: &str| u32::try_from(value[name].as_u64().expect("a number"));
        let salt = from_base64url(text(&value["salt"]));
        let number = |name| number(name).expect("a small number");
        let settings = PassphraseSettings::new(
            number("memoryKiB"),
            number("iterations"),
            number("parallelism"),
            &salt,
        );
        settings.expect("settings within the limits")
    };
    let mut ada = Person::new(&api.gateway, "ada");
    ada.keys = settings(&kdf(1)).derive(passphrase).expect("keys");
    assert_eq!(ada.register().await.status, 201);
    let read = ada.get("/api/auth/kdf?name=ada").await.expect_ok().json();
    let keys = settings(&read).derive(passphrase).expect("keys");
    let said = ada.try_log_in(&keys.auth).await.expect_ok().json();
    let wrapped = from_base64url(text(&said["wrappedMasterKey"]));
    assert_eq!(unwrap_key(&wrapped, &keys.wrap, "ada"), Ok(ada.master.clone()));
    assert_eq!(base64url(&wrapped), text(&said["wrappedMasterKey"]));
}
