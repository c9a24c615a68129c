//! The canonical requests and replies that all dialects share: every upstream dialect writes each
//! request, every client dialect writes each reply, and a dialect that is both reads back what it
//! wrote.
//!
//! Their goldens are in `corpus/<dialect>/upstream_request` and `client_reply`, under the name of the
//! shared value.

use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Citation, EndReason, Event, Fault, Loss, MediaKind, Reply, Request, Role,
    Tool,
};
use throughline_codec::dialects::{
    self, Accepted, CLIENT, ClientDialect, Outgoing, RequestParts, Target, UPSTREAM,
    UpstreamDialect, client,
};

use super::client_reply::{MODEL, fold, request, write_stream, write_whole};
use super::folder::{Capture, Findings, captures};
use super::rules::Folder;

pub(crate) fn requests() -> Vec<(Capture, Request)> {
    let all = captures("canonical/requests", &["json"]);
    all.into_iter()
        .map(|capture| {
            let request = read_request(&capture);
            (capture, request)
        })
        .collect()
}

fn read_request(capture: &Capture) -> Request {
    serde_json::from_slice(&capture.bytes)
        .unwrap_or_else(|error| panic!("{}: {error}", capture.name))
}

pub(crate) fn replies() -> Vec<(Capture, Vec<Event<'static>>)> {
    let read = |capture: Capture| {
        let text = std::str::from_utf8(&capture.bytes).unwrap();
        let event = |line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", capture.name))
        };
        let events = text.lines().map(event).collect();
        (capture, events)
    };
    let all = captures("canonical/replies", &["events.jsonl"]);
    all.into_iter().map(read).collect()
}

/// A misspelled member would be skipped silently, so each request is compared with its spelling.
pub(crate) fn check_requests(folder: &Folder, findings: &mut Findings) {
    for capture in &folder.captures {
        let spelled: Value = serde_json::from_slice(&capture.bytes).unwrap();
        if serde_json::to_value(read_request(capture)).unwrap() != spelled {
            findings.fail(format!("{}/{}: an unknown member", folder.path, capture.name));
        }
    }
}

/// The same for replies.
pub(crate) fn check_replies(folder: &Folder, findings: &mut Findings) {
    for (capture, events) in replies() {
        for (line, event) in std::str::from_utf8(&capture.bytes).unwrap().lines().zip(events) {
            let spelled: Value = serde_json::from_str(line).unwrap();
            if serde_json::to_value(&event).unwrap() != spelled {
                findings.fail(format!("{}/{}: an unknown member", folder.path, capture.name));
            }
        }
    }
}

fn body(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

pub(crate) fn target<'a>(dialect: &dyn UpstreamDialect, request: &'a Request) -> Target<'a> {
    Target { model: &request.model, profile: dialect.profile("") }
}

/// Reads a written request as a client's.
pub(crate) fn read_back(
    dialect: &dyn ClientDialect,
    outgoing: &Outgoing,
) -> Result<Accepted, Fault> {
    let Outgoing { path, query, body, .. } = outgoing;
    dialect.read_request(&RequestParts { path, query, body, ..Default::default() })
}

/// The dialects that are both read and written.
pub(crate) fn pairs()
-> impl Iterator<Item = (&'static dyn UpstreamDialect, &'static dyn ClientDialect)> {
    UPSTREAM.iter().flat_map(|upstream| {
        let client = CLIENT.iter().filter(|client| client.name() == upstream.name());
        client.map(|client| (*upstream, *client))
    })
}

/// A second round trip changes nothing and loses nothing new.
#[test]
fn shared_requests_survive_a_round_trip_up_to_their_losses() {
    for (upstream, client) in pairs() {
        for (capture, request) in requests() {
            let at = format!("{} by {}", capture.name, upstream.name());
            let first = upstream.write_request(&request, &target(upstream, &request));
            let read = read_back(client, &first.value);
            let read = read.unwrap_or_else(|fault| panic!("{at}: {fault}")).request;
            let again = upstream.write_request(&read, &target(upstream, &read));
            assert_eq!(body(&again.value.body), body(&first.value.body), "{at}");
            let new: Vec<&Loss> =
                again.losses.iter().filter(|loss| !first.losses.contains(loss)).collect();
            assert!(new.is_empty(), "{at}: {new:?}");
            if first.losses.is_empty() {
                assert_eq!(conversation(&read), conversation(&request), "{at}");
                assert_eq!(tool_names(&read), tool_names(&request), "{at}");
                assert_eq!(read.stop, request.stop, "{at}");
                assert_eq!(read.max_tokens, request.max_tokens, "{at}");
            }
        }
    }
}

/// Two dialects take canonical requests as they are.
#[test]
fn canonical_dialects_read_a_shared_request_unchanged() {
    for dialect in ["ndjson", "events"].map(|name| client(name).unwrap()) {
        for (capture, request) in requests() {
            let asked = RequestParts {
                path: &dialect.path_for(""),
                query: "",
                body: &capture.bytes,
                ..Default::default()
            };
            let read = dialect.read_request(&asked);
            let read = read.unwrap_or_else(|fault| panic!("{}: {fault}", capture.name));
            assert_eq!((read.request, read.losses), (request, Vec::new()), "{}", capture.name);
        }
    }
}

/// The names of the tools.
pub(crate) fn tool_names(request: &Request) -> Vec<Value> {
    let name = |tool: &Tool| match tool {
        Tool::Function { name, .. } => json!(name),
        Tool::Opaque { value, .. } => value.clone(),
    };
    request.tools.iter().map(name).collect()
}

/// The content of a conversation, without the boundaries of its messages and the ids of its calls.
pub(crate) fn conversation(request: &Request) -> Vec<(Role, Value)> {
    let blocks = request.messages.iter().flat_map(|message| {
        let values = message.content.iter().map(block_value);
        values.map(|value| (message.role, value))
    });
    let system = request.system.iter().map(|text| (Role::System, json!(text)));
    system.chain(blocks.filter(|(_, value)| !value.is_null())).collect()
}

fn block_value(block: &Block) -> Value {
    match block {
        Block::Text { text, .. } | Block::Refusal { text } if text.is_empty() => Value::Null,
        Block::Text { text, .. } | Block::Refusal { text } => json!(text),
        Block::Thinking { text, signature } => json!({"thinking": text, "signature": signature}),
        Block::Redacted { data } => json!({"redacted": data}),
        Block::ToolCall { name, arguments, .. } => {
            json!({"call": name, "with": arguments_value(arguments)})
        }
        Block::ToolResult { content, is_error, .. } => {
            let content: Vec<Value> =
                content.iter().map(block_value).filter(|value| !value.is_null()).collect();
            json!({"result": content, "is_error": is_error})
        }
        Block::Media { kind, source, .. } => {
            json!({"media": matches!(kind, MediaKind::Image), "source": source})
        }
        Block::Opaque { value, .. } => value.clone(),
    }
}

/// Arguments as a value. Dialects space them differently; no arguments equal an empty object.
fn arguments_value(arguments: &str) -> Value {
    match arguments.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    }
}

/// The events of a reply that arrives in these pieces.
fn read<'a>(
    dialect: &dyn UpstreamDialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    streamed: bool,
) -> Vec<String> {
    let target = Target { model: MODEL, profile: dialect.profile("") };
    let mut reader = dialect.reply_reader(&target, streamed);
    let mut lines = Vec::new();
    let mut line = |event: Event<'_>| lines.push(serde_json::to_string(&event).unwrap());
    for piece in pieces {
        reader.push(piece, &mut line);
    }
    reader.finish(&mut line);
    lines
}

fn fold_lines(lines: &[String]) -> Reply {
    let events: Vec<Event<'_>> =
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends = events.iter().filter(|event| matches!(event, Event::Ended { .. })).count();
    assert_eq!(ends, 1, "{lines:?}");
    assert!(matches!(events.last(), Some(Event::Ended { .. })), "{lines:?}");
    fold(&events)
}

/// What every client must see of a reply.
#[derive(Debug, PartialEq)]
struct Seen {
    text: String,
    /// Parts that only this dialect has.
    own: Vec<Value>,
    /// The citations, as far as this dialect has them.
    citations: Vec<Value>,
    calls: Vec<(String, Value)>,
    reason: Option<EndReason>,
}

fn seen(reply: &Reply, by: &dyn ClientDialect) -> Seen {
    let mut seen = Seen {
        text: String::new(),
        own: Vec::new(),
        citations: Vec::new(),
        calls: Vec::new(),
        reason: reason(reply),
    };
    for block in &reply.content {
        match block {
            Block::Text { text, citations, .. } => {
                let before = seen.text.chars().count() as u64;
                seen.text.push_str(text);
                let after = seen.text.chars().count() as u64;
                let cited = citations.iter();
                seen.citations.extend(cited.filter_map(|one| referred(one, (before, after), by)));
            }
            Block::Refusal { text } => seen.text.push_str(text),
            Block::ToolCall { name, arguments, .. } => {
                // A dialect whose arguments are objects wraps all others.
                let value = match arguments_value(arguments) {
                    Value::Object(members) if members.len() == 1 => {
                        match members.get("arguments") {
                            Some(Value::String(broken)) => broken.clone().into(),
                            _ => Value::Object(members),
                        }
                    }
                    value => value,
                };
                seen.calls.push((name.clone(), value));
            }
            Block::Opaque { dialect, value } if dialect == by.name() => {
                seen.own.push(value.clone());
            }
            _ => {}
        }
    }
    // Some dialects write the explanation as text of the model, after all other text.
    seen.text.extend(reply.details.explanation.as_deref());
    seen
}

/// A citation of a block, with its range of characters in the whole answer.
fn referred(citation: &Citation, block: (u64, u64), by: &dyn ClientDialect) -> Option<Value> {
    if let Some(own) = citation.written_by(by.name()) {
        return Some(own.clone());
    }
    let written = !["anthropic", "ollama"].contains(&by.name()) && citation.url.is_some();
    let (start, end) = match citation.span {
        Some((start, end)) => (block.0 + start, block.0 + end),
        None => block,
    };
    written.then(|| json!([citation.url, citation.title, start, end]))
}

/// The end reason. Most dialects have none for a stop sequence.
fn reason(reply: &Reply) -> Option<EndReason> {
    match &reply.reason {
        Some(EndReason::StopSequence) => Some(EndReason::Stop),
        reason => reason.clone(),
    }
}

/// Whether a dialect has counts for caches and thinking, and an end reason for a refusal.
fn has_details(dialect: &dyn ClientDialect) -> bool {
    dialect.name() != "ollama"
}

/// A reply as a dialect can express it.
fn expressible(mut reply: Reply, dialect: &dyn ClientDialect) -> Reply {
    if !has_details(dialect) && reply.reason == Some(EndReason::Refusal) {
        reply.reason = Some(EndReason::Stop);
    }
    reply
}

/// The counts: input without cache reads, cache reads, output, thinking. A dialect without details
/// has all input in the first count, and zero for cache reads and thinking.
fn counts(reply: &Reply, details: bool) -> [u64; 4] {
    let usage = reply.usage;
    let count = Option::unwrap_or_default;
    let (input, output) = (count(usage.input) + count(usage.cache_write), count(usage.output));
    match details {
        true => [input, count(usage.cache_read), output, count(usage.thinking)],
        false => [input + count(usage.cache_read), 0, output, 0],
    }
}

/// The visible thinking, block by block.
fn thinking(reply: &Reply) -> Vec<&str> {
    let blocks = reply.content.iter();
    blocks
        .filter_map(|block| match block {
            Block::Thinking { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// Whether all thinking is shown in its order. A notice may replace hidden thinking.
fn shows_thinking(shown: &Reply, original: &Reply) -> bool {
    let shown = thinking(shown).concat();
    let mut rest = shown.as_str();
    thinking(original).into_iter().all(|span| match rest.find(span) {
        Some(at) => {
            rest = &rest[at + span.len()..];
            true
        }
        None => false,
    })
}

#[test]
fn a_written_reply_shows_all_content() {
    for (upstream, client) in pairs() {
        for (capture, events) in replies() {
            let at = format!("{} by {}", capture.name, client.name());
            let original = expressible(fold(&events), client);
            let sent = write_stream(client, &request(true), &events);
            let shown = fold_lines(&read(upstream, [sent.as_bytes()], true));
            let failed = matches!(original.reason, Some(EndReason::Failed | EndReason::Cut));
            if failed {
                assert!(shown.fault.is_some(), "{at}");
                assert_eq!(shown.reason, Some(EndReason::Failed), "{at}");
                assert_eq!(seen(&shown, client).text, seen(&original, client).text, "{at}");
                continue;
            }
            assert_eq!(seen(&shown, client), seen(&original, client), "{at}");
            assert!(shows_thinking(&shown, &original), "{at}");
            // Some dialects stream counts only on request.
            if shown.usage.output.is_some() {
                assert_eq!(shown.usage.output, original.usage.output, "{at}");
            }
            let body = write_whole(client, &request(false), &original).unwrap();
            let shown = fold_lines(&read(upstream, [&body[..]], false));
            assert!(shows_thinking(&shown, &original), "{at}, whole");
            let (found, expected) = (seen(&shown, client), seen(&original, client));
            assert_eq!(found.text, expected.text, "{at}, whole");
            assert_eq!(found.own, expected.own, "{at}, whole");
            assert_eq!(found.citations, expected.citations, "{at}, whole");
            assert_eq!(reason(&shown), reason(&original), "{at}, whole");
            let details = has_details(client);
            assert_eq!(counts(&shown, details), counts(&original, details), "{at}, whole");
        }
    }
}

#[test]
fn any_split_of_a_written_reply_reads_the_same_and_any_cut_ends_once() {
    for (upstream, client) in pairs() {
        for (capture, events) in replies() {
            let at = format!("{} by {}", capture.name, client.name());
            let original = fold(&events);
            let forms = [
                (Some(write_stream(client, &request(true), &events).into_bytes()), true),
                (write_whole(client, &request(false), &original), false),
            ];
            for (bytes, streamed) in forms {
                let Some(bytes) = bytes else { continue };
                let expected = read(upstream, [&bytes[..]], streamed);
                for cut in 0..=bytes.len() {
                    let (head, tail) = bytes.split_at(cut);
                    let split = read(upstream, [head, tail], streamed);
                    assert_eq!(split, expected, "{at} split at {cut}");
                    fold_lines(&read(upstream, [head], streamed));
                }
                let bytewise = read(upstream, bytes.chunks(1), streamed);
                assert_eq!(bytewise, expected, "{at} byte by byte");
            }
        }
    }
}

/// Each dropped part is reported by its name.
#[test]
fn parts_of_another_dialect_are_reported_as_losses() {
    for (capture, events) in replies() {
        for client in CLIENT {
            let at = format!("{} by {}", capture.name, client.name());
            let foreign = events.iter().filter_map(|event| match event {
                Event::BlockStarted { block: BlockStart::Opaque { dialect, name }, .. }
                    if dialect != client.name() =>
                {
                    Some(name.as_ref())
                }
                _ => None,
            });
            let mut expected: Vec<String> =
                foreign.map(|name| format!("part_omitted={name};reason=foreign_dialect")).collect();
            if capture.name == "citations" {
                let foreign = "part_omitted=citations;reason=foreign_dialect";
                let quote = "part_omitted=citations.quote;reason=no_word";
                expected.extend(match client.name() {
                    "anthropic" => vec![foreign.to_owned(); 3],
                    "openai_chat" => vec![foreign.to_owned()],
                    "openai_responses" => vec![quote.to_owned()],
                    "events" => Vec::new(),
                    "ag_ui" | "ollama" => {
                        vec!["part_omitted=citations;reason=no_word".to_owned(); 4]
                    }
                    _ => vec![quote.to_owned(), foreign.to_owned()],
                });
            }
            let explains = ["ag_ui", "anthropic", "events", "ndjson", "ui_stream"];
            if capture.name == "refusal-explained" && !explains.contains(&client.name()) {
                expected.push("part_omitted=stop_details.category;reason=no_word".to_owned());
            }
            let losses = events.iter().filter_map(|event| client.loss_of(event));
            let found: Vec<String> = losses.map(|loss| loss.to_string()).collect();
            assert_eq!(found, expected, "{at}");
        }
    }
}

/// The last event of the Responses dialect repeats the whole reply.
#[test]
fn the_last_responses_event_equals_the_whole_reply() {
    let client = dialects::client("openai_responses").unwrap();
    for (capture, events) in replies() {
        let Some(body) = write_whole(client, &request(false), &fold(&events)) else {
            continue;
        };
        let stream = write_stream(client, &request(true), &events);
        let last = stream.trim_end().rsplit_once("data: ").unwrap().1;
        let last: Value = serde_json::from_str(last).unwrap();
        if last["type"] != "response.failed" {
            let whole: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(last["response"], whole, "{}", capture.name);
        }
    }
}
