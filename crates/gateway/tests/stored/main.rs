//! Conversations of a store that keeps whole turns: a gateway in this process, and strict simulators
//! on real ports. The store brings every earlier block back in an envelope.

mod preview;
mod raw;
mod support;

use throughline_canonical::{Block, Loss, Reason};
use throughline_gateway::settings::Unknown;
use throughline_gateway::thinking::Envelopes;
use throughline_testkit::{ReceivedRequest, Simulator};

use crate::support::{Conversation, Instance, Upstream};

const ANTHROPIC: Upstream = Upstream::new("anthropic", "", "claude-sonnet-4-5");
const BOUND: Upstream = Upstream::new("anthropic", "", "claude-opus-5-5");
const GEMINI: Upstream = Upstream::new("gemini", "", "gemini-3-pro-preview");
const RESPONSES: Upstream = Upstream::new("openai_responses", "", "gpt-6.1-sol");
const DEEPSEEK: Upstream = Upstream::new("openai_chat", "deepseek-v4", "deepseek-v4");
const OPENROUTER: Upstream =
    Upstream::new("openai_chat", "openrouter", "anthropic/claude-sonnet-4.5");
const OLLAMA: Upstream = Upstream::new("ollama", "", "qwen3:8b");
const ALL: [Upstream; 7] = [ANTHROPIC, BOUND, GEMINI, RESPONSES, DEEPSEEK, OPENROUTER, OLLAMA];

/// The last request, which the simulator must have accepted.
async fn accepted(simulator: &Simulator) -> ReceivedRequest {
    let received = simulator.last_received().await;
    assert_eq!((received.status, received.refusal.as_str()), (200, ""), "{}", received.body);
    assert!(!received.body.contains("TLine1"), "an envelope reached it: {}", received.body);
    received
}

/// What a provider of each dialect has to get back of a block, exactly as it is in the body.
fn returned_text(upstream: &Upstream, block: &Block) -> Option<String> {
    let text = match (upstream.dialect, block) {
        // Readable thoughts never go back; the signature of a call does.
        ("gemini", Block::Thinking { .. }) => None,
        (_, Block::Thinking { text, signature }) => signature.as_ref().or(Some(text)),
        (_, Block::Redacted { data }) => Some(data),
        (_, Block::ToolCall { signature, .. } | Block::Text { signature, .. }) => {
            signature.as_ref()
        }
        _ => None,
    };
    // Fields of a chat reply are joined into one signature, whose parts the simulator checks.
    let joined = upstream.variant == "openrouter" || upstream.dialect == "openai_responses";
    text.filter(|_| !joined).map(|text| {
        let quoted = serde_json::to_string(text).expect("a JSON string");
        quoted.trim_matches('"').to_owned()
    })
}

/// The store has every block as its provider wrote it, and no block has an envelope.
fn check_native(blocks: &[Block]) {
    for block in blocks {
        let signature = match block {
            Block::Thinking { signature, .. }
            | Block::ToolCall { signature, .. }
            | Block::Text { signature, .. } => signature.as_deref().unwrap_or_default(),
            Block::Redacted { data } => data,
            _ => "",
        };
        assert!(!Envelopes::looks_ours(signature), "{block:?}");
    }
}

/// A signed block, a redacted one, an unsigned one, a signed call and a reasoning item go back to
/// their maker as it wrote them, within a tool loop and after it.
#[tokio::test]
async fn wrapped_blocks_reach_their_maker_unchanged() {
    for upstream in ALL {
        let simulator = upstream.start("one").await;
        let house = Instance::start(&[("a", &upstream, &simulator.url)]);
        let mut conversation = Conversation::new(&upstream);
        let mut earlier = Vec::new();
        for question in ["one tool please", "7 is row blue", "9 is row green", "hidden", "plain"] {
            let reply = conversation.ask(&house, "a", question).await;
            let case = format!("{} {}: {question}", upstream.dialect, upstream.model);
            assert_eq!(reply.losses, [], "{case}");
            check_native(&reply.content);
            let received = accepted(&simulator).await;
            // Some models read thinking only within the present turn.
            let in_loop = question.contains("row") || upstream.dialect == "anthropic";
            let returned = earlier.iter().filter(|_| in_loop);
            for text in returned.filter_map(|block| returned_text(&upstream, block)) {
                assert!(received.body.contains(&text), "{case}: {text} in {}", received.body);
            }
            earlier.extend(reply.content);
        }
        let thinks = |block: &&Block| matches!(block, Block::Thinking { .. });
        assert!(earlier.iter().filter(thinks).count() >= 3, "{}: {earlier:?}", upstream.dialect);
        let fates = house.last_fates();
        assert!(!fates.contains(&"tried".to_owned()), "{}: {fates:?}", upstream.dialect);
        assert!(house.vault_is_empty().await, "{}", upstream.dialect);
    }
}

/// The envelope names the maker, so it also counts where the memory has never seen the block and
/// unknown blocks are dropped.
#[tokio::test]
async fn wrapped_blocks_are_restored_without_the_memory() {
    for upstream in [ANTHROPIC, GEMINI, RESPONSES, DEEPSEEK] {
        let simulator = upstream.start("one").await;
        let backends = [("a", &upstream, simulator.url.as_str())];
        let first = Instance::start(&backends);
        let mut conversation = Conversation::new(&upstream);
        let reply = conversation.ask(&first, "a", "one tool please").await;
        let second = Instance::start_with(&backends, Unknown::Drop);
        let next = conversation.ask(&second, "a", "7 is row blue").await;
        assert_eq!(next.losses, [], "{}", upstream.dialect);
        let received = accepted(&simulator).await;
        for text in reply.content.iter().filter_map(|block| returned_text(&upstream, block)) {
            assert!(received.body.contains(&text), "{}: {}", upstream.dialect, received.body);
        }
    }
}

#[tokio::test]
async fn wrapped_blocks_do_not_reach_another_maker() {
    let (one, other) = (ANTHROPIC.start("one").await, ANTHROPIC.start("other").await);
    let house = Instance::start(&[("a", &ANTHROPIC, &one.url), ("b", &ANTHROPIC, &other.url)]);
    let mut conversation = Conversation::new(&ANTHROPIC);
    let reply = conversation.ask(&house, "a", "hidden").await;
    assert_eq!((reply.origin.backend.as_str(), reply.origin.domain.as_str()), ("a", "a"));
    assert_eq!(reply.origin.model, "claude-sonnet-4-5");
    assert_eq!(reply.backend, "a");
    assert!(reply.turn_id.starts_with("turn_"), "{}", reply.turn_id);
    let next = conversation.ask(&house, "b", "plain").await;
    let omitted = Loss::ThinkingOmitted { blocks: 2, reason: Reason::Origin };
    assert_eq!(next.losses, [omitted]);
    let received = accepted(&other).await;
    assert!(received.thinking().is_empty(), "{}", received.body);
    // Back to the first maker: it gets its own blocks again.
    conversation.ask(&house, "a", "plain").await;
    assert_eq!(accepted(&one).await.thinking().len(), 2);
}

/// The memory knows the blocks of a store as the provider wrote them, so a wrapped block that comes
/// back is confirmed, and one envelope more does not make a block new.
#[tokio::test]
async fn wrapped_blocks_are_known_to_the_memory() {
    let simulator = ANTHROPIC.start("one").await;
    let house = Instance::start(&[("a", &ANTHROPIC, &simulator.url)]);
    let mut conversation = Conversation::new(&ANTHROPIC);
    conversation.ask(&house, "a", "ponder").await;
    for _ in 0..3 {
        conversation.ask(&house, "a", "plain").await;
    }
    let known = house.statistics();
    assert_eq!((known.total, known.confirmed, known.tried), (1, 1, 0), "{known:?}");
}

#[tokio::test]
async fn refused_request_gives_a_problem() {
    let simulator = ANTHROPIC.start("one").await;
    let house = Instance::start(&[("a", &ANTHROPIC, &simulator.url)]);
    let mut conversation = Conversation::new(&ANTHROPIC);
    conversation.request.model.clear();
    let (status, kind, body) = conversation.fail(&house, "a", "plain").await;
    assert_eq!((status, kind.as_str()), (400, "application/problem+json"), "{body}");
    assert_eq!(body["title"], "Invalid request", "{body}");
    assert!(
        body["detail"].as_str().is_some_and(|detail| detail.contains("names no model")),
        "{body}"
    );
}
