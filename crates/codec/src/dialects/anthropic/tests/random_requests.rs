//! Round trips of random requests, up to their reported losses.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, Block, Effort, Loss, MediaKind, Message, Output, Reason, Request, Role, Sampling, Show,
    Source, ThinkingSetting, Tool, ToolChoice,
};

use super::super::upstream_request::schema;
use super::values::{object, said, value, word};
use super::{read_request, write_request};

fn dialect() -> impl Strategy<Value = String> {
    prop_oneof![Just("anthropic".to_owned()), Just("gemini".to_owned())]
}

fn source() -> impl Strategy<Value = Source> {
    let media_type = prop_oneof![
        Just("image/png".to_owned()),
        Just("application/pdf".to_owned()),
        Just("text/csv".to_owned()),
    ];
    prop_oneof![
        (media_type, word()).prop_map(|(media_type, data)| Source::Base64 { media_type, data }),
        said().prop_map(|text| Source::Text { text }),
        (said(), option::of(word())).prop_map(|(url, media_type)| Source::Url { url, media_type }),
        (dialect(), word()).prop_map(|(dialect, id)| Source::File { dialect, id }),
    ]
}

fn media() -> impl Strategy<Value = Block> {
    let kind = prop_oneof![
        Just(MediaKind::Image),
        Just(MediaKind::Document),
        Just(MediaKind::Audio),
        Just(MediaKind::Video),
    ];
    (kind, source(), option::of(said())).prop_map(|(kind, source, name)| Block::Media {
        kind,
        source,
        name,
        detail: None,
    })
}

fn opaque() -> impl Strategy<Value = Block> {
    (dialect(), object()).prop_map(|(dialect, mut value)| {
        value["type"] = "x_unknown".into();
        Block::Opaque { dialect, value }
    })
}

fn text() -> impl Strategy<Value = Block> {
    (said(), option::weighted(0.1, word())).prop_map(|(text, signature)| Block::Text {
        text,
        signature,
        citations: Vec::new(),
    })
}

fn block() -> impl Strategy<Value = Block> {
    let arguments = prop_oneof![
        4 => object().prop_map(|value| value.to_string()),
        1 => Just(String::new()),
        1 => said(),
    ];
    let id = prop_oneof![4 => word(), 1 => said()];
    let part = prop_oneof![4 => text(), 2 => media(), 1 => opaque()];
    prop_oneof![
        4 => text(),
        2 => (said(), option::weighted(0.8, said()))
            .prop_map(|(text, signature)| Block::Thinking { text, signature }),
        1 => said().prop_map(|data| Block::Redacted { data }),
        1 => said().prop_map(|text| Block::Refusal { text }),
        2 => (id.clone(), word(), arguments, option::weighted(0.2, word())).prop_map(
            |(id, name, arguments, signature)| Block::ToolCall { id, name, arguments, signature }
        ),
        2 => (id, option::of(word()), vec(part, 0..3), any::<bool>()).prop_map(
            |(id, name, content, is_error)| Block::ToolResult { id, name, content, is_error }
        ),
        1 => media(),
        1 => opaque(),
    ]
}

fn setting() -> impl Strategy<Value = ThinkingSetting> {
    let effort = || (0..6usize).prop_map(|at| Effort::ALL[at]);
    let amount = prop_oneof![
        Just(Amount::Off),
        Just(Amount::On),
        effort().prop_map(|effort| Amount::Effort { effort }),
        any::<u64>().prop_map(|tokens| Amount::Budget { tokens }),
        option::of(effort()).prop_map(|effort| Amount::Adaptive { effort }),
    ];
    let show = prop_oneof![Just(Show::Full), Just(Show::Summary), Just(Show::Hidden)];
    (option::of(amount), option::of(show))
        .prop_map(|(amount, show)| ThinkingSetting { amount, show })
}

prop_compose! {
    fn request()(
        system in vec(said(), 0..3),
        messages in vec((0..3usize, vec(block(), 0..4)), 1..6),
        tools in vec((word(), option::of(said()), value(), option::of(any::<bool>())), 0..3),
        search in option::of(dialect()),
        tool_choice in option::of(prop_oneof![
            Just(ToolChoice::Auto),
            Just(ToolChoice::None),
            Just(ToolChoice::Required),
            word().prop_map(|name| ToolChoice::Named { name }),
        ]),
        parallel_calls in option::of(any::<bool>()),
        thinking in setting(),
        sampling in (option::of((0..16u8).prop_map(|eighths| f64::from(eighths) / 8.0)), option::of((0..8u8).prop_map(|eighths| f64::from(eighths) / 8.0)), option::of(any::<u64>()), option::of(any::<i64>())),
        max_tokens in option::of(any::<u64>()),
        stop in vec(said(), 0..3),
        output in prop_oneof![
            4 => Just(Output::Text),
            1 => Just(Output::Json),
            2 => (option::of(word()), object(), option::of(any::<bool>()))
                .prop_map(|(name, schema, strict)| Output::Schema { name, schema, strict }),
        ],
        stream in any::<bool>(),
        user in option::of(said()),
        extra in option::of(dialect()),
    ) -> Request {
        let roles = [Role::User, Role::Assistant, Role::System];
        let mut all: Vec<Tool> = tools.into_iter().map(|(name, description, parameters, strict)|
            Tool::Function { name, description, parameters, strict }).collect();
        all.extend(search.map(|dialect| Tool::Opaque { dialect, value: json!({"type": "search", "name": "s"}) }));
        Request {
            model: super::MODEL.to_owned(),
            system,
            messages: messages.into_iter()
                .map(|(role, content)| Message::new(roles[role], content)).collect(),
            tools: all,
            tool_choice,
            parallel_calls,
            thinking,
            sampling: Sampling {
                temperature: sampling.0, top_p: sampling.1, top_k: sampling.2, seed: sampling.3,
                ..Sampling::default()
            },
            max_tokens,
            stop,
            output,
            stream,
            user,
            cache_key: None,
            cache_breakpoints: Default::default(),
            provider_state: Default::default(),
            thread: None,
            backend: None,
            extra: extra.into_iter().map(|dialect|
                (dialect, Map::from_iter([("service_tier".to_owned(), json!("auto"))]))).collect(),
        }
    }
}

/// The request that a written one reads as: without its losses, in equivalent forms.
struct Carried {
    lost: Vec<Loss>,
}

impl Carried {
    fn has(&self, header: &str) -> bool {
        self.lost.iter().any(|loss| loss.to_string() == header)
    }

    fn request(&self, mut request: Request) -> Request {
        request.system.retain(|text| !self.is_blank(text));
        request.stop.retain(|stop| {
            let reason = match stop.trim() {
                _ if stop.is_empty() => "empty",
                "" => "characters",
                _ => return true,
            };
            assert!(self.has(&format!("part_omitted=stop;reason={reason}")));
            false
        });
        request.max_tokens = request.max_tokens.or(Some(4096));
        request.sampling.seed = None;
        request.sampling.temperature = request.sampling.temperature.map(|heat| heat.min(1.0));
        let amount = &mut request.thinking.amount;
        if let Some(Amount::Effort { effort } | Amount::Adaptive { effort: Some(effort) }) = amount
        {
            *effort = (*effort).max(Effort::Low);
        }
        *amount = match *amount {
            Some(Amount::On) => Some(Amount::Adaptive { effort: None }),
            Some(Amount::Effort { effort }) if request.thinking.show.is_some() => {
                Some(Amount::Adaptive { effort: Some(effort) })
            }
            amount => amount,
        };
        request.thinking.show = match request.thinking {
            ThinkingSetting { amount: None | Some(Amount::Off), .. } => None,
            ThinkingSetting { show: Some(Show::Full), .. } => Some(Show::Summary),
            ThinkingSetting { show, .. } => show,
        };
        match &mut request.output {
            Output::Json => {
                assert!(self.has("setting_adapted=output;reason=json_without_schema"));
                request.output = Output::Text;
            }
            Output::Schema { name, schema, strict } => {
                (*name, *strict) = (None, None);
                self.schema(schema, "output");
            }
            Output::Text => {}
        }
        self.tools(&mut request);
        request.extra.retain(|dialect, _| dialect == "anthropic");
        let mut messages: Vec<Message> = Vec::new();
        for mut message in std::mem::take(&mut request.messages) {
            message.content = message
                .content
                .into_iter()
                .filter_map(|block| self.block(block, message.role))
                .collect();
            match messages.last_mut() {
                _ if message.content.is_empty() => {}
                Some(last) if last.role == message.role && last.role != Role::System => {
                    last.content.append(&mut message.content);
                }
                _ => messages.push(message),
            }
        }
        for message in &mut messages {
            // Stable: only results move.
            message.content.sort_by_key(|block| !matches!(block, Block::ToolResult { .. }));
        }
        request.messages = messages;
        request
    }

    /// Objects are closed, which is reported.
    fn schema(&self, schema: &mut Value, what: &str) {
        let closed = schema::closed(schema);
        if closed != *schema {
            assert!(self.has(&format!("setting_adapted={what};reason=schema")));
            *schema = closed;
        }
    }

    fn tools(&self, request: &mut Request) {
        request
            .tools
            .retain(|tool| !matches!(tool, Tool::Opaque { dialect, .. } if dialect != "anthropic"));
        for tool in &mut request.tools {
            if let Tool::Function { parameters, strict, .. } = tool {
                match parameters {
                    Value::Object(members) => {
                        members.entry("type").or_insert("object".into());
                    }
                    _ => *parameters = json!({"type": "object"}),
                }
                if *strict == Some(true) {
                    self.schema(parameters, "tool.parameters");
                }
            }
        }
        if request.tools.is_empty() {
            (request.tool_choice, request.parallel_calls) = (None, None);
        }
        match (&request.tool_choice, request.parallel_calls) {
            (None, Some(false)) => request.tool_choice = Some(ToolChoice::Auto),
            (None | Some(ToolChoice::None), _) => request.parallel_calls = None,
            _ => {}
        }
    }

    fn is_blank(&self, text: &str) -> bool {
        let blank = text.trim().is_empty();
        assert!(!blank || text.is_empty() || self.has("part_omitted=text;reason=empty"));
        blank
    }

    fn block(&self, block: Block, role: Role) -> Option<Block> {
        Some(match block {
            Block::Refusal { .. } if role != Role::Assistant => return None,
            Block::Text { text, .. } | Block::Refusal { text } if self.is_blank(&text) => {
                return None;
            }
            Block::Text { text, .. } => Block::text(text),
            Block::Refusal { text } if role == Role::Assistant => Block::text(text),
            Block::Thinking { signature: None, .. } => return None,
            Block::Thinking { signature: Some(mark), .. } if mark.is_empty() => return None,
            Block::ToolCall { id, name, arguments, .. } if role == Role::Assistant => {
                Block::ToolCall {
                    id: self.id(&id),
                    name,
                    arguments: self.arguments(&arguments),
                    signature: None,
                }
            }
            Block::ToolResult { id, content, is_error, .. } if role == Role::User => {
                let lone = matches!(content[..], [Block::Text { signature: None, .. }]);
                let parts = content.into_iter();
                Block::ToolResult {
                    id: self.id(&id),
                    name: None,
                    content: match lone {
                        true => parts.collect(),
                        false => parts.filter_map(|part| self.block(part, role)).collect(),
                    },
                    is_error,
                }
            }
            Block::Thinking { .. } | Block::Redacted { .. } if role == Role::Assistant => block,
            Block::Media { kind, source, name, .. } if role == Role::User => {
                media_carried(kind, source, name)?
            }
            Block::Opaque { ref dialect, .. } if dialect == "anthropic" => block,
            _ => return None,
        })
    }

    fn id(&self, id: &str) -> String {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !id.is_empty() && id.bytes().all(allowed) {
            return id.to_owned();
        }
        assert!(self.has("setting_adapted=tool_call.id;reason=characters"));
        id.bytes().fold("call".to_owned(), |spelled, byte| match allowed(byte) {
            true => spelled + &char::from(byte).to_string(),
            false => spelled + &format!("_{byte:02x}"),
        })
    }

    fn arguments(&self, arguments: &str) -> String {
        let arguments = arguments.trim();
        match serde_json::from_str(arguments) {
            Ok(Value::Object(_)) => arguments.to_owned(),
            Ok(Value::Null) => "{}".to_owned(),
            _ if arguments.is_empty() => "{}".to_owned(),
            _ => {
                assert!(self.has("setting_adapted=tool_call.arguments;reason=not_an_object"));
                json!({"arguments": arguments}).to_string()
            }
        }
    }
}

fn media_carried(kind: MediaKind, source: Source, name: Option<String>) -> Option<Block> {
    let document = match kind {
        MediaKind::Image => false,
        MediaKind::Document => true,
        _ => return None,
    };
    let source = match source {
        Source::Base64 { media_type, data } if document && media_type == "text/csv" => {
            let text = String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok()?;
            Source::Text { text }
        }
        Source::Base64 { ref media_type, .. } => {
            let fits = if document { "application/pdf" } else { "image/png" };
            (media_type == fits).then_some(source)?
        }
        Source::Text { .. } => document.then_some(source)?,
        Source::Url { url, .. } => Source::Url { url, media_type: None },
        Source::File { ref dialect, .. } => (dialect == "anthropic").then_some(source)?,
    };
    Some(Block::Media { kind, source, name: name.filter(|_| document), detail: None })
}

/// Whether a loss of this kind explains that something is missing.
fn explains(losses: &[Loss], request: &Request, carried: &Request) {
    let unsigned = request.messages.iter()
        .filter(|message| message.role == Role::Assistant)
        .flat_map(|message| &message.content)
        .filter(|block| matches!(block, Block::Thinking { signature, .. } if signature.as_ref().is_none_or(String::is_empty)))
        .count();
    let dropped = losses.iter().find_map(|loss| match loss {
        Loss::ThinkingOmitted { blocks, reason: Reason::Shape } => Some(*blocks),
        _ => None,
    });
    assert_eq!(dropped.unwrap_or_default(), unsigned);
    // Without a loss only the form may differ.
    if losses.is_empty() {
        let blocks = |request: &Request| {
            request.messages.iter().flat_map(|message| &message.content)
            .filter(|block| !matches!(block, Block::Text { text, .. } | Block::Refusal { text } if text.is_empty()))
            .count()
        };
        assert_eq!(blocks(request), blocks(carried));
        assert_eq!(request.tools.len(), carried.tools.len());
    }
}

proptest! {
    #[test]
    fn a_request_survives_a_round_trip_up_to_its_losses(request in request()) {
        let written = write_request(&request);
        let read = read_request(&written.value.body);
        let expected = Carried { lost: written.losses.clone() }.request(request.clone());
        explains(&written.losses, &request, &expected);
        // A conversation that lost all its content is no request.
        prop_assume!(!expected.messages.is_empty());
        let read = read.unwrap();
        prop_assert_eq!(&read.value, &expected);
        prop_assert_eq!(&read.losses, &[]);
        // A second write changes nothing.
        let again = write_request(&read.value);
        prop_assert_eq!(again.losses, &[]);
        prop_assert_eq!(again.value.body, written.value.body);
    }
}
