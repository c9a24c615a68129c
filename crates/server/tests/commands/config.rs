//! Mistakes in the configuration: all are reported at once with their positions, and nothing
//! starts.

use tokio::net::TcpListener;

use crate::support::{folder, folder_with_config, run};

const CONFIG_WITH_MISTAKES: &str = r#"listn = "127.0.0.1:0"
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
async fn all_mistakes_are_reported_at_once_with_their_positions() {
    let folder = folder_with_config(CONFIG_WITH_MISTAKES);
    for command in ["serve", "doctor"] {
        let stderr = run(folder.path(), &[command], &[]).await.expect_error(
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
                "7 mistakes",
                "nothing was started",
            ],
        );
        assert!(!stderr.contains("sk-very-secret"), "{stderr}");
    }
    // The command created no files.
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "only the file itself");
}

/// A server with a mistake in its configuration does not listen.
#[tokio::test]
async fn config_mistake_opens_no_port() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // If it tried to listen first, the error would be about the address.
    let folder = folder_with_config("keep_alive = 15");
    let stderr = run(folder.path(), &["serve", "--listen", &address], &[])
        .await
        .expect_error(2, &["throughline.toml:1:14"]);
    assert!(!stderr.contains("cannot listen"), "{stderr}");
}

#[tokio::test]
async fn invalid_toml_is_reported_with_its_position() {
    let folder = folder_with_config("listen = \"127.0.0.1:0\"\n[[backend]\nname = 1\n");
    run(folder.path(), &["serve"], &[]).await.expect_error(2, &["throughline.toml:2:"]);
}

#[tokio::test]
async fn variables_and_flags_are_also_checked() {
    let folder = folder_with_config("");
    let stderr = [
        ("THROUGHLINE_KEEP_ALIVE", "soon"),
        ("THROUGHLINE_LIMITS__BODI", "1MiB"),
        ("THROUGHLINE_LIMITS__STREAMS", "0"),
    ];
    run(folder.path(), &["serve", "--listen", "0.0.0.0:1"], &stderr).await.expect_error(
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
async fn future_config_key_is_reported_as_not_available() {
    let folder = folder_with_config("[telemetry]\notlp_endpoint = \"http://x\"\n");
    run(folder.path(), &["serve"], &[])
        .await
        .expect_error(2, &["throughline.toml:1:", "not available yet"]);
}

#[tokio::test]
async fn missing_key_variable_is_reported() {
    let config = "[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\nbase_url = \"https://a.example\"\napi_key_env = \"MY_KEY\"\n";
    let folder = folder_with_config(config);
    run(folder.path(), &["serve"], &[]).await.expect_error(2, &["throughline.toml:5:", "MY_KEY"]);
}

/// Covers: S1-33
#[tokio::test]
async fn example_config_is_valid() {
    let example = include_str!("../../../../throughline.example.toml");
    let folder = folder();
    std::fs::write(folder.path().join("mine.toml"), example).unwrap();
    let keys = [("ANTHROPIC_API_KEY", "k"), ("ZAI_API_KEY", "k")];
    // The file is valid. The addresses of its backends are not checked here.
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--config", "mine.toml", "--listen", &address];
    run(folder.path(), &arguments, &keys).await.expect_error(1, &["cannot listen"]);
}
