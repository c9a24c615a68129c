//! What the real writers make of an adapted request: the right members, and no further loss.

use serde_json::{Value, json};
use throughline_canonical::{Block, Message, Role};
use throughline_codec::dialects::{Target, UPSTREAM};

use super::*;

/// Adapts and writes a request. Returns the body without the common members, and all losses.
fn written(mut request: Request, at: At) -> (Value, String) {
    let (name, upstream, variant) = at;
    request.messages = vec![Message::new(Role::User, vec![Block::text("Hello")])];
    let reported = adapt_request(&mut request, at);
    let dialect = UPSTREAM.iter().find(|dialect| dialect.name() == upstream).unwrap();
    let target = Target { model: name, profile: profile(upstream, variant) };
    let lossy = dialect.write_request(&request, &target);
    assert_eq!(lossy.losses, [], "{at:?} {request:?}");
    let mut body: Value = serde_json::from_slice(&lossy.value.body).unwrap();
    let members = body.as_object_mut().unwrap();
    for usual in ["model", "messages", "contents", "input", "include", "store"] {
        members.remove(usual);
    }
    (body, reported)
}

/// One row each: the model, the requested amount, the written body and the losses.
fn check_written<const N: usize>(rows: [(At, &str, Value, &str); N]) {
    for (at, requested, body, reported) in rows {
        let found = written(asking(amount(requested), None), at);
        assert_eq!(found, (body, reported.to_owned()), "{at:?} {requested}");
    }
}

#[test]
fn adapted_setting_is_written_for_anthropic_and_gemini() {
    check_written([
        (
            ("claude-sonnet-4-5", "anthropic", ""),
            "effort low",
            json!({"max_tokens": 50000, "thinking":
                {"type": "enabled", "budget_tokens": 4096, "display": "summarized"}}),
            "thinking effort_as_budget",
        ),
        (
            ("claude-opus-5", "anthropic", ""),
            "effort high",
            json!({"max_tokens": 50000, "thinking": {"type": "adaptive", "display": "summarized"},
                "output_config": {"effort": "high"}}),
            "",
        ),
        (
            ("claude-opus-5", "anthropic", ""),
            "off",
            json!({"max_tokens": 50000, "thinking": {"type": "disabled"}}),
            "",
        ),
        (
            ("claude-opus-5-5", "anthropic", ""),
            "off",
            json!({"max_tokens": 50000, "thinking": {"type": "adaptive"},
                "output_config": {"effort": "low"}}),
            "thinking always_thinks",
        ),
        (
            ("claude-sonnet-5-5", "anthropic", ""),
            "off",
            json!({"max_tokens": 50000, "thinking": {"type": "between_tools"}}),
            "thinking between_tools",
        ),
        (
            ("gemini-2.5-flash", "gemini", ""),
            "on",
            json!({"generationConfig": {"maxOutputTokens": 50000,
                "thinkingConfig": {"thinkingBudget": -1, "includeThoughts": true}}}),
            "",
        ),
        (
            ("gemini-3-pro", "gemini", ""),
            "adaptive high",
            json!({"generationConfig": {"maxOutputTokens": 50000,
                "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": true}}}),
            "",
        ),
        (
            ("gemini-3-pro", "gemini", ""),
            "budget 9000",
            json!({"generationConfig": {"maxOutputTokens": 50000,
                "thinkingConfig": {"thinkingLevel": "LOW", "includeThoughts": true}}}),
            "thinking budget_as_effort",
        ),
    ]);
}

#[test]
fn adapted_setting_is_written_for_openai_dialects() {
    check_written([
        (
            ("gpt-5", "openai_responses", ""),
            "adaptive",
            json!({"max_output_tokens": 50000, "reasoning": {"summary": "auto"}}),
            "",
        ),
        (
            ("gpt-6.1-sol", "openai_responses", ""),
            "budget 40000",
            json!({"max_output_tokens": 50000, "reasoning": {"effort": "xhigh", "summary": "auto"}}),
            "thinking budget_as_effort",
        ),
        (
            ("gpt-5.1", "openai_chat", "openai"),
            "off",
            json!({"max_completion_tokens": 50000, "reasoning_effort": "none"}),
            "",
        ),
        (
            ("deepseek-v4-pro", "openai_chat", "deepseek-v4"),
            "adaptive max",
            json!({"max_tokens": 50000, "thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
            "",
        ),
        (
            ("qwen3-32b", "openai_chat", "qwen"),
            "budget 700",
            json!({"max_tokens": 50000, "enable_thinking": true, "thinking_budget": 700}),
            "",
        ),
        (
            ("qwen3-32b", "openai_chat", "vllm"),
            "off",
            json!({"max_tokens": 50000, "chat_template_kwargs": {"enable_thinking": false}}),
            "",
        ),
        (
            ("claude-opus-5", "openai_chat", "openrouter"),
            "effort high",
            json!({"max_tokens": 50000, "reasoning": {"effort": "high", "summary": "auto"}}),
            "",
        ),
        (
            ("deepseek-reasoner", "openai_chat", "deepseek-r1"),
            "on",
            json!({"max_tokens": 50000}),
            "",
        ),
        (
            ("gpt-4o", "openai_chat", "openai"),
            "effort high",
            json!({"max_completion_tokens": 16384}),
            "max_tokens max_output, thinking model_does_not_think",
        ),
    ]);
}

#[test]
fn writing_an_adapted_request_adds_no_loss() {
    for (at, _) in TABLE {
        for requested in ASKED {
            written(asking(amount(requested), None), *at);
        }
    }
}

#[test]
fn remaining_sampling_settings_are_written() {
    let mut request = asking(amount("off"), None);
    request.sampling.temperature = Some(0.5);
    let (body, reported) = written(request.clone(), ("claude-opus-4-6", "anthropic", ""));
    assert_eq!((&body["temperature"], reported.as_str()), (&json!(0.5), ""));
    let (body, reported) = written(request, ("claude-opus-4-7", "anthropic", ""));
    assert_eq!(body.get("temperature"), None);
    assert_eq!(reported, "temperature model");
}
