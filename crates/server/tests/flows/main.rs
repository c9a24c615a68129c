//! The flows of a conversation whose backend changes, against two strict simulators of different
//! identity, through the real binary.

use throughline_testkit::{Conversation, Gateway, Simulator};

const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// Covers: case 1, S1-1, S1-19
#[tokio::test]
async fn a_signed_block_goes_back_byte_equal() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::over(BINARY, &[("a", &a), ("b", &b)], "").await;
    let mut talk = Conversation::new("one");
    let (first, _) = talk.say(&gateway.client, "hello").await;
    let (_, answer) = talk.say(&gateway.client, "and more").await;
    let sent_back = a.last().await.thinking();
    assert_eq!(sent_back, [first["content"][0].clone()]);
    assert_eq!(answer.header("x-throughline-loss"), "");
    assert_eq!(answer.header("x-throughline-backend"), "a");
}
