//! Every reply of the corpus, cut after each of its frames and resumed, in each format of a run.

use throughline_canonical::{BlockStart, EndReason, Event, Request};
use throughline_codec::dialects::resumable::{
    Kinds, LogCursor, LogOutline, ReplyFormat, ResumableReply,
};
use throughline_codec::dialects::{ReplyIdentity, fault_of_end};

use super::shared::replies;

/// The events as a run logs them: the end is complete, and has a fault if it is a failure.
fn logged(events: Vec<Event<'static>>) -> Vec<Event<'static>> {
    let (mut log, mut open, mut failed) = (Vec::new(), Vec::new(), false);
    for event in events {
        match &event {
            Event::BlockStarted { index, .. } => open.push(*index),
            Event::BlockEnded { index } => open.retain(|known| known != index),
            Event::Fault(_) => failed = true,
            Event::Ended { reason } => match fault_of_end(reason) {
                Some(fault) if !failed => log.push(Event::Fault(fault)),
                Some(_) => {}
                None => log.extend(open.drain(..).map(|index| Event::BlockEnded { index })),
            },
            _ => {}
        }
        log.push(event);
    }
    log
}

fn logs() -> impl Iterator<Item = (String, Vec<Event<'static>>)> {
    let logs = replies().into_iter().map(|(capture, events)| (capture.name, logged(events)));
    // A stop in the middle of everything.
    let stopped = replies().into_iter().flat_map(|(capture, events)| {
        (0..events.len()).map(move |at| {
            let mut events = events[..at].to_vec();
            events.push(Event::Ended { reason: EndReason::cancelled() });
            (format!("{} stopped at {at}", capture.name), events)
        })
    });
    logs.chain(stopped)
}

fn reply(format: ReplyFormat) -> ResumableReply {
    let identity = ReplyIdentity::new("id", 0);
    let session = format.dialect().session();
    ResumableReply::new(session.reply_writer(&Request::default(), &identity), format)
}

fn write(mut reply: ResumableReply, events: &[Event<'_>]) -> (String, bool) {
    let mut out = Vec::new();
    for (number, event) in (1..).zip(events) {
        reply.push(number, event, &mut out);
    }
    (String::from_utf8(out).unwrap(), reply.knows_cursor())
}

/// Writes a reply after a cursor, from the outline of the events before it and all events from there on.
fn write_outlined(reply: ResumableReply, cursor: LogCursor, events: &[Event<'_>]) -> String {
    let (mut reply, mut outline) = (reply.after(cursor), LogOutline::default());
    let mut out = Vec::new();
    for (number, event) in (1..).zip(events) {
        let is_needed = outline.needs(event);
        if is_needed || number >= cursor.number {
            reply.push(number, event, &mut out);
        }
    }
    String::from_utf8(out).unwrap()
}

/// The frames of a stream, each with its cursor.
fn frames(format: ReplyFormat, stream: &str) -> Vec<(String, &str)> {
    let separator = if format == ReplyFormat::NdJson { "\n" } else { "\n\n" };
    let cursor = |frame: &str| match format {
        ReplyFormat::NdJson => {
            let line: serde_json::Value = serde_json::from_str(frame).unwrap();
            line["seq"].to_string()
        }
        _ => {
            let mut ids = frame.lines().filter_map(|line| line.strip_prefix("id: "));
            let id = ids.next().unwrap().to_owned();
            assert_eq!(ids.next(), None, "{frame}");
            id
        }
    };
    stream.split_inclusive(separator).map(|frame| (cursor(frame), frame)).collect()
}

#[test]
fn reply_cut_after_any_frame_resumes_byte_for_byte() {
    for (name, events) in logs() {
        for format in ReplyFormat::ALL {
            let (whole, _) = write(reply(format), &events);
            let (mut at, mut last) = (0, None);
            for (cursor, frame) in frames(format, &whole) {
                let id = format!("{name}, {format:?} after {cursor}");
                let cursor = LogCursor::read(&cursor).unwrap();
                assert!(last < Some(cursor), "{id}");
                (at, last) = (at + frame.len(), Some(cursor));
                let (rest, known) = write(reply(format).after(cursor), &events);
                assert!(known, "{id}");
                assert_eq!(rest, whole[at..], "{id}");
                let rest = write_outlined(reply(format), cursor, &events);
                assert_eq!(rest, whole[at..], "{id}, from the outline");
            }
            let beyond = LogCursor { number: 1, part: 99 };
            assert!(!write(reply(ReplyFormat::Sse).after(beyond), &events).1, "{name}");
        }
    }
}

#[test]
fn cursors_of_a_followed_run_name_the_run() {
    let (_, events) = logs().next().unwrap();
    let (plain, _) = write(reply(ReplyFormat::AgUi), &events);
    let (named, _) = write(reply(ReplyFormat::AgUi).in_run("run_7"), &events);
    assert_eq!(named, plain.replace("id: ", "id: run_7:"));
}

#[test]
fn filtered_lines_are_those_of_the_whole_stream() {
    for (name, events) in logs() {
        let (whole, _) = write(reply(ReplyFormat::NdJson), &events);
        for (kinds, types) in [
            ("text", &["text", "source"][..]),
            ("thinking", &["thinking", "redacted_thinking"]),
            ("tools", &["tool_call"]),
            (
                "text,tools,thinking",
                &["text", "source", "thinking", "redacted_thinking", "tool_call"],
            ),
        ] {
            let filtered = reply(ReplyFormat::NdJson).with_kinds(Kinds::read(kinds).unwrap());
            let (found, _) = write(filtered, &events);
            let kept = |line: &&str| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                let kind = line["type"].as_str().unwrap();
                types.contains(&kind) || ["error", "done"].contains(&kind)
            };
            // Signatures belong to blocks of several kinds.
            let unsigned = |stream: &str| -> Vec<String> {
                let lines = stream.lines().filter(|line| !line.contains("thinking_signature"));
                lines.filter(kept).map(str::to_owned).collect()
            };
            assert_eq!(unsigned(&found), unsigned(&whole), "{name}, {kinds}");
            assert!(found.lines().all(|line| whole.lines().any(|known| known == line)), "{name}");
        }
    }
}

/// A stream without some kinds is the stream of a reply that has no such blocks.
#[test]
fn filtered_frames_are_those_of_a_reply_without_the_blocks() {
    let is_text = |block: &BlockStart<'_>| {
        matches!(block, BlockStart::Text { .. } | BlockStart::Refusal { .. })
    };
    for (name, events) in logs() {
        let mut hidden = Vec::new();
        let shown = events.iter().filter(|event| match event {
            Event::BlockStarted { index, block } => {
                hidden.retain(|known| known != index);
                hidden.extend((!is_text(block)).then_some(*index));
                is_text(block)
            }
            Event::BlockDelta { index, .. } | Event::BlockEnded { index } => {
                !hidden.contains(index)
            }
            _ => true,
        });
        let shown: Vec<Event<'_>> = shown.cloned().collect();
        for format in [ReplyFormat::Sse, ReplyFormat::AgUi, ReplyFormat::Ui] {
            let text = reply(format).with_kinds(Kinds::read("text").unwrap());
            let (filtered, _) = write(text, &events);
            let (plain, _) = write(reply(format), &shown);
            let data = |stream: &str| -> Vec<String> {
                let lines = stream.lines().filter(|line| line.starts_with("data: "));
                lines.map(str::to_owned).collect()
            };
            assert_eq!(data(&filtered), data(&plain), "{name}, {format:?}");
        }
    }
}
