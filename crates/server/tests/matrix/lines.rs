//! Clients of our own formats. One sends the lines of a reply back just as they came, or the blocks of a
//! whole one; the other reads the events of the vocabulary, and sends back its blocks.

use serde_json::{Value, json};
use throughline_canonical::{Event, Fold};

use crate::speaker::{Ask, Call, Said, Speaker, Talk, list, parameters, text};

pub(crate) struct Lines {
    talk: Talk,
    /// Where it asks.
    path: &'static str,
}

impl Lines {
    pub(crate) fn new(path: &'static str) -> Self {
        Self { talk: Talk::default(), path }
    }
}

impl Speaker for Lines {
    fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    fn results(&mut self, calls: &[Call], result: &str) {
        let results = calls
            .iter()
            .map(|call| json!({"type": "tool_result", "id": call.id, "content": result}));
        let results: Vec<Value> = results.collect();
        self.talk.messages.push(json!({"role": "user", "content": results}));
    }

    fn ask(&self, model: &str, stream: bool) -> Ask {
        let mut body = json!({
            "model": model,
            "messages": self.talk.messages,
            "thinking": if self.talk.thinks { "medium" } else { "off" },
        });
        if !stream {
            body["stream"] = false.into();
        }
        if self.talk.tools {
            body["tools"] = json!([{"name": "lookup", "parameters": parameters()}]);
        }
        Ask { path: self.path.to_owned(), headers: Vec::new(), body }
    }

    fn read(&mut self, body: &str, stream: bool) -> Said {
        let content = match (self.path, stream) {
            ("/ndjson/chat", true) => lines(body),
            (_, true) => events(body),
            (_, false) => {
                let whole: Value = serde_json::from_str(body).expect("JSON");
                let blocks = ["contentBlocks", "content"].map(|name| &whole[name]);
                let blocks = blocks.into_iter().find(|blocks| blocks.is_array());
                blocks.expect("blocks").clone()
            }
        };
        let said = said(&content);
        self.talk.messages.push(json!({"role": "assistant", "content": content}));
        said
    }
}

/// The lines of a reply, numbered from one, the last of which says that it is done.
fn lines(body: &str) -> Value {
    let read = |line| serde_json::from_str::<Value>(line).expect("JSON in a line");
    let lines: Vec<Value> = body.lines().map(read).collect();
    for (number, line) in (1..).zip(&lines) {
        assert_eq!(line["seq"], number, "{line}");
    }
    let last = lines.last().expect("a line");
    assert_eq!((text(&last["type"]), text(&last["reason"])), ("done", "completed"));
    lines.into()
}

/// The blocks of the events of a reply.
fn events(body: &str) -> Value {
    let mut fold = Fold::default();
    for event in crate::speaker::events(body) {
        let event: Event<'static> = serde_json::from_value(event).expect("an event");
        fold.push(&event);
    }
    let reply = fold.finish();
    assert!(reply.reason.is_some() && reply.fault.is_none(), "{reply:?}");
    json!(reply.content)
}

fn said(content: &Value) -> Said {
    let mut said = Said::default();
    for block in list(content) {
        let words = ["thinking", "text", "content"].map(|name| text(&block[name]));
        let words = words.concat();
        match text(&block["type"]) {
            "thinking" => said.reasoning.push_str(&words),
            "text" => said.text.push_str(&words),
            "tool_call" => said.calls.push(Call {
                id: text(&block["id"]).to_owned(),
                name: text(&block["name"]).to_owned(),
                arguments: match &block["arguments"] {
                    Value::String(arguments) => serde_json::from_str(arguments).expect("arguments"),
                    arguments => arguments.clone(),
                },
            }),
            _ => {}
        }
    }
    said
}
