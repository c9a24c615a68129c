//! The keyring: created once for its owner only, never replaced, or set by an environment variable.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::{CommandOutput, RunningCommand, folder, run, start};

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"];
const VARIABLE: &str = "THROUGHLINE_KEYRING";
/// Each key has 32 bytes.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "HwABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4=";

fn write(folder: &Path, text: impl AsRef<[u8]>, mode: u32) {
    let path = folder.join("data/keyring");
    std::fs::create_dir_all(folder.join("data")).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn read(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("data/keyring")).unwrap()
}

async fn serve(folder: &Path, environment: &[(&str, &str)]) -> RunningCommand {
    start(folder, &SERVE, environment).await
}

async fn doctor(folder: &Path, environment: &[(&str, &str)]) -> CommandOutput {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let ours = [("THROUGHLINE_LISTEN", address.as_str()), ("THROUGHLINE_DATA_DIR", "data")];
    run(folder, &["doctor"], &[&ours[..], environment].concat()).await
}

#[tokio::test]
async fn first_start_creates_the_keyring_and_later_starts_keep_it() {
    let folder = folder();
    let output = doctor(folder.path(), &[]).await.expect_ok();
    assert!(output.contains("ok    keyring: none yet"), "{output}");
    assert!(!folder.path().join("data/keyring").exists());

    let (_, stderr) = serve(folder.path(), &[]).await.stop().await;
    assert!(stderr.contains("keyring created"), "{stderr}");
    let file = std::fs::metadata(folder.path().join("data/keyring")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let made = read(folder.path());
    let line = String::from_utf8(made.clone()).unwrap();
    let (key, comment) = line.trim_end().split_once(" # made ").unwrap();
    assert!(key.len() == KEY.len() && comment.ends_with('Z'), "the time of the key: {comment}");

    let (_, stderr) = serve(folder.path(), &[]).await.stop().await;
    assert!(!stderr.contains("keyring"), "{stderr}");
    assert_eq!(read(folder.path()), made);
    let output = doctor(folder.path(), &[]).await.expect_ok();
    assert!(output.contains("is readable only for you"), "{output}");
    assert!(!stderr.contains(key) && !output.contains(key));

    // Another data directory gets another keyring.
    let elsewhere = crate::support::folder();
    serve(elsewhere.path(), &[]).await.stop().await;
    assert!(!read(elsewhere.path()).starts_with(key.as_bytes()));
}

#[tokio::test]
async fn broken_keyring_is_reported_and_never_replaced() {
    for (text, words) in [
        (&b""[..], "the keyring is empty"),
        (&KEY.as_bytes()[..20], "key 1 of the keyring is not 32 bytes"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (format!("{KEY}\n{}", &OTHER_KEY[1..]).as_bytes(), "key 2 of the keyring is not 32 bytes"),
    ] {
        let folder = folder();
        write(folder.path(), text, 0o600);
        let words = ["data/keyring` is not a valid keyring", words, "backup", "--new-keyring"];
        let stderr = run(folder.path(), &SERVE, &[]).await.expect_error(1, &words);
        assert!(!stderr.contains(&KEY[..20]), "{stderr}");
        assert_eq!(read(folder.path()), text);
        let ended = doctor(folder.path(), &[]).await;
        assert_eq!(ended.code, 1);
        let failed = ended.out.lines().find(|line| line.starts_with("FAIL"));
        assert!(failed.unwrap().contains(words[1]), "{}", ended.out);
    }
}

/// The first line of `doctor` that says what is wrong.
async fn failed_check(folder: &Path, environment: &[(&str, &str)]) -> String {
    let ended = doctor(folder, environment).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let failed = ended.out.lines().find(|line| line.starts_with("FAIL"));
    failed.unwrap().to_owned()
}

#[tokio::test]
async fn lost_keyring_beside_sealed_data_is_not_a_first_start() {
    let folder = folder();
    let path = folder.path();
    let running = serve(path, &[]).await;
    let request = json!({"model": "some-model", "input": "ponder this"});
    let stored = running.client.post("/v1/responses", &[], &request).await.expect_ok().json();
    let conversation = running.client.post("/v1/conversations", &[], &json!({})).await;
    let conversation = conversation.expect_ok().json();
    running.stop().await;
    let keyring = path.join("data/keyring");
    std::fs::remove_file(&keyring).unwrap();

    let lost = ["data/keyring` is missing", "sealed", "backup", "--new-keyring"];
    run(path, &SERVE, &[]).await.expect_error(1, &lost);
    assert!(!keyring.exists(), "no other keyring takes its place");
    let failed = failed_check(path, &[]).await;
    assert!(failed.contains(lost[0]) && failed.contains("--new-keyring"), "{failed}");
    // The other keys do not open the data either.
    let other = [(VARIABLE, OTHER_KEY)];
    let lacks = [VARIABLE, "lacks the last key", "--new-keyring"];
    run(path, &SERVE, &other).await.expect_error(1, &lacks);
    assert!(failed_check(path, &other).await.contains(lacks[1]));
    // The stored responses alone show it too.
    std::fs::remove_file(path.join("data/memory.db")).unwrap();
    run(path, &SERVE, &[]).await.expect_error(1, &lost);

    let arguments = [&SERVE[..], &["--new-keyring"]].concat();
    let running = start(path, &arguments, &[]).await;
    let client = &running.client;
    let id = stored["id"].as_str().unwrap();
    assert_eq!(client.get(&format!("/v1/responses/{id}")).await.status, 404);
    let mut next = request.clone();
    next["previous_response_id"] = id.into();
    let refused = client.post("/v1/responses", &[], &next).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "previous_response_not_found");
    let mut named = request.clone();
    named["conversation"] = conversation["id"].clone();
    assert_eq!(client.post("/v1/responses", &[], &named).await.status, 404);
    client.post("/v1/responses", &[], &request).await.expect_ok();
    let (_, stderr) = running.stop().await;
    assert!(stderr.contains("keyring created"), "{stderr}");

    // The new keyring is the usual one from now on.
    doctor(path, &[]).await.expect_ok();
    serve(path, &[]).await.stop().await;
}

#[tokio::test]
async fn readable_keyring_is_reported_with_the_fix() {
    let folder = folder();
    write(folder.path(), KEY, 0o644);
    let (code, stderr) = serve(folder.path(), &[]).await.stop().await;
    assert_eq!(code, Some(0));
    assert!(stderr.contains("can read the keyring"), "{stderr}");
    assert!(stderr.contains("`chmod 600 "), "{stderr}");
    let ended = doctor(folder.path(), &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let failed = ended.out.lines().find(|line| line.starts_with("FAIL"));
    assert!(failed.unwrap().contains("chmod 600 "), "{}", ended.out);
}

#[tokio::test]
async fn keyring_variable_wins_and_creates_no_file() {
    let folder = folder();
    let both = format!("{KEY}, {OTHER_KEY}");
    let given = [(VARIABLE, both.as_str())];
    let (_, stderr) = serve(folder.path(), &given).await.stop().await;
    assert!(!folder.path().join("data/keyring").exists(), "{stderr}");
    let output = doctor(folder.path(), &given).await.expect_ok();
    assert!(output.contains("keyring: from the variable"), "{output}");

    // An existing file is not even read.
    write(folder.path(), "broken", 0o644);
    serve(folder.path(), &given).await.stop().await;
    assert_eq!(read(folder.path()), b"broken");
}

#[tokio::test]
async fn invalid_keyring_variable_is_reported_without_its_value() {
    for (value, words) in [
        ("", "the keyring is empty"),
        ("c2VjcmV0IQ==", "key 1 of the keyring"),
        (&*format!("{KEY},c2VjcmV0IQ=="), "key 2 of the keyring"),
    ] {
        let folder = folder();
        let given = [(VARIABLE, value)];
        let words = [VARIABLE, words, "openssl rand -base64 32"];
        let stderr = run(folder.path(), &SERVE, &given).await.expect_error(1, &words);
        assert!(!stderr.contains("c2VjcmV0"), "{stderr}");
        assert!(!folder.path().join("data/keyring").exists());
        let ended = doctor(folder.path(), &given).await;
        assert_eq!(ended.code, 1);
        assert!(ended.out.contains(words[1]), "{}", ended.out);
    }
}
