//! A client of the OpenAI chat dialect: it sends back at most the plain text of the reasoning, or every
//! member of the message that it got.

use serde_json::{Value, json};

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, events, list, text,
};

pub(crate) struct Chat {
    history: History,
    /// Which of these members it sends back. Many clients send none.
    returned: &'static [&'static str],
}

/// The members in which servers send reasoning.
const REASONING: [&str; 4] =
    ["reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"];

impl Chat {
    pub(crate) fn new(returns_reasoning: bool) -> Self {
        let returned = if returns_reasoning { &REASONING[..1] } else { &[] };
        Self { history: History::default(), returned }
    }

    /// Creates a client that sends back whatever the server sent.
    #[allow(dead_code, reason = "the matrix uses it")]
    pub(crate) fn whole() -> Self {
        Self { history: History::default(), returned: &REASONING }
    }
}

impl TestClient for Chat {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let results = results.iter().map(
            |(call, result)| json!({"role": "tool", "tool_call_id": call.id, "content": result}),
        );
        self.history.messages.extend(results);
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let mut body = json!({"model": model, "messages": self.history.messages, "stream": stream});
        body["reasoning_effort"] = if self.history.thinking { "medium" } else { "none" }.into();
        if !self.history.system.is_empty() {
            let system = json!({"role": "system", "content": self.history.system});
            body["messages"].as_array_mut().expect("a list").insert(0, system);
        }
        if !self.history.tools.is_empty() {
            body["tools"] = self.history.tools(|tool| {
                json!({"type": "function", "function": {
                    "name": tool.name, "description": tool.description,
                    "parameters": tool.parameters,
                }})
            });
        }
        if self.history.sets_breakpoints {
            set_breakpoints(&mut body);
        }
        ClientRequest {
            path: "/v1/chat/completions".to_owned(),
            headers: vec![("authorization", "Bearer key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let mut view = ClientView::default();
        let mut calls: Vec<(String, String, String)> = Vec::new();
        let mut extras: Vec<(usize, Value)> = Vec::new();
        let mut returned = serde_json::Map::new();
        let mut chunks = String::new();
        let mut take = |message: &Value| {
            for name in self.returned {
                match (returned.get_mut(*name), &message[*name]) {
                    (_, Value::Null) => {}
                    (Some(Value::String(known)), Value::String(more)) => known.push_str(more),
                    (Some(Value::Array(known)), Value::Array(more)) => join_pieces(known, more),
                    (_, first) => drop(returned.insert((*name).to_owned(), first.clone())),
                }
            }
            view.reasoning.push_str(text(&message["reasoning_content"]));
            view.text.push_str(text(&message["content"]));
            // One server sends thinking as parts of the content.
            for part in list(&message["content"]) {
                view.text.push_str(text(&part["text"]));
                list(&part["thinking"]).for_each(|part| chunks.push_str(text(&part["text"])));
            }
            for (position, call) in list(&message["tool_calls"]).enumerate() {
                let mut at = call["index"].as_u64().map_or(position, |at| at as usize);
                let id = text(&call["id"]);
                // One server gives all calls the same index.
                if calls.get(at).is_some_and(|known| !id.is_empty() && known.0 != id) {
                    at = calls.len();
                }
                if calls.len() <= at {
                    calls.resize(at + 1, Default::default());
                }
                // One server signs calls in this member.
                extras.extend(call.get("extra_content").map(|extra| (at, extra.clone())));
                calls[at].0.push_str(text(&call["id"]));
                calls[at].1.push_str(text(&call["function"]["name"]));
                calls[at].2.push_str(text(&call["function"]["arguments"]));
            }
        };
        if stream {
            let chunks = events(body);
            chunks.iter().for_each(|chunk| take(&chunk["choices"][0]["delta"]));
            let ended = |chunk: &Value| chunk["choices"][0]["finish_reason"].is_string();
            assert!(chunks.iter().any(ended), "no finish_reason: {body}");
        } else {
            let whole: Value = serde_json::from_str(body).expect("JSON");
            take(&whole["choices"][0]["message"]);
        }
        // Servers that call without arguments stream none, and refuse a call without any.
        for (_, _, arguments) in calls.iter_mut().filter(|(_, _, arguments)| arguments.is_empty()) {
            arguments.push_str("{}");
        }
        let mut message = json!({"role": "assistant", "content": view.text});
        if !chunks.is_empty() && self.returned.len() > 1 {
            let thinking =
                json!({"type": "thinking", "thinking": [{"type": "text", "text": chunks}]});
            let answer = json!({"type": "text", "text": view.text});
            message["content"] = match view.text.as_str() {
                "" => json!([thinking]),
                _ => json!([thinking, answer]),
            };
        }
        returned.retain(|_, value| value != "");
        message.as_object_mut().expect("a message").extend(returned);
        if !calls.is_empty() {
            message["tool_calls"] = calls
                .iter()
                .map(|(id, name, arguments)| {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
                })
                .collect();
        }
        for (at, extra) in extras.into_iter().filter(|_| self.returned.len() > 1) {
            message["tool_calls"][at]["extra_content"] = extra;
        }
        self.history.messages.push(message);
        view.calls = calls
            .into_iter()
            .map(|(id, name, arguments)| Call {
                id,
                name,
                arguments: serde_json::from_str(&arguments).expect("arguments"),
            })
            .collect();
        view
    }
}

/// Joins the streamed pieces of an entry. Its signature comes last.
fn join_pieces(known: &mut Vec<Value>, more: &[Value]) {
    for piece in more {
        let is_same = |entry: &&mut Value| {
            ["index", "type"].iter().all(|name| entry[*name] == piece[*name])
                && text(&entry["signature"]).is_empty()
        };
        let Some(entry) = known.last_mut().filter(is_same) else {
            known.push(piece.clone());
            continue;
        };
        for (name, value) in piece.as_object().into_iter().flatten() {
            entry[name] = match (&entry[name], value) {
                (Value::String(known), Value::String(more))
                    if name == "text" || name == "thinking" =>
                {
                    format!("{known}{more}").into()
                }
                _ => value.clone(),
            };
        }
    }
}

/// Ends prefixes after the system text and at the end of the last two turns. Servers in front of Claude
/// read it.
fn set_breakpoints(body: &mut Value) {
    let messages = body["messages"].as_array_mut().expect("a list");
    let is_end = |at: usize, messages: &[Value]| {
        let next = messages.get(at + 1).map(|next| &next["role"]);
        messages[at]["role"] != "assistant" && next.is_none_or(|role| role == "assistant")
    };
    let ends: Vec<usize> = (1..messages.len()).filter(|at| is_end(*at, messages)).collect();
    // A text keeps its form when its breakpoint moves on.
    for message in messages.iter_mut().filter(|message| message["role"] != "assistant") {
        message["content"] = json!([{"type": "text", "text": message["content"]}]);
    }
    for at in ends.into_iter().rev().take(2).chain([0]) {
        messages[at]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    }
}
