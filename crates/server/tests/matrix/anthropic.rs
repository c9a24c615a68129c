//! Clients of the Anthropic dialect. They differ in what they keep of a conversation.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use throughline_testkit::message_from_sse;

use crate::test_client::{Call, ClientRequest, ClientView, History, TestClient, list, text};

/// Counts the clients that keep only the id of the last message.
static CALLERS: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
pub(crate) struct Anthropic {
    history: History,
    keeps: Keeps,
    /// The id of the last message.
    previous: Option<String>,
    /// The key of a caller of its own.
    key: Option<&'static str>,
}

/// What a client keeps of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeps {
    /// Every block, unchanged.
    #[default]
    Blocks,
    /// Everything but thinking.
    Answers,
    /// The id of the last message. The gateway keeps the message thread.
    LastId,
    /// The provider's summary and what follows it.
    Summary,
}

impl Anthropic {
    /// Creates a client that keeps only the id of the last message. The simulator gives equal
    /// conversations equal ids, which a provider never does, so each client is a caller of its own.
    pub(crate) fn threaded() -> Self {
        let key = format!("key-{}", CALLERS.fetch_add(1, Ordering::Relaxed));
        Self { keeps: Keeps::LastId, key: Some(Box::leak(key.into())), ..Self::default() }
    }

    /// Creates a client that asks the provider for a summary in every turn of the user, and drops
    /// what the summary replaces.
    pub(crate) fn compacting() -> Self {
        Self { keeps: Keeps::Summary, ..Self::default() }
    }

    /// Creates a client that drops all thinking.
    pub(crate) fn without_thinking() -> Self {
        Self { keeps: Keeps::Answers, ..Self::default() }
    }

    /// What the client sends back of an answer.
    fn keep(&mut self, message: &Value) {
        let mut content: Vec<Value> = list(&message["content"]).cloned().collect();
        match self.keeps {
            Keeps::Blocks => {}
            Keeps::Answers => {
                let is_thinking = |block: &Value| text(&block["type"]).ends_with("thinking");
                content.retain(|block| !is_thinking(block));
            }
            Keeps::LastId => {
                self.history.messages.clear();
                self.previous = Some(text(&message["id"]).to_owned());
                return;
            }
            Keeps::Summary => {
                if content.iter().any(|block| block["type"] == "compaction") {
                    self.history.messages.clear();
                }
            }
        }
        self.history.messages.push(json!({"role": "assistant", "content": content}));
    }
}

impl TestClient for Anthropic {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_user(&mut self, text: &str) {
        let end = match self.keeps {
            // The simulator writes a summary if the user says this word.
            Keeps::Summary => ", and compact",
            Keeps::Blocks | Keeps::Answers | Keeps::LastId => "",
        };
        self.history.messages.push(json!({"role": "user", "content": format!("{text}{end}")}));
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let results: Vec<Value> = results
            .iter()
            .map(|(call, result)| {
                json!({"type": "tool_result", "tool_use_id": call.id, "content": result})
            })
            .collect();
        self.history.messages.push(json!({"role": "user", "content": results}));
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({
            "model": model,
            "max_tokens": 8192,
            "messages": self.history.messages,
            "stream": stream,
        });
        if self.history.thinking {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": 4096});
        }
        if !self.history.system.is_empty() && self.previous.is_none() {
            body["system"] = json!([{"type": "text", "text": self.history.system}]);
        }
        if !self.history.tools.is_empty() && self.previous.is_none() {
            body["tools"] = self.history.tools(|tool| {
                json!({
                    "name": tool.name, "description": tool.description,
                    "input_schema": tool.parameters,
                })
            });
        }
        if self.history.sets_breakpoints {
            set_breakpoints(&mut body);
        }
        let mut headers = vec![("anthropic-version", "2023-06-01")];
        headers.extend(self.key.map(|key| ("x-api-key", key)));
        if self.keeps == Keeps::Summary {
            headers.push(("anthropic-beta", "compact-2026-09-04"));
            body["context_management"] = json!({"edits": [{"type": "compact_20260904"}]});
        }
        if self.keeps == Keeps::LastId {
            headers.push(("anthropic-beta", "message-threads-2026-08-12"));
            body["thread"] = match &self.previous {
                Some(id) => json!({"type": "continue", "previous_message_id": id}),
                None => json!({"type": "create"}),
            };
        }
        ClientRequest { path: "/v1/messages".to_owned(), headers, body }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let message =
            if stream { message_from_sse(body) } else { serde_json::from_str(body).expect("JSON") };
        let mut view = ClientView::default();
        for block in list(&message["content"]) {
            match text(&block["type"]) {
                "thinking" => {
                    let signed = !text(&block["signature"]).is_empty();
                    assert!(signed, "clients drop thinking without a signature: {block}");
                    view.reasoning.push_str(text(&block["thinking"]));
                }
                "text" => view.text.push_str(text(&block["text"])),
                "tool_use" => view.calls.push(Call {
                    id: text(&block["id"]).to_owned(),
                    name: text(&block["name"]).to_owned(),
                    arguments: block["input"].clone(),
                }),
                _ => {}
            }
        }
        self.keep(&message);
        view
    }
}

/// Ends prefixes after the tools, after the system text and at the end of the last two turns, as coding
/// agents do.
fn set_breakpoints(body: &mut Value) {
    for list in ["tools", "system"] {
        if let Some(parts) = body.get_mut(list) {
            mark_last(parts);
        }
    }
    let messages = body["messages"].as_array_mut().into_iter().flatten();
    let users = messages.rev().filter(|message| message["role"] == "user");
    for (turn, message) in users.enumerate() {
        // A text keeps its form when its breakpoint moves on.
        if let Value::String(text) = &message["content"] {
            message["content"] = json!([{"type": "text", "text": text}]);
        }
        if turn < 2 {
            mark_last(&mut message["content"]);
        }
    }
}

fn mark_last(parts: &mut Value) {
    if let Some(last) = parts.as_array_mut().and_then(|parts| parts.last_mut()) {
        last["cache_control"] = json!({"type": "ephemeral"});
    }
}
