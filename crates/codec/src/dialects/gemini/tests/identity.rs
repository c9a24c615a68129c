//! Round trips of random requests and replies, up to reported losses and to forms that are equal on
//! the wire.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use serde_json::json;
use throughline_canonical::{
    Amount, Block, BlockStart, Delta, Effort, EndDetails, EndReason, MediaKind, Message, Output,
    Role, Sampling, Show, Source, ThinkingSetting, Tool, ToolChoice, Usage,
};

use super::*;

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z ]{0,8}",
        Just("\"quoted\"\n\\ \u{0}\u{7f}é🧠\u{2028}".to_owned()),
        any::<String>(),
    ]
}

fn word() -> impl Strategy<Value = String> {
    "[a-z_]{1,6}"
}

fn signature() -> impl Strategy<Value = Option<String>> {
    of(prop_oneof![Just(String::new()), "[A-Za-z0-9+/_-]{1,12}={0,2}"])
}

fn arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("{}".to_owned()),
        word().prop_map(|word| format!("{{\n \"{word}\": [1.5, null, {{\"x\": \"\\n\"}}] }}")),
        words().prop_map(|words| json!({ "text": words }).to_string()),
        words(),
    ]
}

fn media() -> impl Strategy<Value = Block> {
    let kinds = prop_oneof![
        Just((MediaKind::Image, "image/png")),
        Just((MediaKind::Audio, "audio/wav")),
        Just((MediaKind::Video, "video/mp4")),
        Just((MediaKind::Document, "application/pdf")),
    ];
    (kinds, 0..4, of(word())).prop_map(|((kind, media_type), source, name)| Block::Media {
        kind: if source == 2 { MediaKind::Document } else { kind },
        source: match source {
            0 => Source::Url {
                url: "gs://bucket/x".to_owned(),
                media_type: Some(media_type.to_owned()),
            },
            1 => Source::Text { text: "doc".to_owned() },
            2 => Source::File {
                dialect: "gemini".to_owned(),
                id: "https://generativelanguage.googleapis.com/v1beta/files/x".to_owned(),
            },
            _ => Source::Base64 { media_type: media_type.to_owned(), data: "aGk=".to_owned() },
        },
        name,
        detail: None,
    })
}

fn said() -> impl Strategy<Value = Block> {
    prop_oneof![
        4 => (words(), signature()).prop_map(|(text, signature)| Block::Text { text, signature, citations: Vec::new() }),
        4 => (words(), signature()).prop_map(|(text, signature)| Block::Thinking { text, signature }),
        3 => (word(), word(), arguments(), signature()).prop_map(|(id, name, arguments, signature)| {
            Block::ToolCall { id, name, arguments, signature }
        }),
        1 => words().prop_map(|data| Block::Redacted { data }),
        1 => words().prop_map(|text| Block::Refusal { text }),
    ]
}

fn block() -> impl Strategy<Value = Block> {
    let answer = prop_oneof![
        3 => words().prop_map(|text| vec![Block::text(text)]),
        1 => (words(), media()).prop_map(|(text, media)| vec![Block::text(text), media]),
        1 => vec(prop_oneof![words().prop_map(Block::text), media()], 0..3),
    ];
    let result =
        (word(), of(word()), answer, any::<bool>()).prop_map(|(id, name, content, is_error)| {
            Block::ToolResult { id, name, content, is_error }
        });
    let opaque = prop_oneof![Just("gemini"), Just("anthropic")].prop_map(|dialect| Block::Opaque {
        dialect: dialect.to_owned(),
        value: json!({"executableCode": {"code": "1"}, "thoughtSignature": "s"}),
    });
    prop_oneof![6 => said(), 2 => result, 1 => media(), 1 => opaque]
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        6 => Just(Role::User),
        6 => Just(Role::Assistant),
        1 => Just(Role::System),
    ];
    (role, vec(block(), 0..4)).prop_map(|(role, content)| Message::new(role, content))
}

fn tool() -> impl Strategy<Value = Tool> {
    let function = (word(), of(words()), of(word()), of(any::<bool>()));
    prop_oneof![
        3 => function.prop_map(|(name, description, member, strict)| Tool::Function {
            name,
            description,
            parameters: member.map_or(Value::Null, |member| json!({"type": "object", "properties": {member: {"$ref": "#"}}})),
            strict,
        }),
        1 => prop_oneof![Just("gemini"), Just("other")].prop_map(|dialect| Tool::Opaque {
            dialect: dialect.to_owned(),
            value: json!({"googleSearch": {}}),
        }),
    ]
}

fn thinking() -> impl Strategy<Value = ThinkingSetting> {
    let effort = proptest::sample::select(Effort::ALL.to_vec());
    let amount = prop_oneof![
        Just(Amount::Off),
        Just(Amount::On),
        effort.clone().prop_map(|effort| Amount::Effort { effort }),
        (1u64..9000).prop_map(|tokens| Amount::Budget { tokens }),
        of(effort).prop_map(|effort| Amount::Adaptive { effort }),
    ];
    let show = prop_oneof![Just(Show::Full), Just(Show::Summary), Just(Show::Hidden)];
    (of(amount), of(show)).prop_map(|(amount, show)| ThinkingSetting { amount, show })
}

fn request() -> impl Strategy<Value = Request> {
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        word().prop_map(|name| ToolChoice::Named { name }),
    ];
    let output = prop_oneof![
        3 => Just(Output::Text),
        1 => Just(Output::Json),
        1 => (of(word()), of(any::<bool>())).prop_map(|(name, strict)| Output::Schema {
            name,
            schema: json!({"type": "object", "$defs": {}}),
            strict,
        }),
    ];
    let number = || of(prop_oneof![Just(0.5), Just(-2.0), Just(1e-7)]);
    let sampling = (number(), number(), of(any::<u64>()), of(-9i64..9), number()).prop_map(
        |(temperature, top_p, top_k, seed, penalty)| Sampling {
            temperature,
            top_p,
            top_k,
            seed,
            presence_penalty: penalty,
            frequency_penalty: penalty,
        },
    );
    let extra = prop_oneof![
        3 => Just(Value::Null),
        1 => Just(json!({"gemini": {"safetySettings": [], "generationConfig": {"speechConfig": {}}}})),
        1 => Just(json!({"other": {"a": 1}})),
    ];
    let body = (
        vec(words(), 0..3),
        vec(message(), 0..5),
        vec(tool(), 0..4),
        of(choice),
        of(any::<bool>()),
    );
    let settings = (thinking(), sampling, of(any::<u64>()), vec(words(), 0..3), output);
    (body, settings, any::<bool>(), of(word()), extra).prop_map(
        |(body, settings, stream, user, extra)| {
            let (system, messages, tools, tool_choice, parallel_calls) = body;
            let (thinking, sampling, max_tokens, stop, output) = settings;
            Request {
                model: "gemini-3-pro".to_owned(),
                system,
                messages,
                tools,
                tool_choice,
                parallel_calls,
                thinking,
                sampling,
                max_tokens,
                stop,
                output,
                stream,
                user,
                extra: serde_json::from_value(extra).unwrap_or_default(),
                ..Request::default()
            }
        },
    )
}

/// A request without the parts that are reported as losses.
fn plain(mut request: Request) -> Request {
    let kept = |block: &Block| match block {
        Block::Redacted { .. } | Block::Refusal { .. } => false,
        Block::Opaque { dialect, .. } => dialect == "gemini",
        Block::Media { source, name, .. } => {
            name.is_none() && !matches!(source, Source::Text { .. })
        }
        Block::ToolCall { arguments, .. } => {
            arguments.is_empty() || serde_json::from_str::<serde_json::Map<_, _>>(arguments).is_ok()
        }
        Block::ToolResult { name, content, .. } => {
            name.is_some()
                && content.iter().skip(1).all(|block| !matches!(block, Block::Text { .. }))
                && content.iter().all(|block| match block {
                    Block::Media { source, name, .. } => {
                        name.is_none() && !matches!(source, Source::Text { .. })
                    }
                    _ => true,
                })
        }
        _ => true,
    };
    for message in &mut request.messages {
        message.content.retain(kept);
    }
    request.messages.retain(|message| {
        let sent = |block: &Block| match block {
            Block::Text { text, signature: None, .. } => {
                !text.is_empty() || message.role == Role::User
            }
            Block::Thinking { text, signature: None } => !text.is_empty(),
            _ => true,
        };
        message.role != Role::System && message.content.iter().any(sent)
    });
    request.tools.retain(|tool| match tool {
        Tool::Function { strict, .. } => *strict != Some(true),
        Tool::Opaque { dialect, .. } => dialect == "gemini",
    });
    request.extra.remove("other");
    request.user = None;
    request.parallel_calls = request.parallel_calls.filter(|wanted| *wanted);
    request.thinking.show = request.thinking.show.filter(|show| *show != Show::Full);
    request.thinking.amount = match request.thinking.amount {
        Some(Amount::On | Amount::Adaptive { effort: Some(_) }) => None,
        Some(Amount::Effort { effort }) => {
            Some(Amount::Effort { effort: effort.min(Effort::High) })
        }
        amount => amount,
    };
    if let Output::Schema { name, .. } = &mut request.output {
        *name = None;
    }
    request
}

/// One form for all values that are equal on the wire.
fn normal(mut request: Request) -> Request {
    for message in &mut request.messages {
        message.content = blocks(std::mem::take(&mut message.content), message.role);
    }
    for tool in &mut request.tools {
        if let Tool::Function { strict, .. } = tool {
            *strict = None;
        }
    }
    if let Output::Schema { strict, .. } = &mut request.output {
        *strict = None;
    }
    request.parallel_calls = None;
    request
}

fn blocks(content: Vec<Block>, role: Role) -> Vec<Block> {
    let mut merged: Vec<Block> = Vec::new();
    for mut block in content {
        match &mut block {
            Block::Text { signature, .. } | Block::Thinking { signature, .. } => {
                *signature = signature.take().filter(|signature| !signature.is_empty());
            }
            Block::ToolCall { arguments, signature, .. } => {
                *signature = signature.take().filter(|signature| !signature.is_empty());
                *arguments = tight(arguments);
            }
            Block::ToolResult { content, is_error: true, .. } => {
                content.retain(|block| *block != Block::text(""));
            }
            _ => {}
        }
        match (merged.last_mut(), &block) {
            (_, Block::Text { text, signature: None, .. })
                if text.is_empty() && role == Role::Assistant => {}
            (_, Block::Thinking { text, signature: None }) if text.is_empty() => {}
            (
                Some(Block::Text { text: before, signature: None, .. }),
                Block::Text { text, signature: None, .. },
            ) if role == Role::Assistant => {
                before.push_str(text);
            }
            (
                Some(Block::Thinking { text: before, signature: mark @ None }),
                Block::Thinking { text, signature },
            ) => {
                before.push_str(text);
                mark.clone_from(signature);
            }
            _ => merged.push(block),
        }
    }
    merged
}

fn tight(arguments: &str) -> String {
    match serde_json::from_str::<serde_json::Map<String, Value>>(arguments) {
        Ok(object) => Value::Object(object).to_string(),
        Err(_) if arguments.trim().is_empty() => "{}".to_owned(),
        Err(_) => json!({ "arguments": arguments }).to_string(),
    }
}

fn again(written: &Outgoing) -> Result<Lossy<Request>, Fault> {
    let Outgoing { path, query, body, .. } = written;
    let Accepted { request, losses, .. } =
        Gemini.read_request(&RequestParts { path, query, body, ..Default::default() })?;
    Ok(Lossy { value: request, losses })
}

/// The events of a reply of these blocks, each in pieces, and the reply.
fn events_of(
    content: &[Block],
    usage: Usage,
    reason: &EndReason,
    cut: usize,
) -> Vec<Event<'static>> {
    let mut events = vec![Event::MessageStarted { id: "m".into(), model: "x".into() }];
    for (index, block) in content.iter().enumerate() {
        let index = index as u32;
        let start = |block| Event::BlockStarted { index, block };
        let mut tail = None;
        match block {
            Block::Text { text, signature, .. } => {
                events.push(start(BlockStart::Text { text: "".into() }));
                pieces(&mut events, index, text, cut, |text| Delta::Text(text.into()));
                tail.clone_from(signature);
            }
            Block::Thinking { text, signature } => {
                events.push(start(BlockStart::Thinking { text: "".into(), signature: "".into() }));
                pieces(&mut events, index, text, cut, |text| Delta::Thinking(text.into()));
                tail.clone_from(signature);
            }
            Block::ToolCall { id, name, arguments, signature } => {
                events.push(start(BlockStart::ToolCall {
                    id: id.clone().into(),
                    name: name.clone().into(),
                }));
                pieces(&mut events, index, arguments, cut, |text| {
                    Delta::ToolArguments(text.into())
                });
                tail.clone_from(signature);
            }
            _ => continue,
        }
        if let Some(signature) = tail {
            events.push(Event::BlockDelta { index, delta: Delta::Signature(signature.into()) });
        }
        events.push(Event::BlockEnded { index });
    }
    events.push(Event::Usage(usage));
    events.push(Event::Ended { reason: reason.clone() });
    events
}

fn pieces(
    events: &mut Vec<Event<'static>>,
    index: u32,
    text: &str,
    cut: usize,
    delta: fn(String) -> Delta<'static>,
) {
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(cut).map_or(rest.len(), |(at, _)| at);
        let (piece, after) = rest.split_at(end);
        rest = after;
        let delta = delta(piece.to_owned());
        events.push(Event::BlockDelta { index, delta });
    }
}

fn usage() -> impl Strategy<Value = Usage> {
    (0u64..99, of(0u64..99), of(0u64..99), of((0u64..99, of(0u64..99)))).prop_map(
        |(input, cache_read, cache_write, output)| Usage {
            input: Some(input),
            cache_read,
            cache_write,
            output: output.map(|(said, thought)| said + thought.unwrap_or(0)),
            thinking: output.and_then(|(_, thought)| thought),
            ..Usage::default()
        },
    )
}

proptest! {
    #[test]
    fn a_request_survives_a_round_trip(request in request(), vertex: bool) {
        let variant = if vertex { "vertex" } else { "" };
        let (written, _) = write(&request, variant);
        let read = again(&written.value);
        // The rest is a request even after losses.
        let spoken = request.messages.iter().any(|message| message.role != Role::System);
        if spoken && !written.losses.iter().any(|loss| loss.to_string().contains("part_omitted=message")) {
            prop_assert!(read.is_ok(), "{read:?}");
        }
        let plain = plain(request);
        if plain.messages.is_empty() {
            return Ok(());
        }
        let (written, _) = write(&plain, variant);
        prop_assert_eq!(&written.losses, &[]);
        let read = again(&written.value).unwrap();
        prop_assert_eq!(&read.losses, &[]);
        prop_assert_eq!(read.value, normal(plain));
    }

    #[test]
    fn a_reply_survives_a_round_trip(
        content in vec(said(), 0..5),
        usage in usage(),
        reason in prop_oneof![
            Just(EndReason::Stop), Just(EndReason::Length), Just(EndReason::Refusal),
            Just(EndReason::ToolCalls), Just(EndReason::StopSequence), Just(EndReason::Other("LANGUAGE".to_owned())),
        ],
        cut in 1usize..5,
        list: bool,
    ) {
        let content: Vec<_> = content
            .into_iter()
            .filter(|block| !matches!(block, Block::Redacted { .. } | Block::Refusal { .. }))
            .collect();
        let framing = if list { LIST } else { Framing::Events };
        let events = events_of(&content, usage, &reason, cut);
        let bytes = streamed(framing, &events);
        let (_, read) = super::events(true, "", &[&bytes]);
        let calls = content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        let expected = |content: Vec<Block>| Reply {
            id: "r1".to_owned(),
            model: "my-model".to_owned(),
            content: blocks(content, Role::Assistant),
            usage: Usage {
                input: Some(usage.input.unwrap_or(0) + usage.cache_write.unwrap_or(0)),
                cache_write: None,
                ..usage
            },
            details: EndDetails::default(),
            fault: None,
            reason: Some(match &reason {
                EndReason::Stop | EndReason::ToolCalls | EndReason::StopSequence if calls => EndReason::ToolCalls,
                EndReason::ToolCalls | EndReason::StopSequence => EndReason::Stop,
                other => other.clone(),
            }),
            losses: Vec::new(),
            summary: false,
        };
        let fold = |mut reply: Reply| {
            for block in &mut reply.content {
                if let Block::ToolCall { arguments, .. } = block {
                    *arguments = tight(arguments);
                }
            }
            reply
        };
        // In a stream, the signature of a text comes on an empty part after it.
        let apart = content.iter().flat_map(|block| match block {
            Block::Text { text, signature: Some(signature), .. } if !text.is_empty() && !signature.is_empty() => {
                vec![Block::text(text.clone()), Block::Text { text: String::new(), signature: Some(signature.clone()), citations: Vec::new(), }]
            }
            block => vec![block.clone()],
        });
        prop_assert_eq!(fold(read), expected(apart.collect()));
        let whole = Reply { content: content.clone(), usage, reason: Some(reason.clone()), ..Reply::default() };
        let bytes = writer(framing).whole(&whole);
        let (_, read) = super::events(false, "", &[&bytes]);
        prop_assert_eq!(fold(read), expected(content));
    }
}
