//! Clients of the Responses dialect. They differ in what they keep of a conversation.

use serde_json::{Value, json};
use throughline_testkit::open_responses;

use crate::test_client::{
    Call, ClientRequest, ClientView, History, TestClient, events, list, text,
};

#[derive(Default)]
pub(crate) struct Responses {
    history: History,
    keeps: Keeps,
    /// The id of the last response.
    previous: Option<String>,
}

/// What a client keeps of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Keeps {
    /// Every item, unchanged. Nothing is stored.
    #[default]
    Items,
    /// Everything but reasoning. Nothing is stored.
    Answers,
    /// The id of the last response. The gateway stores it.
    LastId,
    /// The id of a conversation that the gateway stores.
    Conversation(String),
    /// A summary of everything before the last user message, and nothing else of it.
    Summary,
}

impl Responses {
    /// Creates a client that keeps only the id of the last response.
    pub(crate) fn stateful() -> Self {
        Self { keeps: Keeps::LastId, ..Self::default() }
    }

    /// Creates a client that keeps only the id of a conversation.
    pub(crate) fn in_conversation(id: &str) -> Self {
        Self { keeps: Keeps::Conversation(id.to_owned()), ..Self::default() }
    }

    /// Creates a client that compacts the conversation before every turn of the user.
    pub(crate) fn compacting() -> Self {
        Self { keeps: Keeps::Summary, ..Self::default() }
    }

    /// Creates a client that drops all reasoning.
    pub(crate) fn without_reasoning() -> Self {
        Self { keeps: Keeps::Answers, ..Self::default() }
    }

    fn is_stored(&self) -> bool {
        matches!(self.keeps, Keeps::LastId | Keeps::Conversation(_))
    }

    /// The items before the last user message, if a reply is among them.
    fn compactable(&self) -> Option<&[Value]> {
        let (last, before) = self.history.messages.split_last()?;
        let is_reply = |item: &Value| matches!(text(&item["type"]), "message" | "function_call");
        (last["role"] == "user" && before.iter().any(is_reply)).then_some(before)
    }

    fn request(path: &str, body: Value) -> ClientRequest {
        let headers = vec![("authorization", "Bearer key")];
        ClientRequest { path: path.to_owned(), headers, body }
    }
}

impl TestClient for Responses {
    fn history(&mut self) -> &mut History {
        &mut self.history
    }

    fn push_each_result(&mut self, results: &[(&Call, &str)]) {
        let results = results.iter().map(|(call, result)| {
            json!({"type": "function_call_output", "call_id": call.id, "output": result})
        });
        self.history.messages.extend(results);
    }

    fn request_before(&self, model: &str) -> Option<ClientRequest> {
        let items = self.compactable().filter(|_| self.keeps == Keeps::Summary)?;
        let body = json!({"model": model, "input": items});
        Some(Self::request("/v1/responses/compact", body))
    }

    fn read_before(&mut self, body: &str) {
        let compacted: Value = serde_json::from_str(body).expect("JSON");
        open_responses::check_compaction(&compacted);
        let question = self.history.messages.pop();
        // The user's messages are there too. Without them, only the summary has the conversation.
        let summaries = list(&compacted["output"]).filter(|item| item["type"] == "compaction");
        self.history.messages = summaries.cloned().collect();
        assert_eq!(self.history.messages.len(), 1, "{compacted}");
        self.history.messages.extend(question);
    }

    fn next_request(&self, model: &str, stream: bool) -> ClientRequest {
        let reasoning = if self.history.thinking {
            json!({"effort": "medium", "summary": "auto"})
        } else {
            json!({"effort": "none"})
        };
        let mut body = json!({
            "model": model,
            "input": self.history.messages,
            "stream": stream,
            "store": self.is_stored(),
            "include": ["reasoning.encrypted_content"],
            "reasoning": reasoning,
        });
        if let Some(previous) = &self.previous {
            body["previous_response_id"] = previous.as_str().into();
        }
        if let Keeps::Conversation(id) = &self.keeps {
            body["conversation"] = id.as_str().into();
        }
        if !self.history.system.is_empty() {
            body["instructions"] = self.history.system.as_str().into();
        }
        if !self.history.tools.is_empty() {
            body["tools"] = self.history.tools(|tool| {
                json!({
                    "type": "function", "name": tool.name, "description": tool.description,
                    "parameters": tool.parameters, "strict": false,
                })
            });
        }
        Self::request("/v1/responses", body)
    }

    fn read(&mut self, body: &str, stream: bool) -> ClientView {
        let response = if stream {
            open_responses::check_events(&events(body))
        } else {
            let response = serde_json::from_str(body).expect("JSON");
            open_responses::check_response(&response);
            response
        };
        assert_eq!(response["status"], "completed", "{response}");
        let messages = list(&response["output"]).filter(|item| item["type"] == "message");
        let empty =
            |item: &Value| list(&item["content"]).all(|part| text(&part["text"]).is_empty());
        assert_eq!(messages.filter(|item| empty(item)).count(), 0, "{response}");
        let mut view = ClientView::default();
        for item in list(&response["output"]) {
            match text(&item["type"]) {
                "reasoning" => {
                    let sealed = !text(&item["encrypted_content"]).is_empty();
                    assert!(sealed, "clients drop such an item: {item}");
                    let parts = list(&item["summary"]).map(|part| text(&part["text"]));
                    view.reasoning.extend(parts);
                }
                "message" => {
                    let parts = list(&item["content"]).map(|part| text(&part["text"]));
                    view.text.extend(parts);
                }
                "function_call" => view.calls.push(Call {
                    id: text(&item["call_id"]).to_owned(),
                    name: text(&item["name"]).to_owned(),
                    arguments: serde_json::from_str(text(&item["arguments"])).expect("arguments"),
                }),
                other => panic!("an item of type {other}"),
            }
            if self.keeps != Keeps::Answers || item["type"] != "reasoning" {
                self.history.messages.push(item.clone());
            }
        }
        if self.is_stored() {
            self.history.messages.clear();
        }
        if self.keeps == Keeps::LastId {
            self.previous = Some(text(&response["id"]).to_owned());
        }
        view
    }
}
