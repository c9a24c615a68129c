//! Shared by the passthrough tests: a request and a reply in each dialect, and a gateway over a raw
//! upstream.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{
    Answer, Exchange, Gateway, RawUpstream, StreamedAnswer, ok_head, ok_reply,
};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// A request and replies in one dialect.
#[derive(Clone, Copy)]
pub(crate) struct DialectSample {
    pub(crate) dialect: &'static str,
    /// More lines for a `[[backend]]` table.
    pub(crate) more: &'static str,
    /// The path for a streamed reply, and the one for a whole reply.
    pub(crate) stream_path: &'static str,
    pub(crate) whole_path: &'static str,
    /// A request with unusual formatting and unknown members.
    pub(crate) request: &'static str,
    /// A streamed reply with thinking and text, and its `[prompt, output, thinking]` tokens.
    pub(crate) stream: &'static str,
    pub(crate) tokens: [u64; 3],
    /// The same reply, not streamed.
    pub(crate) whole: &'static str,
    /// The keep-alive the gateway writes in this dialect.
    pub(crate) keep_alive: &'static str,
}

pub(crate) const RESPONSES: DialectSample = DialectSample {
    dialect: "openai_responses",
    // The request refers to an item that only the server has.
    more: "variant = \"openai\"",
    stream_path: "/v1/responses",
    whole_path: "/v1/responses",
    request: r#" {"unheard_of":{"b":1.50,"a":[1e3]},"model" : "gpt-5","stream":true,"input":[{"role":"user","content":"na\u00efve \/"} , {"type":"item_reference","id":"rs_0"}],"store":false,"reasoning":{"effort":"low","mood":"x"}}"#,
    stream: "event: response.created\n\
data: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":7,\"status\":\"in_progress\",\"model\":\"gpt-5\",\"output\":[],\"parallel_tool_calls\":true,\"tool_choice\":\"auto\",\"tools\":[],\"odd\":1.0}}\n\n\
event: response.output_item.added\n\
data: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[]}}\n\n\
event: response.output_item.done\n\
data: {\"type\":\"response.output_item.done\",\"sequence_number\":2,\"output_index\":0,\"item\":{\"id\":\"rs_1\",\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"Hm.\"}],\"encrypted_content\":\"Z2VudWluZQ==\"}}\n\n\
event: response.output_item.added\n\
data: {\"type\":\"response.output_item.added\",\"sequence_number\":3,\"output_index\":1,\"item\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[]}}\n\n\
event: response.output_text.delta\n\
data: {\"type\":\"response.output_text.delta\",\"sequence_number\":4,\"item_id\":\"msg_1\",\"output_index\":1,\"content_index\":0,\"delta\":\"Yes \u{1F914}.\",\"obfuscation\":\"x\"}\n\n\
event: response.completed\n\
data: {\"type\":\"response.completed\",\"sequence_number\":5,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":7,\"status\":\"completed\",\"model\":\"gpt-5\",\"output\":[],\"usage\":{\"input_tokens\":11,\"output_tokens\":7,\"output_tokens_details\":{\"reasoning_tokens\":3},\"total_tokens\":18}}}\n\n",
    tokens: [11, 7, 3],
    whole: r#"{ "id":"resp_1","object":"response","created_at":7,"status":"completed","model":"gpt-5","parallel_tool_calls":true,"tool_choice":"auto","tools":[],"output":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"Z2VudWluZQ=="},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes.","annotations":[]}]}],"odd":1.0,"usage":{"input_tokens":11,"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3}}}"#,
    keep_alive: "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":2}\n\n",
};

pub(crate) const GEMINI: DialectSample = DialectSample {
    dialect: "gemini",
    more: "",
    stream_path: "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
    whole_path: "/v1beta/models/gemini-3-pro:generateContent",
    request: r#" {"contents":[{"role":"user","parts":[{"text":"na\u00efve \/","unheard_of":1.50}]}],"generation_config":{"top_k":4e1,"mood":[]},"alt":"x"}"#,
    stream: "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Hm.\",\"thought\":true}]},\"index\":0}],\"modelVersion\":\"gemini-3-pro\",\"odd\":1.0}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"functionCall\":{\"name\":\"look\",\"args\":{}},\"thoughtSignature\":\"Z2VudWluZQ==\"}]},\"index\":0}],\"modelVersion\":\"gemini-3-pro\"}\r\n\r\n\
data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Yes \u{1F914}.\"}]},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":11,\"candidatesTokenCount\":4,\"thoughtsTokenCount\":3},\"modelVersion\":\"gemini-3-pro\"}\r\n\r\n",
    tokens: [11, 7, 3],
    whole: r#"{ "candidates":[{"content":{"role":"model","parts":[{"text":"Hm.","thought":true},{"functionCall":{"name":"look","args":{}},"thoughtSignature":"Z2VudWluZQ=="},{"text":"Yes."}]},"finishReason":"STOP"}],"odd":1.0,"usageMetadata":{"promptTokenCount":11,"candidatesTokenCount":4,"thoughtsTokenCount":3},"modelVersion":"gemini-3-pro"}"#,
    keep_alive: "\n\n",
};

pub(crate) const CHAT: DialectSample = DialectSample {
    dialect: "openai_chat",
    more: "variant = \"openrouter\"",
    stream_path: "/v1/chat/completions",
    whole_path: "/v1/chat/completions",
    request: r#" {"unheard_of":{"b":1.50,"a":[1e3]},"model" : "gpt-5","stream":true,"messages":[{"role":"user","content":"na\u00efve \/"} , {"role":"referee","content":7}],"plugins":[{"id":"web"}]}"#,
    stream: ": OPENROUTER PROCESSING\n\n\
data: {\"id\":\"gen-1\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-5\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning\":\"Hm.\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"text\":\"Hm.\",\"format\":\"anthropic-claude-v1\",\"index\":0}]}}],\"odd\":1.0}\n\n\
data: {\"id\":\"gen-1\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-5\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"signature\":\"Z2VudWluZQ==\",\"format\":\"anthropic-claude-v1\",\"index\":0}]}}]}\n\n\
data: {\"id\":\"gen-1\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-5\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Yes \u{1F914}.\"}}]}\n\n\
data: {\"id\":\"gen-1\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-5\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7,\"completion_tokens_details\":{\"reasoning_tokens\":3}}}\n\n\
data: [DONE]\n\n",
    tokens: [11, 7, 3],
    whole: r#"{ "id":"gen-1","object":"chat.completion","model":"gpt-5","choices":[{"index":0,"message":{"role":"assistant","content":"Yes.","reasoning":"Hm.","reasoning_details":[{"type":"reasoning.text","text":"Hm.","signature":"Z2VudWluZQ==","format":"anthropic-claude-v1","index":0}]},"finish_reason":"stop"}],"odd":1.0,"usage":{"prompt_tokens":11,"completion_tokens":7,"completion_tokens_details":{"reasoning_tokens":3}}}"#,
    keep_alive: ": keep-alive\n\n",
};

pub(crate) const SAMPLES: [DialectSample; 3] = [RESPONSES, GEMINI, CHAT];

impl DialectSample {
    /// Returns a `[[backend]]` table in this dialect.
    pub(crate) fn backend(&self, name: &str, url: &str, more: &str) -> String {
        let (dialect, own) = (self.dialect, self.more);
        format!(
            "\n[[backend]]\nname = \"{name}\"\ndialect = \"{dialect}\"\nbase_url = \"{url}\"\n{own}\n{more}\n"
        )
    }

    /// Starts a gateway over one raw upstream, named `a`.
    pub(crate) async fn over(&self, settings: &str, more: &str) -> (RawUpstream, Gateway) {
        let upstream = RawUpstream::start().await;
        let config = format!("{settings}{}", self.backend("a", &upstream.url, more));
        (upstream, Gateway::start(BINARY, &config).await)
    }

    /// Sends a body. The upstream answers with these events. Returns what the upstream received and
    /// what the client received.
    pub(crate) async fn stream(
        &self,
        (upstream, gateway): (&RawUpstream, &Gateway),
        body: &str,
        events: &str,
    ) -> (Exchange, Answer) {
        let answer =
            [ok_head("text/event-stream; charset=utf-8", "").as_bytes(), events.as_bytes()]
                .concat();
        send_and_answer(upstream, gateway, self.stream_path, body, &answer).await
    }

    /// Like [`DialectSample::stream`], with a whole reply.
    pub(crate) async fn whole(
        &self,
        (upstream, gateway): (&RawUpstream, &Gateway),
        body: &str,
        reply: &str,
    ) -> (Exchange, Answer) {
        let answer = ok_reply("application/json", "", reply);
        send_and_answer(upstream, gateway, self.whole_path, body, &answer).await
    }

    /// Opens a stream. The upstream has sent only its head.
    pub(crate) async fn open(
        &self,
        upstream: &RawUpstream,
        gateway: &Gateway,
    ) -> (StreamedAnswer, Exchange) {
        let opened = gateway.client.open(Method::POST, self.stream_path, &[JSON], self.request);
        let (streamed, exchange) = tokio::join!(opened, async {
            let mut exchange = upstream.next().await;
            exchange.begin_events().await;
            exchange
        });
        assert_eq!(streamed.status, 200, "{}", self.dialect);
        (streamed, exchange)
    }

    /// Parses every event of a stream as JSON, and `[DONE]` as a string.
    pub(crate) fn events(&self, text: &str) -> Vec<Value> {
        text.lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| match data {
                "[DONE]" => data.into(),
                data => serde_json::from_str(data)
                    .unwrap_or_else(|error| panic!("{}: {data}: {error}", self.dialect)),
            })
            .collect()
    }
}

pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

/// Sends a body to a path. The upstream answers with these bytes.
pub(crate) async fn send_and_answer(
    upstream: &RawUpstream,
    gateway: &Gateway,
    path: &str,
    body: &str,
    answer: &[u8],
) -> (Exchange, Answer) {
    let sent = gateway.client.send(Method::POST, path, &[JSON], body.to_owned());
    let (answered, exchange) = tokio::join!(sent, async {
        let mut exchange = upstream.next().await;
        exchange.write(answer).await;
        exchange.shut_down().await;
        exchange
    });
    (exchange, answered)
}

pub(crate) fn body_text(exchange: &Exchange) -> String {
    String::from_utf8(exchange.body.clone()).unwrap()
}

/// A whole Anthropic reply with thinking, text and a tool call.
pub(crate) const ANTHROPIC_REPLY: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"thinking","thinking":"Elsewhere.","signature":"ZWxzZXdoZXJl"},{"type":"text","text":"I look."},{"type":"tool_use","id":"toolu_01A2b3C4d5","name":"look","input":{}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":5}}"#;

impl DialectSample {
    /// Returns a whole reply with different thinking.
    pub(crate) fn another_reply(&self) -> String {
        let reply = self.whole.replace("Z2VudWluZQ==", "YW5vdGhlcg==");
        reply.replace("Hm.", "Well.")
    }

    /// Returns a whole reply that no gateway has seen.
    pub(crate) fn unseen_reply(&self) -> Answer {
        Answer { status: 200, headers: http::HeaderMap::new(), body: self.whole.into() }
    }

    /// Returns the first request of a conversation.
    pub(crate) fn first_request(&self) -> Value {
        match self.dialect {
            "openai_responses" => {
                json!({"model": "gpt-5", "input": [{"role": "user", "content": "Look."}]})
            }
            "gemini" => json!({"contents": [{"role": "user", "parts": [{"text": "Look."}]}]}),
            _ => json!({"model": "gpt-5", "messages": [{"role": "user", "content": "Look."}]}),
        }
    }

    /// Returns the request that follows `reply`, as sent by a client that keeps the whole reply. It
    /// contains a result for each tool call.
    pub(crate) fn follow_up(&self, mut request: Value, reply: &Answer) -> Value {
        let reply = reply.json();
        match self.dialect {
            "openai_responses" => {
                let input = request["input"].as_array_mut().unwrap();
                for item in reply["output"].as_array().unwrap() {
                    input.push(item.clone());
                    if item["type"] == "function_call" {
                        input.push(json!({"type": "function_call_output", "call_id": item["call_id"], "output": "7"}));
                    }
                }
            }
            "gemini" => {
                let content = reply["candidates"][0]["content"].clone();
                let parts = content["parts"].as_array().unwrap();
                let calls = parts.iter().filter(|part| part.get("functionCall").is_some());
                let answers: Vec<_> = calls
                    .map(|_| json!({"functionResponse": {"name": "look", "response": {"output": "7"}}}))
                    .collect();
                let contents = request["contents"].as_array_mut().unwrap();
                contents.push(content);
                if !answers.is_empty() {
                    contents.push(json!({"role": "user", "parts": answers}));
                }
            }
            _ => {
                let message = reply["choices"][0]["message"].clone();
                let messages = request["messages"].as_array_mut().unwrap();
                messages.push(message.clone());
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    messages
                        .push(json!({"role": "tool", "tool_call_id": call["id"], "content": "7"}));
                }
            }
        }
        request
    }
}

/// Sends a request to the named backend. Its upstream answers with this reply.
pub(crate) async fn send_to(
    sample: &DialectSample,
    gateway: &Gateway,
    (name, upstream): (&str, &RawUpstream),
    request: &Value,
    reply: &str,
) -> (String, Answer) {
    let headers = [JSON, ("x-throughline-backend", name)];
    let client = &gateway.client;
    let sent = client.send(Method::POST, sample.whole_path, &headers, request.to_string());
    let (answer, body) = tokio::join!(sent, async {
        let mut exchange = upstream.next().await;
        exchange.write(ok_reply("application/json", "", reply)).await;
        exchange.shut_down().await;
        body_text(&exchange)
    });
    (body, answer.expect_ok())
}
