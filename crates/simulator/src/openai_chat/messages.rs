//! The shape of messages: a table for each role, with content, calls and reasoning.
//!
//! `verify` decides whether reasoning is unchanged.

use super::request::ParsedRequest;
use super::shape::{ARGUMENTS, BLOCKS, CALL_ID, CHUNKS, DETAILS, NO_REASONING, OFFICIAL};
use crate::openai::refused;
use crate::refusal::Refusal;
use crate::shape::Shape::{
    Any, Boolean, ClosedWhen, Either, List, ListOf, Named, Open, Refused, Text, When,
};
use crate::shape::{BY_TYPE, Member, Shape, Tagged, optional, required};

/// A message that is not the model's.
macro_rules! other_role {
    ($($member:expr),*) => {
        ClosedWhen(
            OFFICIAL,
            &[
                ROLE,
                NAME,
                $($member,)*
                misplaced("reasoning_content"),
                misplaced("reasoning"),
                misplaced("reasoning_details"),
                misplaced("thinking_blocks"),
                misplaced("reasoning_items"),
                misplaced("thinking"),
            ],
        )
    };
}

/// One message; its role decides what else it has.
pub(super) const MESSAGE: Tagged = Tagged {
    tag: "role",
    cases: &[
        ("system", PLAIN),
        ("assistant", ASSISTANT),
        ("user", other_role!(optional("content", USER_CONTENT))),
        ("function", PLAIN),
        (
            "tool",
            other_role!(required("tool_call_id", CALL_ID), optional("content", PLAIN_CONTENT)),
        ),
        ("developer", PLAIN),
    ],
    ..BY_TYPE
};

const PLAIN: Shape = other_role!(optional("content", PLAIN_CONTENT));

/// A member about reasoning in a message that is not the model's. Some servers refuse it.
const fn misplaced(name: &'static str) -> Member {
    optional(name, When(NO_REASONING, &Refused, &When(OFFICIAL, &Refused, &Any)))
}

const ASSISTANT: Shape = ClosedWhen(
    OFFICIAL,
    &[
        ROLE,
        NAME,
        optional("tool_calls", When(OFFICIAL, &ListOf(1, usize::MAX, &CALL), &List(&CALL))),
        optional("content", ASSISTANT_CONTENT),
        optional("refusal", Any),
        optional("audio", Any),
        optional("function_call", Any),
        // Replies have them, so clients send them back.
        optional("annotations", Any),
        optional("reasoning_content", When(NO_REASONING, &Refused, &Text)),
        optional("reasoning", When(NO_REASONING, &Refused, &Text)),
        optional(
            "reasoning_details",
            When(NO_REASONING, &Refused, &When(DETAILS, &List(&DETAIL), &Any)),
        ),
        optional(
            "thinking_blocks",
            When(NO_REASONING, &Refused, &When(BLOCKS, &List(&THINKING_BLOCK), &Any)),
        ),
        optional("reasoning_items", When(NO_REASONING, &Refused, &Any)),
        optional("thinking", When(NO_REASONING, &Refused, &Any)),
    ],
);

const ROLE: Member = optional("role", Any);
const NAME: Member = optional("name", Any);

const CONTENT: &str = "a string or an array of objects";
const PLAIN_CONTENT: Shape = Named(CONTENT, &Either(&[Text, ListOf(1, usize::MAX, &PLAIN_PART)]));
const USER_CONTENT: Shape = Named(CONTENT, &Either(&[Text, ListOf(1, usize::MAX, &USER_PART)]));
const ASSISTANT_CONTENT: Shape = Named(
    CONTENT,
    &Either(&[Text, ListOf(1, usize::MAX, &When(CHUNKS, &ASSISTANT_CHUNK, &ASSISTANT_PART))]),
);

const PLAIN_PART: Shape = Shape::Tagged(&Tagged { cases: &[TEXT_PART], ..BY_TYPE });

const USER_PART: Shape = Shape::Tagged(&Tagged {
    cases: &[
        TEXT_PART,
        ("image_url", Any),
        ("input_audio", Any),
        ("file", Any),
        ("thinking", Refused),
    ],
    // Each server decides what else a user may show.
    others: When(OFFICIAL, &Refused, &Any),
    ..BY_TYPE
});

const ASSISTANT_PART: Shape = Shape::Tagged(&Tagged {
    cases: &[TEXT_PART, ("refusal", Open(&[required("refusal", Text)]))],
    ..BY_TYPE
});

const ASSISTANT_CHUNK: Shape = Shape::Tagged(&Tagged {
    cases: &[
        TEXT_PART,
        (
            "thinking",
            Open(&[
                required("thinking", List(&THOUGHT)),
                optional("signature", Text),
                optional("closed", Boolean),
            ]),
        ),
        ("reference", Any),
    ],
    ..BY_TYPE
});

const THOUGHT: Shape =
    Shape::Tagged(&Tagged { cases: &[TEXT_PART, ("reference", Any)], ..BY_TYPE });

const TEXT_PART: (&str, Shape) = ("text", Open(&[required("text", Text)]));

const CALL: Shape = When(
    OFFICIAL,
    &Shape::Tagged(&Tagged { cases: CALLS, ..BY_TYPE }),
    // Other servers take a call without a type for one of a function.
    &Shape::Tagged(&Tagged { cases: CALLS, untagged: |_| Some("function"), ..BY_TYPE }),
);

const CALLS: &[(&str, Shape)] =
    &[("function", FUNCTION_CALL), ("custom", When(OFFICIAL, &CUSTOM_CALL, &Refused))];

const FUNCTION_CALL: Shape = ClosedWhen(
    OFFICIAL,
    &[
        required("id", CALL_ID),
        optional("type", Any),
        required("function", Open(&[required("name", Text), required("arguments", ARGUMENTS)])),
    ],
);

const CUSTOM_CALL: Shape = ClosedWhen(
    OFFICIAL,
    &[
        required("id", CALL_ID),
        optional("type", Any),
        required("custom", Open(&[required("name", Text), required("input", ARGUMENTS)])),
    ],
);

const DETAIL: Shape = Shape::Tagged(&Tagged {
    cases: &[
        ("reasoning.text", Open(&[required("text", Text)])),
        ("reasoning.summary", Open(&[required("summary", Text)])),
        ("reasoning.encrypted", Open(&[required("data", Text)])),
        ("reasoning.server_tool_call", Any),
    ],
    ..BY_TYPE
});

const THINKING_BLOCK: Shape = Shape::Tagged(&Tagged {
    cases: &[("thinking", Open(&[required("thinking", Text)])), ("redacted_thinking", Any)],
    ..BY_TYPE
});

/// Refuses a message without content, unless an assistant message has another member instead.
pub(super) fn check_content(request: &ParsedRequest) -> Result<(), Refusal> {
    for (index, message) in request.messages().iter().enumerate() {
        let has = |key: &str| !message[key].is_null();
        let instead = ["tool_calls", "function_call", "refusal", "audio"];
        let said_otherwise = message["role"] == "assistant" && instead.iter().any(|key| has(key));
        if !has("content") && !said_otherwise {
            let path = format!("messages[{index}].content");
            let message = "Invalid value for 'content': expected a string, got null.";
            return Err(refused(&path, None, message));
        }
    }
    Ok(())
}
