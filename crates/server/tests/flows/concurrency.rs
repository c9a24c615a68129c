//! Many conversations at once, while the backend changes under them.

use std::collections::HashMap;

use http::Method;
use serde_json::Value;
use throughline_testkit::{Answer, Conversation, ReceivedRequest, message_from_sse};

use crate::support::{POLICIES, Pair, held, new_conversation, thinking_in};

/// Covers: case 14, S1-41, C-5
#[tokio::test]
async fn block_belongs_to_the_session_at_the_start_of_its_request() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        // Twenty sub-agents share one session. Their replies stall inside the first block.
        let mut talks: Vec<Conversation> =
            (0..20).map(|number| sub_agent(number, "agents")).collect();
        let headers = [
            ("anthropic-version", "2023-06-01"),
            ("x-claude-code-session-id", "agents"),
            ("x-simulator-fault", "stall:event=3,ms=800"),
        ];
        let mut replies = Vec::new();
        for (at, conversation) in talks.iter_mut().enumerate() {
            if at == 10 {
                pair.gateway.switch("b").await;
            }
            conversation.push_user("hello");
            conversation.body["stream"] = true.into();
            let body = conversation.body.to_string();
            let open = pair.client().open(Method::POST, "/v1/messages", &headers, body);
            replies.push(open.await);
        }
        let mut answers = Vec::new();
        for reply in replies {
            answers.push(reply.read_all().await.expect_ok());
        }
        let turns = pair.gateway.turns().await;
        let reported: Vec<_> = answers
            .iter()
            .map(|answer| {
                let turn = find_turn(&turns, answer);
                (turn["session"].as_u64().unwrap(), turn["backend"].as_str().unwrap())
            })
            .collect();
        let expected = [[(1, "a"); 10], [(2, "b"); 10]].concat();
        assert_eq!(reported, expected, "{policy}");
        // The first ten replies ended after the switch, and still belong to the first session.
        let mut both = held(0, 20, 2);
        both["current_session"] = 10.into();
        both["old_session"] = 10.into();
        assert_eq!(pair.held().await, both, "{policy}");

        for (at, (conversation, answer)) in talks.iter_mut().zip(&answers).enumerate() {
            let message = message_from_sse(&answer.text());
            let messages = conversation.body["messages"].as_array_mut().unwrap();
            messages.push(serde_json::json!({"role": "assistant", "content": message["content"]}));
            conversation.ask(pair.client(), "bench 1").await;
            let own = if at < 10 { vec![] } else { thinking_in(&[&message]) };
            assert_eq!(pair.b.last_received().await.thinking(), own, "{policy} {at}");
        }
        assert_eq!(pair.held().await, held(10, 0, 2), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

fn sub_agent(number: usize, session: &str) -> Conversation {
    let mut conversation = new_conversation(session, true);
    conversation.body["system"] = format!("You are agent {number}.").into();
    conversation
}

fn find_turn<'a>(turns: &'a [Value], answer: &Answer) -> &'a Value {
    let id = answer.header("x-throughline-turn");
    turns.iter().find(|turn| turn["id"] == id).unwrap()
}

const CONVERSATIONS: usize = 200;
const ROUNDS: usize = 4;

/// A thinking block and the report of its turn.
struct ReceivedBlock {
    block: Value,
    backend: String,
    session: u64,
}

/// Covers: S1-2, S1-41
#[tokio::test]
async fn concurrent_conversations_with_switches_get_no_refusal() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversations: Vec<Conversation> = (0..CONVERSATIONS)
            .map(|number| new_conversation(&format!("crowd {number}"), number % 3 > 0))
            .collect();
        let mut made: Vec<Vec<ReceivedBlock>> = (0..CONVERSATIONS).map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            let answered = send_round(&pair, conversations, round).await;
            let turns = pair.gateway.turns().await;
            let mut seen = requests_by_conversation(&pair).await;
            conversations = Vec::new();
            for (number, (conversation, message, answer)) in answered.into_iter().enumerate() {
                let turn = find_turn(&turns, &answer);
                let backend = turn["backend"].as_str().unwrap().to_owned();
                let session = turn["session"].as_u64().unwrap();
                let (at, sent) = seen.remove(&number).unwrap();
                assert_eq!(at, backend, "{policy} {number}");
                let may_go = |made: &&ReceivedBlock| {
                    made.backend == backend && (policy == "origin" || made.session == session)
                };
                let expected: Vec<Value> =
                    made[number].iter().filter(may_go).map(|made| made.block.clone()).collect();
                assert_eq!(sent.thinking(), expected, "{policy} {number} {round}");
                made[number].push(ReceivedBlock {
                    block: message["content"][0].clone(),
                    backend,
                    session,
                });
                conversations.push(conversation);
            }
        }
        let sessions: Vec<u64> = made.iter().map(|blocks| blocks.last().unwrap().session).collect();
        assert!(sessions.iter().any(|session| *session > 1), "no conversation was switched");
    }
}

/// Sends a request of every conversation at once. Some are pinned, and the backend switches
/// meanwhile.
async fn send_round(
    pair: &Pair,
    conversations: Vec<Conversation>,
    round: usize,
) -> Vec<(Conversation, Value, Answer)> {
    let mut requests = Vec::new();
    for (number, mut conversation) in conversations.into_iter().enumerate() {
        if number % 50 == 25 {
            let to = if (number / 50 + round).is_multiple_of(2) { "b" } else { "a" };
            pair.gateway.switch(to).await;
        }
        let client = pair.client().clone();
        requests.push(tokio::spawn(async move {
            let plain = conversation.headers.clone();
            if (number + round).is_multiple_of(7) {
                let pin = if number.is_multiple_of(2) { "a" } else { "b" };
                conversation.headers.push(("x-throughline-backend".into(), pin.into()));
            }
            let (message, answer) =
                conversation.ask(&client, &format!("I am number {number}.")).await;
            conversation.headers = plain;
            (conversation, message, answer)
        }));
    }
    let mut answered = Vec::new();
    for test_client in requests {
        answered.push(test_client.await.unwrap());
    }
    answered
}

/// Returns the request of each conversation and the backend that received it, after checking that
/// it contains nothing of another conversation.
async fn requests_by_conversation(pair: &Pair) -> HashMap<usize, (&'static str, ReceivedRequest)> {
    let mut found = HashMap::new();
    for (name, simulator) in [("a", &pair.a), ("b", &pair.b)] {
        for seen in simulator.received().await {
            assert_eq!(seen.refusal, "");
            let body = seen.body.clone();
            let mut requests: Vec<&str> = body
                .split("I am number ")
                .skip(1)
                .map(|rest| rest.split('.').next().unwrap())
                .collect();
            requests.dedup();
            let [test_client] = requests[..] else {
                panic!("two conversations in one request: {requests:?}");
            };
            let before = found.insert(test_client.parse().unwrap(), (name, seen));
            assert!(before.is_none(), "sent twice");
        }
        simulator.clear_received().await;
    }
    assert_eq!(found.len(), CONVERSATIONS);
    found
}
