//! `dynamo-parsers-v2`: one parser for reasoning and calls. Its only JSON format is Kimi's.

use dynamo_parsers_v2::{
    Tool, UnifiedParser, UnifiedParserEvent, UnifiedParserInit, UnifiedParserOutput,
    create_unified_parser_for_family,
};

use super::{Format, Reading};
use crate::inputs;
use crate::sink::Sink;

/// The parser of one text.
pub(crate) struct DynamoV2 {
    parser: Box<dyn UnifiedParser>,
    output: UnifiedParserOutput,
}

/// Its name for a format.
pub(crate) fn family(format: Format) -> Option<&'static str> {
    match format {
        Format::Tags | Format::Qwen3Coder => Some("qwen3"),
        Format::KimiK2 => Some("kimi_k2"),
        Format::Hermes | Format::Mistral | Format::Pythonic => None,
    }
}

/// Opens the parser for a format.
pub(crate) fn open(format: Format) -> Option<DynamoV2> {
    let tools: Vec<Tool> = inputs::tools(format)
        .into_iter()
        .map(|(name, parameters)| Tool {
            name: name.to_owned(),
            description: None,
            parameters,
            strict: None,
        })
        .collect();
    let mut parser = create_unified_parser_for_family(family(format)?, &tools).ok()?;
    parser.initialize_request(UnifiedParserInit::default()).ok()?;
    Some(DynamoV2 { parser, output: UnifiedParserOutput::default() })
}

impl Reading for DynamoV2 {
    fn push(&mut self, piece: &str, sink: &mut impl Sink) {
        // Its documentation says that output before an error counts.
        let _ = self.parser.parse_into(piece, &mut self.output);
        emit(&mut self.output, sink);
    }

    fn finish(&mut self, sink: &mut impl Sink) {
        if let Ok(mut output) = self.parser.finish() {
            emit(&mut output, sink);
        }
    }
}

fn emit(output: &mut UnifiedParserOutput, sink: &mut impl Sink) {
    for event in output.events.drain(..) {
        match event {
            UnifiedParserEvent::Text(text) => sink.content(&text),
            UnifiedParserEvent::Reasoning(text) => sink.reasoning(&text),
            UnifiedParserEvent::ToolCall(call) => {
                if let Some(name) = &call.name {
                    sink.call(call.tool_index, name);
                }
                sink.arguments(call.tool_index, &call.arguments);
            }
            UnifiedParserEvent::MessageStart(_) | UnifiedParserEvent::MessageEnd => {}
        }
    }
}
