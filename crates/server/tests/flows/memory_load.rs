//! Cost and size of the thinking memory under load.

use std::sync::Arc;
use std::time::{Duration, Instant};

use throughline_canonical::{BlockKey, Origin};
use throughline_gateway::settings::{Policy, Thinking, ToolThinking, Unknown};
use throughline_gateway::thinking::memory::{NewBlock, Question};
use throughline_gateway::thinking::store::Snapshot;
use throughline_gateway::thinking::writer::Changes;
use throughline_gateway::thinking::{
    Lineage, LineageId, Memory, SessionTag, TargetIdentity, Verdict,
};

use crate::support::{POLICIES, Pair, cut_thinking, new_conversation, thinking_in};

const BLOCKS_PER_CONVERSATION: u32 = 10;

fn lineage(number: u32) -> Lineage {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    Lineage { tag: SessionTag(id), id: LineageId(id) }
}

fn key(number: u32) -> BlockKey {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    BlockKey(key)
}

/// Measures the shortest time to decide on the blocks of one conversation among `conversations`.
fn time_to_decide(conversations: u32, policy: Policy) -> Duration {
    let memory = Memory::new(Snapshot::default(), Changes::default());
    let rules = Thinking {
        policy,
        unknown: Unknown::Drop,
        orphan_threshold: Duration::from_secs(300),
        memory_limit: 1 << 30,
        tool_thinking: ToolThinking::Auto,
    };
    let origin = Arc::new(Origin {
        domain: "a".into(),
        backend: "a".into(),
        model: "m".into(),
        credential: String::new(),
    });
    let target = TargetIdentity {
        backend: "a".into(),
        domain: "a".into(),
        credential: String::new(),
        account_bound: false,
    };
    let ask = |number: u32| {
        let keys = number * BLOCKS_PER_CONVERSATION..(number + 1) * BLOCKS_PER_CONVERSATION;
        let blocks: Vec<_> = keys.map(|number| Some(key(number))).collect();
        memory.ask(&Question {
            lineage: lineage(number),
            target: &target,
            follows_active_backend: true,
            in_conversation: true,
            blocks: &blocks,
            has_assistant: true,
            now: 1,
            rules,
        })
    };
    for number in 0..conversations {
        ask(number);
        for block in 0..BLOCKS_PER_CONVERSATION {
            memory.register(&NewBlock {
                lineage: lineage(number),
                session: 1,
                origin: &origin,
                key: key(number * BLOCKS_PER_CONVERSATION + block),
                prefix: None,
                cut: false,
                now: 1,
                memory_limit: rules.memory_limit,
            });
        }
    }
    let statistics = memory.statistics(None).unwrap();
    assert_eq!(statistics.total as u32, conversations * BLOCKS_PER_CONVERSATION);
    let round = || {
        let begin = Instant::now();
        for number in 0..100 {
            let answer = ask(number % conversations);
            let sent = |verdict: &Verdict| matches!(verdict, Verdict::Send { .. });
            assert!(answer.verdicts.iter().all(sent));
        }
        begin.elapsed()
    };
    (0..10).map(|_| round()).min().unwrap()
}

/// Covers: S1-31
#[test]
fn decision_time_does_not_grow_with_the_number_of_blocks() {
    for policy in [Policy::Origin, Policy::Session] {
        let few = time_to_decide(10, policy);
        let many = time_to_decide(2_000, policy);
        // There are two hundred times as many blocks. Cold caches may cost a few times more, but a
        // linear search would cost a hundred times more.
        assert!(many < few * 20, "{few:?} among few, {many:?} among many");
    }
}

/// Covers: S1-32
#[tokio::test]
async fn memory_stays_within_its_limit() {
    const CONVERSATIONS: usize = 1600;
    for policy in POLICIES {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nmemory_limit = \"1MiB\"");
        let pair = Pair::start(&settings).await;
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let client = pair.client().clone();
                tokio::spawn(async move {
                    for number in (worker..CONVERSATIONS).step_by(8) {
                        let mut conversation = new_conversation(&format!("many {number}"), true);
                        conversation.ask(&client, &format!("hello from {number}")).await;
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.await.unwrap();
        }
        let statistics = pair.gateway.statistics().await;
        let count = |name: &str| statistics[name].as_u64().unwrap() as usize;
        assert!(count("bytes") <= 1 << 20, "{statistics}");
        assert!(count("lineages") < CONVERSATIONS, "{statistics}");
        assert!(count("lineages") > 1000, "{statistics}");
        // The least recently used blocks were evicted, and the conversation in use is complete.
        let mut last = new_conversation("the last", true);
        let (one, _) = last.ask(pair.client(), "hello").await;
        last.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-32
#[tokio::test]
async fn long_conversation_keeps_only_the_blocks_its_client_keeps() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("long", true);
        for turn in 0..60 {
            conversation.ask(pair.client(), "go on").await;
            // The client keeps the thinking of its last three turns.
            if turn >= 3 {
                cut_thinking(&mut conversation, 2 * (turn - 3) + 1);
            }
            let total = pair.gateway.statistics().await["total"].as_u64();
            assert_eq!(total, Some(4.min(turn as u64 + 1)), "{policy} {turn}");
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
