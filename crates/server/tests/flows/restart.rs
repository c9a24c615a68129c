//! A gateway that is killed or stopped in the middle of a conversation.

use std::time::Duration;

use serde_json::json;
use throughline_testkit::{Gateway, Simulator};

use crate::support::{BINARY, POLICIES, backend, fates, new_conversation, thinking_in};

/// The release binary if the environment names one, else the test binary.
fn binary() -> String {
    std::env::var("THROUGHLINE_BIN").unwrap_or_else(|_| BINARY.to_owned())
}

/// Waits one second: the gateway promises to write everything within it, and the test is about this
/// promise.
async fn wait_for_the_write_interval() {
    tokio::time::sleep(Duration::from_millis(1000)).await;
}

async fn start_pair(a: &Simulator, b: &Simulator, settings: &str) -> Gateway {
    let config = format!("{settings}\n{}{}", backend("a", a, ""), backend("b", b, ""));
    Gateway::start(&binary(), &config).await
}

/// Covers: S1-4
#[tokio::test]
async fn killed_gateway_keeps_blocks_sessions_and_active_backend() {
    for policy in POLICIES {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let mut gateway = start_pair(&a, &b, &settings).await;
        let mut conversation = new_conversation("killed", true);
        let (a1, _) = conversation.ask(&gateway.client, "one").await;
        gateway.switch("b").await;
        let (b1, _) = conversation.ask(&gateway.client, "two").await;
        let (b2, _) = conversation.ask(&gateway.client, "three").await;
        let before = gateway.statistics().await;
        assert_eq!(before["session"], 2);

        wait_for_the_write_interval().await;
        gateway.kill().await;
        gateway.restart().await;
        let mut after = gateway.statistics().await;
        // Counters since the start are zero again, and the stored blocks are still known.
        for counted in ["tried", "refused", "restored"] {
            after[counted] = before[counted].clone();
        }
        assert_eq!(after, before, "{policy}");
        let backends = gateway.client.get("/admin/backends").await.json();
        assert_eq!(backends["active"], "b", "{policy}");

        let (_, answer) = conversation.ask(&gateway.client, "bench 1").await;
        assert_eq!(b.last_received().await.thinking(), thinking_in(&[&b1, &b2]), "{policy}");
        let report = gateway.turn_of(&answer).await;
        assert_eq!(report["session"], 2);
        assert_eq!(fates(&report), [&*format!("1.0 left_out {policy}"), "3.0 sent", "5.0 sent"]);

        // The origin of each block is known as well.
        gateway.switch("a").await;
        conversation.ask(&gateway.client, "bench 1").await;
        let back = match policy {
            "session" => vec![],
            _ => thinking_in(&[&a1]),
        };
        assert_eq!(a.last_received().await.thinking(), back, "{policy}");
        for seen in [a.received().await, b.received().await].concat() {
            assert_eq!(seen.refusal, "");
        }
    }
}

/// Covers: S1-4
#[tokio::test]
async fn block_age_continues_across_a_restart() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let settings = "[thinking]\npolicy = \"session\"\norphan_threshold = \"900ms\"";
    let mut gateway = start_pair(&a, &b, settings).await;
    let mut conversation = new_conversation("aged", true);
    conversation.ask(&gateway.client, "hello").await;
    conversation.clone().ask(&gateway.client, "never mind").await;
    wait_for_the_write_interval().await;
    gateway.kill().await;
    gateway.restart().await;
    let held = |statistics: serde_json::Value| {
        let count = |name: &str| statistics[name].as_u64().unwrap();
        (count("confirmed"), count("unconfirmed"))
    };
    assert_eq!(held(gateway.statistics().await), (1, 1));
    conversation.ask(&gateway.client, "bench 1").await;
    assert_eq!(held(gateway.statistics().await), (1, 0));
    assert!(gateway.log().contains("cleanup_orphaned=1"));
}

#[tokio::test]
async fn refused_block_stays_refused_across_a_restart() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let mut gateway = start_pair(&a, &b, "").await;
    let mut conversation = new_conversation("refused", true);
    conversation.ask(&b.client, "made elsewhere").await;
    let (own, _) = conversation.ask(&gateway.client, "hello").await;
    assert_eq!(a.received().await.len(), 2);
    wait_for_the_write_interval().await;
    gateway.kill().await;
    gateway.restart().await;
    a.clear_received().await;
    conversation.ask(&gateway.client, "bench 1").await;
    let [seen] = &a.received().await[..] else {
        panic!("it goes out once");
    };
    assert_eq!((seen.status, seen.thinking()), (200, thinking_in(&[&own])));
}

#[tokio::test]
async fn shutdown_writes_everything_at_once() {
    for policy in POLICIES {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let mut gateway = start_pair(&a, &b, &settings).await;
        let mut conversation = new_conversation("stopped", false);
        let (one, _) = conversation.ask(&gateway.client, "hello").await;
        gateway.signal("TERM").await;
        assert_eq!(gateway.wait_for_exit().await, Some(0));
        gateway.restart().await;
        conversation.ask(&gateway.client, "bench 1").await;
        assert_eq!(a.last_received().await.thinking(), thinking_in(&[&one]), "{policy}");
        assert_eq!(gateway.statistics().await["tried"], json!(0));
    }
}
