//! Citations from one end to the other: as providers send them, and as our writers write them.

use std::collections::HashSet;

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Citation, Delta, EndReason, Event, Fold, Reply, Request, Verbatim,
};
use throughline_codec::dialects::{self, ReplyIdentity, Target};

fn read(dialect: &str, bytes: &[u8], streamed: bool) -> Reply {
    let upstream = dialects::upstream(dialect).expect("a dialect");
    let target = Target { model: "m", profile: upstream.profile("") };
    let mut reader = upstream.reply_reader(&target, streamed);
    let mut fold = Fold::default();
    reader.push(bytes, &mut |event| fold.push(&event));
    reader.finish(&mut |event| fold.push(&event));
    fold.finish()
}

/// The texts of a reply, with their citations.
fn cited(reply: &Reply) -> Vec<(&str, Vec<Citation>)> {
    let blocks = reply.content.iter();
    blocks
        .filter_map(|block| match block {
            Block::Text { text, citations, .. } => Some((text.as_str(), citations.clone())),
            _ => None,
        })
        .collect()
}

fn events(data: &[Value]) -> Vec<u8> {
    let event = |data: &Value| match data["type"].as_str() {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    };
    data.iter().map(event).collect::<String>().into_bytes()
}

fn web_citation(url: &str, title: &str, span: Option<(u64, u64)>) -> Citation {
    Citation {
        url: Some(url.to_owned()),
        title: Some(title.to_owned()),
        span,
        ..Citation::default()
    }
}

fn verbatim(dialect: &str, value: &Value) -> Option<Verbatim> {
    Some(Verbatim { dialect: dialect.to_owned(), value: value.clone() })
}

#[test]
fn reads_anthropic_citations_from_the_start_or_from_deltas() {
    let found = json!({"type": "web_search_result_location", "url": "https://a.example", "title": "A",
        "encrypted_index": "Eo8B", "cited_text": "so"});
    let page = json!({"type": "page_location", "cited_text": "thus", "document_index": 0,
        "document_title": "B", "start_page_number": 1, "end_page_number": 2});
    let expected = [
        Citation {
            quote: Some("so".to_owned()),
            verbatim: verbatim("anthropic", &found),
            ..web_citation("https://a.example", "A", None)
        },
        Citation {
            title: Some("B".to_owned()),
            quote: Some("thus".to_owned()),
            verbatim: verbatim("anthropic", &page),
            ..Citation::default()
        },
    ];
    let whole = json!({"id": "m", "type": "message", "model": "x", "stop_reason": "end_turn", "content": [
        {"type": "text", "text": "Yes.", "citations": [found, page]}, {"type": "text", "text": "No.", "citations": null}]});
    let reply = read("anthropic", whole.to_string().as_bytes(), false);
    let texts = [("Yes.", expected.to_vec()), ("No.", vec![])];
    assert_eq!(cited(&reply), texts);

    let delta = |delta: Value| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let stream = events(&[
        json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": "", "citations": []}}),
        delta(json!({"type": "text_delta", "text": "Yes."})),
        delta(json!({"type": "citations_delta", "citation": found})),
        delta(json!({"type": "citations_delta", "citation": page})),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_stop"}),
    ]);
    assert_eq!(cited(&read("anthropic", &stream, true)), texts[..1]);
}

#[test]
fn reads_each_responses_citation_once() {
    let web = json!({"type": "url_citation", "start_index": 1, "end_index": 3, "url": "https://a.example", "title": "A"});
    let file =
        json!({"type": "file_citation", "file_id": "file-1", "filename": "b.pdf", "index": 4});
    let expected = [
        web_citation("https://a.example", "A", Some((1, 3))),
        Citation {
            title: Some("b.pdf".to_owned()),
            verbatim: verbatim("openai_responses", &file),
            ..Citation::default()
        },
    ];
    let item = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "Yes.", "annotations": [web, file]}]});
    let response = json!({"id": "r", "status": "completed", "output": [item]});
    let whole = read("openai_responses", response.to_string().as_bytes(), false);
    assert_eq!(cited(&whole), [("Yes.", expected.to_vec())]);
    let at = |mut event: Value| {
        event["output_index"] = 0.into();
        event["content_index"] = 0.into();
        event["item_id"] = "msg_1".into();
        event
    };
    let added = |index: u64, annotation: &Value| {
        at(
            json!({"type": "response.output_text.annotation.added", "annotation_index": index, "annotation": annotation}),
        )
    };
    let (first, second) = (added(0, &web), added(1, &file));
    // All as events, some, or none: the end repeats them.
    for announced in [vec![first.clone(), second], vec![first], vec![]] {
        let mut stream = vec![
            at(
                json!({"type": "response.output_item.added", "item": {"id": "msg_1", "type": "message", "content": []}}),
            ),
            at(json!({"type": "response.output_text.delta", "delta": "Yes."})),
        ];
        stream.extend(announced);
        stream.push(at(json!({"type": "response.output_item.done", "item": item})));
        stream.push(json!({"type": "response.completed", "response": response}));
        let reply = read("openai_responses", &events(&stream), true);
        assert_eq!(cited(&reply), [("Yes.", expected.to_vec())]);
    }
}

#[test]
fn reads_chat_citations_from_a_delta_or_from_the_message() {
    let annotations = json!([{"type": "url_citation", "url_citation":
        {"start_index": 0, "end_index": 4, "url": "https://a.example", "title": "A", "content": "so"}}]);
    let expected = vec![Citation {
        quote: Some("so".to_owned()),
        ..web_citation("https://a.example", "A", Some((0, 4)))
    }];
    let message = json!({"role": "assistant", "content": "Yes.", "annotations": annotations});
    let whole = json!({"id": "c", "model": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let reply = read("openai_chat", whole.to_string().as_bytes(), false);
    assert_eq!(cited(&reply), [("Yes.", expected.clone())]);
    let chunk = |delta: Value, finish: Value| json!({"id": "c", "model": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
    let stream = events(&[
        chunk(json!({"content": "Ye"}), Value::Null),
        chunk(json!({"content": "s."}), Value::Null),
        chunk(json!({"annotations": annotations}), Value::Null),
        chunk(json!({}), "stop".into()),
    ]);
    assert_eq!(cited(&read("openai_chat", &stream, true)), [("Yes.", expected)]);
}

#[test]
fn reads_gemini_citations_of_the_text_before_its_signature() {
    let context =
        json!({"retrievedContext": {"uri": "https://b.example", "title": "B", "text": "thus"}});
    let metadata = json!({
        "webSearchQueries": ["tides"],
        "groundingChunks": [{"web": {"uri": "https://a.example", "title": "A"}}, context],
        "groundingSupports": [
            {"segment": {"endIndex": 6, "text": "Über."}, "groundingChunkIndices": [0]},
            {"segment": {"startIndex": 7, "endIndex": 11, "text": "Else"}, "groundingChunkIndices": [0, 9]},
        ],
    });
    let expected = vec![
        web_citation("https://a.example", "A", Some((0, 5))),
        // The text at that position is something else.
        web_citation("https://a.example", "A", None),
        Citation {
            quote: Some("thus".to_owned()),
            verbatim: verbatim("gemini", &context),
            ..web_citation("https://b.example", "B", None)
        },
    ];
    let piece = |parts: Value, more: &[(&str, Value)]| {
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        for (key, value) in more {
            candidate[*key] = value.clone();
        }
        json!({"candidates": [candidate]})
    };
    let end = [("finishReason", json!("STOP")), ("groundingMetadata", metadata)];
    let signed = json!([{"text": "", "thoughtSignature": "s"}]);
    let stream = events(&[
        piece(json!([{"text": "Über."}]), &[]),
        piece(json!([{"text": " Yes."}]), &[]),
        piece(signed, &end),
        // Every piece repeats it.
        piece(json!([{"text": ""}]), &end),
    ]);
    let reply = read("gemini", &stream, true);
    assert_eq!(cited(&reply)[0], ("Über. Yes.", expected.clone()));
    assert_eq!(cited(&reply)[1], ("", vec![]));
    assert_eq!(reply.content.len(), 2);
    let whole = piece(json!([{"text": "Über. Yes.", "thoughtSignature": "s"}]), &end);
    let reply = read("gemini", whole.to_string().as_bytes(), false);
    assert_eq!(cited(&reply), [("Über. Yes.", expected)]);
}

fn citation() -> impl Strategy<Value = (Option<String>, Option<(u64, u64)>, u8)> {
    let span = proptest::option::of((0u64..6, 1u64..6).prop_map(|(at, more)| (at, at + more)));
    (proptest::option::of("[A-Zé\"]{1,4}"), span, 0u8..3)
}

proptest! {
    #[test]
    fn written_citations_are_read_back(
        text in "[a-zé🧠\"\\\\\n]{12,20}",
        all in proptest::collection::vec(citation(), 0..5),
    ) {
        let length = text.chars().count() as u64;
        let citations: Vec<Citation> = all.into_iter().map(|(title, span, host)| Citation {
            url: Some(format!("https://{host}.example/")),
            title,
            span,
            ..Citation::default()
        }).collect();
        let mut reply_events = vec![
            Event::BlockStarted { index: 0, block: BlockStart::Text { text: "".into() } },
            Event::BlockDelta { index: 0, delta: Delta::Text(text.as_str().into()) },
        ];
        reply_events.extend(citations.iter().map(|one| Event::BlockDelta {
            index: 0,
            delta: Delta::Citation(one.clone().into()),
        }));
        reply_events.push(Event::BlockEnded { index: 0 });
        reply_events.push(Event::Ended { reason: EndReason::Stop });
        let mut fold = Fold::default();
        for event in &reply_events {
            fold.push(event);
        }
        let reply = fold.finish();
        for dialect in ["gemini", "openai_chat", "openai_responses"] {
            // A citation of a whole text covers its first to its last character.
            let mut expected: Vec<Citation> = citations.iter().map(|one| Citation {
                span: one.span.or(Some((0, length))),
                ..one.clone()
            }).collect();
            if dialect == "gemini" {
                // The citation matters, not how often it occurs.
                let mut seen = HashSet::new();
                expected.retain(|one| seen.insert(format!("{one:?}")));
            }
            let client = dialects::client(dialect).unwrap();
            let identity = ReplyIdentity::new("1", 1);
            let mut writer = client.session().reply_writer(&Request::default(), &identity);
            let mut stream = Vec::new();
            for event in &reply_events {
                writer.push(event, &mut stream);
            }
            let whole = writer.whole(&reply);
            for (bytes, streamed) in [(stream, true), (whole, false)] {
                let read = read(dialect, &bytes, streamed);
                prop_assert_eq!(cited(&read), [(text.as_str(), expected.clone())], "{} {}", dialect, streamed);
            }
        }
    }
}
