//! The call formats: one row per format.
//!
//! The steps of a row lead from its opening marker through a block. See [`Step`].

use super::calls::parameters as rows;
use super::calls::{
    DEFAULT_KEYS, FUNCTION_GEMMA, GEMMA, Keys, Layout, NameStyle, Start, Step, Terminator,
    ToolFormat,
};
use super::channels;
use super::reasoning::KIMI_K3_WRAPPERS;

const EMPTY: ToolFormat = ToolFormat {
    name: "",
    openers: &[],
    starts: &[],
    fenced: None,
    steps: &[],
    closers: &[],
    noise: &[],
    turn_ends: &[],
    doubled_names: false,
    channels: None,
};

/// Calls without a marker before them.
const BARE: Keys = Keys { bare: true, ..DEFAULT_KEYS };

/// An array of calls. A single call is not allowed.
const LIST: Keys = Keys { alone: false, ..DEFAULT_KEYS };

/// The model writes ids.
const WITH_ID: Keys = Keys { id: Some("id"), ..DEFAULT_KEYS };

/// `<function=NAME>` and one tag per parameter, in an optional outer tag.
const QWEN3_CODER: ToolFormat = ToolFormat {
    name: "qwen3_coder",
    openers: &[("<tool_call>", 0), ("<function=", 1)],
    steps: &[
        Step::Expect(&["<function="]),
        Step::Name(NameStyle::Line, &[until(">", 2)]),
        Step::Tags(&rows::QWEN3_CODER),
        Step::Repeat(&["<function="], 0),
        Step::Optional(&["</tool_call>"]),
    ],
    closers: &["</tool_call>", "</function>"],
    ..EMPTY
};

/// `<tool_call>NAME` and pairs of keys and values.
const GLM: ToolFormat = ToolFormat {
    name: "glm45",
    openers: &[("<tool_call>", 0)],
    steps: &[
        Step::Name(
            NameStyle::Word,
            &[
                before("<arg_key>", 1),
                before("</tool_call>", 1),
                // Some outputs contain the two characters `\n` instead of a line break.
                until("\\n", 1),
                until("\n", 1),
                until("\r\n", 1),
            ],
        ),
        Step::Tags(&rows::GLM),
    ],
    closers: &["</tool_call>"],
    ..EMPTY
};

/// Calls in tags that all start with the same prefix.
macro_rules! dsml {
    ($name:literal, $open:literal, $close:literal, $invoke:literal, $row:expr) => {
        ToolFormat {
            name: $name,
            openers: &[($open, 0), ($invoke, 1)],
            steps: &[
                Step::Expect(&[$invoke]),
                Step::Attributes { name: "name", id: None, end: ">" },
                Step::Tags(&$row),
                Step::Repeat(&[$invoke], 0),
                Step::Optional(&[$close]),
            ],
            closers: &[$close],
            ..EMPTY
        }
    };
}

/// Hunyuan's tags. Each may have a suffix that names the checkpoint.
const HUNYUAN: ToolFormat = ToolFormat {
    name: "hy_v3",
    openers: &[("<tool_calls\u{1}>", 0), ("<tool_call\u{1}>", 1)],
    steps: &[
        Step::Expect(&["<tool_call\u{1}>"]),
        Step::Name(
            NameStyle::Word,
            &[
                until("<tool_sep\u{1}>", 2),
                before("<arg_key", 2),
                before("</tool_call", 2),
                until("\n", 2),
            ],
        ),
        Step::Tags(&rows::HUNYUAN),
        Step::Repeat(&["<tool_call\u{1}>"], 0),
        Step::Optional(&["</tool_calls\u{1}>"]),
    ],
    closers: &["</tool_calls\u{1}>", "</tool_call\u{1}>"],
    ..EMPTY
};

/// The marker ends a word and is read with it.
const fn until(marker: &'static str, to: usize) -> Terminator {
    Terminator { marker, kept: false, next_step: to }
}

/// The marker ends a word and stays unread.
const fn before(marker: &'static str, to: usize) -> Terminator {
    Terminator { marker, kept: true, next_step: to }
}

/// One marker, calls that name themselves, and an optional end marker.
macro_rules! block {
    ($name:literal, [$($open:literal),+], $keys:expr, [$($close:literal),*]) => {
        ToolFormat {
            name: $name,
            openers: &[$(($open, 0)),+],
            steps: &[Step::Calls(&$keys), Step::Optional(&[$($close),*])],
            closers: &[$($close),*],
            ..EMPTY
        }
    };
}

/// A list of Python calls after a marker.
const MARKED_LIST: Layout = Layout::List { declared_only: false };

const PYTHONIC: ToolFormat = ToolFormat {
    name: "pythonic",
    openers: &[("<|python_tag|>", 2), ("<|python_start|>", 2)],
    starts: &[(Start::NameList, 0)],
    steps: &[
        Step::Python(Layout::List { declared_only: true }),
        Step::Done,
        Step::If(Start::NameList, 6),
        Step::Calls(&DEFAULT_KEYS),
        Step::Optional(&["<|python_end|>"]),
        Step::Done,
        Step::Python(MARKED_LIST),
        Step::Optional(&["<|python_end|>"]),
    ],
    closers: &["<|python_end|>"],
    turn_ends: &["<|eom_id|>"],
    ..EMPTY
};

/// All formats, by name.
pub static TOOL_FORMATS: &[ToolFormat] = &[
    ToolFormat {
        name: "mistral",
        openers: &[
            ("[TOOL_CALLS]", 0),
            ("[ TOOL_CALLS ]", 0),
            ("[TOOL_CALLS ]", 0),
            ("[ TOOL_CALLS]", 0),
        ],
        starts: &[(Start::ObjectList, 9)],
        steps: &[
            Step::If(Start::ObjectList, 7),
            Step::If(Start::EmptyList, 7),
            Step::If(Start::Object, 7),
            Step::Name(
                NameStyle::Word,
                &[until("[CALL_ID]", 4), until("[ARGS]", 5), before("{", 5)],
            ),
            Step::Id(&[until("[ARGS]", 5), before("{", 5)]),
            Step::Arguments,
            Step::Done,
            Step::Calls(&WITH_ID),
            Step::Done,
            // The server removed the marker.
            Step::Calls(&Keys { bare: true, ..WITH_ID }),
        ],
        ..EMPTY
    },
    block!("hermes", ["<tool_call>"], DEFAULT_KEYS, ["</tool_call>"]),
    ToolFormat {
        name: "llama_function",
        openers: &[("<function=", 0)],
        steps: &[
            Step::Name(NameStyle::Line, &[until(">", 1)]),
            Step::Arguments,
            Step::Optional(&["</function>"]),
        ],
        closers: &["</function>"],
        noise: &["<|python_tag|>"],
        turn_ends: &["<|eot_id|>", "<|eom_id|>"],
        ..EMPTY
    },
    ToolFormat {
        name: "llama3_json",
        openers: &[("<|python_tag|>", 3)],
        starts: &[(Start::Object, 0), (Start::ObjectList, 0)],
        steps: &[
            Step::Calls(&BARE),
            Step::Another(&[";", ","], Start::Object, 0),
            Step::Done,
            Step::Calls(&DEFAULT_KEYS),
            Step::Another(&[";", ","], Start::Object, 3),
        ],
        turn_ends: &["<|eot_id|>", "<|eom_id|>"],
        ..EMPTY
    },
    ToolFormat {
        name: "json",
        openers: &[("<|python_tag|>", 0)],
        starts: &[(Start::Object, 0), (Start::ObjectList, 0)],
        steps: &[Step::Calls(&BARE), Step::Another(&[";", ","], Start::Object, 0)],
        ..EMPTY
    },
    ToolFormat {
        name: "deepseek_v3",
        openers: &[("<｜tool▁calls▁begin｜>", 0), ("<｜tool▁call▁begin｜>", 1)],
        steps: &[
            Step::Expect(&["<｜tool▁call▁begin｜>"]),
            Step::Ignore(&[until("<｜tool▁sep｜>", 2)]),
            Step::Name(
                NameStyle::Word,
                &[until("\n", 3), until("\r\n", 3), before("```", 3), before("{", 3)],
            ),
            Step::Optional(&["```json", "```"]),
            Step::Arguments,
            Step::Optional(&["```"]),
            Step::Optional(&["<｜tool▁call▁end｜>"]),
            Step::Repeat(&["<｜tool▁call▁begin｜>"], 0),
            Step::Optional(&["<｜tool▁calls▁end｜>"]),
        ],
        closers: &["<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"],
        ..EMPTY
    },
    ToolFormat {
        name: "deepseek_v31",
        openers: &[("<｜tool▁calls▁begin｜>", 0), ("<｜tool▁call▁begin｜>", 1)],
        steps: &[
            Step::Expect(&["<｜tool▁call▁begin｜>"]),
            Step::Name(NameStyle::Word, &[until("<｜tool▁sep｜>", 2)]),
            Step::Arguments,
            Step::Optional(&["<｜tool▁call▁end｜>"]),
            Step::Repeat(&["<｜tool▁call▁begin｜>"], 0),
            Step::Optional(&["<｜tool▁calls▁end｜>"]),
        ],
        closers: &["<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"],
        ..EMPTY
    },
    ToolFormat {
        name: "kimi_k2",
        openers: &[
            ("<|tool_calls_section_begin|>", 0),
            ("<|tool_call_section_begin|>", 0),
            ("<|tool_call_begin|>", 1),
        ],
        steps: &[
            Step::Expect(&["<|tool_call_begin|>"]),
            Step::Name(NameStyle::Numbered, &[until("<|tool_call_argument_begin|>", 2)]),
            Step::Arguments,
            Step::Optional(&["<|tool_call_end|>"]),
            Step::Repeat(&["<|tool_call_begin|>"], 0),
            Step::Optional(&["<|tool_calls_section_end|>", "<|tool_call_section_end|>"]),
        ],
        closers: &["<|tool_calls_section_end|>", "<|tool_call_section_end|>", "<|tool_call_end|>"],
        ..EMPTY
    },
    block!("granite", ["<|tool_call|>", "<tool_call>"], DEFAULT_KEYS, ["</tool_call>"]),
    block!("granite_20b_fc", ["<function_call>"], DEFAULT_KEYS, []),
    block!("granite4", ["<tool_call>"], DEFAULT_KEYS, ["</tool_call>"]),
    ToolFormat {
        name: "internlm2",
        openers: &[("<|action_start|>", 0)],
        steps: &[
            Step::Expect(&["<|plugin|>"]),
            Step::Calls(&DEFAULT_KEYS),
            Step::Optional(&["<|action_end|>"]),
        ],
        closers: &["<|action_end|>"],
        ..EMPTY
    },
    block!("jamba", ["<tool_calls>"], DEFAULT_KEYS, ["</tool_calls>"]),
    block!("hunyuan_a13b", ["<tool_calls>"], DEFAULT_KEYS, ["</tool_calls>"]),
    block!("nemotron_deci", ["<TOOLCALL>"], DEFAULT_KEYS, ["</TOOLCALL>"]),
    block!("phi4_mini", ["functools"], LIST, []),
    ToolFormat {
        name: "xlam",
        openers: &[("[TOOL_CALLS]", 6), ("<tool_call>", 8)],
        starts: &[(Start::ObjectList, 0), (Start::Text("```json"), 2), (Start::Text("```\n["), 2)],
        fenced: Some(2),
        steps: &[
            Step::Calls(&BARE),
            Step::Done,
            Step::Optional(&["```json", "```"]),
            Step::Calls(&BARE),
            Step::Optional(&["```"]),
            Step::Done,
            Step::Calls(&DEFAULT_KEYS),
            Step::Done,
            Step::Calls(&DEFAULT_KEYS),
            Step::Optional(&["</tool_call>"]),
        ],
        ..EMPTY
    },
    block!("longcat", ["<longcat_tool_call>"], DEFAULT_KEYS, ["</longcat_tool_call>"]),
    block!(
        "gigachat3",
        ["<|message_sep|>\n\nfunction call<|role_sep|>\n", "<|function_call|>"],
        DEFAULT_KEYS,
        []
    ),
    block!(
        "apertus",
        ["<|tools_prefix|>"],
        Keys { key_is_name: true, ..DEFAULT_KEYS },
        ["<|tools_suffix|>"]
    ),
    block!(
        "cohere_command",
        ["<|START_ACTION|>"],
        Keys { name: &["tool_name", "name"], id: Some("tool_call_id"), ..DEFAULT_KEYS },
        ["<|END_ACTION|>"]
    ),
    ToolFormat { name: "gpt_oss", channels: Some(&channels::HARMONY), ..EMPTY },
    ToolFormat { name: "inkling", channels: Some(&channels::INKLING), ..EMPTY },
    PYTHONIC,
    ToolFormat { name: "llama4_pythonic", ..PYTHONIC },
    ToolFormat {
        name: "olmo3",
        openers: &[("<function_calls>", 0)],
        steps: &[
            Step::Python(Layout::Lines { end: "</function_calls>" }),
            Step::Optional(&["</function_calls>"]),
        ],
        closers: &["</function_calls>"],
        ..EMPTY
    },
    ToolFormat {
        name: "lfm2",
        openers: &[("<|tool_call_start|>", 0)],
        steps: &[
            Step::If(Start::ObjectList, 5),
            Step::Python(MARKED_LIST),
            Step::Optional(&["<|tool_call_end|>"]),
            Step::Echo(&["<|tool_call_end|>"]),
            Step::Done,
            Step::Calls(&DEFAULT_KEYS),
            Step::Optional(&["<|tool_call_end|>"]),
            Step::Echo(&["<|tool_call_end|>"]),
        ],
        closers: &["<|tool_call_end|>"],
        ..EMPTY
    },
    ToolFormat {
        name: "gemma4",
        openers: &[("<|tool_call>", 0)],
        steps: &[
            Step::Expect(&["call:"]),
            Step::Name(NameStyle::Word, &[before("{", 2)]),
            Step::Literal(&GEMMA),
            Step::Optional(&["<tool_call|>"]),
        ],
        closers: &["<tool_call|>"],
        ..EMPTY
    },
    ToolFormat {
        name: "functiongemma",
        openers: &[("<start_function_call>", 0)],
        steps: &[
            Step::Expect(&["call:"]),
            Step::Name(NameStyle::Word, &[before("{", 2)]),
            Step::Literal(&FUNCTION_GEMMA),
            Step::Optional(&["<end_function_call>"]),
        ],
        closers: &["<end_function_call>"],
        ..EMPTY
    },
    ToolFormat {
        name: "sarashina",
        openers: &[("<|tool_calls|>", 2)],
        starts: &[(Start::DictList, 0)],
        steps: &[Step::Dicts { bare: true }, Step::Done, Step::Dicts { bare: false }],
        ..EMPTY
    },
    QWEN3_CODER,
    ToolFormat { name: "step3p5", ..QWEN3_CODER },
    ToolFormat { name: "mimo", ..QWEN3_CODER },
    ToolFormat { name: "nemotron_v3", ..QWEN3_CODER },
    ToolFormat {
        name: "seed_oss",
        openers: &[("<seed:tool_call>", 0), ("<function=", 1)],
        steps: &[
            Step::Expect(&["<function="]),
            Step::Name(NameStyle::Line, &[until(">", 2)]),
            Step::Tags(&rows::SEED_OSS),
            Step::Repeat(&["<function="], 0),
            Step::Optional(&["</seed:tool_call>"]),
        ],
        closers: &["</seed:tool_call>", "</function>"],
        ..EMPTY
    },
    GLM,
    ToolFormat { name: "glm47", ..GLM },
    ToolFormat { name: "poolside_v1", ..GLM },
    ToolFormat {
        name: "minimax_m2",
        openers: &[("<minimax:tool_call>", 0)],
        steps: &[
            Step::Expect(&["<invoke"]),
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Tags(&rows::MINIMAX_M2),
            Step::Repeat(&["<invoke"], 0),
            Step::Optional(&["</minimax:tool_call>"]),
        ],
        closers: &["</minimax:tool_call>"],
        ..EMPTY
    },
    ToolFormat {
        name: "minimax_m3",
        openers: &[("]<]minimax[>[<tool_call>", 0)],
        steps: &[
            Step::Expect(&["]<]minimax[>[<invoke"]),
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Nested,
            Step::Repeat(&["]<]minimax[>[<invoke"], 0),
            Step::Optional(&["]<]minimax[>[</tool_call>"]),
        ],
        closers: &["]<]minimax[>[</tool_call>"],
        ..EMPTY
    },
    dsml!(
        "deepseek_v32",
        "<｜DSML｜function_calls>",
        "</｜DSML｜function_calls>",
        "<｜DSML｜invoke",
        rows::DSML
    ),
    dsml!(
        "deepseek_v4",
        "<｜DSML｜tool_calls>",
        "</｜DSML｜tool_calls>",
        "<｜DSML｜invoke",
        rows::DSML
    ),
    ToolFormat {
        name: "deepseek_v41",
        openers: &[("<｜DSML｜ calls>", 0), ("<｜DSML｜ invoke", 2), ("<｜DSML｜invoke", 8)],
        steps: &[
            Step::If(Start::Text("<｜DSML｜invoke"), 7),
            Step::Expect(&["<｜DSML｜ invoke"]),
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Tags(&rows::DSML_SPACED),
            Step::Repeat(&["<｜DSML｜ invoke", "<｜DSML｜invoke"], 0),
            Step::Optional(&["</｜DSML｜ calls>"]),
            Step::Done,
            // The older format inside the newer section.
            Step::Expect(&["<｜DSML｜invoke"]),
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Tags(&rows::DSML),
            Step::Repeat(&["<｜DSML｜ invoke", "<｜DSML｜invoke"], 0),
            Step::Optional(&["</｜DSML｜ calls>"]),
        ],
        closers: &["</｜DSML｜ calls>"],
        ..EMPTY
    },
    HUNYUAN,
    ToolFormat { name: "hy_v4", ..HUNYUAN },
    ToolFormat {
        name: "kimi_k3",
        openers: &[("<|open|>tools<|sep|>", 0)],
        steps: &[
            Step::Expect(&["<|open|>call"]),
            Step::Attributes { name: "tool", id: Some("index"), end: "<|sep|>" },
            Step::Tags(&rows::KIMI_K3),
            Step::Repeat(&["<|open|>call"], 0),
            Step::Optional(&["<|close|>tools<|sep|>"]),
        ],
        closers: &["<|close|>tools<|sep|>"],
        noise: KIMI_K3_WRAPPERS,
        ..EMPTY
    },
    ToolFormat {
        name: "step3",
        openers: &[("<｜tool_calls_begin｜>", 0), ("<｜tool_call_begin｜>", 1)],
        steps: &[
            Step::Expect(&["<｜tool_call_begin｜>"]),
            Step::Ignore(&[until("<｜tool_sep｜>", 2)]),
            Step::Expect(&["<steptml:invoke"]),
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Tags(&rows::STEP3),
            Step::Optional(&["<｜tool_call_end｜>"]),
            Step::Repeat(&["<｜tool_call_begin｜>"], 0),
            Step::Optional(&["<｜tool_calls_end｜>"]),
        ],
        closers: &["<｜tool_calls_end｜>", "<｜tool_call_end｜>"],
        ..EMPTY
    },
    ToolFormat {
        name: "dots",
        openers: &[("<dots_function_call>", 0)],
        steps: &[
            Step::If(Start::Object, 7),
            Step::Expect(&["<invoke"]),
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Tags(&rows::DOTS),
            Step::Repeat(&["<invoke"], 1),
            Step::Optional(&["</dots_function_call>"]),
            Step::Done,
            Step::Calls(&DEFAULT_KEYS),
            Step::Optional(&["</dots_function_call>"]),
        ],
        closers: &["</dots_function_call>"],
        ..EMPTY
    },
    ToolFormat {
        name: "minicpm5",
        openers: &[("<function", 0)],
        steps: &[
            Step::Attributes { name: "name", id: None, end: ">" },
            Step::Tags(&rows::MINICPM5),
        ],
        closers: &["</function>"],
        ..EMPTY
    },
    ToolFormat { name: "muse_glimmer", channels: Some(&channels::MUSE), ..EMPTY },
    ToolFormat { name: "muse_spark", channels: Some(&channels::MUSE), ..EMPTY },
    ToolFormat { name: "beam", channels: Some(&channels::BEAM), ..EMPTY },
];

/// The body of a Harmony call. Its name is in the header.
pub(crate) static HARMONY_CALL: ToolFormat = ToolFormat {
    name: "gpt_oss",
    steps: &[Step::Arguments, Step::Optional(&["<|call|>", "<|end|>", "<|return|>"])],
    closers: &["<|call|>", "<|end|>", "<|return|>"],
    ..EMPTY
};

/// The body of an Inkling call.
pub(crate) static INKLING_CALL: ToolFormat = ToolFormat {
    name: "inkling",
    steps: &[
        Step::Calls(&Keys { arguments: &["args", "arguments", "parameters"], ..DEFAULT_KEYS }),
        Step::Optional(&["<|end_message|>", "<|content_model_end_sampling|>"]),
    ],
    closers: &["<|end_message|>", "<|content_model_end_sampling|>"],
    ..EMPTY
};

/// The body of a Beam call. Its name is in the header.
pub(crate) static BEAM_CALL: ToolFormat = ToolFormat {
    name: "beam",
    steps: &[Step::Tags(&rows::BEAM)],
    closers: &["<|call|>", "<|end|>"],
    ..EMPTY
};

/// The body of a Muse tool message.
pub(crate) static MUSE_CALLS: ToolFormat = ToolFormat {
    name: "muse",
    steps: &[
        Step::Optional(&["<atem:function_calls>"]),
        Step::Expect(&["<atem:invoke"]),
        Step::Attributes { name: "name", id: None, end: ">" },
        Step::Tags(&rows::MUSE),
        Step::Repeat(&["<atem:invoke"], 1),
        Step::Optional(&["</atem:function_calls>"]),
        Step::Optional(&["<|eom|>", "<|eot|>"]),
    ],
    closers: &["<|eom|>", "<|eot|>"],
    doubled_names: true,
    ..EMPTY
};
