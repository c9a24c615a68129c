//! Held text is limited, and the limit applies at the same byte however the text arrives.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::{Duration, Instant};

use throughline_codec::text::{Event, OnError, Options, Reader, Recipe};

/// The events as pairs of kind and text, with neighbouring deltas joined.
fn read(recipe: &Recipe, on_error: OnError, text: &str, size: usize) -> Vec<(String, String)> {
    let options = Options { on_error, ..Options::default() };
    let mut reader = Reader::new(recipe, options);
    let mut events: Vec<(String, String)> = Vec::new();
    let mut out = |event: Event<'_>| {
        let (kind, text) = match event {
            Event::Reasoning(text) => ("reasoning", text),
            Event::Content(text) => ("content", text),
            Event::CallStarted { name, .. } => ("call", name),
            Event::CallArguments { delta, .. } => ("arguments", delta),
            Event::CallEnded { .. } => ("call ended", ""),
            Event::Fault { message } => ("fault", message),
            Event::Ended(_) => ("ended", ""),
        };
        match events.last_mut() {
            Some((last, joined)) if last == kind => joined.push_str(text),
            _ => events.push((kind.to_owned(), text.to_owned())),
        }
    };
    for piece in text.as_bytes().chunks(size) {
        reader.push(piece, &mut out);
    }
    reader.finish(&mut out);
    events
}

fn named(tags: &str, format: &str) -> Recipe {
    Recipe::named(Some(tags), &[format]).unwrap()
}

#[test]
fn limits_do_not_depend_on_how_the_text_arrives() {
    // tags, format, text before the filler, the filler, text after it
    let rows = [
        ("think", "mistral", "[TOOL_CALLS]g", "\n", "{} x"),
        ("think", "mistral", "[TOOL_CALLS]g", "\n", ""),
        ("think", "mistral", "[TOOL_CALLS]", "g", "{} x"),
        ("think", "qwen3_coder", "<function=", "a", "></function>x"),
        ("think", "qwen3_coder", "<function=e", "\n", "</think>"),
        ("think", "qwen3_coder", "<function=e><parameter=", "a", ">b</parameter></function>x"),
        ("think", "hermes", "<tool_call>{\"name\":\"", "a", "\"}</tool_call>x"),
        ("think", "hermes", "<tool_call>{\"", "a", "\":1,\"name\":\"f\"}</tool_call>x"),
        ("think", "hermes", "<tool_call>{\"name\":\"f\"}", " ", "</tool_call>x"),
        ("think", "hermes", "<tool_call>{\"name\":\"f\",\"arguments\":{", " ", "x}}</tool_call>x"),
        ("think", "minicpm5", "<function", "\n", " name=\"f\"></function>x"),
        ("think", "minimax_m2", "<minimax:tool_call><invoke name=\"", "a", "\"></invoke>x"),
        (
            "think",
            "deepseek_v32",
            "<｜DSML｜function_calls><｜DSML｜invoke a=",
            "b",
            " name=\"f\"/>x",
        ),
        (
            "think",
            "glm47",
            "<tool_call>f<arg_key>",
            "k",
            "</arg_key><arg_value>1</arg_value></tool_call>",
        ),
        ("think", "json", "", " ", "{\"name\":\"f\",\"arguments\":{}}"),
        ("think", "hermes", "<tool_call>{\"name\":\"f\"}</tool_call>", "\n", "x"),
        ("think", "hermes", "<think>", " ", "</think>x"),
        ("think", "hermes", "<think>", "\n", "a</think>x"),
        ("hy_v3", "hy_v3", "<think:", "a", ">r</think>x"),
        ("gpt_oss", "gpt_oss", "<|channel|>", "a", "<|message|>x<|end|>"),
        (
            "minimax_m3",
            "minimax_m3",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<",
            "k",
            ">v",
        ),
        (
            "minimax_m3",
            "minimax_m3",
            "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<k>",
            " ",
            "]<]minimax[>[</k>]<]minimax[>[</invoke>",
        ),
        ("plain", "pythonic", "[", "f", "(a=1)]"),
        ("plain", "gemma4", "<|tool_call>call:f{", "k", ":1}<tool_call|>"),
    ];
    let lengths = [0usize, 1, 31, 32, 33, 63, 64, 65, 66, 255, 256, 257, 258]
        .into_iter()
        .chain([1000, 1009, 1010, 1022, 1023, 1024, 1025, 1026])
        .chain([4095, 4096, 4097]);
    for length in lengths {
        for (tags, format, before, filler, after) in rows {
            // Only white space can wait for this long.
            if length > 2000 && !filler.trim().is_empty() {
                continue;
            }
            let recipe = named(tags, format);
            let text = format!("{before}{}{after}", filler.repeat(length));
            for on_error in [OnError::Text, OnError::Error] {
                let whole = read(&recipe, on_error, &text, usize::MAX);
                for size in [1, 1000] {
                    let pieces = read(&recipe, on_error, &text, size);
                    assert!(
                        pieces == whole,
                        "{format}, {before}{filler}.. {length} times, in pieces of {size}:\n{pieces:?}\n{whole:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_block_over_the_limit_becomes_content_and_the_next_call_is_read() {
    let recipe = Recipe::family("qwen3").unwrap();
    let junk = "\"abcdefghijklmnop\":1,".repeat(55_000);
    let text = format!(
        "<tool_call>{{{junk}}}</tool_call>\n<tool_call>{{\"name\":\"f\",\"arguments\":{{}}}}</tool_call>"
    );
    for size in [4096, usize::MAX] {
        let events = read(&recipe, OnError::Text, &text, size);
        let kinds: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["content", "call", "arguments", "call ended", "ended"]);
        assert!(events[0].1.ends_with("}</tool_call>\n"));
    }
}

#[test]
fn arguments_are_not_limited_or_held() {
    let recipe = Recipe::family("qwen3").unwrap();
    let value = "x".repeat(3 << 20);
    let text =
        format!("<tool_call>{{\"name\":\"f\",\"arguments\":{{\"a\":\"{value}\"}}}}</tool_call>");
    let mut reader = Reader::new(&recipe, Options::default());
    let (mut events, mut ended) = (0, false);
    reader.push_str(&text, |event| match event {
        Event::CallArguments { delta, .. } => events += delta.len(),
        Event::CallEnded { .. } => ended = true,
        _ => {}
    });
    assert_eq!((events, ended), (value.len() + 8, true));
}

#[test]
fn endless_white_space_is_emitted() {
    for (recipe, opener) in [
        (Recipe::family("qwen3").unwrap(), "<think>"),
        (Recipe::family("qwen3").unwrap(), ""),
        (Recipe::family("llama-3").unwrap(), ""),
    ] {
        let mut reader = Reader::new(&recipe, Options::default());
        let mut length = 0;
        reader.push_str(opener, |_| {});
        for _ in 0..2000 {
            reader.push_str("          ", |event| {
                if let Event::Reasoning(text) | Event::Content(text) = event {
                    length += text.len();
                }
            });
        }
        assert_eq!(length, 20_000, "{opener}");
    }
}

/// The best of three runs.
fn time(recipe: &Recipe, text: &str, size: usize) -> Duration {
    let run = || {
        let start = Instant::now();
        let mut reader = Reader::new(recipe, Options::default());
        for piece in text.as_bytes().chunks(size) {
            reader.push(piece, |_| {});
        }
        reader.finish(|_| {});
        start.elapsed()
    };
    (0..3).map(|_| run()).min().unwrap()
}

#[test]
fn reading_time_is_linear_in_the_length() {
    let rows = [
        ("qwen3", "Some text.\n```html\n<div><p>x</p><a>y</a></div>\n```\n"),
        ("qwen3", "<tool_call>"),
        ("qwen3", "`<think>` < \" "),
        ("xlam", "```\n[\n"),
        ("gpt-oss", "<|channel|>"),
        ("inkling", "<|message_model|>f<|content_text|>a<|end_message|>"),
        ("minicpm5", "<function a="),
        ("deepseek-v3.2", "<｜DSML｜invoke a="),
        ("olmo-3", "<function_calls>f()\n"),
        ("granite-3", "Here is my thought process"),
        ("minimax-m3", "]<]minimax[>["),
        ("llama-3", "{\"name\":"),
    ];
    for (family, part) in rows {
        let recipe = Recipe::family(family).unwrap();
        let text = |bytes: usize| part.repeat(bytes / part.len());
        for size in [64, usize::MAX] {
            let short = time(&recipe, &text(20_000), size);
            let long = time(&recipe, &text(800_000), size);
            // Quadratic work would take 1600 times as long. The margin is for busy machines.
            assert!(
                long < short * 400,
                "{family}, {part:?} in pieces of {size}: {short:?}, then {long:?}"
            );
        }
    }
}
