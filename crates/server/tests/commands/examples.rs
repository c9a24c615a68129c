//! Runs the programs of `examples/` as people run them.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use throughline_testkit::Gateway;
use tokio::process::Command;

use crate::support::BINARY;

/// How long a program may take on a busy machine.
const MAX_TIME: Duration = Duration::from_secs(150);

/// Runs a program, and returns what it prints.
async fn run(program: &str, file: &str, environment: &[(&str, &str)]) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut command = Command::new(program);
    command.arg(examples.join(file)).envs(environment.iter().copied());
    command.env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(MAX_TIME, command.output()).await;
    let output = output.expect("the program ends in time").expect("the program starts");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{file}: {error}");
    String::from_utf8(output.stdout).expect("a text")
}

#[tokio::test]
async fn room_is_read_at_one_instance_while_the_other_answers() {
    let shown = run("python3", "two-instances/run.py", &[("THROUGHLINE", BINARY)]).await;
    for part in ["it thinks:", "it says:", "messages on chat_stream::", "chat_stream_thinking::"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[tokio::test]
async fn programs_that_use_a_room_work() {
    let config = include_str!("../../../../examples/throughline.toml");
    let gateway = Gateway::start(BINARY, config).await;
    for (program, file) in [("python3", "room.py"), ("node", "room.mjs")] {
        let shown = run(program, file, &[("BASE", &gateway.url)]).await;
        assert!(shown.contains("tutor"), "{file}: {shown}");
    }
}
