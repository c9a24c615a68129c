//! Who shares what: side requests, sub-agents, forks, token counts, pinned requests.

use serde_json::json;
use throughline_testkit::Conversation;

use crate::support::{
    NOTHING, POLICIES, Pair, cut_thinking, fates, go_back, held, loss, talk, thinking,
};

#[tokio::test]
async fn a_title_request_and_a_sub_agent_leave_the_conversation_alone() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut main = talk("busy", true);
        main.say(pair.client(), "hello").await;
        let (_, answer) = main.say(pair.client(), "more").await;
        assert_eq!(pair.held_by(&answer).await, held(1, 1, 1));

        let mut title = talk("busy", false);
        title.body = json!({
            "model": "claude-haiku-4-5", "max_tokens": 64,
            "messages": [{"role": "user", "content": "A title for: hello"}],
        });
        title.send(pair.client()).await.good();
        let mut agent = talk("busy", true);
        agent.body["system"] = "You are a sub-agent.".into();
        for text in ["look", "look again", "and again"] {
            agent.say(pair.client(), text).await;
        }
        assert_eq!(pair.held_by(&answer).await, held(1, 1, 1), "{policy}");
        let (_, answer) = main.say(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
        assert_eq!(pair.held_by(&answer).await, held(2, 0, 1), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 6
#[tokio::test]
async fn token_counts_are_filtered_and_touch_nothing() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let mut talk = talk("counting", true);
        let (one, _) = talk.say(pair.client(), "hello").await;
        talk.say(pair.client(), "bench 1").await;
        talk.user("how long is this?");
        let count = |talk: &Conversation| {
            let mut body = talk.body.clone();
            body.as_object_mut().unwrap().remove("max_tokens");
            body
        };
        let headers = [("x-claude-code-session-id", "counting")];
        let path = "/v1/messages/count_tokens";
        let before = pair.gateway.statistics().await;

        let body = count(&talk);
        let answer = pair.client().post(path, &headers, &body).await.good();
        assert!(answer.json()["input_tokens"].as_u64() > Some(0));
        let seen = pair.a.last().await;
        assert_eq!((seen.path.as_str(), seen.thinking()), (path, thinking(&[&one])));
        assert_eq!(seen.body, body.to_string());

        // Without its block, the block is not given up; on another backend, it does not go.
        let mut without = talk.clone();
        cut_thinking(&mut without, 1);
        let body = count(&without);
        pair.client().post(path, &headers, &body).await.good();
        pair.gateway.switch("b").await;
        let body = count(&talk);
        let answer = pair.client().post(path, &headers, &body).await.good();
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(pair.b.last().await.thinking(), NOTHING);
        assert_eq!(pair.gateway.statistics().await, before, "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-3
#[tokio::test]
async fn a_pinned_request_never_raises_the_session() {
    for policy in POLICIES {
        let rule =
            "[route]\ndefault = \"a\"\nrules = [{ model = \"claude-haiku-*\", backend = \"b\" }]";
        let settings = format!("{rule}\n[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::start(&settings).await;
        let mut talk = talk("pinned", true);
        let (one, _) = talk.say(pair.client(), "hello").await;

        let mut by_header = talk.clone();
        by_header.headers.push(("x-throughline-backend".into(), "b".into()));
        let (pinned, answer) = by_header.say(pair.client(), "by header").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        let mut by_rule = talk.clone();
        by_rule.body["model"] = "claude-haiku-4-5".into();
        let (_, answer) = by_rule.say(pair.client(), "by rule").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        let mut by_path = talk.clone();
        by_path.user("by path");
        let headers = [("x-claude-code-session-id", "pinned")];
        let path = "/b/b/v1/messages";
        let answer = pair.client().post(path, &headers, &by_path.body).await;
        assert_eq!(answer.good().header("x-throughline-backend"), "b");
        assert_eq!(pair.b.last().await.path, "/v1/messages");
        assert_eq!(pair.held().await, held(1, 3, 1), "{policy}");

        // The pinned backend gets its own block back, the active one its own.
        by_header.say(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last().await.thinking(), thinking(&[&pinned]));
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(answer.header("x-throughline-backend"), "a");
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one]));
        assert_eq!(pair.gateway.statistics().await["session"], 1, "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: C-7
#[tokio::test]
async fn a_fork_under_another_session_keeps_its_thinking() {
    for policy in POLICIES {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let pair = Pair::start(&settings).await;
        let mut talk = talk("the first", true);
        let (one, _) = talk.say(pair.client(), "hello").await;
        let (two, _) = talk.say(pair.client(), "more").await;

        let mut fork = talk.clone();
        fork.headers[0].1 = "the second".into();
        let (_, answer) = fork.say(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last().await.thinking(), thinking(&[&one, &two]));
        assert_eq!(pair.held_by(&answer).await, held(2, 0, 1), "{policy}");

        // The fork goes its own way, and the first one does not notice.
        go_back(&mut fork, 2);
        fork.say(pair.client(), "bench 1").await;
        let (_, answer) = talk.say(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
        assert_eq!(pair.held_by(&answer).await, held(2, 0, 1), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-3, C-5
#[tokio::test]
async fn the_session_number_hangs_on_the_clients_mark() {
    for policy in POLICIES {
        let pair = Pair::under(policy).await;
        let (mut one, mut two) = (talk("mark one", true), talk("mark two", true));
        one.say(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        // The second conversation began after the switch: it knows of none.
        let (_, answer) = two.say(pair.client(), "hello").await;
        assert_eq!(pair.turn(&answer).await["session"], 1, "{policy}");
        let (_, answer) = one.say(pair.client(), "more").await;
        assert_eq!(pair.turn(&answer).await["session"], 2, "{policy}");
        // A sub-agent of the first one goes on in its session.
        let mut agent = talk("mark one", true);
        agent.body["system"] = "You are a sub-agent.".into();
        let (_, answer) = agent.say(pair.client(), "look").await;
        assert_eq!(pair.turn(&answer).await["session"], 2, "{policy}");
    }
}
