//! Many conversations at once, while the backend changes under them.

use std::collections::HashMap;

use http::Method;
use serde_json::Value;
use throughline_testkit::{Answer, Conversation, Seen, fold};

use crate::support::{POLICIES, Pair, held, talk, thinking};

/// Covers: case 14, S1-41, C-5
#[tokio::test]
async fn each_block_is_filed_under_the_session_its_request_began_with() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        // Twenty sub-agents of one session. What they say stalls before its first block is whole.
        let mut talks: Vec<Conversation> = (0..20).map(|number| agent(number, "agents")).collect();
        let headers = [
            ("anthropic-version", "2023-06-01"),
            ("x-claude-code-session-id", "agents"),
            ("x-simulator-fault", "stall:event=3,ms=800"),
        ];
        let mut replies = Vec::new();
        for (at, talk) in talks.iter_mut().enumerate() {
            if at == 10 {
                pair.gateway.switch("b").await;
            }
            talk.user("hello");
            talk.body["stream"] = true.into();
            let body = talk.body.to_string();
            let open = pair.client().open(Method::POST, "/v1/messages", &headers, body);
            replies.push(open.await);
        }
        let mut answers = Vec::new();
        for reply in replies {
            answers.push(reply.whole().await.good());
        }
        let turns = pair.gateway.turns().await;
        let told: Vec<_> = answers
            .iter()
            .map(|answer| {
                let turn = find(&turns, answer);
                (turn["session"].as_u64().unwrap(), turn["backend"].as_str().unwrap())
            })
            .collect();
        let expected = [[(1, "a"); 10], [(2, "b"); 10]].concat();
        assert_eq!(told, expected, "{policy}");
        // The first ten ended after the session had become the second, and belong to the first.
        let mut both = held(0, 20, 2);
        both["current_session"] = 10.into();
        both["old_session"] = 10.into();
        assert_eq!(pair.held().await, both, "{policy}");

        for (at, (talk, answer)) in talks.iter_mut().zip(&answers).enumerate() {
            let message = fold(&answer.text());
            let messages = talk.body["messages"].as_array_mut().unwrap();
            messages.push(serde_json::json!({"role": "assistant", "content": message["content"]}));
            talk.say(pair.client(), "bench 1").await;
            let own = if at < 10 { vec![] } else { thinking(&[&message]) };
            assert_eq!(pair.b.last().await.thinking(), own, "{policy} {at}");
        }
        assert_eq!(pair.held().await, held(10, 0, 2), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

fn agent(number: usize, session: &str) -> Conversation {
    let mut talk = talk(session, true);
    talk.body["system"] = format!("You are agent {number}.").into();
    talk
}

fn find<'a>(turns: &'a [Value], answer: &Answer) -> &'a Value {
    let id = answer.header("x-throughline-turn");
    turns.iter().find(|turn| turn["id"] == id).unwrap()
}

const CROWD: usize = 200;
const ROUNDS: usize = 4;

/// A block, and what its turn said of itself.
struct Made {
    block: Value,
    backend: String,
    session: u64,
}

/// Covers: S1-2, S1-41
#[tokio::test]
async fn a_crowd_with_switches_and_pins_never_meets_a_refusal() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut crowd: Vec<Conversation> =
            (0..CROWD).map(|number| talk(&format!("crowd {number}"), number % 3 > 0)).collect();
        let mut made: Vec<Vec<Made>> = (0..CROWD).map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            let answered = speak(&pair, crowd, round).await;
            let turns = pair.gateway.turns().await;
            let mut seen = by_speaker(&pair).await;
            crowd = Vec::new();
            for (number, (talk, message, answer)) in answered.into_iter().enumerate() {
                let turn = find(&turns, &answer);
                let backend = turn["backend"].as_str().unwrap().to_owned();
                let session = turn["session"].as_u64().unwrap();
                let (at, sent) = seen.remove(&number).unwrap();
                assert_eq!(at, backend, "{policy} {number}");
                let may_go = |made: &&Made| {
                    made.backend == backend && (policy == "origin" || made.session == session)
                };
                let expected: Vec<Value> =
                    made[number].iter().filter(may_go).map(|made| made.block.clone()).collect();
                assert_eq!(sent.thinking(), expected, "{policy} {number} {round}");
                made[number].push(Made { block: message["content"][0].clone(), backend, session });
                crowd.push(talk);
            }
        }
        let sessions: Vec<u64> = made.iter().map(|blocks| blocks.last().unwrap().session).collect();
        assert!(sessions.iter().any(|session| *session > 1), "nobody was switched");
    }
}

/// Everybody speaks at once; some are pinned; the backend changes in the middle.
async fn speak(
    pair: &Pair,
    crowd: Vec<Conversation>,
    round: usize,
) -> Vec<(Conversation, Value, Answer)> {
    let mut speakers = Vec::new();
    for (number, mut talk) in crowd.into_iter().enumerate() {
        if number % 50 == 25 {
            let to = if (number / 50 + round).is_multiple_of(2) { "b" } else { "a" };
            pair.gateway.switch(to).await;
        }
        let client = pair.client().clone();
        speakers.push(tokio::spawn(async move {
            let plain = talk.headers.clone();
            if (number + round).is_multiple_of(7) {
                let pin = if number.is_multiple_of(2) { "a" } else { "b" };
                talk.headers.push(("x-throughline-backend".into(), pin.into()));
            }
            let (message, answer) = talk.say(&client, &format!("I am number {number}.")).await;
            talk.headers = plain;
            (talk, message, answer)
        }));
    }
    let mut answered = Vec::new();
    for speaker in speakers {
        answered.push(speaker.await.unwrap());
    }
    answered
}

/// What each speaker's request was when it arrived, and where. Nothing in it is anybody else's.
async fn by_speaker(pair: &Pair) -> HashMap<usize, (&'static str, Seen)> {
    let mut found = HashMap::new();
    for (name, simulator) in [("a", &pair.a), ("b", &pair.b)] {
        for seen in simulator.seen().await {
            assert_eq!(seen.refusal, "");
            let body = seen.body.clone();
            let mut speakers: Vec<&str> = body
                .split("I am number ")
                .skip(1)
                .map(|rest| rest.split('.').next().unwrap())
                .collect();
            speakers.dedup();
            let [speaker] = speakers[..] else {
                panic!("two conversations in one request: {speakers:?}");
            };
            let before = found.insert(speaker.parse().unwrap(), (name, seen));
            assert!(before.is_none(), "sent twice");
        }
        simulator.forget().await;
    }
    assert_eq!(found.len(), CROWD);
    found
}
