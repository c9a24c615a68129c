//! The shape of the items in `input`. How they follow each other is in `dialogue`.

use serde_json::{Map, Value};

use crate::shape::Shape::{Any, Closed, Either, List, Named, Pattern, Text, Word};
use crate::shape::{BY_TYPE, Member, Shape, Tagged, optional, required};

/// One item of `input`.
pub(super) const ITEM: Shape = Shape::Tagged(&Tagged {
    untagged,
    cases: &[
        ("message", MESSAGE),
        ("reasoning", REASONING),
        ("function_call", FUNCTION_CALL),
        ("function_call_output", FUNCTION_CALL_OUTPUT),
        ("custom_tool_call", Any),
        ("custom_tool_call_output", Any),
        ("item_reference", Closed(&[TYPE, required("id", Text)])),
        ("compaction", Any),
        ("compaction_trigger", Any),
        ("configuration_update", Any),
        ("additional_tools", Any),
        ("tool_search_call", Any),
        ("tool_search_output", Any),
        ("program", Any),
        ("program_output", Any),
        ("web_search_call", Any),
        ("file_search_call", Any),
        ("computer_call", Any),
        ("computer_call_output", Any),
        ("image_generation_call", Any),
        ("code_interpreter_call", Any),
        ("local_shell_call", Any),
        ("local_shell_call_output", Any),
        ("shell_call", Any),
        ("shell_call_output", Any),
        ("apply_patch_call", Any),
        ("apply_patch_call_output", Any),
        ("mcp_list_tools", Any),
        ("mcp_approval_request", Any),
        ("mcp_approval_response", Any),
        ("mcp_call", Any),
    ],
    ..BY_TYPE
});

/// A message needs no type because it has a role, nor does a reference, which has only an id.
fn untagged(item: &Map<String, Value>) -> Option<&'static str> {
    match (item.get("role"), item.get("id")) {
        (None, Some(_)) => Some("item_reference"),
        (None | Some(Value::Null), _) => None,
        (Some(_), _) => Some("message"),
    }
}

const MESSAGE: Shape = Shape::Tagged(&Tagged {
    tag: "role",
    cases: &[
        ("user", INPUT_MESSAGE),
        (
            "assistant",
            Closed(&[
                TYPE,
                ROLE,
                STATUS,
                MESSAGE_ID,
                optional("phase", Word(&["commentary", "final_answer"])),
                required("content", Named(CONTENT, &Either(&[Text, List(&OUTPUT_PART)])))
                    .not_null(),
            ]),
        ),
        ("system", INPUT_MESSAGE),
        ("developer", INPUT_MESSAGE),
    ],
    ..BY_TYPE
});

const INPUT_MESSAGE: Shape =
    Closed(&[TYPE, ROLE, STATUS, MESSAGE_ID, required("content", INPUT_CONTENT).not_null()]);

const REASONING: Shape = Closed(&[
    TYPE,
    STATUS,
    optional("id", Pattern("rs", |id| id.starts_with("rs"))),
    required("summary", List(&SUMMARY_PART)),
    optional("content", List(&REASONING_PART)),
    optional("encrypted_content", Text),
]);

const FUNCTION_CALL: Shape = Closed(&[
    TYPE,
    required("call_id", Text),
    required("name", Text),
    required("arguments", Text),
    STATUS,
    CALL_ITEM_ID,
    optional("namespace", Any),
    optional("async", Any),
    optional("caller", Any),
]);

const FUNCTION_CALL_OUTPUT: Shape = Closed(&[
    TYPE,
    required("call_id", Text),
    STATUS,
    CALL_ITEM_ID,
    required("output", INPUT_CONTENT),
    optional("caller", Any),
]);

const TYPE: Member = optional("type", Any);
const ROLE: Member = optional("role", Any);
const STATUS: Member = optional("status", Word(&["in_progress", "completed", "incomplete"]));

// The id of an item differs from the id of its call; its prefix shows which one it is.
const MESSAGE_ID: Member = optional("id", Pattern("msg", |id| id.starts_with("msg")));
const CALL_ITEM_ID: Member = optional("id", Pattern("fc", |id| id.starts_with("fc")));

const CONTENT: &str = "one of an array of objects or string";
const INPUT_CONTENT: Shape = Named(CONTENT, &Either(&[Text, List(&INPUT_PART)]));

const INPUT_PART: Shape = Shape::Tagged(&Tagged {
    cases: &[
        (
            "input_text",
            Closed(&[TYPE, required("text", Text), optional("prompt_cache_breakpoint", Any)]),
        ),
        // Pictures, files and sound come in many forms.
        ("input_image", Any),
        ("input_file", Any),
        ("input_audio", Any),
    ],
    ..BY_TYPE
});

const OUTPUT_PART: Shape = Shape::Tagged(&Tagged {
    cases: &[
        (
            "output_text",
            Closed(&[
                TYPE,
                required("text", Text),
                optional("annotations", Any),
                optional("logprobs", Any),
            ]),
        ),
        ("refusal", Closed(&[TYPE, required("refusal", Text)])),
    ],
    ..BY_TYPE
});

const SUMMARY_PART: Shape = Shape::Tagged(&Tagged { cases: &[("summary_text", TEXT)], ..BY_TYPE });
const REASONING_PART: Shape =
    Shape::Tagged(&Tagged { cases: &[("reasoning_text", TEXT)], ..BY_TYPE });
const TEXT: Shape = Closed(&[TYPE, required("text", Text)]);
