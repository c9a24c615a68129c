//! The requests of the client, as bytes.

use std::net::SocketAddr;

use super::upstream::{Writes, model_name};

/// The wire dialect of the client. The upstream always speaks Anthropic's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// Passed through: edited in place at most.
    Anthropic,
    /// Translated in both directions.
    OpenAiChat,
}

/// A request and the reply it gets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) client: Client,
    /// Events of the reply; none in a whole reply.
    pub(super) events: u32,
    pub(super) writes: Writes,
    pub(super) history: History,
}

/// The conversation before the question.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    pub(super) messages: usize,
    /// Bytes of all messages together.
    pub(super) bytes: usize,
}

impl History {
    pub(super) const NONE: Self = Self { messages: 0, bytes: 0 };
}

impl Request {
    /// A short question with a streamed reply, in the upstream's dialect.
    pub(super) const fn streamed(events: u32, writes: Writes) -> Self {
        Self { client: Client::Anthropic, events, writes, history: History::NONE }
    }

    /// A question with a whole reply.
    pub(super) const fn whole(client: Client, writes: Writes, history: History) -> Self {
        Self { client, events: 0, writes, history }
    }

    /// Whether a reply with this many events is complete. A translated stream has its own number.
    pub(super) fn is_complete(self, events: u32) -> bool {
        match self.client {
            Client::OpenAiChat if self.events > 0 => events > 0,
            _ => events == self.events,
        }
    }

    /// The request with its head.
    pub(super) fn bytes(self, address: SocketAddr) -> Vec<u8> {
        let body = self.body();
        let path = match self.client {
            Client::Anthropic => "/v1/messages",
            Client::OpenAiChat => "/v1/chat/completions",
        };
        format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             anthropic-version: 2023-06-01\r\nx-api-key: bench\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }

    fn body(self) -> String {
        let model = model_name(self.events, self.writes);
        let messages = self.messages();
        let settings = match (self.writes, self.client) {
            (Writes::Whole, _) => r#""max_tokens":4096"#,
            (Writes::WholeThinking, Client::Anthropic) => {
                r#""max_tokens":4096,"thinking":{"type":"enabled","budget_tokens":2048}"#
            }
            (Writes::WholeThinking, Client::OpenAiChat) => r#""reasoning_effort":"low""#,
            (_, Client::Anthropic) => {
                r#""max_tokens":4096,"stream":true,"thinking":{"type":"enabled","budget_tokens":2048}"#
            }
            (_, Client::OpenAiChat) => r#""stream":true,"reasoning_effort":"low""#,
        };
        format!(r#"{{"model":"{model}",{settings},"messages":[{messages}]}}"#)
    }

    fn messages(self) -> String {
        let History { messages, bytes } = self.history;
        let text = "A line of a conversation, with \\\"quotes\\\" and a line end.\\n";
        let text = text.repeat(bytes / messages.max(1) / text.len());
        // In pairs, so that the question follows an answer.
        let pairs = messages / 2;
        let pair = format!(
            r#"{{"role":"user","content":"{text}"}},{{"role":"assistant","content":"{text}"}},"#
        );
        let question = r#"{"role":"user","content":"How fast is this?"}"#;
        pair.repeat(pairs) + question
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_json_of_the_chosen_size() {
        for client in [Client::Anthropic, Client::OpenAiChat] {
            let history = History { messages: 100, bytes: 200_000 };
            let request = Request::whole(client, Writes::Whole, history);
            let body: serde_json::Value = serde_json::from_str(&request.body()).unwrap();
            assert_eq!(body["messages"].as_array().unwrap().len(), 101);
            let length = request.body().len();
            assert!((190_000..210_000).contains(&length), "{length}");
        }
        let body = Request::streamed(12, Writes::Blocks).body();
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["stream"], true);
    }
}
