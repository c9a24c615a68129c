//! The session of a coding agent, `corpus/canonical/sessions/agent.json`, and a test client
//! that goes through it again.

use std::path::PathBuf;

use serde_json::{Value, json};
use throughline_canonical::{Block, Message, Request, Tool};
use throughline_testkit::Client;

use crate::test_client::{Call, ClientRequest, OfferedTool, TestClient, send};

/// The length of the step's number at the beginning of each text: `[step 07]`.
const NUMBER_LENGTH: usize = 9;

pub(crate) struct AgentSession {
    system: String,
    tools: Vec<OfferedTool>,
    turns: Vec<SessionTurn>,
}

/// What the client says in one request, and what the model answered.
struct SessionTurn {
    said: Input,
    reply: Vec<Block>,
}

enum Input {
    Question(String),
    Results(Vec<String>),
}

impl AgentSession {
    pub(crate) fn read() -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../corpus/canonical/sessions/agent.json");
        let session = std::fs::read_to_string(&path).expect("the session");
        let session: Request = serde_json::from_str(&session).expect("a canonical request");
        let tool = |tool: Tool| match tool {
            Tool::Function { name, description, parameters, .. } => {
                OfferedTool { name, description: description.unwrap_or_default(), parameters }
            }
            Tool::Opaque { .. } => panic!("a tool of one dialect only"),
        };
        let mut messages = session.messages.into_iter();
        let mut turns = Vec::new();
        while let (Some(question), Some(reply)) = (messages.next(), messages.next()) {
            turns.push(SessionTurn { said: Input::read(question), reply: reply.content });
        }
        Self {
            system: session.system.concat(),
            tools: session.tools.into_iter().map(tool).collect(),
            turns,
        }
    }

    /// Returns a scenario in which the simulator answers as the model did.
    pub(crate) fn scenario(&self) -> String {
        let step = |turn: &SessionTurn| {
            let say: Value = turn.reply.iter().map(piece).collect();
            let when = toml(&json!({"contains": turn.said.number()}));
            format!("[[step]]\nwhen = {when}\nsay = {}\n", toml(&say))
        };
        self.turns.iter().map(step).collect()
    }

    /// The number of requests.
    pub(crate) fn len(&self) -> usize {
        self.turns.len()
    }

    /// Sends the first requests of the session, streamed. `name` is in the system text, because the simulator
    /// gives equal conversations equal ids, and a provider never does. `adjust` changes each request
    /// before it is sent.
    pub(crate) async fn replay(
        &self,
        test_client: &mut dyn TestClient,
        client: &Client,
        model: &str,
        name: &str,
        requests: usize,
        adjust: impl Fn(&mut ClientRequest),
    ) {
        test_client.set_thinking(true);
        test_client.history().system =
            format!("{}\n\nThe name of this session: {name}", self.system);
        test_client.history().tools.clone_from(&self.tools);
        let mut calls: Vec<Call> = Vec::new();
        for turn in &self.turns[..requests] {
            match &turn.said {
                Input::Question(text) => test_client.push_user(text),
                Input::Results(results) => {
                    assert_eq!(calls.len(), results.len(), "{}: {calls:?}", turn.said.number());
                    let results = results.iter().map(String::as_str);
                    let results: Vec<(&Call, &str)> = calls.iter().zip(results).collect();
                    test_client.push_each_result(&results);
                }
            }
            let mut request = test_client.next_request(model, true);
            adjust(&mut request);
            let answer = send(&request, client).await;
            assert_eq!(answer.status, 200, "{}: {}", turn.said.number(), answer.text());
            calls = test_client.read(&answer.text(), true).calls;
        }
    }
}

impl Input {
    fn read(message: Message) -> Self {
        let text = |block: Block| match block {
            Block::Text { text, .. } => text,
            other => panic!("{other:?} in place of a text"),
        };
        let mut results = Vec::new();
        for block in message.content {
            match block {
                Block::ToolResult { content, .. } => {
                    results.push(content.into_iter().map(text).collect());
                }
                block => return Self::Question(text(block)),
            }
        }
        Self::Results(results)
    }

    /// The number of the step, which is in no other request.
    fn number(&self) -> &str {
        let text = match self {
            Self::Question(text) => text,
            Self::Results(results) => &results[0],
        };
        &text[..NUMBER_LENGTH]
    }
}

/// A block as a piece of a scenario.
fn piece(block: &Block) -> Value {
    match block {
        Block::Thinking { text, .. } => json!({"thinking": text}),
        Block::Text { text, .. } => json!({"text": text}),
        Block::ToolCall { name, arguments, .. } => {
            let input: Value = serde_json::from_str(arguments).expect("arguments");
            json!({"tool": {"name": name, "input": input}})
        }
        other => panic!("no piece of a scenario is like {other:?}"),
    }
}

/// A value in TOML, on one line.
fn toml(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{name} = {}", toml(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(list) => {
            format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}
