//! Round trips of random requests and replies.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;
use throughline_canonical::{
    Amount, Block, BlockStart, Delta, Effort, EndReason, LossSubject, MediaKind, Message, Output,
    Role, Sampling, Source, ThinkingSetting, Tool, ToolChoice, Usage,
};

use super::*;
use crate::dialects::Session;
use crate::dialects::openai_chat::ChatSession;
use crate::dialects::openai_chat::ids::nine_letters;
use crate::dialects::openai_chat::variants::{Replay, Setting, find};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z \"\\\\\n\té🧠<>{}]{1,12}",
        any::<String>().prop_filter("some", |text| !text.is_empty())
    ]
}

fn signature() -> impl Strategy<Value = String> {
    "[A-Za-z0-9+/]{4,20}={0,2}"
}

fn media() -> impl Strategy<Value = Block> {
    let base64 = |media_type: &'static str| {
        "[A-Za-z0-9+/]{4,8}"
            .prop_map(move |data| Source::Base64 { media_type: media_type.to_owned(), data })
    };
    let url = "https://[a-z]{1,8}/x".prop_map(|url| Source::Url { url, media_type: None });
    let file = "[a-z]{1,8}".prop_map(|id| Source::File { dialect: "openai_chat".to_owned(), id });
    let block = |kind, source, name| Block::Media { kind, source, name, detail: None };
    let image = |source, detail: Option<&str>| Block::Media {
        kind: MediaKind::Image,
        source,
        name: None,
        detail: detail.map(str::to_owned),
    };
    let detail = option::of(prop_oneof![Just("low"), Just("high")]);
    prop_oneof![
        (prop_oneof![base64("image/png").boxed(), url.boxed()], detail)
            .prop_map(move |(source, detail)| image(source, detail)),
        prop_oneof![base64("audio/wav"), base64("audio/mpeg")].prop_map(move |source| block(
            MediaKind::Audio,
            source,
            None
        )),
        (prop_oneof![base64("application/pdf").boxed(), file.boxed()], option::of(text()))
            .prop_map(move |(source, name)| block(MediaKind::Document, source, name)),
    ]
}

fn opaque() -> impl Strategy<Value = Block> {
    "[a-z]{1,8}".prop_map(|value| Block::Opaque {
        dialect: "openai_chat".to_owned(),
        value: json!({"type": "strange", "value": value}),
    })
}

fn asked() -> impl Strategy<Value = Message> {
    let block = prop_oneof![3 => text().prop_map(Block::text), 1 => media(), 1 => opaque()];
    vec(block, 1..4).prop_map(|content| Message::new(Role::User, content))
}

/// A call for each number, with its results.
fn answered(signed: bool) -> impl Strategy<Value = Vec<Message>> {
    let thinking = (text(), signature()).prop_map(move |(text, signature)| Block::Thinking {
        text,
        signature: signed.then_some(signature),
    });
    let redacted = signature().prop_map(|data| Block::Redacted { data });
    let thoughts = if signed {
        vec(prop_oneof![thinking.boxed(), redacted.boxed()], 0..3).boxed()
    } else {
        vec(thinking, 0..2).boxed()
    };
    let said = vec(text().prop_map(Block::text), 0..2);
    let call =
        ("[a-z_]{1,8}", prop_oneof![Just("{}".to_owned()), Just("{\"a\":[1,\"\\n\"]}".to_owned())]);
    let result = (vec(text().prop_map(Block::text), 1..3), any::<bool>());
    (thoughts, said, vec((call, result), 0..3), any::<u32>()).prop_map(
        |(mut content, said, calls, seed)| {
            content.extend(said);
            if content.is_empty() && calls.is_empty() {
                content.push(Block::text("x"));
            }
            let id = |place: usize| format!("call_{seed}_{place}");
            let mut results = Vec::new();
            for (place, ((name, arguments), (answer, is_error))) in calls.into_iter().enumerate() {
                content.push(Block::ToolCall { id: id(place), name, arguments, signature: None });
                results.push(Block::ToolResult {
                    id: id(place),
                    name: None,
                    content: answer,
                    is_error,
                });
            }
            let mut messages = vec![Message::new(Role::Assistant, content)];
            if !results.is_empty() {
                messages.push(Message::new(Role::User, results));
            }
            messages
        },
    )
}

fn amount() -> impl Strategy<Value = Amount> {
    let effort = || proptest::sample::select(Effort::ALL.as_slice());
    prop_oneof![
        Just(Amount::Off),
        Just(Amount::On),
        effort().prop_map(|effort| Amount::Effort { effort }),
        (1u64..100_000).prop_map(|tokens| Amount::Budget { tokens }),
    ]
}

fn tool() -> impl Strategy<Value = Tool> {
    prop_oneof![
        ("[a-z]{1,8}", option::of(text()), option::of(any::<bool>())).prop_map(
            |(name, description, strict)| Tool::Function {
                name,
                description,
                parameters: json!({"type": "object", "properties": {}}),
                strict,
            }
        ),
        Just(Tool::Opaque {
            dialect: "openai_chat".to_owned(),
            value: json!({"type": "custom", "custom": {"name": "g"}}),
        }),
    ]
}

fn settings() -> impl Strategy<Value = Request> {
    let number = || option::of((0i32..200).prop_map(|number| f64::from(number) / 100.0));
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        "[a-z]{1,8}".prop_map(|name| ToolChoice::Named { name }),
    ];
    let output = prop_oneof![
        Just(Output::Text),
        Just(Output::Json),
        ("[a-z]{1,8}", option::of(any::<bool>())).prop_map(|(name, strict)| Output::Schema {
            name: Some(name),
            schema: json!({"type": "object"}),
            strict,
        }),
    ];
    let sampling = (number(), number(), option::of(any::<i64>()), number(), option::of(0u64..99));
    (
        (vec(text(), 0..3), vec(tool(), 0..3), option::of(choice), option::of(any::<bool>())),
        (option::of(amount()), sampling, option::of(1u64..100_000), vec(text(), 0..4)),
        (output, any::<bool>(), option::of(text()), option::of(text()), any::<bool>()),
    )
        .prop_map(|(a, (amount, sampling, max_tokens, stop), e)| {
            let (system, tools, tool_choice, parallel_calls) = a;
            let (temperature, top_p, seed, presence_penalty, top_k) = sampling;
            let (output, stream, user, cache_key, extra) = e;
            let mut request = Request {
                model: "m".to_owned(),
                system,
                tool_choice: tool_choice.filter(|_| !tools.is_empty()),
                parallel_calls: parallel_calls.filter(|_| !tools.is_empty()),
                tools,
                thinking: ThinkingSetting { amount, show: None },
                sampling: Sampling {
                    temperature,
                    top_p,
                    top_k,
                    seed,
                    presence_penalty,
                    frequency_penalty: None,
                },
                max_tokens,
                stop,
                output,
                stream,
                user,
                cache_key,
                ..Request::default()
            };
            if extra {
                let members = json!({"verbosity": "low"});
                let members = members.as_object().cloned().unwrap_or_default();
                request.extra.insert("openai_chat".to_owned(), members);
            }
            request
        })
}

fn conversation(signed: bool) -> impl Strategy<Value = Request> {
    let turns = vec((asked(), answered(signed)), 1..3);
    (settings(), turns).prop_map(|(mut request, turns)| {
        for (asked, answered) in turns {
            request.messages.push(asked);
            request.messages.extend(answered);
        }
        request
    })
}

/// A request without its reported losses.
fn expected(mut request: Request, variant: &str, losses: &[Loss]) -> Request {
    let row = find(variant);
    for loss in losses {
        match loss {
            Loss::ThinkingOmitted { .. } => {
                for message in &mut request.messages {
                    let unseen = |block: &Block| {
                        !matches!(block, Block::Thinking { .. } | Block::Redacted { .. })
                    };
                    message.content.retain(unseen);
                }
            }
            Loss::SettingAdapted { setting: LossSubject::Thinking, .. } => {
                request.thinking.amount = None;
            }
            Loss::SettingAdapted { setting: LossSubject::ToolCallId, .. } => {
                for message in &mut request.messages {
                    for block in &mut message.content {
                        if let Block::ToolCall { id, .. } | Block::ToolResult { id, .. } = block {
                            *id = nine_letters(id).into_owned();
                        }
                    }
                }
            }
            Loss::PartOmitted { part, .. } => match part.as_str() {
                "top_k" => request.sampling.top_k = None,
                "verbosity" => request.extra.clear(),
                "user" => request.user = None,
                "cache_key" => request.cache_key = None,
                "tool_result.is_error" => {
                    for message in &mut request.messages {
                        for block in &mut message.content {
                            if let Block::ToolResult { is_error, .. } = block {
                                *is_error = false;
                            }
                        }
                    }
                }
                other => panic!("{other} is lost"),
            },
            other => panic!("{other}"),
        }
    }
    // `On` has no other form there.
    if matches!(row.setting, Setting::Effort | Setting::Blocks)
        && request.thinking.amount == Some(Amount::On)
    {
        request.thinking.amount = Some(Amount::Effort { effort: row.usual });
    }
    if row.joins_system && request.system.len() > 1 {
        request.system = vec![request.system.join("\n\n")];
    }
    // Plain reasoning is one block.
    if matches!(row.replay, Replay::ReasoningContent | Replay::Reasoning) {
        for message in &mut request.messages {
            message.content.dedup_by(|later, earlier| match (later, earlier) {
                (Block::Thinking { text: later, .. }, Block::Thinking { text, .. }) => {
                    text.push_str(later);
                    true
                }
                _ => false,
            });
        }
    }
    request
}

fn check(request: &Request, variant: &str) -> Result<(), TestCaseError> {
    let target = Target { model: "m", profile: OpenAiChat.profile(variant) };
    let Lossy { value, losses } = OpenAiChat.write_request(request, &target);
    let found = read_bytes(&value.body).map_err(|fault| TestCaseError::fail(fault.message))?;
    prop_assert_eq!(&found.losses, &Vec::new());
    let mut found = found.value;
    let mut expected = expected(request.clone(), variant, &losses);
    // An adapted setting differs. The corpus has its values.
    if expected.thinking.amount.is_none() {
        found.thinking.amount = None;
    }
    // An assistant message with only thinking is empty now.
    for message in &mut expected.messages {
        message.content.retain(|block| *block != Block::text(""));
    }
    prop_assert_eq!(found, expected);
    Ok(())
}

/// One block of a reply: its start and its deltas.
fn block() -> impl Strategy<Value = (BlockStart<'static>, Vec<Delta<'static>>)> {
    let pieces = || vec(text(), 1..4);
    prop_oneof![
        pieces().prop_map(|pieces| {
            let deltas = pieces.into_iter().map(|text| Delta::Text(text.into()));
            (BlockStart::Text { text: "".into() }, deltas.collect())
        }),
        (pieces(), option::of(signature())).prop_map(|(pieces, signature)| {
            let mut deltas: Vec<Delta<'static>> =
                pieces.into_iter().map(|text| Delta::Thinking(text.into())).collect();
            deltas.extend(signature.map(|mark| Delta::Signature(mark.into())));
            let start = BlockStart::Thinking { text: "".into(), signature: "".into() };
            (start, deltas)
        }),
        signature().prop_map(|mark| {
            let start = BlockStart::Thinking { text: "".into(), signature: mark.into() };
            (start, Vec::new())
        }),
        signature().prop_map(|data| (BlockStart::Redacted { data: data.into() }, Vec::new())),
        (
            "[a-z]{1,8}",
            prop_oneof![Just(vec!["{\"a\":", "\"\\n\"}"]), Just(vec!["{}"])],
            option::of(signature())
        )
            .prop_map(|(name, pieces, signature)| {
                let mut deltas: Vec<Delta<'static>> =
                    pieces.into_iter().map(|text| Delta::ToolArguments(text.into())).collect();
                deltas.extend(signature.map(|mark| Delta::Signature(mark.into())));
                let start = BlockStart::ToolCall { id: "".into(), name: name.into() };
                (start, deltas)
            }),
    ]
}

fn reply() -> impl Strategy<Value = Vec<Event<'static>>> {
    let reason =
        prop_oneof![Just(EndReason::Stop), Just(EndReason::Length), Just(EndReason::Refusal)];
    (vec(block(), 0..6), reason).prop_map(|(blocks, reason)| {
        let mut events = vec![Event::MessageStarted { id: "chatcmpl-1".into(), model: "m".into() }];
        let mut called = false;
        for (place, (mut block, deltas)) in blocks.into_iter().enumerate() {
            let index = place as u32;
            if let BlockStart::ToolCall { id, .. } = &mut block {
                *id = Cow::Owned(format!("c{place}"));
                called = true;
            }
            events.push(Event::BlockStarted { index, block });
            for delta in deltas {
                events.push(Event::BlockDelta { index, delta });
            }
            events.push(Event::BlockEnded { index });
        }
        events.push(Event::Usage(Usage {
            input: Some(3),
            cache_read: Some(2),
            cache_write: Some(1),
            output: Some(9),
            thinking: Some(4),
            ..Usage::default()
        }));
        let reason = match reason {
            EndReason::Stop if called => EndReason::ToolCalls,
            reason => reason,
        };
        events.push(Event::Ended { reason });
        events
    })
}

fn fold(events: &[Event<'_>]) -> Reply {
    let mut fold = Fold::default();
    for event in events {
        fold.push(event);
    }
    fold.finish()
}

/// Adjacent texts are one text on the wire.
fn join_texts(reply: &mut Reply) {
    reply.content.dedup_by(|later, earlier| match (later, earlier) {
        (Block::Text { text: later, .. }, Block::Text { text, .. }) => {
            text.push_str(later);
            true
        }
        _ => false,
    });
}

/// A writer for a reply with token counts.
fn counting_writer() -> Box<dyn ReplyWriter> {
    let request = Request { model: "m".to_owned(), ..Request::default() };
    let session = ChatSession { include_usage: true, ..ChatSession::default() };
    session.reply_writer(&request, &identity())
}

proptest! {
    #[test]
    fn a_request_survives_a_round_trip_up_to_its_losses(request in conversation(false)) {
        for variant in ["openai", "vllm", "sglang", "mistral"] {
            check(&request, variant)?;
        }
    }

    #[test]
    fn signed_thinking_survives_a_round_trip(request in conversation(true)) {
        for variant in ["openai", "openrouter", "litellm"] {
            check(&request, variant)?;
        }
    }

    #[test]
    fn a_streamed_reply_survives_a_round_trip(events in reply()) {
        let stream = stream_from(counting_writer(), &events);
        let mut expected = fold(&events);
        join_texts(&mut expected);
        prop_assert_eq!(read_reply("openai", true, stream.as_bytes()), expected);
    }

    #[test]
    fn a_whole_reply_survives_a_round_trip_sorted_by_kind(events in reply()) {
        let mut expected = fold(&events);
        // The dialect has a fixed order: reasoning, text, calls.
        expected.content.sort_by_key(|block| match block {
            Block::Thinking { .. } | Block::Redacted { .. } => 0,
            Block::Text { .. } => 1,
            _ => 2,
        });
        join_texts(&mut expected);
        let whole = counting_writer().whole(&fold(&events));
        prop_assert_eq!(read_reply("openai", false, &whole), expected);
    }

    #[test]
    fn arbitrary_bodies_never_panic(bytes in vec(any::<u8>(), 0..100), status in 0u16..1000) {
        let _ = read_bytes(&bytes);
        let _ = OpenAiChat.read_fault(status, &bytes);
    }
}
