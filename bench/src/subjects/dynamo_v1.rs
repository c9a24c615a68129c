//! `dynamo-parsers`: a parser for reasoning, followed by a stream that holds a call back until it is
//! complete. The stream takes and returns chunks of a chat completion, so we build chunks that are as
//! small as it allows.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use dynamo_parsers::reasoning::{ReasoningParser, ReasoningParserType, ReasoningParserWrapper};
use dynamo_parsers::tool_calling::ToolDefinition;
use dynamo_parsers::tool_calling::jail::{Annotated, JailedStream};
use dynamo_protocols::types::{
    ChatChoiceStream, ChatCompletionMessageContent, ChatCompletionStreamResponseDelta,
    CreateChatCompletionStreamResponse, FinishReason,
};
use futures::Stream;

use super::{Format, Reading};
use crate::inputs;
use crate::sink::Sink;

type Chunk = Annotated<CreateChatCompletionStreamResponse>;

/// The parsers of one text.
pub(crate) struct DynamoV1 {
    reasoning: ReasoningParserWrapper,
    calls: Option<Jail>,
}

/// Opens the parsers for a format.
pub(crate) fn open(format: Format) -> DynamoV1 {
    DynamoV1 {
        reasoning: ReasoningParserType::get_reasoning_parser_from_name("qwen3"),
        calls: name(format).map(|name| Jail::new(name, format)),
    }
}

fn name(format: Format) -> Option<&'static str> {
    match format {
        Format::Tags => None,
        Format::Hermes => Some("hermes"),
        Format::Mistral => Some("mistral"),
        Format::Qwen3Coder => Some("qwen3_coder"),
        Format::Pythonic => Some("pythonic"),
        Format::KimiK2 => Some("kimi_k2"),
    }
}

impl Reading for DynamoV1 {
    fn push(&mut self, piece: &str, sink: &mut impl Sink) {
        let result = self.reasoning.parse_reasoning_streaming_incremental(piece, &[]);
        match &mut self.calls {
            None => {
                sink.reasoning(&result.reasoning_text);
                sink.content(&result.normal_text);
            }
            Some(calls) => {
                calls.push(chunk(result.reasoning_text, result.normal_text, None));
                calls.emit(sink);
            }
        }
    }

    fn finish(&mut self, sink: &mut impl Sink) {
        let result = self.reasoning.finish_reasoning_stream();
        match &mut self.calls {
            None => {
                sink.reasoning(&result.reasoning_text);
                sink.content(&result.normal_text);
            }
            Some(calls) => {
                let end = Some(FinishReason::Stop);
                calls.push(chunk(result.reasoning_text, result.normal_text, end));
                calls.queue.lock().close();
                calls.emit(sink);
            }
        }
    }
}

/// The stream, with an input that we fill.
struct Jail {
    queue: Queue,
    output: Pin<Box<dyn Stream<Item = Chunk> + Send>>,
}

impl Jail {
    fn new(parser: &str, format: Format) -> Self {
        let tools = inputs::tools(format)
            .into_iter()
            .map(|(name, parameters)| ToolDefinition {
                name: name.to_owned(),
                parameters: Some(parameters),
                strict: None,
            })
            .collect();
        let queue = Queue::default();
        let input = queue.clone();
        let jail = JailedStream::builder().tool_call_parser(parser).tool_definitions(tools).build();
        Self {
            queue,
            output: Box::pin(jail.apply(futures::stream::poll_fn(move |_| input.lock().next()))),
        }
    }

    fn push(&mut self, chunk: Chunk) {
        self.queue.lock().chunks.push_back(chunk);
    }

    /// Takes all chunks that are ready. The stream waits only for its input.
    fn emit(&mut self, sink: &mut impl Sink) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(chunk)) = self.output.as_mut().poll_next(&mut context) {
            for choice in chunk.data.into_iter().flat_map(|data| data.choices) {
                if let Some(text) = &choice.delta.reasoning_content {
                    sink.reasoning(text);
                }
                if let Some(ChatCompletionMessageContent::Text(text)) = &choice.delta.content {
                    sink.content(text);
                }
                for call in choice.delta.tool_calls.into_iter().flatten() {
                    let Some(function) = call.function else {
                        continue;
                    };
                    if let Some(name) = &function.name {
                        sink.call(call.index as usize, name);
                    }
                    if let Some(arguments) = &function.arguments {
                        sink.arguments(call.index as usize, arguments);
                    }
                }
            }
        }
    }
}

/// Chunks that the stream has not taken yet.
#[derive(Clone, Default)]
struct Queue(Arc<Mutex<Waiting>>);

impl Queue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    closed: bool,
}

impl Waiting {
    fn close(&mut self) {
        self.closed = true;
    }

    fn next(&mut self) -> Poll<Option<Chunk>> {
        match self.chunks.pop_front() {
            Some(chunk) => Poll::Ready(Some(chunk)),
            None if self.closed => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

fn chunk(reasoning: String, content: String, finish_reason: Option<FinishReason>) -> Chunk {
    #[allow(deprecated, reason = "a field of theirs that has to be filled")]
    let choice = ChatChoiceStream {
        index: 0,
        delta: ChatCompletionStreamResponseDelta {
            role: None,
            content: (!content.is_empty()).then_some(ChatCompletionMessageContent::Text(content)),
            tool_calls: None,
            function_call: None,
            refusal: None,
            reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
        },
        finish_reason,
        logprobs: None,
    };
    Annotated {
        data: Some(CreateChatCompletionStreamResponse {
            id: String::new(),
            choices: vec![choice],
            created: 0,
            model: String::new(),
            system_fingerprint: None,
            object: String::new(),
            usage: None,
            service_tier: None,
        }),
        id: None,
        event: None,
        comment: None,
        error: None,
    }
}
