//! Mistakes in the configuration: all at once, with their places, and nothing is started.

use tokio::net::TcpListener;

use crate::support::{configured, folder, run};

const MISTAKEN: &str = r#"listn = "127.0.0.1:0"
keep_alive = 15

[[backend]]
name = "glm"
dialect = "anthropic"
base_url = "https://glm.example"
api_key = "sk-very-secret"
api_key_env = "GLM_KEY"
family = "qwen33"
reasoning_format = "rew"
on_tool_parse_error = "ignore"

[route]
default = "gml"
"#;

#[tokio::test]
async fn all_mistakes_are_told_at_once_with_their_places() {
    let folder = configured(MISTAKEN);
    for command in ["serve", "doctor"] {
        let told = run(folder.path(), &[command], &[]).await.bad(
            2,
            &[
                "throughline.toml:1:1: unknown key `listn`",
                "did you mean `listen`?",
                "throughline.toml:2:14: `keep_alive` is `15`, without a unit",
                "throughline.toml:8:11: `api_key` is set together with `api_key_env`",
                "throughline.toml:10:10: unknown family `qwen33`",
                "did you mean `qwen3`? the families are `",
                "`gpt-oss`",
                "throughline.toml:11:20: `reasoning_format` is `rew`",
                "did you mean `raw`?",
                "throughline.toml:12:23: `on_tool_parse_error` is `ignore`",
                "expected one of `error`, `text`",
                "throughline.toml:15:11: no backend is named `gml`",
                "expected `glm`",
                "throughline.toml:9:15: environment variable `GLM_KEY` is not set",
                "8 mistakes",
                "nothing was started",
            ],
        );
        assert!(!told.contains("sk-very-secret"), "{told}");
    }
    // Nothing was left behind either.
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "only the file itself");
}

/// The port stays closed while there is a mistake.
#[tokio::test]
async fn a_mistake_opens_no_port() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // Had it tried to listen first, this would be about the address.
    let folder = configured("keep_alive = 15");
    let told = run(folder.path(), &["serve", "--listen", &address], &[])
        .await
        .bad(2, &["throughline.toml:1:14"]);
    assert!(!told.contains("cannot listen"), "{told}");
}

#[tokio::test]
async fn a_file_that_is_no_toml_is_told_with_its_place() {
    let folder = configured("listen = \"127.0.0.1:0\"\n[[backend]\nname = 1\n");
    run(folder.path(), &["serve"], &[]).await.bad(2, &["throughline.toml:2:"]);
}

#[tokio::test]
async fn variables_and_flags_are_checked_as_well() {
    let folder = configured("");
    let told = [
        ("THROUGHLINE_KEEP_ALIVE", "soon"),
        ("THROUGHLINE_LIMITS__BODI", "1MiB"),
        ("THROUGHLINE_LIMITS__STREAMS", "0"),
    ];
    run(folder.path(), &["serve", "--listen", "0.0.0.0:1"], &told).await.bad(
        2,
        &[
            "THROUGHLINE_KEEP_ALIVE",
            "did you mean `THROUGHLINE_LIMITS__BODY`?",
            "THROUGHLINE_LIMITS__STREAMS",
            "--listen",
            "loopback",
            "4 mistakes",
        ],
    );
}

#[tokio::test]
async fn a_key_of_later_work_is_not_available_yet() {
    let folder = configured("[redis]\nurl = \"redis://x\"\n");
    run(folder.path(), &["serve"], &[]).await.bad(2, &["throughline.toml:1:", "not available yet"]);
}

#[tokio::test]
async fn a_key_variable_that_is_not_set_is_told() {
    let config = "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"https://a.example\"\napi_key_env = \"MY_KEY\"\n";
    let folder = configured(config);
    run(folder.path(), &["serve"], &[]).await.bad(2, &["throughline.toml:5:", "MY_KEY"]);
}

/// Covers: S1-33
#[tokio::test]
async fn the_example_file_is_right() {
    let example = include_str!("../../../../throughline.example.toml");
    let folder = folder();
    std::fs::write(folder.path().join("mine.toml"), example).unwrap();
    let keys = [("ANTHROPIC_API_KEY", "k"), ("ZAI_API_KEY", "k")];
    // It is read through; where the backends are is another matter.
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--config", "mine.toml", "--listen", &address];
    run(folder.path(), &arguments, &keys).await.bad(1, &["cannot listen"]);
}
