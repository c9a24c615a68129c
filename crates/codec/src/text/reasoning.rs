//! The tags that models put around their reasoning: one row per tag set.

use super::channels::{self, Channels};
use super::marker::Marker;

/// The tags of one kind of reasoning.
#[derive(Debug)]
pub struct TagSet {
    /// The name of the tag set.
    pub name: &'static str,
    /// The tags that open and close a span of reasoning.
    pub(crate) pairs: &'static [Pair],
    /// Wrappers around the answer. They are removed, with the line break inside them.
    pub(crate) wrappers: &'static [(&'static str, &'static str)],
    /// Markers without a meaning of their own. They are removed.
    pub(crate) noise: &'static [&'static str],
    /// Markers that end reasoning and belong to the answer after it.
    pub(crate) interrupts: &'static [&'static str],
    /// Whether its usual template opens the reasoning in the prompt.
    pub(crate) implicit: bool,
    /// Whether its models forget the closing tag before a call.
    pub(crate) call_ends: bool,
    /// Text that the prompt already contains and that we put back at the start.
    pub(crate) prefix: &'static str,
    /// For models that write everything in messages with headers.
    pub(crate) channels: Option<&'static Channels>,
}

/// A span of reasoning opens with any `open` marker and closes with any `close` marker.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) open: &'static [Marker],
    pub(crate) close: &'static [Marker],
}

const fn tags(name: &'static str, pairs: &'static [Pair]) -> TagSet {
    TagSet {
        name,
        pairs,
        wrappers: &[],
        noise: &[],
        interrupts: &[],
        implicit: false,
        call_ends: false,
        prefix: "",
        channels: None,
    }
}

macro_rules! pair {
    ($open:literal, $close:literal) => {
        Pair { open: &[Marker::exact($open)], close: &[Marker::exact($close)] }
    };
    (any case $open:literal, $close:literal) => {
        Pair { open: &[Marker::any_case($open)], close: &[Marker::any_case($close)] }
    };
}

const THINK: Pair = pair!(any case "<think>", "</think>");
const REASONING: Pair = pair!(any case "<reasoning>", "</reasoning>");
const THOUGHT: Pair = pair!(any case "<thought>", "</thought>");

/// All tag sets, by name.
pub static TAG_SETS: &[TagSet] = &[
    tags("think", &[THINK]),
    tags("reasoning", &[REASONING]),
    tags("thought", &[THOUGHT]),
    // For unknown models.
    tags("plain", &[THINK, REASONING, THOUGHT]),
    tags("mistral", &[pair!("[THINK]", "[/THINK]")]),
    tags("kimi", &[pair!("◁think▷", "◁/think▷")]),
    TagSet {
        call_ends: true,
        noise: KIMI_K3_WRAPPERS,
        interrupts: &["<|open|>response<|sep|>", "<|open|>tools<|sep|>", "<|close|>message<|sep|>"],
        ..tags("kimi_k3", &[pair!("<|open|>think<|sep|>", "<|close|>think<|sep|>")])
    },
    TagSet { call_ends: true, ..tags("minimax_m3", &[pair!("<mm:think>", "</mm:think>")]) },
    TagSet { call_ends: true, ..tags("seed_oss", &[pair!("<seed:think>", "</seed:think>")]) },
    tags("pipe_think", &[pair!("<|think|>", "<|/think|>")]),
    // All of it stays content, after the opening tag that was in the prompt.
    TagSet { prefix: "<think>", ..tags("minimax_m2_append", &[]) },
    TagSet { implicit: true, ..tags("step3p5", &[THINK]) },
    TagSet { implicit: true, call_ends: true, ..tags("nemotron_v3", &[THINK]) },
    TagSet {
        wrappers: &[("<response>", "</response>")],
        implicit: true,
        ..tags("ernie45", &[THINK])
    },
    TagSet { wrappers: &[("<answer>", "</answer>")], ..tags("hunyuan_a13b", &[THINK]) },
    TagSet { call_ends: true, ..tags("hy_v3", HY) },
    TagSet { call_ends: true, ..tags("hy_v4", HY) },
    tags(
        "granite",
        &[Pair {
            open: &[
                Marker::exact("Here is my thought process:"),
                Marker::exact("Here's my thought process:"),
            ],
            close: &[Marker::exact("Here is my response:"), Marker::exact("Here's my response:")],
        }],
    ),
    TagSet { call_ends: true, ..tags("gemma4", &[pair!("<|channel>thought\n", "<channel|>")]) },
    TagSet {
        noise: &["<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"],
        ..tags("cohere_command", &[pair!("<|START_THINKING|>", "<|END_THINKING|>")])
    },
    tags("apertus", &[pair!("<|inner_prefix|>", "<|inner_suffix|>")]),
    TagSet { channels: Some(&channels::HARMONY), ..tags("gpt_oss", &[]) },
    TagSet { implicit: true, channels: Some(&channels::BEAM), ..tags("beam", &[]) },
    TagSet { channels: Some(&channels::INKLING), ..tags("inkling", &[]) },
    TagSet { channels: Some(&channels::MUSE), ..tags("muse_glimmer", &[]) },
    TagSet { channels: Some(&channels::MUSE), ..tags("muse_spark", &[]) },
];

/// The wrappers around Kimi K3's answer and message.
pub(crate) const KIMI_K3_WRAPPERS: &[&str] = &[
    "<|open|>response<|sep|>",
    "<|close|>response<|sep|>",
    "<|open|>message<|sep|>",
    "<|close|>message<|sep|>",
];

/// The name of each tag may have a suffix that names the checkpoint.
const HY: &[Pair] = &[pair!("<think\u{1}>", "</think\u{1}>")];
