//! Responses of an earlier process that cannot be read any more, because the keyring is lost.

use serde_json::json;
use throughline_testkit::{Gateway, RawUpstream};

use crate::support::{BINARY, upstream};

#[tokio::test]
async fn unreadable_response_of_an_earlier_process_is_closed_once() {
    let provider = RawUpstream::start().await;
    let config = upstream("anthropic, budget").backend("a", &provider.url);
    let mut gateway = Gateway::start(BINARY, &config).await;
    let wish = json!({"model": "some-model", "input": "ponder this", "background": true});
    let answer = gateway.client.post("/v1/responses", &[], &wish).await;
    answer.expect_ok();
    gateway.kill().await;
    std::fs::remove_file(gateway.folder().join("data/keyring")).expect("a keyring");
    for (start, arguments) in [&["--new-keyring"][..], &[]].into_iter().enumerate() {
        gateway.restart_with(arguments).await;
        let log = gateway.log();
        let lines = log.lines().filter(|line| line.contains("cannot read the stored value"));
        assert_eq!(lines.count(), 1, "start {start}: {log}");
        gateway.kill().await;
    }
}
