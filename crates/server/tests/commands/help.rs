//! Help and bad usage.

use crate::support::{folder, run};

#[tokio::test]
async fn every_command_has_help() {
    for (command, words) in [
        ("serve", &["Run the gateway", "--config", "--listen", "--data-dir"][..]),
        (
            "simulate",
            &[
                "strict provider",
                "--identity",
                "--seed",
                "--tokens-per-second",
                "--prefix-binding",
                "--strict",
                "--scenario",
                "--dialect",
                "--variant",
            ],
        ),
        ("backends", &["Show the backends", "--url", "--json"]),
        ("switch", &["Make another backend the active one", "<NAME>", "--url", "--json"]),
        ("stats", &["thinking memory", "--url", "--json", "--lineage"]),
        ("turns", &["recent turns", "--url", "--json", "--limit", "--blocks"]),
        ("plan", &["without sending it", "<FILE>", "--backend", "--dialect", "--url", "--json"]),
        (
            "parse",
            &[
                "raw text",
                "--family",
                "--model",
                "--reasoning",
                "--tool-format",
                "--tools",
                "--implicit-reasoning",
                "--reasoning-format",
                "--on-error",
                "--chunk",
                "throughline parse --family qwen3",
                "\"type\":\"tool_call_args\"",
                "unclosed_tool_call",
            ],
        ),
        ("doctor", &["Check configuration", "--config"]),
        ("keys", &["status", "rotate", "recovery", "verify", "belongs to its people"]),
    ] {
        let help = run(folder().path(), &[command, "--help"], &[]).await.expect_ok();
        for words in words {
            assert!(help.contains(words), "{command} lacks {words}:\n{help}");
        }
        let all = run(folder().path(), &["--help"], &[]).await.expect_ok();
        assert!(all.contains(&format!("\n  {command} ")), "{all}");
    }
}

#[tokio::test]
async fn commands_of_keys_have_help_that_teaches() {
    for (command, words) in [
        ("status", &["opens nothing", "--config", "--json"][..]),
        ("rotate", &["Nothing is sealed again", "THROUGHLINE_KEYRING", "keys recovery create"]),
        ("recovery", &["create", "check", "restore", "write it down", "THROUGHLINE_RECOVERY_CODE"]),
        ("verify", &["does not stop at damage", "--chat-keys", "--keyring", "not judged"]),
    ] {
        let help = run(folder().path(), &["keys", command, "--help"], &[]).await.expect_ok();
        for words in words {
            assert!(help.contains(words), "{command} lacks {words}:\n{help}");
        }
    }
}

#[tokio::test]
async fn help_fits_on_one_screen() {
    let help = run(folder().path(), &["--help"], &[]).await.expect_ok();
    assert!(help.lines().count() <= 40, "{help}");
    assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
    // It contains enough to begin with.
    for words in ["throughline serve", "ANTHROPIC_BASE_URL=", "throughline switch"] {
        assert!(help.contains(words), "{help}");
    }
    let version = run(folder().path(), &["--version"], &[]).await.expect_ok();
    assert_eq!(version, format!("throughline {}\n", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn bad_usage_exits_with_code_two() {
    for (arguments, words) in [
        (&[][..], "Usage: throughline"),
        (&["nope"], "nope"),
        (&["serv"], "serve"),
        (&["switch"], "<NAME>"),
        (&["serve", "--port", "1"], "--port"),
        (&["turns", "--limit", "many"], "many"),
        (&["simulate", "--seed", "x"], "--seed"),
        (&["simulate", "--strict", "maybe"], "maybe"),
        (&["simulate", "--dialect", "klingon"], "klingon"),
        (&["simulate", "--variant", "klingon"], "klingon"),
        (&["backends", "--url"], "--url"),
        (&["backends", "--url", "not an address"], "not an address"),
        (&["serve", "--config", "nowhere.toml"], "nowhere.toml"),
        (&["doctor", "--config", "nowhere.toml"], "nowhere.toml"),
        (&["parse", "--chunk", "-1"], "--chunk"),
        (&["parse", "--chunk", "some"], "some"),
        (&["parse", "--on-error", "panic"], "panic"),
        (&["parse", "--reasoning-format", "loud"], "loud"),
        (&["parse", "answer.txt"], "answer.txt"),
    ] {
        run(folder().path(), arguments, &[]).await.expect_error(2, &[words]);
    }
}
