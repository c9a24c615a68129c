//! The vectors of the sealing formats: `docs/sealing-vectors.json` and `docs/sealing-key-vectors.json`.
//! `BLESS=1` writes them. The scripts of `conformance/` open them with other libraries.

#![allow(clippy::unwrap_used, reason = "a test: a panic is a failure")]

mod check;
mod make;

use serde_json::Value;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

///
#[test]
fn field_vectors_open_or_fail_as_they_say() {
    let vectors = golden("sealing-vectors.json", &make::fields());
    assert_eq!(check::check_fields(&vectors), Vec::<String>::new());
}

#[test]
fn key_vectors_open_or_fail_as_they_say() {
    let vectors = golden("sealing-key-vectors.json", &make::keys());
    assert_eq!(check::check_keys(&vectors), Vec::<String>::new());
}

#[test]
fn wrong_vectors_are_noticed() {
    let mut fields = read("sealing-vectors.json");
    fields[0]["plaintext"] = "00".into();
    fields[1]["error"] = "altered".into();
    fields[2]["aad"] = "00".into();
    let mut keys = read("sealing-key-vectors.json");
    for list in ["managedChatKeys", "wrappedKeys", "sharedKeys"] {
        keys[list][0]["key"] = "00".repeat(32).into();
    }
    keys["recoveryCodes"][0]["authKey"] = "00".into();
    keys["authRecords"][0]["authKey"] = "00".repeat(32).into();
    keys["passphrases"] = Value::Array(Vec::new());
    assert_eq!(check::check_fields(&fields).len(), 3);
    assert_eq!(check::check_keys(&keys).len(), 5);
}

/// Compares a file with what the code makes, or writes it if `BLESS` is set; returns the file.
fn golden(file: &str, made: &Value) -> Value {
    let path = format!("{DOCS}/{file}");
    let text = format!("{made:#}\n");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).expect("the file is written");
    }
    let stored = std::fs::read_to_string(&path).expect("the file is read");
    assert!(stored == text, "`{path}` is not up to date; run with `BLESS=1` to write it");
    read(file)
}

fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(format!("{DOCS}/{file}")).expect("the file is read");
    serde_json::from_str(&text).expect("vectors are JSON")
}
