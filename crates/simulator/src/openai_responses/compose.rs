//! Builds the response to an accepted request.

use serde_json::{Map, Value, json};

use super::item_ids;
use super::models::Model;
use super::reply::{Content, Ending, Output, Reply, Usage};
use super::request::ParsedRequest;
use crate::draft::{self, Draft, Limits, identifier};
use crate::exchange::Exchange;
use crate::openai;
use crate::script::{Piece, Random, Situation};
use crate::signing::{Claim, Hash, SignatureKind, hash};
use crate::style::SignatureStyle;

/// Trigger words that only this dialect has.
const REFUSES: &str = "refusal";
const FILTERED: &str = "content filter";
const FAILS: &str = "fail midway";
const CITES: &str = "cite sources";

/// Builds the response.
pub(crate) fn compose(exchange: &Exchange<'_>, request: &ParsedRequest, model: &Model) -> Reply {
    let seed = exchange.seed(&request.model, &request.conversation());
    let tokens = request.get("max_output_tokens").as_u64();
    let limits = Limits { tokens, ..Limits::default() };
    let draft = Draft::write(exchange, &seed, limits, || situation(exchange, request, model));
    let user_text = request.user_text().to_lowercase();
    let ending = match draft.ending {
        draft::Ending::Limit => Ending::Incomplete("max_output_tokens"),
        _ if user_text.contains(FILTERED) => Ending::Incomplete("content_filter"),
        _ if user_text.contains(FAILS) => Ending::Failed,
        _ => Ending::Completed,
    };
    let usage = Usage {
        input: exchange.cached(
            &request.model,
            request.get("prompt_cache_key").as_str().unwrap_or_default(),
            &request.prompt(),
            openai::caching(request.get("prompt_cache_options")),
        ),
        counts_writes: openai::counts_writes(&request.model),
        output: draft.tokens(),
        reasoning: draft.thinking_tokens(),
    };
    let mut pieces = draft.pieces;
    if draft.ending != draft::Ending::Limit && ending != Ending::Completed {
        halve(&mut pieces);
    }
    let writer = Writer {
        exchange,
        request,
        model,
        seed,
        refuses: user_text.contains(REFUSES),
        cites: user_text.contains(CITES),
    };
    let mut outputs = writer.outputs(pieces);
    if let Some(last) = outputs.last_mut() {
        last.whole = ending == Ending::Completed;
    }
    Reply {
        id: format!("resp_{}", identifier(&seed, "response", 0)),
        model: exchange.answer_model(&request.model),
        outputs,
        ending,
        usage,
        settings: settings(request, model),
    }
}

fn situation(exchange: &Exchange<'_>, request: &ParsedRequest, model: &Model) -> Situation {
    Situation {
        user_text: request.user_text(),
        results: request.results(),
        rounds: request.rounds(),
        tools: request.callable(),
        choice: request.choice(),
        parallel: request.parallel(),
        thinks: model.reasons() && request.effort(model) != "none",
        format: request.format(),
        deltas: exchange.deltas(),
    }
}

/// Cuts the last piece in half; half a call is dropped.
fn halve(pieces: &mut Vec<Piece>) {
    while matches!(pieces.last(), Some(Piece::Tool { .. })) {
        pieces.pop();
    }
    if let Some(Piece::Text(text) | Piece::Thinking(text)) = pieces.last_mut() {
        text.truncate(text.floor_char_boundary(text.len() / 2));
    }
}

struct Writer<'a> {
    exchange: &'a Exchange<'a>,
    request: &'a ParsedRequest,
    model: &'a Model,
    seed: Hash,
    refuses: bool,
    cites: bool,
}

impl Writer<'_> {
    fn outputs(&self, pieces: Vec<Piece>) -> Vec<Output> {
        let is_from_model = |piece: &Piece| matches!(piece, Piece::Text(_) | Piece::Tool { .. });
        let last = pieces.iter().rposition(is_from_model);
        let mut nonces = Random::new(&hash(&[&self.seed, b"nonces"]));
        let mut stem: Option<String> = None;
        let mut outputs = Vec::with_capacity(pieces.len());
        for (index, piece) in pieces.into_iter().enumerate() {
            let name = |kind| identifier(&self.seed, kind, index);
            let (id, content) = match piece {
                Piece::Thinking(text) => {
                    let own = name("reasoning");
                    let id = item_ids::reasoning(&own);
                    let content = self.reasoning(&id, &text, true, nonces.next());
                    stem = Some(own);
                    (id, content)
                }
                Piece::Redacted(text) => {
                    let own = name("reasoning");
                    let id = item_ids::reasoning(&own);
                    let content = self.reasoning(&id, &text, false, nonces.next());
                    stem = Some(own);
                    (id, content)
                }
                Piece::Text(text) => {
                    let content = Content::Message {
                        annotations: self.annotations(&text),
                        text,
                        refusal: self.refuses,
                        phase: if last == Some(index) { "final_answer" } else { "commentary" },
                    };
                    (format!("msg_{}", name("message")), content)
                }
                Piece::Tool { name: tool, input } => {
                    let content = Content::Call {
                        call_id: format!("call_{}", name("call")),
                        name: tool,
                        arguments: input.to_string(),
                    };
                    (self.call_id(stem.as_deref(), index, &name("item")), content)
                }
            };
            outputs.push(Output { id, content, whole: true });
        }
        outputs
    }

    /// The sources of a text, if the user asks for them.
    fn annotations(&self, text: &str) -> Vec<Value> {
        let source = json!({"type": "url_citation", "url": "https://example.com/report",
            "title": "A report", "start_index": 0, "end_index": text.chars().count()});
        if self.cites { vec![source] } else { Vec::new() }
    }

    /// A server that does not sign cannot link a call to its reasoning.
    fn call_id(&self, stem: Option<&str>, index: usize, other: &str) -> String {
        match stem {
            Some(stem) if self.exchange.style() != SignatureStyle::Empty => {
                let identity = &self.exchange.simulator().options.identity;
                item_ids::call(identity, stem, index)
            }
            _ => format!("fc_{other}"),
        }
    }

    fn reasoning(&self, id: &str, text: &str, readable: bool, nonce: u64) -> Content {
        // Without signatures this is an open server, which shows the reasoning itself.
        if self.exchange.style() == SignatureStyle::Empty {
            return Content::Reasoning {
                summary: Vec::new(),
                raw: readable.then(|| text.to_owned()),
                encrypted: Some(String::new()),
            };
        }
        let summary = if readable && self.request.wants_summary() {
            text.split("\n\n").map(str::to_owned).collect()
        } else {
            Vec::new()
        };
        let claim = Claim {
            family: self.model.family,
            // The signature binds the item, not the summary.
            shown: id,
            hidden: text,
            prefix: Hash::default(),
            nonce,
            ordinal: 0,
        };
        let sign = || self.exchange.signer().sign(SignatureKind::Encrypted, &claim);
        Content::Reasoning {
            summary,
            raw: None,
            encrypted: self.request.wants_encrypted().then(sign),
        }
    }
}

/// The request settings that a response repeats.
fn settings(request: &ParsedRequest, model: &Model) -> Map<String, Value> {
    let given = |key: &str, usual: Value| match request.get(key) {
        Value::Null => usual,
        value => value.clone(),
    };
    let text = request.get("text");
    let effort = model.reasons().then(|| request.effort(model));
    let members = json!({
        "background": false,
        "conversation": null,
        "frequency_penalty": 0.0,
        "instructions": given("instructions", Value::Null),
        "max_output_tokens": given("max_output_tokens", Value::Null),
        "max_tool_calls": given("max_tool_calls", Value::Null),
        "metadata": given("metadata", json!({})),
        "parallel_tool_calls": request.parallel(),
        "presence_penalty": 0.0,
        "previous_response_id": given("previous_response_id", Value::Null),
        "prompt_cache_key": given("prompt_cache_key", Value::Null),
        "reasoning": { "effort": effort, "summary": request.get("reasoning")["summary"] },
        "safety_identifier": given("safety_identifier", Value::Null),
        "service_tier": "default",
        "store": request.store,
        "temperature": given("temperature", json!(1.0)),
        "text": {
            "format": format(&text["format"]),
            "verbosity": match &text["verbosity"] {
                Value::Null => json!("medium"),
                verbosity => verbosity.clone(),
            },
        },
        "tool_choice": given("tool_choice", json!("auto")),
        "tools": request.tools.iter().map(tool).collect::<Vec<Value>>(),
        "top_logprobs": given("top_logprobs", json!(0)),
        "top_p": given("top_p", json!(1.0)),
        "truncation": given("truncation", json!("disabled")),
        "user": given("user", Value::Null),
    });
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// The format of the text with its defaults filled in.
fn format(given: &Value) -> Value {
    let mut format = given.clone();
    if format.is_null() {
        return json!({ "type": "text" });
    }
    if format["type"] == "json_schema" {
        fill(&mut format, "strict", &false.into());
        fill(&mut format, "description", &Value::Null);
    }
    format
}

/// A tool with its defaults filled in: functions are strict.
fn tool(tool: &Value) -> Value {
    let mut tool = tool.clone();
    if tool["type"] == "function" {
        fill(&mut tool, "strict", &true.into());
        fill(&mut tool, "description", &Value::Null);
        fill(&mut tool, "parameters", &Value::Null);
    }
    tool
}

/// Sets a member that is not set.
fn fill(object: &mut Value, name: &str, value: &Value) {
    if object[name].is_null() {
        object[name] = value.clone();
    }
}
