//! The keyring: made once, for its owner alone, never replaced; or given by the environment.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{Ended, Running, folder, run, start};

const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--data-dir", "data"];
const VARIABLE: &str = "THROUGHLINE_KEYRING";
/// 32 bytes each.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER: &str = "HwABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4=";

fn write(folder: &Path, text: impl AsRef<[u8]>, mode: u32) {
    let path = folder.join("data/keyring");
    std::fs::create_dir_all(folder.join("data")).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn read(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("data/keyring")).unwrap()
}

async fn serve(folder: &Path, environment: &[(&str, &str)]) -> Running {
    start(folder, &SERVE, environment).await
}

async fn doctor(folder: &Path, environment: &[(&str, &str)]) -> Ended {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let ours = [("THROUGHLINE_LISTEN", address.as_str()), ("THROUGHLINE_DATA_DIR", "data")];
    run(folder, &["doctor"], &[&ours[..], environment].concat()).await
}

#[tokio::test]
async fn the_first_start_makes_it_and_later_ones_keep_it() {
    let folder = folder();
    let said = doctor(folder.path(), &[]).await.good();
    assert!(said.contains("ok    keyring: none yet"), "{said}");
    assert!(!folder.path().join("data/keyring").exists());

    let (_, told) = serve(folder.path(), &[]).await.stop().await;
    assert!(told.contains("keyring created"), "{told}");
    let file = std::fs::metadata(folder.path().join("data/keyring")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    let made = read(folder.path());
    assert_eq!(made.len(), KEY.len() + 1);

    let (_, told) = serve(folder.path(), &[]).await.stop().await;
    assert!(!told.contains("keyring"), "{told}");
    assert_eq!(read(folder.path()), made);
    let said = doctor(folder.path(), &[]).await.good();
    assert!(said.contains("is readable only for you"), "{said}");
    let key = String::from_utf8(made).unwrap();
    assert!(!told.contains(key.trim()) && !said.contains(key.trim()));

    // Another directory has another one.
    let elsewhere = crate::support::folder();
    serve(elsewhere.path(), &[]).await.stop().await;
    assert_ne!(read(elsewhere.path()), key.as_bytes());
}

#[tokio::test]
async fn one_that_is_broken_is_told_and_never_replaced() {
    for (text, words) in [
        (&b""[..], "the keyring is empty"),
        (&KEY.as_bytes()[..20], "key 1 of the keyring is not 32 bytes"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (format!("{KEY}\n{}", &OTHER[1..]).as_bytes(), "key 2 of the keyring is not 32 bytes"),
    ] {
        let folder = folder();
        write(folder.path(), text, 0o600);
        let words = ["data/keyring` is not a valid keyring", words, "backup", "move the file away"];
        let told = run(folder.path(), &SERVE, &[]).await.bad(1, &words);
        assert!(!told.contains(&KEY[..20]), "{told}");
        assert_eq!(read(folder.path()), text);
        let ended = doctor(folder.path(), &[]).await;
        assert_eq!(ended.code, 1);
        let failed = ended.out.lines().find(|line| line.starts_with("FAIL"));
        assert!(failed.unwrap().contains(words[1]), "{}", ended.out);
    }
}

#[tokio::test]
async fn one_that_others_can_read_is_told_with_the_remedy() {
    let folder = folder();
    write(folder.path(), KEY, 0o644);
    let (code, told) = serve(folder.path(), &[]).await.stop().await;
    assert_eq!(code, Some(0));
    assert!(told.contains("can read the keyring"), "{told}");
    assert!(told.contains("`chmod 600 "), "{told}");
    let ended = doctor(folder.path(), &[]).await;
    assert_eq!(ended.code, 1, "{ended:?}");
    let failed = ended.out.lines().find(|line| line.starts_with("FAIL"));
    assert!(failed.unwrap().contains("chmod 600 "), "{}", ended.out);
}

#[tokio::test]
async fn the_environment_wins_and_no_file_is_made() {
    let folder = folder();
    let both = format!("{KEY}, {OTHER}");
    let given = [(VARIABLE, both.as_str())];
    let (_, told) = serve(folder.path(), &given).await.stop().await;
    assert!(!folder.path().join("data/keyring").exists(), "{told}");
    let said = doctor(folder.path(), &given).await.good();
    assert!(said.contains("keyring: from the variable"), "{said}");

    // A file that is there is not even read.
    write(folder.path(), "broken", 0o644);
    serve(folder.path(), &given).await.stop().await;
    assert_eq!(read(folder.path()), b"broken");
}

#[tokio::test]
async fn a_variable_that_holds_none_is_told_without_its_value() {
    for (value, words) in [
        ("", "the keyring is empty"),
        ("c2VjcmV0IQ==", "key 1 of the keyring"),
        (&*format!("{KEY},c2VjcmV0IQ=="), "key 2 of the keyring"),
    ] {
        let folder = folder();
        let given = [(VARIABLE, value)];
        let words = [VARIABLE, words, "openssl rand -base64 32"];
        let told = run(folder.path(), &SERVE, &given).await.bad(1, &words);
        assert!(!told.contains("c2VjcmV0"), "{told}");
        assert!(!folder.path().join("data/keyring").exists());
        let ended = doctor(folder.path(), &given).await;
        assert_eq!(ended.code, 1);
        assert!(ended.out.contains(words[1]), "{}", ended.out);
    }
}
