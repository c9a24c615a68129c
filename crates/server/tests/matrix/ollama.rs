//! A client of Ollama's dialect: it sends the whole message back, or what its library's types hold of
//! it, which are no ids.

use serde_json::{Value, json};

use crate::speaker::{Ask, Call, Said, Speaker, Talk, list, parameters, text};

pub(crate) struct Ollama {
    talk: Talk,
    /// Whether it sends the ids of calls back.
    keeps_ids: bool,
}

impl Ollama {
    pub(crate) fn new(keeps_ids: bool) -> Self {
        // Two conversations that begin alike are one; these two must not answer for each other.
        let messages = match keeps_ids {
            true => Vec::new(),
            false => vec![json!({"role": "system", "content": "Ids are forgotten here."})],
        };
        Self { talk: Talk { messages, ..Talk::default() }, keeps_ids }
    }
}

impl Speaker for Ollama {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        for call in calls {
            let mut message = json!({"role": "tool", "tool_name": call.name, "content": result});
            if self.keeps_ids {
                message["tool_call_id"] = call.id.as_str().into();
            }
            self.talk.messages.push(message);
        }
    }

    fn ask(&self, model: &str, stream: bool) -> Ask {
        let mut body = json!({
            "model": model, "messages": self.talk.messages, "stream": stream, "think": self.talk.thinks,
        });
        if self.talk.tools {
            body["tools"] = json!([{
                "type": "function",
                "function": {"name": "lookup", "description": "", "parameters": parameters()},
            }]);
        }
        Ask { path: "/api/chat".to_owned(), headers: Vec::new(), body }
    }

    fn read(&mut self, body: &str, stream: bool) -> Said {
        let lines: Vec<Value> = match stream {
            true => body.split_terminator('\n').map(json).collect(),
            false => vec![json(body)],
        };
        let mut said = Said::default();
        let mut calls = Vec::new();
        for (place, line) in lines.iter().enumerate() {
            assert!(line.get("error").is_none(), "{line}");
            assert_eq!(line["done"], place + 1 == lines.len(), "{body}");
            let message = &line["message"];
            said.reasoning.push_str(text(&message["thinking"]));
            said.text.push_str(text(&message["content"]));
            calls.extend(list(&message["tool_calls"]).cloned());
        }
        said.calls = calls
            .iter()
            .map(|call| Call {
                id: text(&call["id"]).to_owned(),
                name: text(&call["function"]["name"]).to_owned(),
                arguments: call["function"]["arguments"].clone(),
            })
            .collect();
        let mut message = json!({
            "role": "assistant", "content": said.text, "thinking": said.reasoning,
        });
        if !calls.is_empty() {
            for call in &mut calls {
                if !self.keeps_ids {
                    let function = &call["function"];
                    *call = json!({"function": {
                        "name": function["name"], "arguments": function["arguments"],
                    }});
                }
            }
            message["tool_calls"] = calls.into();
        }
        self.talk.messages.push(message);
        said
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("a line of JSON")
}
