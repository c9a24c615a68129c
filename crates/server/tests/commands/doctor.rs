//! `doctor`: what works, what does not, and what to do.

use sqlx::{ConnectOptions, Connection};
use throughline_simulator::Options;
use throughline_testkit::{RawUpstream, Redis, Simulator};
use tokio::net::TcpListener;

use crate::support::{CommandOutput, folder, folder_with_config, run};

fn backend(name: &str, url: &str, more: &str) -> String {
    format!(
        "\n[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{url}\"\n{more}\n"
    )
}

async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Checks that exactly one FAIL line is printed, with these words.
async fn check_fails(config: &str, words: &[&str]) {
    let folder = folder_with_config(config);
    let ended = run(folder.path(), &["doctor"], &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    assert_eq!(ended.err.trim(), "one check failed");
    let failed: Vec<&str> = ended.out.lines().filter(|line| line.starts_with("FAIL  ")).collect();
    assert_eq!(failed.len(), 1, "{}", ended.out);
    for words in words {
        assert!(failed[0].contains(words), "{}\nlacks: {words}", failed[0]);
    }
    for line in ended.out.lines() {
        assert!(line.starts_with("ok  ") || line == failed[0], "{line}");
    }
}

#[tokio::test]
async fn reports_ok_for_a_working_setup() {
    let simulator = Simulator::start("a").await;
    let config = [
        format!("listen = \"{}\"\ndata_dir = \"data\"\n", free_address().await),
        backend("a", &simulator.url, "api_key = \"sk-secret\""),
        "[[backend]]\nname = \"s\"\ndialect = \"simulator\"\n".to_owned(),
    ];
    let folder = folder_with_config(&config.concat());
    let output = run(folder.path(), &["doctor"], &[]).await.expect_ok();
    for words in [
        "configuration: two",
        "data directory",
        "is free",
        "backend `a`",
        "backend `s`: built-in simulator",
    ] {
        let words = words.replace("two", "2 backends");
        assert!(output.contains(&words), "{output}\nlacks: {words}");
    }
    assert!(output.lines().all(|line| line.starts_with("ok  ")), "{output}");
    assert!(!output.contains("secret"), "{output}");
    // It sends what a client would send, with the key, and leaves no files.
    let seen = simulator.last_received().await;
    assert_eq!(seen.path, "/v1/models");
    assert_eq!(seen.header("x-api-key"), Some("sk-secret"));
    let left = std::fs::read_dir(folder.path().join("data")).unwrap();
    assert_eq!(left.count(), 0);
}

/// Each upstream is checked at the path where its dialect lists models, with the key in the
/// dialect's form.
#[tokio::test]
async fn each_dialect_is_checked_by_its_model_list() {
    let simulator = Simulator::start("a").await;
    for (lines, path, header, value) in [
        ("dialect = \"openai_chat\"", "/v1/models", "authorization", "Bearer sk-secret"),
        (
            "dialect = \"openai_chat\"\nvariant = \"glm\"",
            "/v4/models",
            "authorization",
            "Bearer sk-secret",
        ),
        ("dialect = \"openai_responses\"", "/v1/models", "authorization", "Bearer sk-secret"),
        ("dialect = \"gemini\"", "/v1beta/models", "x-goog-api-key", "sk-secret"),
    ] {
        let config = format!(
            "listen = \"{}\"\ndata_dir = \"data\"\n[[backend]]\nname = \"a\"\n{lines}\nbase_url = \"{}\"\napi_key = \"sk-secret\"\n",
            free_address().await,
            simulator.url,
        );
        let output = run(folder_with_config(&config).path(), &["doctor"], &[]).await.expect_ok();
        assert!(output.contains("backend `a` at"), "{output}");
        let received = simulator.received().await;
        let seen = received.iter().rfind(|seen| seen.path == path).expect(path);
        assert_eq!(seen.header(header), Some(value));
        assert_eq!(seen.header("anthropic-version"), None);
    }
}

#[tokio::test]
async fn reports_ok_without_a_configuration() {
    let address = free_address().await;
    let variables = [("THROUGHLINE_LISTEN", address.as_str()), ("OLLAMA_HOST", address.as_str())];
    let output = run(folder().path(), &["doctor"], &variables).await.expect_ok();
    assert!(output.contains("built-in simulator"), "{output}");
    // A key that was found but cannot be used is reported.
    assert!(output.contains("OLLAMA_HOST"), "{output}");
}

#[tokio::test]
async fn settings_without_effect_are_warnings() {
    let simulator = Simulator::start("a").await;
    let config = [
        format!("listen = \"{}\"\ndata_dir = \"data\"\n", free_address().await),
        backend(
            "a",
            &simulator.url,
            "api_key = \"sk-secret\"\nfamily = \"qwen3\"\nreasoning_format = \"split\"",
        ),
        "[[backend]]\nname = \"s\"\ndialect = \"simulator\"\non_tool_parse_error = \"text\"\n"
            .to_owned(),
    ];
    let folder = folder_with_config(&config.concat());
    let output = run(folder.path(), &["doctor"], &[]).await.expect_ok();
    let notes: Vec<&str> = output.lines().filter(|line| line.contains("note")).collect();
    let expected = [
        "ok    note: backend `a`: `family = \"qwen3\"` has no effect: replies of the dialect `anthropic` are not raw text",
        "ok    note: backend `s`: `on_tool_parse_error = \"text\"` has no effect: replies of the dialect `simulator` are not raw text",
    ];
    assert_eq!(notes, expected, "{output}");
    assert!(!output.contains("secret"), "{output}");
}

#[tokio::test]
async fn reports_an_unreachable_backend() {
    let listen = format!("listen = \"{}\"\n", free_address().await);
    let config = [listen, backend("a", "http://127.0.0.1:1", "")].concat();
    check_fails(
        &config,
        &[
            "backend `a`",
            "http://127.0.0.1:1",
            "cannot be reached",
            "Connection refused",
            "check `base_url`",
        ],
    )
    .await;
}

#[tokio::test]
async fn reports_a_refused_key() {
    // This provider accepts no key at all.
    let refusing = server_answering_all_with(401).await;
    let listen = format!("listen = \"{}\"\n", free_address().await);
    let config = [listen.clone(), backend("a", &refusing, "api_key = \"sk-secret\"")].concat();
    check_fails(&config, &["backend `a`", "rejects the key", "api_key_env"]).await;
    // A backend without a key has none that could be refused.
    let strict = Simulator::with(Options { require_key: true, ..Options::default() }).await;
    let config = [listen, backend("a", &strict.url, "auth = \"passthrough\"")].concat();
    run(folder_with_config(&config).path(), &["doctor"], &[]).await.expect_ok();
}

/// The usual reasons are a `base_url` with too much or too little of the path, and a missing key.
#[tokio::test]
async fn reports_a_wrong_address_and_a_missing_key() {
    let listen = format!("listen = \"{}\"\n", free_address().await);
    let simulator = Simulator::start("a").await;
    for (dialect, path) in [("anthropic", "/v1/messages"), ("openai_chat", "/v1/chat/completions")]
    {
        let config = format!(
            "{listen}[[backend]]\nname = \"a\"\ndialect = \"{dialect}\"\nbase_url = \"{}/nowhere\"\napi_key = \"k\"\n",
            simulator.url
        );
        let words = ["backend `a`", "answers 404", &format!("/nowhere{path}"), "check `base_url`"];
        check_fails(&config, &words).await;
    }
    let refusing = server_answering_all_with(401).await;
    let config = [listen, backend("a", &refusing, "")].concat();
    check_fails(&config, &["backend `a`", "wants a key", "api_key_env"]).await;
}

/// Runs `doctor` for a backend that has no list of models and gives this answer to a turn. Without an
/// answer the connection breaks.
async fn check_without_list(key: &str, status: Option<u16>) -> CommandOutput {
    let answer = |status: u16| {
        format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    };
    let upstream = RawUpstream::start().await;
    let config = [
        format!("listen = \"{}\"\ndata_dir = \"data\"\n", free_address().await),
        backend("a", &upstream.url, key),
    ];
    let folder = folder_with_config(&config.concat());
    let (ended, ()) = tokio::join!(run(folder.path(), &["doctor"], &[]), async {
        upstream.next().await.answer(answer(404).as_bytes()).await;
        let asked = upstream.next().await;
        match status {
            Some(status) => asked.answer(answer(status).as_bytes()).await,
            None => drop(asked),
        }
    });
    ended
}

const KEY: &str = "api_key = \"k\"";

/// Some servers do not list their models, but answer.
#[tokio::test]
async fn server_without_a_model_list_is_ok() {
    for status in [200, 400, 422, 429] {
        let ended = check_without_list(KEY, Some(status)).await;
        assert!(ended.expect_ok().contains("does not list its models"));
    }
    let ended = check_without_list("auth = \"passthrough\"", Some(401)).await;
    assert!(ended.expect_ok().contains("callers send their own key"));
}

#[tokio::test]
async fn reports_a_server_without_a_model_list_that_takes_no_turns() {
    for (key, status, words) in [
        (KEY, Some(401), "rejects the key"),
        (KEY, Some(403), "rejects the key"),
        ("", Some(401), "wants a key and has none"),
        (KEY, Some(402), "status 402"),
        (KEY, Some(503), "status 503"),
        (KEY, None, "cannot be reached"),
    ] {
        let ended = check_without_list(key, status).await;
        assert_eq!(ended.code, 1, "{status:?}: {ended:?}");
        assert!(ended.out.contains(words), "{status:?}: {ended:?}");
    }
}

#[tokio::test]
async fn reports_a_damaged_and_a_newer_database() {
    let simulator = Simulator::start("a").await;
    for (name, words, damage) in [
        ("memory.db", &["damaged", "restore"][..], Damage::Bytes),
        ("throughline.db", &["damaged", "restore"], Damage::Bytes),
        ("memory.db", &["a newer version of throughline wrote it", "backup"], Damage::Version),
    ] {
        let config = [
            format!("listen = \"{}\"\ndata_dir = \"data\"\n", free_address().await),
            backend("a", &simulator.url, ""),
        ];
        let folder = folder_with_config(&config.concat());
        let gateway = crate::support::start(folder.path(), &["serve"], &[]).await;
        gateway.stop().await;
        let output = run(folder.path(), &["doctor"], &[]).await.expect_ok();
        assert_eq!(output.matches("is intact").count(), 2, "{output}");
        damage.apply(&folder.path().join("data").join(name)).await;
        let ended = run(folder.path(), &["doctor"], &[]).await;
        let failed: Vec<&str> = ended.out.lines().filter(|line| line.starts_with("FAIL")).collect();
        assert_eq!(failed.len(), 1, "{}", ended.out);
        for words in words.iter().chain(&[name]) {
            assert!(failed[0].contains(words), "{}\nlacks: {words}", failed[0]);
        }
    }
}

enum Damage {
    /// The first bytes of the file are overwritten.
    Bytes,
    /// A migration that this version does not know was applied.
    Version,
}

impl Damage {
    async fn apply(&self, path: &std::path::Path) {
        match self {
            Self::Bytes => {
                // What is still in the write-ahead log would replace the damaged page.
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
                let mut connection = options.connect().await.unwrap();
                let checkpoint = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)");
                checkpoint.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                let mut bytes = std::fs::read(path).unwrap();
                bytes[..64].fill(7);
                std::fs::write(path, bytes).unwrap();
            }
            Self::Version => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
                let mut connection = options.connect().await.unwrap();
                sqlx::query(
                    "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                     VALUES (9999, 'later', 1, x'00', 0)",
                )
                .execute(&mut connection)
                .await
                .unwrap();
                connection.close().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn reports_a_failing_backend() {
    let broken = server_answering_all_with(503).await;
    let listen = format!("listen = \"{}\"\n", free_address().await);
    let config = [listen, backend("a", &broken, "")].concat();
    check_fails(&config, &["backend `a`", "503", "try again later"]).await;
}

/// Starts a server that answers every request with this status.
async fn server_answering_all_with(status: u16) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                connection.read_buf(&mut request).await.unwrap();
            }
            let answer =
                format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn reports_a_port_used_by_another_program() {
    let other = server_answering_all_with(404).await;
    let address = other.trim_start_matches("http://");
    let config = format!("listen = \"{address}\"\n");
    check_fails(&config, &[address, "cannot be used", "another program"]).await;
}

#[tokio::test]
async fn reports_ok_for_the_port_of_a_running_gateway() {
    let folder = folder();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"];
    let gateway = crate::support::start(folder.path(), &arguments, &[]).await;
    let address = gateway.url.trim_start_matches("http://");
    let variables = [("THROUGHLINE_LISTEN", address)];
    let output = run(folder.path(), &["doctor"], &variables).await.expect_ok();
    assert!(output.contains("a gateway is running at"), "{output}");
    gateway.stop().await;
}

#[tokio::test]
async fn reports_an_unwritable_data_directory() {
    let listen = format!("listen = \"{}\"\n", free_address().await);
    let config = format!("{listen}data_dir = \"throughline.toml/data\"\n");
    check_fails(&config, &["data directory", "is not writable", "choose another one"]).await;
}

#[tokio::test]
async fn failures_are_counted() {
    let config = [
        format!("listen = \"{}\"\n", free_address().await),
        backend("a", "http://127.0.0.1:1", ""),
        backend("b", "http://127.0.0.1:1", ""),
    ];
    let folder = folder_with_config(&config.concat());
    let ended = run(folder.path(), &["doctor"], &[]).await;
    assert_eq!(ended.code, 1);
    assert_eq!(ended.err.trim(), "2 checks failed");
    assert_eq!(ended.out.matches("FAIL  ").count(), 2, "{}", ended.out);
}

#[tokio::test]
async fn redis_server_that_does_not_answer_is_named_without_its_password() {
    let redis = Redis::start();
    let listen = free_address().await;
    let config = format!("listen = \"{listen}\"\ndata_dir = \"data\"\n[redis]\nurl = ");
    let address = redis.url.trim_start_matches("redis://").to_owned();
    let folder = folder_with_config(&format!("{config}\"{}\"\n", redis.url));
    let output = run(folder.path(), &["doctor"], &[]).await.expect_ok();
    assert!(output.contains(&format!("the Redis server at {address} answers")), "{output}");
    redis.stop();
    let config = format!("{config}\"redis://ada:s3cret@{address}\"\n");
    let words = [format!("cannot use the Redis server at {address}"), "redis.url".to_owned()];
    check_fails(&config, &words.each_ref().map(String::as_str)).await;
    let folder = folder_with_config(&config);
    let ended = run(folder.path(), &["serve"], &[]).await;
    let error = ended.expect_error(1, &words.each_ref().map(String::as_str));
    assert!(!error.contains("s3cret"), "{error}");
}
