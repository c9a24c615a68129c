//! The rules of the thinking memory, as tables of requests and replies with a manual clock.

use std::sync::Arc;
use std::time::Duration;

use throughline_canonical::{BlockKey, Origin, Reason};
use throughline_gateway::settings::{Policy, Thinking, ToolThinking, Unknown};
use throughline_gateway::thinking::memory::{BlockOutcome, NewBlock, Question};
use throughline_gateway::thinking::store::{InMemory, Store};
use throughline_gateway::thinking::writer::Changes;
use throughline_gateway::thinking::{
    Lineage, LineageId, Memory, SessionTag, Statistics, TargetIdentity, Verdict,
};

const MINUTE: u64 = 60_000;

/// A memory with a manual clock, used by one client.
struct Bench {
    memory: Memory,
    rules: Thinking,
    now: u64,
    lineage: Lineage,
}

fn lineage(mark: u8, id: u8) -> Lineage {
    Lineage { tag: SessionTag([mark; 16]), id: LineageId([id; 16]) }
}

fn key(number: u16) -> BlockKey {
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&number.to_le_bytes());
    BlockKey(bytes)
}

fn origin(backend: &str) -> Origin {
    Origin {
        domain: backend.into(),
        backend: backend.into(),
        model: "m".into(),
        credential: String::new(),
    }
}

fn target(backend: &str) -> TargetIdentity {
    TargetIdentity {
        backend: backend.into(),
        domain: backend.into(),
        credential: String::new(),
        account_bound: false,
    }
}

impl Bench {
    fn new(policy: Policy, unknown: Unknown) -> Self {
        Self {
            memory: Memory::new(Default::default(), Changes::default()),
            rules: Thinking {
                policy,
                unknown,
                orphan_threshold: Duration::from_secs(300),
                memory_limit: 1 << 30,
                tool_thinking: ToolThinking::Auto,
            },
            now: 1_700_000_000_000,
            lineage: lineage(1, 1),
        }
    }

    fn question<'a>(
        &self,
        target: &'a TargetIdentity,
        blocks: &'a [Option<BlockKey>],
    ) -> Question<'a> {
        Question {
            lineage: self.lineage,
            target,
            follows_active_backend: true,
            in_conversation: true,
            blocks,
            has_assistant: true,
            now: self.now,
            rules: self.rules,
        }
    }

    /// Sends a request with these blocks. Returns the verdicts and the session.
    fn ask(&self, backend: &str, blocks: &[u16]) -> (Vec<&'static str>, u64) {
        let target = target(backend);
        let keys: Vec<_> = blocks.iter().map(|number| Some(key(*number))).collect();
        let answer = self.memory.ask(&self.question(&target, &keys));
        (answer.verdicts.iter().map(word).collect(), answer.session)
    }

    /// Registers a block that a backend made in reply to a request of this session.
    fn make(&self, backend: &str, session: u64, block: u16) {
        self.memory.register(&NewBlock {
            lineage: self.lineage,
            session,
            origin: &Arc::new(origin(backend)),
            key: key(block),
            prefix: None,
            cut: false,
            now: self.now,
            memory_limit: self.rules.memory_limit,
        });
    }

    /// Records that a target accepted a block with an unknown maker.
    fn accepted(&self, target: &TargetIdentity, block: u16) {
        let outcome = BlockOutcome { key: key(block), tried: true, prefix: None, dropped: None };
        self.memory.outcome(self.lineage, 1, target, &[outcome], self.now);
    }

    fn statistics(&self) -> Statistics {
        self.memory.statistics(None).expect("sums")
    }

    /// total, confirmed, current session, old session
    fn in_conversation(&self) -> [usize; 4] {
        let found = self.statistics();
        assert_eq!(found.total, found.confirmed + found.unconfirmed);
        [found.total, found.confirmed, found.current_session, found.old_session]
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Send { .. } => "send",
        Verdict::Try { .. } => "try",
        Verdict::LeaveOut { reason, .. } => reason.word(),
    }
}

/// Covers: S1-7, S1-8, S1-9, S1-11, S1-20, case 3
#[test]
fn blocks_are_registered_then_confirmed_then_evicted() {
    for (policy, later) in [(Policy::Session, "session"), (Policy::Origin, "send")] {
        let bench = Bench::new(policy, Unknown::Drop);
        bench.ask("a", &[]);
        for block in [1, 2, 3] {
            bench.make("a", 1, block);
        }
        assert_eq!(bench.in_conversation(), [3, 0, 3, 0]);
        assert_eq!(bench.ask("a", &[1, 2, 3]).0, ["send"; 3]);
        assert_eq!(bench.in_conversation(), [3, 3, 3, 0]);
        assert_eq!(bench.ask("a", &[2, 3]).0, ["send"; 2]);
        assert_eq!(bench.in_conversation(), [2, 2, 2, 0]);
        assert_eq!(bench.ask("a", &[1, 2, 3]).0, [later, "send", "send"]);
    }
}

/// Covers: S1-6, S1-12, S1-15, S1-22, case 4, case 5
#[test]
fn orphan_is_evicted_after_the_threshold_and_not_before() {
    let mut bench = Bench::new(Policy::Session, Unknown::Drop);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    bench.make("a", 1, 2);
    bench.now += 4 * MINUTE;
    bench.ask("a", &[2]);
    assert_eq!(bench.in_conversation()[0], 2, "young blocks stay");
    bench.now += 2 * MINUTE;
    assert_eq!(bench.ask("a", &[1, 2]).0, ["send", "send"], "confirmed before the clean-up");
    bench.make("a", 1, 3);
    bench.now += 6 * MINUTE;
    bench.ask("a", &[1, 2]);
    assert_eq!(bench.ask("a", &[3]).0, ["session"], "the orphan is gone");
}

/// Covers: S1-3, S1-10, S1-17, S1-21
#[test]
fn switch_starts_a_session_and_the_same_backend_does_not() {
    let bench = Bench::new(Policy::Session, Unknown::Drop);
    assert_eq!(bench.ask("a", &[]).1, 1);
    bench.make("a", 1, 1);
    assert_eq!(bench.ask("a", &[1]), (vec!["send"], 1));
    assert_eq!(bench.ask("b", &[1]), (vec!["session"], 2));
    assert_eq!(bench.in_conversation(), [0, 0, 0, 0]);
    bench.make("b", 2, 2);
    assert_eq!(bench.ask("b", &[1, 2]), (vec!["session", "send"], 2));
    assert_eq!(bench.ask("a", &[1, 2]), (vec!["session", "session"], 3));
}

#[test]
fn origin_policy_restores_a_block_with_its_backend() {
    let bench = Bench::new(Policy::Origin, Unknown::Drop);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    assert_eq!(bench.ask("b", &[1]).0, ["origin"]);
    bench.make("b", 2, 2);
    assert_eq!(bench.ask("a", &[1, 2]).0, ["send", "origin"]);
    assert_eq!(bench.ask("b", &[1, 2]).0, ["origin", "send"]);
}

/// Covers: case 6, case 7
#[test]
fn requests_without_thinking_evict_nothing() {
    let bench = Bench::new(Policy::Session, Unknown::Drop);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    bench.make("a", 1, 2);
    bench.ask("a", &[1, 2]);
    bench.ask("a", &[]);
    assert_eq!(bench.ask("a", &[1, 2]).0, ["send", "send"]);
}

/// Covers: S1-41, case 14
#[test]
fn block_belongs_to_the_session_in_which_its_request_began() {
    let bench = Bench::new(Policy::Session, Unknown::Drop);
    let (_, began) = bench.ask("a", &[]);
    let (_, switched) = bench.ask("b", &[]);
    bench.make("a", began, 1);
    bench.make("b", switched, 2);
    assert_eq!(bench.in_conversation(), [2, 0, 1, 1]);
    assert_eq!(bench.ask("b", &[1, 2]).0, ["session", "send"]);
}

#[test]
fn pinned_requests_and_counts_do_not_change_the_session() {
    let bench = Bench::new(Policy::Session, Unknown::Drop);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    let (b, blocks) = (target("b"), [Some(key(1))]);
    let pinned = bench
        .memory
        .ask(&Question { follows_active_backend: false, ..bench.question(&b, &blocks) });
    assert_eq!((pinned.session, word(&pinned.verdicts[0])), (1, "origin"));
    let counted =
        bench.memory.ask(&Question { in_conversation: false, ..bench.question(&b, &blocks) });
    assert_eq!(counted.session, 2, "it answers as the next request would");
    assert_eq!(bench.ask("a", &[1]), (vec!["send"], 1));
    assert_eq!(bench.statistics().session, 1);
}

/// Covers: C-5, C-7
#[test]
fn session_depends_on_the_tag_and_eviction_on_the_lineage() {
    let mut bench = Bench::new(Policy::Session, Unknown::Drop);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    bench.ask("a", &[1]);
    bench.lineage = lineage(1, 2);
    bench.ask("a", &[]);
    bench.make("a", 1, 2);
    bench.ask("a", &[2]);
    bench.lineage = lineage(1, 1);
    assert_eq!(bench.ask("a", &[1]).0, ["send"], "a sub-agent evicts nothing here");
    bench.lineage = lineage(1, 2);
    assert_eq!(bench.ask("b", &[]).1, 2);
    bench.lineage = lineage(1, 1);
    assert_eq!(bench.ask("b", &[]).1, 2, "one client, one session number");
    bench.lineage = lineage(9, 9);
    assert_eq!(bench.ask("b", &[]).1, 1, "another client, another number");
}

/// Covers: C-7
#[test]
fn fork_keeps_its_thinking() {
    for (policy, switched) in [(Policy::Session, "session"), (Policy::Origin, "origin")] {
        let mut bench = Bench::new(policy, Unknown::Drop);
        bench.ask("a", &[]);
        bench.make("a", 1, 1);
        bench.lineage = lineage(2, 2);
        assert_eq!(bench.ask("a", &[1]).0, ["send"]);
        assert_eq!(bench.ask("b", &[1]).0, [switched]);
        // Eviction in the fork does not affect the original conversation.
        bench.lineage = lineage(1, 1);
        assert_eq!(bench.ask("a", &[1]).0, ["send"]);
    }
}

#[test]
fn unknown_blocks_are_tried_and_the_outcome_is_remembered() {
    let bench = Bench::new(Policy::Origin, Unknown::Try);
    assert_eq!(bench.ask("a", &[1, 2]).0, ["try", "try"]);
    let a = target("a");
    bench.accepted(&a, 1);
    bench.memory.refused(bench.lineage, 1, &a, &[key(2)], bench.now);
    assert_eq!(bench.ask("a", &[1, 2]).0, ["send", "origin"]);
    // A backend that accepts anything proves nothing about another backend.
    assert_eq!(bench.ask("b", &[1, 2]).0, ["try", "try"]);
    let found = bench.statistics();
    assert_eq!((found.tried, found.refused), (4, 1));
}

#[test]
fn fork_keeps_tried_and_accepted_blocks() {
    let mut bench = Bench::new(Policy::Session, Unknown::Try);
    assert_eq!(bench.ask("a", &[1]).0, ["try"]);
    bench.accepted(&target("a"), 1);
    bench.lineage = lineage(2, 2);
    assert_eq!(bench.ask("a", &[1]).0, ["send"]);
}

#[test]
fn domain_set_too_wide_does_not_cost_the_maker_its_blocks() {
    let bench = Bench::new(Policy::Origin, Unknown::Try);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    let twin = TargetIdentity { domain: "a".into(), ..target("b") };
    let blocks = [Some(key(1))];
    let ask =
        |to: &TargetIdentity| word(&bench.memory.ask(&bench.question(to, &blocks)).verdicts[0]);
    assert_eq!(ask(&twin), "send");
    bench.memory.refused(bench.lineage, 2, &twin, &[key(1)], bench.now);
    assert_eq!(ask(&twin), "origin");
    assert_eq!(ask(&target("a")), "send");
}

#[test]
fn cut_block_is_never_sent() {
    let bench = Bench::new(Policy::Origin, Unknown::Try);
    bench.ask("a", &[]);
    let origin = Arc::new(origin("a"));
    let made = |cut| NewBlock {
        lineage: bench.lineage,
        session: 1,
        origin: &origin,
        key: key(1),
        prefix: None,
        cut,
        now: bench.now,
        memory_limit: 1 << 30,
    };
    bench.memory.register(&made(true));
    assert_eq!(bench.ask("a", &[1]).0, [Reason::Cut.word()]);
    assert_eq!(bench.in_conversation()[0], 0);
    // The client asked again and the same block arrived complete.
    bench.memory.register(&made(false));
    assert_eq!(bench.ask("a", &[1]).0, ["send"]);
    bench.memory.register(&made(true));
    assert_eq!(bench.ask("a", &[1]).0, ["send"], "a later cut takes nothing back");
}

#[test]
fn target_reads_blocks_of_its_domain_and_credential() {
    for (domain, credential, account_bound, expected) in [
        ("a", "mine", true, true),
        ("a", "other", false, true),
        ("a", "other", true, false),
        ("b", "mine", false, false),
        ("b", "mine", true, false),
    ] {
        let to = TargetIdentity { credential: "mine".into(), account_bound, ..target("a") };
        let origin = Origin { credential: credential.into(), ..origin(domain) };
        assert_eq!(to.reads(&origin), expected, "{domain} {credential} {account_bound}");
    }
}

#[test]
fn account_bound_blocks_stay_with_their_credential() {
    let bench = Bench::new(Policy::Origin, Unknown::Try);
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    let blocks = [Some(key(1))];
    for (credential, account_bound, expected) in
        [("", true, "send"), ("other", true, "origin"), ("other", false, "send")]
    {
        let to = TargetIdentity { credential: credential.into(), account_bound, ..target("a") };
        let answer = bench.memory.ask(&bench.question(&to, &blocks));
        assert_eq!(word(&answer.verdicts[0]), expected, "{credential} {account_bound}");
    }
}

/// Covers: S1-32
#[test]
fn memory_limit_evicts_whole_conversations() {
    let mut bench = Bench::new(Policy::Origin, Unknown::Drop);
    bench.rules.memory_limit = 64 << 10;
    for conversation in 0..200u8 {
        bench.lineage = lineage(conversation, conversation);
        bench.ask("a", &[]);
        for block in 0..10 {
            bench.make("a", 1, u16::from(conversation) * 10 + block);
        }
        assert!(bench.statistics().bytes <= bench.rules.memory_limit);
    }
    let last = bench.statistics();
    assert!(last.lineages < 20 && last.lineages > 5, "{last:?}");
    assert_eq!(last.total, last.lineages * 10, "conversations go whole");
    assert_eq!(bench.ask("a", &[1990]).0, ["send"], "the last one stays");
    bench.lineage = lineage(0, 0);
    assert_eq!(bench.ask("a", &[0]).0, ["unknown"], "the first one is gone");
}

#[test]
fn one_conversation_stays_within_the_limit() {
    let mut bench = Bench::new(Policy::Origin, Unknown::Drop);
    bench.rules.memory_limit = 64 << 10;
    bench.ask("a", &[]);
    for block in 0..5000 {
        bench.make("a", 1, block);
        bench.ask("a", &[block]);
    }
    assert!(bench.statistics().bytes <= bench.rules.memory_limit + 1024);
    assert_eq!(bench.ask("a", &[4999]).0, ["send"]);
}

#[tokio::test]
async fn memory_survives_a_restart() {
    let store = Arc::new(InMemory::default());
    let changes = Changes::default();
    let task = tokio::spawn(changes.clone().write_to(store.clone()));
    let mut bench = Bench::new(Policy::Session, Unknown::Drop);
    bench.memory = Memory::new(Default::default(), changes.clone());
    bench.ask("a", &[]);
    bench.make("a", 1, 1);
    bench.ask("a", &[1]);
    bench.make("a", 1, 2);
    bench.ask("a", &[2]);
    bench.lineage = lineage(3, 3);
    bench.ask("a", &[]);
    bench.ask("b", &[]);
    bench.make("b", 2, 3);
    let before = bench.statistics();
    changes.flush().await;
    bench.memory = Memory::new(store.load().await.expect("a snapshot"), Changes::default());
    assert_eq!(bench.statistics(), before);
    assert_eq!(bench.ask("b", &[3]), (vec!["send"], 2));
    bench.lineage = lineage(1, 1);
    assert_eq!(bench.ask("a", &[1, 2]), (vec!["session", "send"], 1));
    task.abort();
}

/// Covers: S1-4, S1-5, S1-31
#[test]
fn decision_time_does_not_grow_with_the_memory() {
    let fill = |count: u16| {
        let mut bench = Bench::new(Policy::Origin, Unknown::Drop);
        for conversation in 0..count {
            let id = conversation.to_le_bytes();
            bench.lineage = Lineage {
                tag: SessionTag([id[0], id[1], 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
                id: LineageId([id[0], id[1], 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
            };
            bench.ask("a", &[]);
            bench.make("a", 1, conversation);
        }
        bench
    };
    // Times vary on a busy machine, so compare the best of many runs with a wide margin. A scan of
    // the memory would take a thousand times as long.
    let best = |bench: &Bench| {
        (0..200)
            .map(|_| {
                let began = std::time::Instant::now();
                bench.ask("a", &[0]);
                began.elapsed()
            })
            .min()
            .expect("a time")
    };
    let (small, large) = (fill(10), fill(10_000));
    assert_eq!(large.statistics().total, 10_000);
    let (few, many) = (best(&small), best(&large));
    assert!(many < few * 20 + Duration::from_micros(50), "{few:?} became {many:?}");
}
