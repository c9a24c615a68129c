//! Round trips of random requests and replies, up to their reported losses.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, BlockStart, Delta, Effort, EndReason, Event, Fold, Loss, LossSubject, MediaKind,
    Message, Output, Reply, Request, Role, Sampling, Show, Source, ThinkingSetting, Tool,
    ToolChoice, Usage,
};

use super::super::NAME;
use super::client_replies::{check_stream, request, written};
use super::{read, reply, write, writer};

fn word() -> impl Strategy<Value = String> {
    "[a-z]{1,6}"
}

fn said() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z \n\"\\\\é🧠\u{1}]{1,12}", "\\PC{1,8}"]
}

fn media() -> impl Strategy<Value = Block> {
    let source = prop_oneof![
        ("(image/png|application/pdf|audio/mpeg|audio/wav|audio/ogg)", word())
            .prop_map(|(media_type, data)| Source::Base64 { media_type, data }),
        word().prop_map(|path| Source::Url { url: format!("https://{path}"), media_type: None }),
        (prop_oneof![Just(NAME.to_owned()), Just("gemini".to_owned())], word())
            .prop_map(|(dialect, id)| Source::File { dialect, id }),
    ];
    let kind = prop_oneof![
        Just(MediaKind::Image),
        Just(MediaKind::Document),
        Just(MediaKind::Audio),
        Just(MediaKind::Video)
    ];
    let detail = option::of(prop_oneof![Just("low"), Just("high")]);
    (kind, source, option::of(word()), detail).prop_map(|(kind, source, name, detail)| {
        Block::Media {
            detail: detail.filter(|_| kind == MediaKind::Image).map(str::to_owned),
            kind,
            source,
            name,
        }
    })
}

fn opaque(kind: &'static str) -> impl Strategy<Value = Block> {
    let dialect = prop_oneof![Just(NAME.to_owned()), Just("gemini".to_owned())];
    (dialect, word()).prop_map(move |(dialect, id)| Block::Opaque {
        dialect,
        value: json!({"type": kind, "id": id}),
    })
}

fn message() -> impl Strategy<Value = Message> {
    let text = || said().prop_map(Block::text);
    let signature = || option::of(word());
    let result = (word(), vec(prop_oneof![text(), media()], 0..3), any::<bool>()).prop_map(
        |(id, content, is_error)| Block::ToolResult { id, name: None, content, is_error },
    );
    let phase = option::of(prop_oneof!["phase=[a-z]{1,4}", "[a-z]{1,4}"]);
    let assistant = prop_oneof![
        (said(), phase).prop_map(|(text, signature)| Block::Text {
            text,
            signature,
            citations: Vec::new()
        }),
        (said(), signature()).prop_map(|(text, signature)| Block::Thinking { text, signature }),
        word().prop_map(|mark| Block::Thinking { text: String::new(), signature: Some(mark) }),
        word().prop_map(|data| Block::Redacted { data }),
        said().prop_map(|text| Block::Refusal { text }),
        (word(), word(), said(), signature()).prop_map(|(id, name, arguments, signature)| {
            Block::ToolCall { id, name, arguments, signature }
        }),
        media(),
        opaque("web_search_call"),
    ];
    let user = prop_oneof![text(), media(), result, opaque("shell_call_output")];
    prop_oneof![
        vec(user, 1..4).prop_map(|content| Message::new(Role::User, content)),
        vec(assistant, 1..5).prop_map(|content| Message::new(Role::Assistant, content)),
        vec(text(), 1..3).prop_map(|content| Message::new(Role::System, content)),
    ]
}

fn thinking() -> impl Strategy<Value = ThinkingSetting> {
    let effort = || proptest::sample::select(&Effort::ALL[..]);
    let amount = prop_oneof![
        Just(Amount::Off),
        Just(Amount::On),
        effort().prop_map(|effort| Amount::Effort { effort }),
        (0u64..50_000).prop_map(|tokens| Amount::Budget { tokens }),
        option::of(effort()).prop_map(|effort| Amount::Adaptive { effort }),
    ];
    let show = prop_oneof![Just(Show::Full), Just(Show::Summary)];
    (option::of(amount), option::of(show))
        .prop_map(|(amount, show)| ThinkingSetting { amount, show })
}

fn tool() -> impl Strategy<Value = Tool> {
    prop_oneof![
        (word(), option::of(said()), any::<bool>(), option::of(any::<bool>())).prop_map(
            |(name, description, parameters, strict)| Tool::Function {
                name,
                description,
                parameters: if parameters {
                    json!({"type": "object", "x": [1, null]})
                } else {
                    Value::Null
                },
                strict,
            }
        ),
        prop_oneof![Just(NAME), Just("gemini")].prop_map(|dialect| Tool::Opaque {
            dialect: dialect.to_owned(),
            value: json!({"type": "web_search"}),
        }),
    ]
}

fn any_request() -> impl Strategy<Value = Request> {
    // Parsing a number may change its last digit; these have few.
    let number = || option::of((0u8..8).prop_map(|quarters| f64::from(quarters) / 4.0));
    let sampling =
        (number(), number(), option::of(0u64..9), option::of(0i64..9), number(), number())
            .prop_map(|(temperature, top_p, top_k, seed, presence_penalty, frequency_penalty)| {
                Sampling { temperature, top_p, top_k, seed, presence_penalty, frequency_penalty }
            });
    let output = prop_oneof![
        Just(Output::Text),
        Just(Output::Json),
        (option::of(word()), option::of(any::<bool>())).prop_map(|(name, strict)| {
            Output::Schema { name, schema: json!({"type": "object"}), strict }
        }),
    ];
    let choice = prop_oneof![
        Just(ToolChoice::Auto),
        Just(ToolChoice::None),
        Just(ToolChoice::Required),
        word().prop_map(|name| ToolChoice::Named { name }),
    ];
    let extra = (any::<bool>(), any::<bool>()).prop_map(|(own, foreign)| {
        let members = |value: Value| value.as_object().cloned().unwrap_or_default();
        let own = own.then(|| {
            (NAME.to_owned(), members(json!({"metadata": {"a": "b"}, "truncation": "auto"})))
        });
        let foreign = foreign.then(|| ("gemini".to_owned(), members(json!({"x": 1}))));
        own.into_iter().chain(foreign).collect::<BTreeMap<_, _>>()
    });
    (
        (
            vec(said(), 0..3),
            vec(message(), 0..6),
            vec(tool(), 0..3),
            option::of(choice),
            option::of(any::<bool>()),
        ),
        (thinking(), sampling, option::of(0u64..100), vec(word(), 0..2), output),
        (any::<bool>(), option::of(word()), option::of(word()), extra),
    )
        .prop_map(|(first, second, third)| Request {
            model: super::MODEL.to_owned(),
            system: first.0,
            messages: first.1,
            tools: first.2,
            tool_choice: first.3,
            parallel_calls: first.4,
            thinking: second.0,
            sampling: second.1,
            max_tokens: second.2,
            stop: second.3,
            output: second.4,
            stream: third.0,
            user: third.1,
            cache_key: third.2,
            cache_breakpoints: Default::default(),
            provider_state: Default::default(),
            thread: None,
            backend: None,
            extra: third.3,
        })
}

/// Removes the reported losses from a request.
fn without(mut request: Request, losses: &[Loss]) -> Request {
    for loss in losses {
        let part = match loss {
            Loss::PartOmitted { part, .. } => part.as_str(),
            Loss::SettingAdapted { setting, .. } => setting.as_str(),
            _ => "",
        };
        match part {
            "stop" => request.stop.clear(),
            "top_k" => request.sampling.top_k = None,
            "seed" => request.sampling.seed = None,
            "presence_penalty" => request.sampling.presence_penalty = None,
            "frequency_penalty" => request.sampling.frequency_penalty = None,
            "thinking" => request.thinking.amount = None,
            "x" => request.extra.retain(|dialect, _| dialect == NAME),
            "tool" => request
                .tools
                .retain(|tool| !matches!(tool, Tool::Opaque { dialect, .. } if dialect != NAME)),
            _ => {}
        }
        for message in &mut request.messages {
            let role = message.role;
            strip(&mut message.content, part, role);
            for block in &mut message.content {
                if let Block::ToolResult { content, .. } = block {
                    strip(content, part, Role::User);
                }
            }
        }
    }
    request
}

fn strip(content: &mut Vec<Block>, part: &str, role: Role) {
    content.retain(|block| match (part, block) {
        ("block", Block::Opaque { dialect, .. }) => dialect == NAME,
        ("media.file", Block::Media { source, .. }) => {
            !matches!(source, Source::File { dialect, .. } if dialect != NAME)
        }
        ("media", Block::Media { kind, source, .. }) => {
            let spoken = matches!(source, Source::Base64 { media_type, .. } if ["audio/mpeg", "audio/wav"].contains(&media_type.as_str()));
            let has_place = match kind {
                MediaKind::Video => false,
                MediaKind::Audio => spoken,
                MediaKind::Image | MediaKind::Document => true,
            };
            role != Role::Assistant && has_place
        }
        _ => true,
    });
    for block in content {
        match (part, block) {
            ("tool_result.is_error", Block::ToolResult { is_error, .. }) => *is_error = false,
            ("tool_call.signature", Block::ToolCall { signature, .. }) => *signature = None,
            ("text.signature", Block::Text { signature, .. }) => {
                *signature = signature.take().filter(|mark| mark.starts_with("phase="));
            }
            ("media.name", Block::Media { kind, source, name, .. })
                if *kind != MediaKind::Document || !matches!(source, Source::Base64 { .. }) =>
            {
                *name = None;
            }
            _ => {}
        }
    }
}

/// One form for equivalent spellings.
fn normal(mut request: Request, adapted: bool) -> Request {
    if adapted {
        request.thinking.amount = None;
    }
    let mut messages: Vec<Message> = Vec::new();
    for mut message in request.messages {
        for block in &mut message.content {
            let inner = match block {
                Block::ToolResult { content, .. } => content.as_mut_slice(),
                block => std::slice::from_mut(block),
            };
            for block in inner {
                match block {
                    Block::ToolCall { arguments, .. } if arguments.trim().is_empty() => {
                        "{}".clone_into(arguments);
                    }
                    Block::Redacted { data } => {
                        *block = Block::Thinking {
                            text: String::new(),
                            signature: Some(std::mem::take(data)),
                        };
                    }
                    Block::Media {
                        kind: MediaKind::Document,
                        source: Source::Base64 { .. },
                        name,
                        ..
                    } => {
                        name.get_or_insert_with(|| "document".to_owned());
                    }
                    _ => {}
                }
            }
        }
        let first = messages.is_empty();
        match messages.last_mut() {
            // The items of a message are joined again.
            Some(last) if last.role == message.role => last.content.append(&mut message.content),
            _ if message.content.is_empty() => {}
            _ if first && message.role == Role::System => {
                for block in message.content {
                    if let Block::Text { text, .. } = block {
                        request.system.push(text);
                    }
                }
            }
            _ => messages.push(message),
        }
    }
    request.messages = messages;
    for tool in &mut request.tools {
        if let Tool::Function { parameters, strict, .. } = tool {
            strict.get_or_insert(false);
            if parameters.is_null() {
                *parameters = json!({"type": "object", "properties": {}});
            }
        }
    }
    if let Output::Schema { name, .. } = &mut request.output {
        name.get_or_insert_with(|| "output".to_owned());
    }
    if let Some(own) = request.extra.get_mut(NAME) {
        own.remove("store");
        own.remove("include");
        if own.is_empty() {
            request.extra.remove(NAME);
        }
    }
    request
}

fn delta(kind: u8, text: String) -> Delta<'static> {
    match kind {
        0 => Delta::Text(text.into()),
        1 => Delta::Thinking(text.into()),
        _ => Delta::ToolArguments(text.into()),
    }
}

/// Blocks, which may overlap.
fn any_events() -> impl Strategy<Value = Vec<Event<'static>>> {
    let block = (0u8..5, vec(said(), 0..4), option::of(word()), word(), any::<bool>());
    let count = || option::of(0u64..1000);
    let usage = (count(), count(), count(), count(), count()).prop_map(
        |(input, cache_read, cache_write, output, thinking)| Usage {
            input,
            cache_read,
            cache_write,
            output,
            thinking,
            ..Usage::default()
        },
    );
    let reason = prop_oneof![
        Just(EndReason::Stop),
        Just(EndReason::Length),
        Just(EndReason::ToolCalls),
        Just(EndReason::Refusal),
        Just(EndReason::Pause),
        Just(EndReason::Cut),
    ];
    (vec(block, 0..6), usage, reason).prop_map(|(blocks, usage, reason)| {
        let mut events = vec![Event::MessageStarted { id: "a".into(), model: "b".into() }];
        let mut late = Vec::new();
        for (index, (kind, texts, mark, name, ends_late)) in blocks.into_iter().enumerate() {
            let index = index as u32;
            let block = match kind {
                0 => BlockStart::Text { text: "".into() },
                1 => BlockStart::Thinking { text: "".into(), signature: "".into() },
                2 => BlockStart::ToolCall { id: name.into(), name: "f".into() },
                3 => BlockStart::Redacted { data: name.into() },
                _ => BlockStart::Text { text: name.into() },
            };
            events.push(Event::BlockStarted { index, block });
            if kind < 3 {
                for text in texts {
                    events.push(Event::BlockDelta { index, delta: delta(kind, text) });
                }
            }
            if let Some(mark) = mark.filter(|_| kind < 2) {
                let mark = if kind == 0 { format!("phase={mark}") } else { mark };
                events.push(Event::BlockDelta { index, delta: Delta::Signature(mark.into()) });
            }
            if ends_late {
                late.push(Event::BlockEnded { index });
            } else {
                events.push(Event::BlockEnded { index });
            }
        }
        events.extend(late);
        events.push(Event::Usage(usage));
        events.push(Event::Ended { reason });
        events
    })
}

/// An empty reasoning item is no block, unless its index is used.
fn says_something(block: &Block) -> bool {
    match block {
        Block::Thinking { text, signature: None } => !text.is_empty(),
        // An empty text becomes a message only if there is nothing else.
        Block::Text { text, citations, .. } => !text.is_empty() || !citations.is_empty(),
        _ => true,
    }
}

/// The reply that a client sees.
fn seen(mut reply: Reply) -> Reply {
    reply.id = "resp_x7".to_owned();
    reply.model = request().model;
    for block in &mut reply.content {
        match block {
            Block::Redacted { data } => {
                *block =
                    Block::Thinking { text: String::new(), signature: Some(std::mem::take(data)) };
            }
            Block::ToolCall { arguments, .. } if arguments.is_empty() => arguments.push_str("{}"),
            _ => {}
        }
    }
    reply.content.retain(says_something);
    let called = reply.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    reply.reason = Some(match reply.reason {
        Some(reason @ (EndReason::Length | EndReason::Refusal)) => reason,
        Some(EndReason::Cut) => EndReason::Failed,
        _ if called => EndReason::ToolCalls,
        _ => EndReason::Stop,
    });
    for count in [
        &mut reply.usage.input,
        &mut reply.usage.cache_read,
        &mut reply.usage.cache_write,
        &mut reply.usage.output,
        &mut reply.usage.thinking,
    ] {
        count.get_or_insert(0);
    }
    reply
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_request_survives_a_round_trip(asked in any_request()) {
        let (body, losses) = write(&asked);
        let again = read(&body);
        prop_assert_eq!(again.losses, vec![]);
        let adapted = losses.iter().any(|loss| {
            matches!(loss, Loss::SettingAdapted { setting: LossSubject::Thinking, .. })
        });
        prop_assert_eq!(normal(again.request, adapted), normal(without(asked, &losses), adapted));
    }

    #[test]
    fn a_reply_survives_a_round_trip(events in any_events()) {
        let bytes = written(&events);
        check_stream(&bytes);
        let mut fold = Fold::default();
        for event in &events {
            fold.push(event);
        }
        let original = fold.finish();
        let mut streamed = reply(&[&bytes], true).1;
        let mut expected = seen(original.clone());
        // A cut is written as a fault, which this test does not compare.
        streamed.fault = None;
        streamed.content.retain(says_something);
        prop_assert_eq!(&streamed, &expected);

        let whole = writer(&request()).whole(&original);
        let mut whole = reply(&[&whole], false).1;
        whole.fault = None;
        whole.content.retain(says_something);
        expected.fault = None;
        prop_assert_eq!(&whole, &expected);
    }

    #[test]
    fn arbitrary_requests_never_panic(bytes in vec(any::<u8>(), 0..200), text in "[\\[\\]{}\":,a-z_0-9 ]{0,60}") {
        let _ = super::read_bytes(&bytes);
        let _ = super::read_bytes(text.as_bytes());
    }
}
