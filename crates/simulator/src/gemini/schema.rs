//! The request's messages: which members there are and what they hold, as a table.
//!
//! Members of the other endpoint of this provider (Vertex) are left out: here they are unknown.

/// What a member holds.
#[derive(Debug)]
pub(crate) enum Shape {
    Text,
    Flag,
    Number,
    /// May also come as a string, as 64-bit numbers do.
    Integer,
    /// Base64 in either alphabet.
    Bytes,
    /// Any object.
    Struct,
    Any,
    /// The provider's subset of OpenAPI.
    Schema,
    /// The type's name and its words.
    Word(&'static str, &'static [&'static str]),
    Message(&'static Message),
    List(&'static Shape),
}

/// A message: its type's name and its members in camelCase.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) name: &'static str,
    pub(crate) members: &'static [(&'static str, Shape)],
}

use Shape::{Any, Bytes, Flag, Integer, List, Number, Schema, Struct, Text, Word};

/// The levels of thinking; the only words that are taken in any letter case.
pub(crate) const LEVEL: &str = "ThinkingConfig.ThinkingLevel";

/// A request for content.
pub(crate) static GENERATE: Message = Message {
    name: "GenerateContentRequest",
    members: &[
        ("contents", CONTENTS),
        ("systemInstruction", Shape::Message(&CONTENT)),
        ("tools", TOOLS),
        ("toolConfig", Shape::Message(&TOOL_CONFIG)),
        ("safetySettings", List(&Shape::Message(&SAFETY))),
        ("cachedContent", Text),
        ("serviceTier", Text),
        ("store", Flag),
        ("generationConfig", Shape::Message(&GENERATION)),
        ("continuationToken", Text),
    ],
};

/// A request for the count of its tokens.
pub(crate) static COUNT: Message = Message {
    name: "CountTokensRequest",
    members: &[("contents", CONTENTS), ("generateContentRequest", Shape::Message(&COUNTED))],
};

/// As `GENERATE`, but outside of its path it has to name its model.
static COUNTED: Message = Message {
    name: "GenerateContentRequest",
    members: &[
        ("model", Text),
        ("contents", CONTENTS),
        ("systemInstruction", Shape::Message(&CONTENT)),
        ("tools", TOOLS),
        ("toolConfig", Shape::Message(&TOOL_CONFIG)),
        ("safetySettings", List(&Shape::Message(&SAFETY))),
        ("cachedContent", Text),
        ("serviceTier", Text),
        ("store", Flag),
        ("generationConfig", Shape::Message(&GENERATION)),
    ],
};

const CONTENTS: Shape = List(&Shape::Message(&CONTENT));
const TOOLS: Shape = List(&Shape::Message(&TOOL));

static CONTENT: Message = Message {
    name: "Content",
    members: &[("role", Text), ("parts", List(&Shape::Message(&PART)))],
};

static PART: Message = Message {
    name: "Part",
    members: &[
        ("text", Text),
        ("inlineData", Shape::Message(&BLOB)),
        ("fileData", Shape::Message(&FILE)),
        ("functionCall", Shape::Message(&FUNCTION_CALL)),
        ("functionResponse", Shape::Message(&FUNCTION_RESPONSE)),
        ("executableCode", Shape::Message(&CODE)),
        ("codeExecutionResult", Shape::Message(&CODE_RESULT)),
        ("toolCall", Shape::Message(&TOOL_CALL)),
        ("toolResponse", Shape::Message(&TOOL_RESPONSE)),
        ("thought", Flag),
        ("thoughtSignature", Bytes),
        ("partMetadata", Struct),
        ("mediaResolution", Any),
        ("videoMetadata", Struct),
    ],
};

static BLOB: Message = Message {
    name: "Blob",
    members: &[("mimeType", Text), ("data", Bytes), ("displayName", Text)],
};

static FILE: Message = Message {
    name: "FileData",
    members: &[("mimeType", Text), ("fileUri", Text), ("displayName", Text)],
};

static FUNCTION_CALL: Message =
    Message { name: "FunctionCall", members: &[("id", Text), ("name", Text), ("args", Struct)] };

static FUNCTION_RESPONSE: Message = Message {
    name: "FunctionResponse",
    members: &[
        ("id", Text),
        ("name", Text),
        ("response", Struct),
        ("parts", List(&Shape::Message(&RESPONSE_PART))),
        ("willContinue", Flag),
        (
            "scheduling",
            Word(
                "FunctionResponse.Scheduling",
                &["SCHEDULING_UNSPECIFIED", "SILENT", "WHEN_IDLE", "INTERRUPT"],
            ),
        ),
    ],
};

static RESPONSE_PART: Message = Message {
    name: "FunctionResponsePart",
    members: &[("inlineData", Shape::Message(&BLOB)), ("fileData", Shape::Message(&FILE))],
};

static CODE: Message = Message {
    name: "ExecutableCode",
    members: &[("id", Text), ("language", Text), ("code", Text)],
};

static CODE_RESULT: Message = Message {
    name: "CodeExecutionResult",
    members: &[("id", Text), ("outcome", Text), ("output", Text)],
};

static TOOL_CALL: Message =
    Message { name: "ToolCall", members: &[("id", Text), ("toolType", Text), ("args", Struct)] };

static TOOL_RESPONSE: Message = Message {
    name: "ToolResponse",
    members: &[("id", Text), ("toolType", Text), ("response", Struct)],
};

static TOOL: Message = Message {
    name: "Tool",
    members: &[
        ("functionDeclarations", List(&Shape::Message(&DECLARATION))),
        ("googleSearch", Struct),
        ("googleSearchRetrieval", Struct),
        ("urlContext", Struct),
        ("codeExecution", Struct),
        ("googleMaps", Struct),
        ("computerUse", Struct),
        ("fileSearch", Struct),
        ("mcpServers", List(&Struct)),
    ],
};

static DECLARATION: Message = Message {
    name: "FunctionDeclaration",
    members: &[
        ("name", Text),
        ("description", Text),
        ("parameters", Schema),
        ("parametersJsonSchema", Any),
        ("response", Schema),
        ("responseJsonSchema", Any),
        (
            "behavior",
            Word("FunctionDeclaration.Behavior", &["UNSPECIFIED", "BLOCKING", "NON_BLOCKING"]),
        ),
    ],
};

static TOOL_CONFIG: Message = Message {
    name: "ToolConfig",
    members: &[
        ("functionCallingConfig", Shape::Message(&CALLING)),
        ("retrievalConfig", Struct),
        ("includeServerSideToolInvocations", Flag),
    ],
};

static CALLING: Message = Message {
    name: "FunctionCallingConfig",
    members: &[
        (
            "mode",
            Word(
                "FunctionCallingConfig.Mode",
                &["MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"],
            ),
        ),
        ("allowedFunctionNames", List(&Text)),
    ],
};

static SAFETY: Message =
    Message { name: "SafetySetting", members: &[("category", Text), ("threshold", Text)] };

static GENERATION: Message = Message {
    name: "GenerationConfig",
    members: &[
        ("temperature", Number),
        ("topP", Number),
        ("topK", Number),
        ("candidateCount", Integer),
        ("maxOutputTokens", Integer),
        ("stopSequences", List(&Text)),
        ("responseLogprobs", Flag),
        ("logprobs", Integer),
        ("presencePenalty", Number),
        ("frequencyPenalty", Number),
        ("seed", Integer),
        ("responseMimeType", Text),
        ("responseSchema", Schema),
        ("responseJsonSchema", Any),
        ("responseModalities", List(&Text)),
        ("mediaResolution", Text),
        ("speechConfig", Struct),
        ("thinkingConfig", Shape::Message(&THINKING)),
        ("imageConfig", Struct),
        ("audioTranscriptionConfig", Struct),
    ],
};

static THINKING: Message = Message {
    name: "ThinkingConfig",
    members: &[
        ("includeThoughts", Flag),
        ("thinkingBudget", Integer),
        (
            "thinkingLevel",
            Word(LEVEL, &["THINKING_LEVEL_UNSPECIFIED", "MINIMAL", "LOW", "MEDIUM", "HIGH"]),
        ),
    ],
};
