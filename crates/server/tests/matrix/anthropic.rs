//! A client of the Anthropic dialect: it sends every block back as it came.

use serde_json::{Value, json};
use throughline_testkit::fold;

use crate::speaker::{Ask, Call, Said, Speaker, Talk, list, parameters, text};

#[derive(Default)]
pub(crate) struct Anthropic {
    talk: Talk,
}

impl Speaker for Anthropic {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        let results: Vec<Value> = calls
            .iter()
            .map(|call| json!({"type": "tool_result", "tool_use_id": call.id, "content": result}))
            .collect();
        self.talk.messages.push(json!({"role": "user", "content": results}));
    }

    fn ask(&self, model: &str, stream: bool) -> Ask {
        let mut body = json!({
            "model": model,
            "max_tokens": 8192,
            "messages": self.talk.messages,
            "stream": stream,
        });
        if self.talk.thinks {
            body["thinking"] = json!({"type": "enabled", "budget_tokens": 4096});
        }
        if self.talk.tools {
            body["tools"] = json!([{"name": "lookup", "input_schema": parameters()}]);
        }
        Ask {
            path: "/v1/messages".to_owned(),
            headers: vec![("anthropic-version", "2023-06-01")],
            body,
        }
    }

    fn read(&mut self, body: &str, stream: bool) -> Said {
        let message = if stream { fold(body) } else { serde_json::from_str(body).expect("JSON") };
        let mut said = Said::default();
        for block in list(&message["content"]) {
            match text(&block["type"]) {
                "thinking" => {
                    let signed = !text(&block["signature"]).is_empty();
                    assert!(signed, "clients drop thinking without a signature: {block}");
                    said.reasoning.push_str(text(&block["thinking"]));
                }
                "text" => said.text.push_str(text(&block["text"])),
                "tool_use" => said.calls.push(Call {
                    id: text(&block["id"]).to_owned(),
                    name: text(&block["name"]).to_owned(),
                    arguments: block["input"].clone(),
                }),
                _ => {}
            }
        }
        self.talk.messages.push(json!({"role": "assistant", "content": message["content"]}));
        said
    }
}
