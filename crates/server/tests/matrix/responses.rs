//! Clients of the Responses dialect: one sends every item back as it came and stores nothing, one sends
//! what is new and names the response before it.

use serde_json::json;

use crate::speaker::{Ask, Call, Said, Speaker, Talk, events, list, parameters, text};

#[derive(Default)]
pub(crate) struct Responses {
    talk: Talk,
    /// The server keeps the conversation.
    stateful: bool,
    previous: Option<String>,
}

impl Responses {
    /// A client that keeps nothing but the id of the last response.
    pub(crate) fn stateful() -> Self {
        Self { stateful: true, ..Self::default() }
    }
}

impl Speaker for Responses {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        let results = calls.iter().map(
            |call| json!({"type": "function_call_output", "call_id": call.id, "output": result}),
        );
        self.talk.messages.extend(results);
    }

    fn ask(&self, model: &str, stream: bool) -> Ask {
        let reasoning = if self.talk.thinks {
            json!({"effort": "medium", "summary": "auto"})
        } else {
            json!({"effort": "none"})
        };
        let mut body = json!({
            "model": model,
            "input": self.talk.messages,
            "stream": stream,
            "store": self.stateful,
            "include": ["reasoning.encrypted_content"],
            "reasoning": reasoning,
        });
        if let Some(previous) = &self.previous {
            body["previous_response_id"] = previous.as_str().into();
        }
        if self.talk.tools {
            body["tools"] = json!([{
                "type": "function",
                "name": "lookup",
                "parameters": parameters(),
                "strict": false,
            }]);
        }
        Ask {
            path: "/v1/responses".to_owned(),
            headers: vec![("authorization", "Bearer key")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> Said {
        let response = if stream {
            let all = events(body);
            let numbers = all.iter().map(|event| event["sequence_number"].as_u64());
            assert!(numbers.eq((0..).map(Some).take(all.len())), "{body}");
            let last = all.last().expect("events");
            assert_eq!(last["type"], "response.completed", "{last}");
            last["response"].clone()
        } else {
            serde_json::from_str(body).expect("JSON")
        };
        let mut said = Said::default();
        for item in list(&response["output"]) {
            match text(&item["type"]) {
                "reasoning" => {
                    let sealed = !text(&item["encrypted_content"]).is_empty();
                    assert!(sealed, "clients drop such an item: {item}");
                    let parts = list(&item["summary"]).map(|part| text(&part["text"]));
                    said.reasoning.extend(parts);
                }
                "message" => {
                    let parts = list(&item["content"]).map(|part| text(&part["text"]));
                    said.text.extend(parts);
                }
                "function_call" => said.calls.push(Call {
                    id: text(&item["call_id"]).to_owned(),
                    name: text(&item["name"]).to_owned(),
                    arguments: serde_json::from_str(text(&item["arguments"])).expect("arguments"),
                }),
                other => panic!("an item of type {other}"),
            }
            self.talk.messages.push(item.clone());
        }
        if self.stateful {
            self.talk.messages.clear();
            self.previous = Some(text(&response["id"]).to_owned());
        }
        said
    }
}
