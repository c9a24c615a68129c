//! The shared requests and replies: every upstream dialect writes each request, every client
//! dialect each reply, and where one dialect is both, it reads back what it wrote.
//!
//! What a dialect makes of them stands in `corpus/<dialect>/upstream_request` and `client_reply`,
//! under the name of the shared value. A new dialect is a row in `dialects::CLIENT` and `UPSTREAM`.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;

use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Citation, EndReason, Event, FaultKind, Fold, Loss, Lossy, MediaKind, Reply,
    Request, Role, Tool,
};
use throughline_codec::dialects::{
    self, CLIENT, ClientDialect, Outgoing, ReplyIdentity, RequestParts, Target, UPSTREAM,
    UpstreamDialect, client,
};

use super::folder::{Capture, captures, golden, report, root};

const REQUESTS: &str = "upstream_request";
const REPLIES: &str = "client_reply";

pub(super) fn requests() -> Vec<(Capture, Request)> {
    let read = |capture: Capture| {
        let request = serde_json::from_slice(&capture.bytes)
            .unwrap_or_else(|error| panic!("{}: {error}", capture.name));
        (capture, request)
    };
    let all = captures("canonical/requests", &["json"]);
    all.into_iter().map(read).collect()
}

fn replies() -> Vec<(Capture, Vec<Event<'static>>)> {
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

/// A misspelled member would be passed over in silence.
#[test]
fn shared_values_are_spelled_as_we_spell_them() {
    for (capture, request) in requests() {
        let spelled: Value = serde_json::from_slice(&capture.bytes).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap(), spelled, "{}", capture.name);
    }
    for (capture, events) in replies() {
        for (line, event) in std::str::from_utf8(&capture.bytes).unwrap().lines().zip(events) {
            let spelled: Value = serde_json::from_str(line).unwrap();
            assert_eq!(serde_json::to_value(&event).unwrap(), spelled, "{}", capture.name);
        }
    }
}

/// Every golden belongs to a shared value; one that is gone leaves none behind.
#[test]
fn every_golden_of_a_dialect_belongs_to_a_shared_value() {
    let requests = requests().into_iter().map(|(capture, _)| capture.name);
    let replies = replies().into_iter().map(|(capture, _)| capture.name);
    let requests: BTreeSet<String> = requests.chain(["heads".to_owned()]).collect();
    let replies: BTreeSet<String> = replies.collect();
    let upstream = UPSTREAM.iter().map(|dialect| (dialect.name(), REQUESTS, &requests));
    let client = CLIENT.iter().map(|dialect| (dialect.name(), REPLIES, &replies));
    for (dialect, folder, known) in upstream.chain(client) {
        // Without a folder all its goldens differ, which is told elsewhere.
        let folder_of = fs::read_dir(root().join(dialect).join(folder));
        for entry in folder_of.into_iter().flatten() {
            let file = entry.unwrap().file_name().into_string().unwrap();
            let (name, _) = file.split_once('.').unwrap();
            assert!(known.contains(name), "{dialect}/{folder}/{file}");
        }
    }
}

fn pretty(json: &[u8]) -> String {
    let value: Value = serde_json::from_slice(json).unwrap();
    format!("{value:#}\n")
}

fn target(request: &Request) -> Target<'_> {
    Target { model: &request.model, variant: "" }
}

#[test]
fn shared_requests_are_written_as_their_goldens_say() {
    let mut results = Vec::new();
    for dialect in UPSTREAM {
        let folder = root().join(dialect.name()).join(REQUESTS);
        let mut heads = String::new();
        for (Capture { name, .. }, request) in requests() {
            let Lossy { value, losses } = dialect.write_request(&request, &target(&request));
            let body = pretty(&value.body);
            results.push(golden(&folder.join(format!("{name}.json")), Some(&body)));
            let told = (!losses.is_empty()).then(|| format!("{:#}\n", json!(losses)));
            let path = folder.join(format!("{name}.losses.json"));
            results.push(golden(&path, told.as_deref()));
            let _ = write!(heads, "{name}: {}", value.path);
            if !value.query.is_empty() {
                let _ = write!(heads, "?{}", value.query);
            }
            for (key, header) in &value.headers {
                let _ = write!(heads, " {key}={header}");
            }
            heads.push('\n');
        }
        // Where they go, and with which headers.
        results.push(golden(&folder.join("heads.txt"), Some(&heads)));
    }
    report(results);
}

fn read_back(dialect: &dyn ClientDialect, outgoing: &Outgoing) -> Request {
    let asked = RequestParts { path: &outgoing.path, query: &outgoing.query, body: &outgoing.body };
    let read = dialect.read_request(&asked);
    read.unwrap_or_else(|fault| panic!("{}: {fault}", dialect.name())).value
}

fn pairs() -> impl Iterator<Item = (&'static dyn UpstreamDialect, &'static dyn ClientDialect)> {
    UPSTREAM.iter().flat_map(|upstream| {
        let client = CLIENT.iter().filter(|client| client.name() == upstream.name());
        client.map(|client| (*upstream, *client))
    })
}

/// What was written is read, and written once more it is the same: nothing is lost later that was
/// not told at first.
#[test]
fn a_shared_request_that_was_written_reads_as_it_was_but_for_its_losses() {
    for (upstream, client) in pairs() {
        for (capture, request) in requests() {
            let at = format!("{} by {}", capture.name, upstream.name());
            let first = upstream.write_request(&request, &target(&request));
            let read = read_back(client, &first.value);
            let again = upstream.write_request(&read, &target(&read));
            assert_eq!(pretty(&again.value.body), pretty(&first.value.body), "{at}");
            let new: Vec<&Loss> =
                again.losses.iter().filter(|loss| !first.losses.contains(loss)).collect();
            assert!(new.is_empty(), "{at}: {new:?}");
            if first.losses.is_empty() {
                assert_eq!(said(&read), said(&request), "{at}");
                assert_eq!(names(&read), names(&request), "{at}");
                assert_eq!(read.stop, request.stop, "{at}");
                assert_eq!(read.max_tokens, request.max_tokens, "{at}");
            }
        }
    }
}

/// The vocabulary is a dialect clients may speak: what it spells is read as it is, and nothing is lost.
#[test]
fn a_shared_request_is_read_as_it_is_spelled() {
    for dialect in ["ndjson", "events"].map(|name| client(name).unwrap()) {
        for (capture, request) in requests() {
            let asked =
                RequestParts { path: &dialect.path_for(""), query: "", body: &capture.bytes };
            let read = dialect.read_request(&asked);
            let read = read.unwrap_or_else(|fault| panic!("{}: {fault}", capture.name));
            assert_eq!(read, Lossy::whole(request), "{}", capture.name);
        }
    }
}

/// What real clients ask is read, or refused with its place; what was read can be written, and then
/// nothing changes any more.
#[test]
fn requests_of_real_clients_settle_once_they_were_read() {
    for (upstream, client) in pairs() {
        let folder = format!("{}/client_request", client.name());
        if !root().join(&folder).exists() {
            continue;
        }
        let mut understood = 0;
        for capture in captures(&folder, &["json"]) {
            let at = format!("{} by {}", capture.name, client.name());
            // The captures' long schemas were cut to a placeholder.
            let text = String::from_utf8(capture.bytes).unwrap();
            let body = text.replace("\"<input_schema cut>\"", r#"{"type":"object"}"#);
            let asked = RequestParts { path: "", query: "", body: body.as_bytes() };
            let request = match client.read_request(&asked) {
                Ok(read) => read.value,
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Invalid, "{at}");
                    assert!(fault.message.contains(": "), "{at}: {fault}");
                    continue;
                }
            };
            understood += 1;
            let first = upstream.write_request(&request, &target(&request));
            let read = read_back(client, &first.value);
            let again = upstream.write_request(&read, &target(&read));
            assert_eq!(pretty(&again.value.body), pretty(&first.value.body), "{at}");
        }
        assert!(understood > 0, "{folder}");
    }
}

/// What may be called.
fn names(request: &Request) -> Vec<Value> {
    let name = |tool: &Tool| match tool {
        Tool::Function { name, .. } => json!(name),
        Tool::Opaque { value, .. } => value.clone(),
    };
    request.tools.iter().map(name).collect()
}

/// What a conversation says, whoever's messages it is cut into and whatever its calls' ids are.
fn said(request: &Request) -> Vec<(Role, Value)> {
    let blocks = request.messages.iter().flat_map(|message| {
        let told = message.content.iter().map(told);
        told.map(|told| (message.role, told))
    });
    let system = request.system.iter().map(|text| (Role::System, json!(text)));
    system.chain(blocks.filter(|(_, told)| !told.is_null())).collect()
}

fn told(block: &Block) -> Value {
    match block {
        Block::Text { text, .. } | Block::Refusal { text } if text.is_empty() => Value::Null,
        Block::Text { text, .. } | Block::Refusal { text } => json!(text),
        Block::Thinking { text, signature } => json!({"thinking": text, "signature": signature}),
        Block::Redacted { data } => json!({"redacted": data}),
        Block::ToolCall { name, arguments, .. } => json!({"call": name, "with": value(arguments)}),
        Block::ToolResult { content, is_error, .. } => {
            let content: Vec<Value> =
                content.iter().map(told).filter(|told| !told.is_null()).collect();
            json!({"result": content, "is_error": is_error})
        }
        Block::Media { kind, source, .. } => {
            json!({"media": matches!(kind, MediaKind::Image), "source": source})
        }
        Block::Opaque { value, .. } => value.clone(),
    }
}

/// Arguments as a value: dialects space them differently, and none are as good as an empty object.
fn value(arguments: &str) -> Value {
    match arguments.trim() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    }
}

const MODEL: &str = "asked-for";

fn identity() -> ReplyIdentity {
    ReplyIdentity { id: "0123456789abcdef".to_owned(), created: 1_800_000_000 }
}

fn asked(stream: bool) -> Request {
    Request { model: MODEL.to_owned(), stream, ..Request::default() }
}

fn folded(events: &[Event<'_>]) -> Reply {
    let mut fold = Fold::default();
    for event in events {
        fold.push(event);
    }
    fold.finish()
}

/// The streamed form.
fn stream(dialect: &dyn ClientDialect, events: &[Event<'_>]) -> String {
    let mut writer = dialect.reply_writer(&asked(true), &identity());
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// The whole form; the error, where there was one. A reply that was cut has neither: the gateway
/// says what became of it.
fn whole(dialect: &dyn ClientDialect, reply: &Reply) -> Option<Vec<u8>> {
    match (&reply.fault, &reply.reason) {
        (Some(fault), _) => Some(dialect.write_fault(fault, "").1),
        (None, Some(EndReason::Cut)) => None,
        _ => Some(dialect.reply_writer(&asked(false), &identity()).whole(reply)),
    }
}

/// What a file is called that holds a streamed reply.
fn ending(dialect: &dyn ClientDialect) -> &'static str {
    match dialect.stream_type(&asked(true)) {
        lines if lines.contains("ndjson") => "ndjson",
        _ => "sse",
    }
}

#[test]
fn shared_replies_are_written_as_their_goldens_say() {
    let mut results = Vec::new();
    for dialect in CLIENT {
        let folder = root().join(dialect.name()).join(REPLIES);
        for (Capture { name, .. }, events) in replies() {
            let sent = stream(*dialect, &events);
            let path = folder.join(format!("{name}.{}", ending(*dialect)));
            results.push(golden(&path, Some(&sent)));
            // Where there is nothing but streams, a whole one is shown by its stream.
            let body = whole(*dialect, &folded(&events))
                .filter(|body| body.starts_with(b"{"))
                .map(|body| pretty(&body));
            let path = folder.join(format!("{name}.json"));
            results.push(golden(&path, body.as_deref()));
        }
    }
    report(results);
}

/// The events of a reply that arrives in these pieces.
fn read<'a>(
    dialect: &dyn UpstreamDialect,
    pieces: impl IntoIterator<Item = &'a [u8]>,
    streamed: bool,
) -> Vec<String> {
    let target = Target { model: MODEL, variant: "" };
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
    folded(&events)
}

/// What every client must see of a reply: its text, its calls, and the thinking that can be shown.
#[derive(Debug, PartialEq)]
struct Seen {
    text: String,
    /// Parts that have a word in this dialect alone.
    own: Vec<Value>,
    /// What the text refers to, as far as this dialect can tell it.
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
                // A dialect that wants an object wraps arguments that are none.
                let value = match value(arguments) {
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
    // Some dialects tell it as the model's own words, behind all others.
    seen.text.extend(reply.details.explanation.as_deref());
    seen
}

/// A citation of a block that reaches from one character of the answer to another.
fn referred(citation: &Citation, block: (u64, u64), by: &dyn ClientDialect) -> Option<Value> {
    if let Some(own) = citation.written_by(by.name()) {
        return Some(own.clone());
    }
    let told = !["anthropic", "ollama"].contains(&by.name()) && citation.url.is_some();
    let (start, end) = match citation.span {
        Some((start, end)) => (block.0 + start, block.0 + end),
        None => block,
    };
    told.then(|| json!([citation.url, citation.title, start, end]))
}

/// Why a reply ended. Most dialects have no word for a stop sequence.
fn reason(reply: &Reply) -> Option<EndReason> {
    match &reply.reason {
        Some(EndReason::StopSequence) => Some(EndReason::Stop),
        reason => reason.clone(),
    }
}

/// Whether a dialect counts caches and thinking apart, and has a word for a model that declines.
fn tells_apart(dialect: &dyn ClientDialect) -> bool {
    dialect.name() != "ollama"
}

/// A reply as such a dialect tells it.
fn as_told(mut reply: Reply, dialect: &dyn ClientDialect) -> Reply {
    if !tells_apart(dialect) && reply.reason == Some(EndReason::Refusal) {
        reply.reason = Some(EndReason::Stop);
    }
    reply
}

/// What was counted: input that was not read from a cache, input that was, output, thinking. Not
/// every dialect tells what was written to a cache apart; where nothing is told apart the first is all
/// input, the second and the last are nought.
fn counts(reply: &Reply, apart: bool) -> [u64; 4] {
    let usage = reply.usage;
    let count = Option::unwrap_or_default;
    let (input, output) = (count(usage.input) + count(usage.cache_write), count(usage.output));
    match apart {
        true => [input, count(usage.cache_read), output, count(usage.thinking)],
        false => [input + count(usage.cache_read), 0, output, 0],
    }
}

/// The thinking that can be shown, span by span.
fn thinking(reply: &Reply) -> Vec<&str> {
    let blocks = reply.content.iter();
    blocks
        .filter_map(|block| match block {
            Block::Thinking { text, .. } => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// Whether all thinking is shown in its order. A notice may stand for what is hidden.
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
fn a_shared_reply_that_was_written_shows_all_that_was_said() {
    for (upstream, client) in pairs() {
        for (capture, events) in replies() {
            let at = format!("{} by {}", capture.name, client.name());
            let original = as_told(folded(&events), client);
            let sent = stream(client, &events);
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
            // Some dialects tell counts in a stream only when asked to.
            if shown.usage.output.is_some() {
                assert_eq!(shown.usage.output, original.usage.output, "{at}");
            }
            let body = whole(client, &original).unwrap();
            let shown = fold_lines(&read(upstream, [&body[..]], false));
            assert!(shows_thinking(&shown, &original), "{at}, whole");
            let (shown_whole, told) = (seen(&shown, client), seen(&original, client));
            assert_eq!(shown_whole.text, told.text, "{at}, whole");
            assert_eq!(shown_whole.own, told.own, "{at}, whole");
            assert_eq!(shown_whole.citations, told.citations, "{at}, whole");
            assert_eq!(reason(&shown), reason(&original), "{at}, whole");
            let apart = tells_apart(client);
            assert_eq!(counts(&shown, apart), counts(&original, apart), "{at}, whole");
        }
    }
}

#[test]
fn any_split_of_a_written_reply_reads_the_same_and_any_cut_ends_once() {
    for (upstream, client) in pairs() {
        for (capture, events) in replies() {
            let at = format!("{} by {}", capture.name, client.name());
            let original = folded(&events);
            let forms = [
                (Some(stream(client, &events).into_bytes()), true),
                (whole(client, &original), false),
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

/// A part that no client gets is told as a loss, by its name; the others are there.
#[test]
fn parts_of_another_dialect_are_told_as_losses() {
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
            let told: Vec<String> = losses.map(|loss| loss.to_string()).collect();
            assert_eq!(told, expected, "{at}");
        }
    }
}

/// One dialect repeats all of a reply at the end of its stream, with how far each item came.
#[test]
fn the_end_of_a_responses_stream_is_the_whole_reply() {
    let client = dialects::client("openai_responses").unwrap();
    for (capture, events) in replies() {
        let Some(body) = whole(client, &folded(&events)) else {
            continue;
        };
        let stream = stream(client, &events);
        let last = stream.trim_end().rsplit_once("data: ").unwrap().1;
        let last: Value = serde_json::from_str(last).unwrap();
        if last["type"] != "response.failed" {
            let whole: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(last["response"], whole, "{}", capture.name);
        }
    }
}
