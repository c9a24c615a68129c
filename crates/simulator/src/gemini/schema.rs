//! The tables of a request: the members and their types, in camelCase.
//!
//! Members that only Vertex, this provider's other endpoint, has are left out: they are unknown here.

use super::shape::{BYTES, SCHEMA};
use crate::shape::Shape::{Any, Boolean, Closed, List, ListOf, Named, Object, Text, Word};
use crate::shape::{Flags, INTEGER, NUMBER, Shape, optional};

/// The request's path names the model.
pub(crate) const IN_PATH: Flags = 1;
/// The request is part of a token count, so its body names the model.
pub(crate) const IN_BODY: Flags = 2;

/// The levels of thinking; the only enum that accepts any letter case.
pub(crate) const LEVEL: &str = "ThinkingConfig.ThinkingLevel";

/// A request for content.
pub(crate) const GENERATE: Shape = Named(
    "GenerateContentRequest",
    &Closed(&[
        optional("contents", CONTENTS),
        optional("systemInstruction", CONTENT),
        optional("tools", TOOLS),
        optional("toolConfig", TOOL_CONFIG),
        optional("safetySettings", List(&SAFETY)),
        optional("cachedContent", Text),
        optional("serviceTier", Text),
        optional("store", Boolean),
        optional("generationConfig", GENERATION),
        optional("continuationToken", Text).needs(IN_PATH),
        optional("model", Text).needs(IN_BODY),
    ]),
);

/// A request for the count of its tokens.
pub(crate) const COUNT: Shape = Named(
    "CountTokensRequest",
    &Closed(&[optional("contents", CONTENTS), optional("generateContentRequest", GENERATE)]),
);

const CONTENTS: Shape = List(&CONTENT);
const TOOLS: Shape = List(&TOOL);

const CONTENT: Shape =
    Named("Content", &Closed(&[optional("role", Text), optional("parts", List(&PART))]));

const PART: Shape = Named(
    "Part",
    &Closed(&[
        optional("text", Text),
        optional("inlineData", BLOB),
        optional("fileData", FILE),
        optional("functionCall", FUNCTION_CALL),
        optional("functionResponse", FUNCTION_RESPONSE),
        optional("executableCode", CODE),
        optional("codeExecutionResult", CODE_RESULT),
        optional("toolCall", TOOL_CALL),
        optional("toolResponse", TOOL_RESPONSE),
        optional("thought", Boolean),
        optional("thoughtSignature", BYTES),
        optional("partMetadata", Object),
        optional("mediaResolution", Any),
        optional("videoMetadata", Object),
    ]),
);

const BLOB: Shape = Named(
    "Blob",
    &Closed(&[optional("mimeType", Text), optional("data", BYTES), optional("displayName", Text)]),
);

const FILE: Shape = Named(
    "FileData",
    &Closed(&[
        optional("mimeType", Text),
        optional("fileUri", Text),
        optional("displayName", Text),
    ]),
);

const FUNCTION_CALL: Shape = Named(
    "FunctionCall",
    &Closed(&[optional("id", Text), optional("name", Text), optional("args", Object)]),
);

const FUNCTION_RESPONSE: Shape = Named(
    "FunctionResponse",
    &Closed(&[
        optional("id", Text),
        optional("name", Text),
        optional("response", Object),
        optional("parts", List(&RESPONSE_PART)),
        optional("willContinue", Boolean),
        optional(
            "scheduling",
            Named(
                "FunctionResponse.Scheduling",
                &Word(&["SCHEDULING_UNSPECIFIED", "SILENT", "WHEN_IDLE", "INTERRUPT"]),
            ),
        ),
    ]),
);

const RESPONSE_PART: Shape = Named(
    "FunctionResponsePart",
    &Closed(&[optional("inlineData", BLOB), optional("fileData", FILE)]),
);

const CODE: Shape = Named(
    "ExecutableCode",
    &Closed(&[optional("id", Text), optional("language", Text), optional("code", Text)]),
);

const CODE_RESULT: Shape = Named(
    "CodeExecutionResult",
    &Closed(&[optional("id", Text), optional("outcome", Text), optional("output", Text)]),
);

const TOOL_CALL: Shape = Named(
    "ToolCall",
    &Closed(&[optional("id", Text), optional("toolType", Text), optional("args", Object)]),
);

const TOOL_RESPONSE: Shape = Named(
    "ToolResponse",
    &Closed(&[optional("id", Text), optional("toolType", Text), optional("response", Object)]),
);

const TOOL: Shape = Named(
    "Tool",
    &Closed(&[
        optional("functionDeclarations", List(&DECLARATION)),
        optional("googleSearch", Object),
        optional("googleSearchRetrieval", Object),
        optional("urlContext", Object),
        optional("codeExecution", Object),
        optional("googleMaps", Object),
        optional("computerUse", Object),
        optional("fileSearch", Object),
        optional("mcpServers", List(&Object)),
    ]),
);

const DECLARATION: Shape = Named(
    "FunctionDeclaration",
    &Closed(&[
        optional("name", Text),
        optional("description", Text),
        optional("parameters", SCHEMA),
        optional("parametersJsonSchema", Any),
        optional("response", SCHEMA),
        optional("responseJsonSchema", Any),
        optional(
            "behavior",
            Named(
                "FunctionDeclaration.Behavior",
                &Word(&["UNSPECIFIED", "BLOCKING", "NON_BLOCKING"]),
            ),
        ),
    ]),
);

const TOOL_CONFIG: Shape = Named(
    "ToolConfig",
    &Closed(&[
        optional("functionCallingConfig", CALLING),
        optional("retrievalConfig", Object),
        optional("includeServerSideToolInvocations", Boolean),
    ]),
);

const CALLING: Shape = Named(
    "FunctionCallingConfig",
    &Closed(&[
        optional(
            "mode",
            Named(
                "FunctionCallingConfig.Mode",
                &Word(&["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"]),
            ),
        ),
        optional("allowedFunctionNames", List(&Text)),
    ]),
);

const SAFETY: Shape =
    Named("SafetySetting", &Closed(&[optional("category", Text), optional("threshold", Text)]));

const GENERATION: Shape = Named(
    "GenerationConfig",
    &Closed(&[
        optional("temperature", Shape::Number(0.0, 2.0)),
        optional("topP", Shape::Number(0.0, 1.0)),
        optional("topK", Shape::Number(1.0, f64::MAX)),
        optional("candidateCount", Shape::Integer(1, 1)),
        optional("maxOutputTokens", Shape::Integer(1, i64::MAX)),
        optional("stopSequences", ListOf(0, 5, &Text)),
        optional("responseLogprobs", Boolean),
        optional("logprobs", INTEGER),
        optional("presencePenalty", NUMBER),
        optional("frequencyPenalty", NUMBER),
        optional("seed", INTEGER),
        optional("responseMimeType", Text),
        optional("responseSchema", SCHEMA),
        optional("responseJsonSchema", Any),
        optional("responseModalities", List(&Text)),
        optional("mediaResolution", Text),
        optional("speechConfig", Object),
        optional("thinkingConfig", THINKING),
        optional("imageConfig", Object),
        optional("audioTranscriptionConfig", Object),
    ]),
);

const THINKING: Shape = Named(
    "ThinkingConfig",
    &Closed(&[
        optional("includeThoughts", Boolean),
        optional("thinkingBudget", INTEGER),
        optional(
            "thinkingLevel",
            Named(
                LEVEL,
                &Word(&["THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH"]),
            ),
        ),
    ]),
);
