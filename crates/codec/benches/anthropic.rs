//! The work on every byte of this dialect: reading and editing requests, and reading replies as
//! they pass. Next to each is a scan of the same bytes for a byte that does not occur: the limit
//! that memory sets.

use std::fmt::Write;
use std::hint::black_box;

use divan::Bencher;
use divan::counter::{BytesCount, ItemsCount};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::anthropic::rewrite::leave_out;
use throughline_codec::dialects::anthropic::upstream_reply::ReplyReader;
use throughline_codec::json::Edits;

const DEPTH: usize = 128;
const LIMIT: usize = 1 << 20;
const SIZES: &[usize] = &[200_000, 2_000_000, 20_000_000];
const READS: &[usize] = &[64, 1024, 16 * 1024];
const DELTAS: usize = 10_000;
/// One token or a few, as providers send them.
const PIECE: &str = " and so the seventh row";
const SIGNATURE: &str = "++//yUUSC6rluDzQP1g/Y6y29fvwqVLRCQ4msv3eamszCgFkogObBzd+aWpJVNwn9UrPeXJ9PEPLNdD0STyFVZyBFJdrrNFbrPcBHGgLl5jD39YjqH2jYcmrXlWc9XMyeTWSUImFj99tU7AbboLSE5qEyyz4R3WMIpZlmpLIpJa8JSmvP/wzCht4ELNmed7uMFKWRqxSY8/6svW57gdMPWPAs9fmUBpx";

fn main() {
    divan::main();
}

/// A conversation of a coding agent of about this size: questions, answers with tool calls, and
/// files as tool results, with line ends and quotes escaped. One turn per ten thousand bytes.
fn request(size: usize, thinking: bool) -> Vec<u8> {
    const TURN: usize = 10_000;
    let line = r#"    let found = cursor.find(\"row\", 7)?; // naïve → see above\n"#;
    let thought = r"The user wants the seventh row. I look for it in the file first.\n\n";
    let mut body = r#"{"model":"claude-sonnet-5","max_tokens":32000,"stream":true,"thinking":{"type":"adaptive"},"system":[{"type":"text","text":"You are an agent.","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"Read","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}}],"messages":[{"role":"user","content":"Find row 7."}"#
        .to_owned();
    for turn in 0..size / TURN {
        let start = body.len();
        body.push_str(r#",{"role":"assistant","content":["#);
        if thinking {
            let text = thought.repeat(60);
            let _ = write!(
                body,
                r#"{{"type":"thinking","thinking":"{text}","signature":"{SIGNATURE}"}},"#
            );
        }
        let _ = write!(
            body,
            r#"{{"type":"text","text":"I will look."}},{{"type":"tool_use","id":"toolu_{turn}","name":"Read","input":{{"path":"src/row_{turn}.rs","offset":{turn}}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{turn}","content":""#
        );
        while body.len() - start < TURN - line.len() {
            body.push_str(line);
        }
        body.push_str(r#"","is_error":false}]}"#);
    }
    body.push_str("]}");
    body.into_bytes()
}

/// The lower limit: one pass over the bytes.
#[divan::bench(args = SIZES)]
fn request_scan(bencher: Bencher<'_, '_>, size: usize) {
    let body = request(size, false);
    bencher
        .counter(BytesCount::of_slice(&body))
        .bench_local(|| memchr::memchr(0, black_box(&body)));
}

/// The lower limit for strict reading: the UTF-8 check.
#[divan::bench(args = SIZES)]
fn request_utf8(bencher: Bencher<'_, '_>, size: usize) {
    let body = request(size, false);
    bencher
        .counter(BytesCount::of_slice(&body))
        .bench_local(|| std::str::from_utf8(black_box(&body)).is_ok());
}

#[divan::bench(args = SIZES)]
fn request_read(bencher: Bencher<'_, '_>, size: usize) {
    let body = request(size, false);
    bencher
        .counter(BytesCount::of_slice(&body))
        .bench_local(|| Outline::read(black_box(&body), DEPTH));
}

/// One long file in one string: as little JSON structure as possible.
#[divan::bench]
fn request_read_one_string(bencher: Bencher<'_, '_>) {
    let text = "x".repeat(2_000_000);
    let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}]}}"#);
    bencher
        .counter(BytesCount::of_str(&body))
        .bench_local(|| Outline::read(black_box(body.as_bytes()), DEPTH));
}

/// One block per ten thousand bytes, each hashed.
#[divan::bench(args = SIZES)]
fn request_read_thinking(bencher: Bencher<'_, '_>, size: usize) {
    let body = request(size, true);
    bencher
        .counter(BytesCount::of_slice(&body))
        .counter(ItemsCount::new(size / 10_000))
        .bench_local(|| Outline::read(black_box(&body), DEPTH));
}

/// Reads, removes all thinking, and writes the rest.
#[divan::bench(args = SIZES)]
fn request_without_thinking(bencher: Bencher<'_, '_>, size: usize) {
    let body = request(size, true);
    bencher.counter(BytesCount::of_slice(&body)).bench_local(|| {
        let body = black_box(&body[..]);
        let outline = Outline::read(body, DEPTH).ok()?;
        let keep: Vec<(usize, Vec<bool>)> = outline
            .thinking_blocks()
            .map(|(at, index, ..)| {
                let blocks = outline.messages[at].blocks().len();
                (at, (0..blocks).map(|block| block != index).collect())
            })
            .collect();
        let mut edits = Edits::default();
        leave_out(&mut edits, &outline, &keep);
        Some(edits.apply(body))
    });
}

/// A stream with one block of this kind, which grows in small deltas.
fn reply(kind: &str, piece: &str) -> Vec<u8> {
    let mut stream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":5}}}\n\n".to_owned();
    let _ = write!(
        stream,
        "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{{\"type\":\"{kind}\",\"{kind}\":\"\"}}}}\n\n"
    );
    for _ in 0..DELTAS {
        let _ = write!(
            stream,
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"{kind}_delta\",\"{kind}\":\"{piece}\"}}}}\n\n"
        );
    }
    stream.push_str("event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    stream.into_bytes()
}

fn tap(bencher: Bencher<'_, '_>, stream: &[u8], read: usize) {
    bencher.counter(BytesCount::of_slice(stream)).counter(ItemsCount::new(DELTAS)).bench_local(
        || {
            let mut events = 0;
            let mut reader = ReplyReader::events(LIMIT);
            for piece in stream.chunks(read) {
                reader.push(black_box(piece), |event| {
                    black_box(&event);
                    events += 1;
                });
            }
            reader.finish(|_| events += 1);
            events
        },
    );
}

/// The lower limit: find every line end of the stream.
#[divan::bench]
fn reply_scan(bencher: Bencher<'_, '_>) {
    let stream = reply("text", PIECE);
    bencher
        .counter(BytesCount::of_slice(&stream))
        .counter(ItemsCount::new(DELTAS))
        .bench_local(|| memchr::memchr2_iter(b'\n', b'\r', black_box(&stream)).count());
}

#[divan::bench(args = READS)]
fn reply_text(bencher: Bencher<'_, '_>, read: usize) {
    tap(bencher, &reply("text", PIECE), read);
}

#[divan::bench(args = READS)]
fn reply_thinking(bencher: Bencher<'_, '_>, read: usize) {
    tap(bencher, &reply("thinking", PIECE), read);
}

/// Half a page per delta, with escapes, as sent by providers that buffer.
#[divan::bench(args = READS)]
fn reply_long_deltas(bencher: Bencher<'_, '_>, read: usize) {
    let piece = r"the seventh row of the table is the one that was asked for,\n".repeat(16);
    tap(bencher, &reply("text", &piece), read);
}
