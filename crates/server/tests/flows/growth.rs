//! The memory under load: what it costs and how large it becomes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use throughline_canonical::{BlockKey, Origin};
use throughline_gateway::settings::{Policy, Thinking, ToolThinking, Unknown};
use throughline_gateway::thinking::memory::{Made, Question};
use throughline_gateway::thinking::store::Snapshot;
use throughline_gateway::thinking::writer::Changes;
use throughline_gateway::thinking::{Lineage, LineageId, Memory, SessionTag, Target, Verdict};

use crate::support::{POLICIES, Pair, cut_thinking, talk, thinking};

const BLOCKS_EACH: u32 = 10;

fn lineage(number: u32) -> Lineage {
    let mut id = [0; 16];
    id[..4].copy_from_slice(&number.to_be_bytes());
    Lineage { mark: SessionTag(id), id: LineageId(id) }
}

fn key(number: u32) -> BlockKey {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    BlockKey(key)
}

/// The least time it takes to decide on the blocks of one conversation among so many.
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
    let target = Target {
        backend: "a".into(),
        domain: "a".into(),
        credential: String::new(),
        account_bound: false,
    };
    let ask = |number: u32| {
        let keys = number * BLOCKS_EACH..(number + 1) * BLOCKS_EACH;
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
        for block in 0..BLOCKS_EACH {
            memory.register(&Made {
                lineage: lineage(number),
                session: 1,
                origin: &origin,
                key: key(number * BLOCKS_EACH + block),
                prefix: None,
                cut: false,
                now: 1,
                memory_limit: rules.memory_limit,
            });
        }
    }
    let statistics = memory.statistics(None).unwrap();
    assert_eq!(statistics.total as u32, conversations * BLOCKS_EACH);
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
fn deciding_costs_the_same_among_a_hundred_blocks_and_twenty_thousand() {
    for policy in [Policy::Origin, Policy::Session] {
        let few = time_to_decide(10, policy);
        let many = time_to_decide(2_000, policy);
        // Two hundred times the blocks. Colder caches may cost a few times more, a search would
        // cost a hundred times more.
        assert!(many < few * 20, "{few:?} among few, {many:?} among many");
    }
}

/// Covers: S1-32
#[tokio::test]
async fn the_memory_stays_within_its_limit() {
    const CONVERSATIONS: usize = 1600;
    for policy in POLICIES {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nmemory_limit = \"1MiB\"");
        let pair = Pair::start(&settings).await;
        let workers: Vec<_> = (0..8)
            .map(|worker| {
                let client = pair.client().clone();
                tokio::spawn(async move {
                    for number in (worker..CONVERSATIONS).step_by(8) {
                        let mut talk = talk(&format!("many {number}"), true);
                        talk.say(&client, &format!("hello from {number}")).await;
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
        // The longest unused went; the one in use is whole.
        let mut last = talk("the last", true);
        let (one, _) = last.say(pair.client(), "hello").await;
        last.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-32
#[tokio::test]
async fn a_long_conversation_holds_what_its_client_holds() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("long", true);
        for turn in 0..60 {
            talk.say(pair.client(), "go on").await;
            // The client keeps the thinking of its last three turns.
            if turn >= 3 {
                cut_thinking(&mut talk, 2 * (turn - 3) + 1);
            }
            let total = pair.gateway.statistics().await["total"].as_u64();
            assert_eq!(total, Some(4.min(turn as u64 + 1)), "{policy} {turn}");
        }
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}
