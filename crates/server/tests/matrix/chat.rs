//! A client of the OpenAI chat dialect: of the reasoning it sends back the plain text at most.

use serde_json::{Value, json};

use crate::speaker::{Ask, Call, Said, Speaker, Talk, events, list, parameters, text};

pub(crate) struct Chat {
    talk: Talk,
    /// Whether it sends `reasoning_content` back; many clients know no such thing.
    pub(crate) returns_reasoning: bool,
}

impl Chat {
    pub(crate) fn new(returns_reasoning: bool) -> Self {
        Self { talk: Talk::default(), returns_reasoning }
    }
}

impl Speaker for Chat {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        let results = calls
            .iter()
            .map(|call| json!({"role": "tool", "tool_call_id": call.id, "content": result}));
        self.talk.messages.extend(results);
    }

    fn ask(&self, model: &str, stream: bool) -> Ask {
        let mut body = json!({"model": model, "messages": self.talk.messages, "stream": stream});
        body["reasoning_effort"] = if self.talk.thinks { "medium" } else { "none" }.into();
        if self.talk.tools {
            body["tools"] = json!([{
                "type": "function",
                "function": {"name": "lookup", "parameters": parameters()},
            }]);
        }
        Ask {
            path: "/v1/chat/completions".to_owned(),
            headers: vec![("authorization", "Bearer key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> Said {
        let mut said = Said::default();
        let mut calls: Vec<(String, String, String)> = Vec::new();
        let mut take = |message: &Value| {
            said.reasoning.push_str(text(&message["reasoning_content"]));
            said.text.push_str(text(&message["content"]));
            for (place, call) in list(&message["tool_calls"]).enumerate() {
                let at = call["index"].as_u64().map_or(place, |at| at as usize);
                if calls.len() <= at {
                    calls.resize(at + 1, Default::default());
                }
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
        let mut message = json!({"role": "assistant", "content": said.text});
        if self.returns_reasoning && !said.reasoning.is_empty() {
            message["reasoning_content"] = said.reasoning.clone().into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls
                .iter()
                .map(|(id, name, arguments)| {
                    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
                })
                .collect();
        }
        self.talk.messages.push(message);
        said.calls = calls
            .into_iter()
            .map(|(id, name, arguments)| Call {
                id,
                name,
                arguments: serde_json::from_str(&arguments).expect("arguments"),
            })
            .collect();
        said
    }
}
