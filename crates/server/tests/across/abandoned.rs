//! Responses that an earlier process left, and that nobody can read any more.

use serde_json::json;
use throughline_testkit::Gateway;

use crate::bare::Upstream;
use crate::support::{BINARY, upstream};

#[tokio::test]
async fn what_cannot_be_read_any_more_is_closed_once() {
    let provider = Upstream::start().await;
    let config = upstream("anthropic, budget").backend("a", &provider.url);
    let mut gateway = Gateway::start(BINARY, &config).await;
    let wish = json!({"model": "some-model", "input": "ponder this", "background": true});
    let begun = gateway.client.post("/v1/responses", &[], &wish).await;
    begun.good();
    gateway.kill().await;
    std::fs::remove_file(gateway.folder().join("data/keyring")).expect("a keyring");
    for start in 0..2 {
        gateway.start_again().await;
        let log = gateway.log();
        let lines = log.lines().filter(|line| line.contains("cannot be read"));
        assert_eq!(lines.count(), 1, "start {start}: {log}");
        gateway.kill().await;
    }
}
