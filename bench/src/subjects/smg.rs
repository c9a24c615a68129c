//! `reasoning-parser`, followed by `tool-parser` on the rest: their own gateway joins them this way.

use futures::FutureExt;
use openai_protocol::common::{Function, Tool};
use reasoning_parser::{Qwen3Parser, ReasoningParser};
use tool_parser::parsers::QwenXmlParser;
use tool_parser::types::ToolCallItem;
use tool_parser::{KimiK2Parser, MistralParser, PythonicParser, QwenParser, ToolParser};

use super::{Format, Reading};
use crate::inputs;
use crate::sink::Sink;

/// Both parsers of one text.
pub(crate) struct Smg {
    reasoning: Qwen3Parser,
    calls: Option<Box<dyn ToolParser>>,
    tools: Vec<Tool>,
}

/// Opens the parsers for a format.
pub(crate) fn open(format: Format) -> Smg {
    let calls: Option<Box<dyn ToolParser>> = match format {
        Format::Tags => None,
        Format::Hermes => Some(Box::new(QwenParser::new())),
        Format::Mistral => Some(Box::new(MistralParser::new())),
        Format::Qwen3Coder => Some(Box::new(QwenXmlParser::new())),
        Format::Pythonic => Some(Box::new(PythonicParser::new())),
        Format::KimiK2 => Some(Box::new(KimiK2Parser::new())),
    };
    let tools = inputs::tools(format)
        .into_iter()
        .map(|(name, parameters)| Tool {
            tool_type: "function".to_owned(),
            function: Function {
                name: name.to_owned(),
                description: None,
                parameters,
                strict: None,
                extra: serde_json::Map::default(),
            },
        })
        .collect();
    Smg { reasoning: Qwen3Parser::new(), calls, tools }
}

impl Smg {
    fn answer(&mut self, text: &str, sink: &mut impl Sink) {
        if text.is_empty() {
            return;
        }
        let Some(calls) = &mut self.calls else {
            sink.content(text);
            return;
        };
        // The interface is asynchronous, but nothing in these parsers waits.
        let Some(Ok(result)) = calls.parse_incremental(text, &self.tools).now_or_never() else {
            return;
        };
        sink.content(&result.normal_text);
        emit(result.calls, sink);
    }
}

impl Reading for Smg {
    fn push(&mut self, piece: &str, sink: &mut impl Sink) {
        let Ok(result) = self.reasoning.parse_reasoning_streaming_incremental(piece) else {
            return;
        };
        sink.reasoning(&result.reasoning_text);
        self.answer(&result.normal_text, sink);
    }

    fn finish(&mut self, sink: &mut impl Sink) {
        if let Ok(result) = self.reasoning.flush() {
            sink.reasoning(&result.reasoning_text);
            self.answer(&result.normal_text, sink);
        }
        if let Some(calls) = &mut self.calls {
            emit(calls.get_unstreamed_tool_args().unwrap_or_default(), sink);
            sink.content(&calls.take_unstreamed_normal_text());
        }
    }
}

fn emit(calls: Vec<ToolCallItem>, sink: &mut impl Sink) {
    for call in calls {
        if let Some(name) = &call.name {
            sink.call(call.tool_index, name);
        }
        sink.arguments(call.tool_index, &call.parameters);
    }
}
