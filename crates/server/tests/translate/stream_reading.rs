//! How a client of each dialect reads a stream, also one that fails.

use serde_json::Value;

use crate::test_client::{list, text};

/// A stream as its client reads it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StreamReading {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    /// The number of errors in the dialect's own form.
    pub(crate) errors: usize,
    /// Whether the stream says that the answer is complete.
    pub(crate) complete: bool,
    /// Whether the last event, apart from keep-alives, is an error.
    pub(crate) ends_in_error: bool,
    pub(crate) signs_of_life: usize,
}

/// Reads a stream, and panics on anything that the dialect's clients do not understand.
pub(crate) fn read_stream(dialect: &str, stream: &str) -> StreamReading {
    let mut reading = StreamReading::default();
    let whole = stream.strip_suffix("\n\n").unwrap_or(stream);
    for event in whole.split("\n\n") {
        if event.is_empty() {
            // Only blank lines: the keep-alive of Gemini.
            assert_eq!(dialect, "gemini", "{stream}");
            reading.signs_of_life += 1;
            continue;
        }
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
        let Some(data) = field("data: ") else {
            assert!(event.starts_with(':'), "no event: {event:?} in {stream}");
            reading.signs_of_life += 1;
            continue;
        };
        if data == "[DONE]" {
            assert_eq!(dialect, "openai_chat", "{stream}");
            reading.complete |= reading.errors == 0;
            continue;
        }
        let data: Value = serde_json::from_str(data).unwrap_or_else(|error| {
            panic!("{error}: {data:?} in {stream}");
        });
        let (signs, errors) = (reading.signs_of_life, reading.errors);
        match dialect {
            "anthropic" => reading.anthropic(field("event: ").unwrap_or_default(), &data),
            "openai_chat" => reading.chat(&data),
            "openai_responses" => reading.responses(&data),
            _ => reading.gemini(&data),
        }
        if reading.signs_of_life == signs {
            reading.ends_in_error = reading.errors > errors;
        }
    }
    reading
}

impl StreamReading {
    fn anthropic(&mut self, name: &str, data: &Value) {
        assert_eq!(data["type"], name);
        match name {
            "ping" => self.signs_of_life += 1,
            "error" => {
                assert!(!text(&data["error"]["type"]).is_empty(), "{data}");
                assert!(!text(&data["error"]["message"]).is_empty(), "{data}");
                self.errors += 1;
            }
            "content_block_start" => {
                self.text.push_str(text(&data["content_block"]["text"]));
            }
            "content_block_delta" => {
                self.text.push_str(text(&data["delta"]["text"]));
                self.reasoning.push_str(text(&data["delta"]["thinking"]));
            }
            "message_stop" => self.complete = true,
            _ => {}
        }
    }

    fn chat(&mut self, data: &Value) {
        if !data["error"].is_null() {
            assert!(!text(&data["error"]["message"]).is_empty(), "{data}");
            self.errors += 1;
        }
        let choices: Vec<&Value> = list(&data["choices"]).collect();
        if choices.is_empty() && data["usage"].is_null() && data["error"].is_null() {
            self.signs_of_life += 1;
        }
        for choice in choices {
            let delta = &choice["delta"];
            self.text.push_str(text(&delta["content"]));
            self.reasoning.push_str(text(&delta["reasoning_content"]));
            let reason = text(&choice["finish_reason"]);
            self.complete |= !reason.is_empty() && reason != "error";
        }
    }

    fn responses(&mut self, data: &Value) {
        match text(&data["type"]) {
            "keepalive" => self.signs_of_life += 1,
            "response.failed" => {
                let error = &data["response"]["error"];
                assert!(!text(&error["code"]).is_empty(), "{data}");
                assert!(!text(&error["message"]).is_empty(), "{data}");
                assert_eq!(data["response"]["status"], "failed");
                self.errors += 1;
            }
            "response.completed" | "response.incomplete" => self.complete = true,
            "response.output_text.delta" => self.text.push_str(text(&data["delta"])),
            "response.reasoning_summary_text.delta" => {
                self.reasoning.push_str(text(&data["delta"]));
            }
            "error" => panic!("an error that clients throw without its message: {data}"),
            _ => {}
        }
    }

    fn gemini(&mut self, data: &Value) {
        if let Some(error) = data.get("error") {
            assert!(error["code"].is_u64(), "{data}");
            assert!(!text(&error["message"]).is_empty(), "{data}");
            assert!(!text(&error["status"]).is_empty(), "{data}");
            self.errors += 1;
            return;
        }
        let candidates: Vec<&Value> = list(&data["candidates"]).collect();
        let mut view = false;
        for candidate in candidates {
            for part in list(&candidate["content"]["parts"]) {
                let into = match part["thought"] == true {
                    true => &mut self.reasoning,
                    false => &mut self.text,
                };
                into.push_str(text(&part["text"]));
                view |= !text(&part["text"]).is_empty() || part.get("functionCall").is_some();
            }
            self.complete |= candidate["finishReason"].is_string();
            view |= candidate["finishReason"].is_string();
        }
        self.signs_of_life += usize::from(!view && data["usageMetadata"].is_null());
    }
}

/// Checks an error that replaces a whole reply, and returns its message.
pub(crate) fn error_message(dialect: &str, body: &Value) -> String {
    let error = &body["error"];
    let known = match dialect {
        "anthropic" => body["type"] == "error" && error["type"].is_string(),
        "gemini" => error["code"].is_u64() && error["status"].is_string(),
        _ => error["type"].is_string() && error.get("code").is_some(),
    };
    assert!(known, "no error of {dialect}: {body}");
    text(&error["message"]).to_owned()
}
