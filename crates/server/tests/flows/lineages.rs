//! What side requests, sub-agents, forks, token counts and pinned requests share with a
//! conversation.

use serde_json::json;
use throughline_testkit::Conversation;

use crate::support::{
    NO_BLOCKS, POLICIES, Pair, cut_thinking, fates, held, loss, new_conversation, thinking_in,
    truncate_to,
};

#[tokio::test]
async fn title_request_and_sub_agent_do_not_affect_the_conversation() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut main = new_conversation("busy", true);
        main.ask(pair.client(), "hello").await;
        let (_, answer) = main.ask(pair.client(), "more").await;
        assert_eq!(pair.held_in_lineage_of(&answer).await, held(1, 1, 1));

        let mut title = new_conversation("busy", false);
        title.body = json!({
            "model": "claude-haiku-4-5", "max_tokens": 64,
            "messages": [{"role": "user", "content": "A title for: hello"}],
        });
        title.send(pair.client()).await.expect_ok();
        let mut agent = new_conversation("busy", true);
        agent.body["system"] = "You are a sub-agent.".into();
        for text in ["look", "look again", "and again"] {
            agent.ask(pair.client(), text).await;
        }
        assert_eq!(pair.held_in_lineage_of(&answer).await, held(1, 1, 1), "{policy}");
        let (_, answer) = main.ask(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
        assert_eq!(pair.held_in_lineage_of(&answer).await, held(2, 0, 1), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: case 6
#[tokio::test]
async fn token_counts_are_filtered_and_change_no_state() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let mut conversation = new_conversation("counting", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        conversation.ask(pair.client(), "bench 1").await;
        conversation.push_user("how long is this?");
        let count = |conversation: &Conversation| {
            let mut body = conversation.body.clone();
            body.as_object_mut().unwrap().remove("max_tokens");
            body
        };
        let headers = [("x-claude-code-session-id", "counting")];
        let path = "/v1/messages/count_tokens";
        let before = pair.gateway.statistics().await;

        let body = count(&conversation);
        let answer = pair.client().post(path, &headers, &body).await.expect_ok();
        assert!(answer.json()["input_tokens"].as_u64() > Some(0));
        let seen = pair.a.last_received().await;
        assert_eq!((seen.path.as_str(), seen.thinking()), (path, thinking_in(&[&one])));
        assert_eq!(seen.body, body.to_string());

        // A count without the block does not evict it, and a count on another backend does not send
        // it.
        let mut without = conversation.clone();
        cut_thinking(&mut without, 1);
        let body = count(&without);
        pair.client().post(path, &headers, &body).await.expect_ok();
        pair.gateway.switch("b").await;
        let body = count(&conversation);
        let answer = pair.client().post(path, &headers, &body).await.expect_ok();
        assert_eq!(loss(&answer), format!("thinking_omitted=1;reason={policy}"));
        assert_eq!(pair.b.last_received().await.thinking(), NO_BLOCKS);
        assert_eq!(pair.gateway.statistics().await, before, "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-3
#[tokio::test]
async fn pinned_request_never_starts_a_new_session() {
    for policy in POLICIES {
        let rule =
            "[route]\ndefault = \"a\"\nrules = [{ model = \"claude-haiku-*\", backend = \"b\" }]";
        let settings = format!("{rule}\n[thinking]\npolicy = \"{policy}\"");
        let pair = Pair::start(&settings).await;
        let mut conversation = new_conversation("pinned", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;

        let mut by_header = conversation.clone();
        by_header.headers.push(("x-throughline-backend".into(), "b".into()));
        let (pinned, answer) = by_header.ask(pair.client(), "by header").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        assert_eq!(loss(&answer), "thinking_omitted=1;reason=origin");
        let mut by_rule = conversation.clone();
        by_rule.body["model"] = "claude-haiku-4-5".into();
        let (_, answer) = by_rule.ask(pair.client(), "by rule").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        let mut by_path = conversation.clone();
        by_path.push_user("by path");
        let headers = [("x-claude-code-session-id", "pinned")];
        let path = "/b/b/v1/messages";
        let answer = pair.client().post(path, &headers, &by_path.body).await;
        assert_eq!(answer.expect_ok().header("x-throughline-backend"), "b");
        assert_eq!(pair.b.last_received().await.path, "/v1/messages");
        assert_eq!(pair.held().await, held(1, 3, 1), "{policy}");

        // The pinned backend and the active backend each get their own block back.
        by_header.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.b.last_received().await.thinking(), thinking_in(&[&pinned]));
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(answer.header("x-throughline-backend"), "a");
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one]));
        assert_eq!(pair.gateway.statistics().await["session"], 1, "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: C-7
#[tokio::test]
async fn fork_with_another_session_id_keeps_its_thinking() {
    for policy in POLICIES {
        let settings = format!("[thinking]\npolicy = \"{policy}\"\nunknown = \"drop\"");
        let pair = Pair::start(&settings).await;
        let mut conversation = new_conversation("the first", true);
        let (one, _) = conversation.ask(pair.client(), "hello").await;
        let (two, _) = conversation.ask(pair.client(), "more").await;

        let mut fork = conversation.clone();
        fork.headers[0].1 = "the second".into();
        let (_, answer) = fork.ask(pair.client(), "bench 1").await;
        assert_eq!(pair.a.last_received().await.thinking(), thinking_in(&[&one, &two]));
        assert_eq!(pair.held_in_lineage_of(&answer).await, held(2, 0, 1), "{policy}");

        // The fork continues on its own and does not affect the first conversation.
        truncate_to(&mut fork, 2);
        fork.ask(pair.client(), "bench 1").await;
        let (_, answer) = conversation.ask(pair.client(), "bench 1").await;
        assert_eq!(fates(&pair.turn(&answer).await), ["1.0 sent", "3.0 sent"]);
        assert_eq!(pair.held_in_lineage_of(&answer).await, held(2, 0, 1), "{policy}");
        assert_eq!(pair.refusals().await, [""; 0]);
    }
}

/// Covers: S1-3, C-5
#[tokio::test]
async fn session_number_belongs_to_the_clients_session_id() {
    for policy in POLICIES {
        let pair = Pair::with_policy(policy).await;
        let (mut one, mut two) =
            (new_conversation("session one", true), new_conversation("session two", true));
        one.ask(pair.client(), "hello").await;
        pair.gateway.switch("b").await;
        // The second conversation began after the switch, so it has no earlier session.
        let (_, answer) = two.ask(pair.client(), "hello").await;
        assert_eq!(pair.turn(&answer).await["session"], 1, "{policy}");
        let (_, answer) = one.ask(pair.client(), "more").await;
        assert_eq!(pair.turn(&answer).await["session"], 2, "{policy}");
        // A sub-agent of the first conversation continues in its session.
        let mut agent = new_conversation("session one", true);
        agent.body["system"] = "You are a sub-agent.".into();
        let (_, answer) = agent.ask(pair.client(), "look").await;
        assert_eq!(pair.turn(&answer).await["session"], 2, "{policy}");
    }
}
