//! A gateway that dies in the middle of a conversation.

use std::time::Duration;

use serde_json::json;
use throughline_testkit::{Gateway, Simulator};

use crate::support::{BINARY, POLICIES, backend, fates, talk, thinking, turn};

/// The binary that is released, where one is named.
fn binary() -> String {
    std::env::var("THROUGHLINE_BIN").unwrap_or_else(|_| BINARY.to_owned())
}

/// What was remembered a second ago is safe. This second is the promise, so it is waited for.
async fn a_second_passes() {
    tokio::time::sleep(Duration::from_millis(1000)).await;
}

async fn start(a: &Simulator, b: &Simulator, settings: &str) -> Gateway {
    let config = format!("{settings}\n{}{}", backend("a", a, ""), backend("b", b, ""));
    Gateway::start(&binary(), &config).await
}

/// Covers: S1-4
#[tokio::test]
async fn a_killed_gateway_still_knows_its_blocks_sessions_and_backend() {
    for policy in POLICIES {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let mut gateway = start(&a, &b, &settings).await;
        let mut talk = talk("killed", true);
        let (a1, _) = talk.say(&gateway.client, "one").await;
        gateway.switch("b").await;
        let (b1, _) = talk.say(&gateway.client, "two").await;
        let (b2, _) = talk.say(&gateway.client, "three").await;
        let before = gateway.statistics().await;
        assert_eq!(before["session"], 2);

        a_second_passes().await;
        gateway.kill().await;
        gateway.start_again().await;
        let mut after = gateway.statistics().await;
        // What was counted since the start begins anew; what is known does not.
        for counted in ["tried", "refused", "restored"] {
            after[counted] = before[counted].clone();
        }
        assert_eq!(after, before, "{policy}");
        let backends = gateway.client.get("/admin/backends").await.json();
        assert_eq!(backends["active"], "b", "{policy}");

        let (_, answer) = talk.say(&gateway.client, "bench 1").await;
        assert_eq!(b.last().await.thinking(), thinking(&[&b1, &b2]), "{policy}");
        let report = turn(&gateway, &answer).await;
        assert_eq!(report["session"], 2);
        assert_eq!(fates(&report), [&*format!("1.0 left_out {policy}"), "3.0 sent", "5.0 sent"]);

        // Where a block came from is known as well.
        gateway.switch("a").await;
        talk.say(&gateway.client, "bench 1").await;
        let back = match policy {
            "session" => vec![],
            _ => thinking(&[&a1]),
        };
        assert_eq!(a.last().await.thinking(), back, "{policy}");
        for seen in [a.seen().await, b.seen().await].concat() {
            assert_eq!(seen.refusal, "");
        }
    }
}

/// Covers: S1-4
#[tokio::test]
async fn a_blocks_age_counts_on_through_a_restart() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let settings = "[thinking]\npolicy = \"session\"\norphan_threshold = \"900ms\"";
    let mut gateway = start(&a, &b, settings).await;
    let mut talk = talk("aged", true);
    talk.say(&gateway.client, "hello").await;
    talk.clone().say(&gateway.client, "never mind").await;
    a_second_passes().await;
    gateway.kill().await;
    gateway.start_again().await;
    let held = |statistics: serde_json::Value| {
        let count = |name: &str| statistics[name].as_u64().unwrap();
        (count("confirmed"), count("unconfirmed"))
    };
    assert_eq!(held(gateway.statistics().await), (1, 1));
    talk.say(&gateway.client, "bench 1").await;
    assert_eq!(held(gateway.statistics().await), (1, 0));
    assert!(gateway.log().contains("cleanup_orphaned=1"));
}

#[tokio::test]
async fn what_a_backend_refused_stays_refused_through_a_restart() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let mut gateway = start(&a, &b, "").await;
    let mut talk = talk("refused", true);
    talk.say(&b.client, "made elsewhere").await;
    let (own, _) = talk.say(&gateway.client, "hello").await;
    assert_eq!(a.seen().await.len(), 2);
    a_second_passes().await;
    gateway.kill().await;
    gateway.start_again().await;
    a.forget().await;
    talk.say(&gateway.client, "bench 1").await;
    let [seen] = &a.seen().await[..] else {
        panic!("it goes out once");
    };
    assert_eq!((seen.status, seen.thinking()), (200, thinking(&[&own])));
}

#[tokio::test]
async fn a_stop_writes_everything_at_once() {
    for policy in POLICIES {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let mut gateway = start(&a, &b, &settings).await;
        let mut talk = talk("stopped", false);
        let (one, _) = talk.say(&gateway.client, "hello").await;
        gateway.signal("TERM").await;
        assert_eq!(gateway.ended().await, Some(0));
        gateway.start_again().await;
        talk.say(&gateway.client, "bench 1").await;
        assert_eq!(a.last().await.thinking(), thinking(&[&one]), "{policy}");
        assert_eq!(gateway.statistics().await["tried"], json!(0));
    }
}
