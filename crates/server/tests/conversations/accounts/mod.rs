//! Users: registration, log-in, sessions, recovery and sharing. The tests make keys as a client does, with
//! the crate `sealing`; the server gets what a browser would send it.

mod csrf;
mod guessing;
mod leases;
mod passphrases;
mod registration;
mod rooms;
mod sessions;
mod sharing;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use throughline_sealing::{
    AuthKey, MasterKey, PrivateKey, RecoveryCode, UserKeys, WrapKey, unwrap_key, wrap_key,
};
use throughline_testkit::{Answer, Gateway, StreamedAnswer};

use crate::support::{ANTHROPIC, Api};

/// Bytes as the API writes them.
fn base64url(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads what [`base64url`] writes.
fn from_base64url(text: &str) -> Vec<u8> {
    BASE64_URL_SAFE_NO_PAD.decode(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// How a passphrase is stretched. The tests take the keys of a passphrase from random-like bytes,
/// except where they say so: Argon2id is slow on purpose.
fn kdf(salt: u8) -> Value {
    json!({
        "algorithm": "argon2id", "memoryKiB": 65536, "iterations": 3, "parallelism": 1,
        "salt": base64url(&[salt; 16]),
    })
}

/// Two keys, as a passphrase gives them.
fn keys_of(seed: u8) -> UserKeys {
    RecoveryCode::new([seed; 20]).derive()
}

/// A person with a browser.
pub(super) struct Person<'a> {
    gateway: &'a Gateway,
    name: &'static str,
    keys: UserKeys,
    code: RecoveryCode,
    master: MasterKey,
    pub(super) private: PrivateKey,
    /// The cookie of the session, `name=value`.
    cookie: Option<String>,
}

impl<'a> Person<'a> {
    fn new(gateway: &'a Gateway, name: &'static str) -> Self {
        let seed = name.bytes().fold(7, |seed: u8, byte| seed.wrapping_mul(31).wrapping_add(byte));
        Self {
            gateway,
            name,
            keys: keys_of(seed),
            code: RecoveryCode::new([seed.wrapping_add(1); 20]),
            master: MasterKey::new([seed.wrapping_add(2); 32]),
            private: PrivateKey::new([seed.wrapping_add(3); 32]),
            cookie: None,
        }
    }

    /// Registers a person and logs in.
    pub(super) async fn join(gateway: &'a Gateway, name: &'static str) -> Self {
        let mut person = Self::new(gateway, name);
        let answer = person.register().await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        person.log_in().await;
        person
    }

    /// The same person at another browser.
    fn elsewhere(&self) -> Self {
        Self::new(self.gateway, self.name)
    }

    fn wrapped_master(&self, under: &WrapKey, nonce: u8) -> String {
        base64url(&wrap_key(&self.master, under, self.name, &[nonce; 12]))
    }

    fn registration(&self) -> Value {
        let code = self.code.derive();
        json!({
            "name": self.name,
            "authKey": *self.keys.auth.write(),
            "kdf": kdf(1),
            "wrappedMasterKey": self.wrapped_master(&self.keys.wrap, 1),
            "recovery": {
                "authKey": *code.auth.write(),
                "wrappedMasterKey": self.wrapped_master(&code.wrap, 2),
            },
            "publicKey": base64url(self.private.public_key().as_bytes()),
            "wrappedPrivateKey": base64url(&wrap_key(&self.private, &self.master, self.name, &[3; 12])),
        })
    }

    async fn register(&self) -> Answer {
        self.post("/api/auth/register", self.registration()).await
    }

    async fn try_log_in(&self, key: &AuthKey) -> Answer {
        let body = json!({"name": self.name, "authKey": *key.write()});
        self.post("/api/auth/login", body).await
    }

    /// Logs in, and returns what the server said.
    async fn log_in(&mut self) -> Value {
        let answer = self.try_log_in(&self.keys.auth).await.expect_ok();
        self.cookie = Some(cookie(&answer));
        answer.json()
    }

    /// Opens a request with the cookie.
    pub(super) async fn open(
        &self,
        method: Method,
        path: &str,
        more: &[(&str, &str)],
        body: &Value,
    ) -> StreamedAnswer {
        let mut headers = more.to_vec();
        headers.extend(self.cookie.as_deref().map(|cookie| ("cookie", cookie)));
        if !more.iter().any(|(name, _)| *name == "content-type") {
            headers.push(("content-type", "application/json"));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.gateway.client.open(method, path, &headers, body).await
    }

    pub(super) async fn send(&self, method: Method, path: &str, body: &Value) -> Answer {
        self.open(method, path, &[], body).await.read_all().await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &Value::Null).await
    }

    pub(super) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, &body).await
    }

    pub(super) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, &Value::Null).await
    }

    /// Creates a project and returns its path.
    pub(super) async fn project(&self, new: Value) -> String {
        let answer = self.post("/api/projects", new).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        format!("/api/projects/{}", crate::support::text(&answer.json()["id"]))
    }

    /// Opens the master key in an answer.
    fn open_master(&self, answer: &Value, under: &WrapKey) -> Option<MasterKey> {
        let wrapped = from_base64url(crate::support::text(&answer["wrappedMasterKey"]));
        unwrap_key(&wrapped, under, self.name).ok()
    }
}

/// The cookie that an answer sets, `name=value`.
fn cookie(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie");
    cookie.split(';').next().unwrap_or_default().to_owned()
}

/// A gateway over a simulator.
pub(super) async fn api() -> Api {
    Api::over(&[ANTHROPIC]).await
}
