//! What a server asks a person during a call (MCP's input-required result), and the answer.

use rmcp::model::{
    ElicitRequestParams, InputRequest, InputRequests, InputRequiredResult, InputResponses,
};
use serde_json::{Value, json};

/// A call that needs input before it can go on.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingInput {
    /// What the server asks, for people.
    pub message: String,
    /// The JSON Schema of the answer, if the server wants more than a consent.
    pub schema: Option<Value>,
    requests: InputRequests,
    state: Option<String>,
}

/// What a person answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InputAnswer {
    /// Whether the person agrees.
    pub accept: bool,
    /// What the person fills in.
    pub content: Option<Value>,
}

/// What a server asks for.
pub(crate) enum Asked {
    /// Something of a person.
    Person(Box<PendingInput>),
    /// Nothing of a person: the call may be sent again at once, with these answers.
    Nothing(InputResponses, Option<String>),
    /// Something that this client does not offer.
    Unsupported(&'static str),
}

impl PendingInput {
    pub(crate) fn read(result: InputRequiredResult) -> Asked {
        let requests = result.input_requests.unwrap_or_default();
        let mut messages = Vec::new();
        let mut schema = None;
        for request in requests.values() {
            match request {
                InputRequest::Elicitation(request) => match &request.params {
                    ElicitRequestParams::FormElicitationParams {
                        message,
                        requested_schema,
                        ..
                    } => {
                        messages.push(message.clone());
                        schema = schema.or_else(|| serde_json::to_value(requested_schema).ok());
                    }
                    ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                        messages.push(format!("{message} ({url})"));
                    }
                    _ => return Asked::Unsupported("an unknown kind of input"),
                },
                InputRequest::ListRoots(_) => {}
                _ => return Asked::Unsupported("an answer of a model"),
            }
        }
        let pending =
            Self { message: messages.join("\n"), schema, requests, state: result.request_state };
        match messages.is_empty() {
            true => {
                let (answers, state) = pending.answer(&InputAnswer::default());
                Asked::Nothing(answers, state)
            }
            false => Asked::Person(Box::new(pending)),
        }
    }

    /// The members of the request that goes on.
    pub(crate) fn answer(&self, answer: &InputAnswer) -> (InputResponses, Option<String>) {
        let respond = |request: &InputRequest| match (request, answer.accept) {
            (InputRequest::ListRoots(_), _) => json!({"roots": []}),
            (InputRequest::Elicitation(request), true) => {
                let is_form =
                    matches!(request.params, ElicitRequestParams::FormElicitationParams { .. });
                match is_form {
                    true => json!({
                        "action": "accept",
                        "content": answer.content.clone().unwrap_or_else(|| json!({})),
                    }),
                    false => json!({"action": "accept"}),
                }
            }
            _ => json!({"action": "decline"}),
        };
        let answers =
            self.requests.iter().map(|(key, request)| (key.clone(), respond(request))).collect();
        (answers, self.state.clone())
    }
}
