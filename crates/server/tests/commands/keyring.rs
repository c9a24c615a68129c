//! The keyring: created once for its owner only, never replaced, or set by an environment variable.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

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
    assert_eq!(made.len(), KEY.len() + 1);

    let (_, stderr) = serve(folder.path(), &[]).await.stop().await;
    assert!(!stderr.contains("keyring"), "{stderr}");
    assert_eq!(read(folder.path()), made);
    let output = doctor(folder.path(), &[]).await.expect_ok();
    assert!(output.contains("is readable only for you"), "{output}");
    let key = String::from_utf8(made).unwrap();
    assert!(!stderr.contains(key.trim()) && !output.contains(key.trim()));

    // Another data directory gets another keyring.
    let elsewhere = crate::support::folder();
    serve(elsewhere.path(), &[]).await.stop().await;
    assert_ne!(read(elsewhere.path()), key.as_bytes());
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
        let words = ["data/keyring` is not a valid keyring", words, "backup", "move the file away"];
        let stderr = run(folder.path(), &SERVE, &[]).await.expect_error(1, &words);
        assert!(!stderr.contains(&KEY[..20]), "{stderr}");
        assert_eq!(read(folder.path()), text);
        let ended = doctor(folder.path(), &[]).await;
        assert_eq!(ended.code, 1);
        let failed = ended.out.lines().find(|line| line.starts_with("FAIL"));
        assert!(failed.unwrap().contains(words[1]), "{}", ended.out);
    }
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
