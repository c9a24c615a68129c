//! What clients ask, as it is read.

use serde_json::json;
use throughline_canonical::{Amount, Effort, Output, Show, ThinkingSetting, ToolChoice};

use super::*;

fn with(members: &Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// The canonical messages of these.
fn said(messages: &Value) -> (Value, Vec<Loss>) {
    let Lossy { value, losses } = read(&json!({"model": "m", "messages": messages}));
    (serde_json::to_value(&value.messages).unwrap(), losses)
}

#[test]
fn every_form_of_message_is_read() {
    let check = |messages: Value, expected: Value| {
        let (found, losses) = said(&messages);
        assert_eq!((found, losses), (expected, Vec::new()));
    };
    let user = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
    let assistant = |content: Value| json!([{"role": "assistant", "content": content}]);
    check(json!([{"role": "user", "content": "hi"}]), json!([user]));
    check(
        json!([{"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "auto"}},
            {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
            {"type": "input_audio", "input_audio": {"data": "BBBB", "format": "mp3"}},
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,CCCC"}},
            {"type": "strange", "x": 1},
        ]}]),
        json!([{"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "media", "kind": "image", "source": {"kind": "base64", "media_type": "image/png", "data": "AAAA"}},
            {"type": "media", "kind": "image", "source": {"kind": "url", "url": "https://x/y.png"}},
            {"type": "media", "kind": "audio", "source": {"kind": "base64", "media_type": "audio/mpeg", "data": "BBBB"}},
            {"type": "media", "kind": "document", "source": {"kind": "file", "dialect": "openai_chat", "id": "file-1"}},
            {"type": "media", "kind": "document", "source": {"kind": "base64", "media_type": "application/pdf", "data": "CCCC"}, "name": "a.pdf"},
            {"type": "opaque", "dialect": "openai_chat", "value": {"type": "strange", "x": 1}},
        ]}]),
    );
    // Results that follow each other answer one message; text behind them is another.
    check(
        json!([
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"x\""}},
                {"id": "b", "type": "custom", "custom": {"name": "g", "input": "i"}},
            ]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": "be brief"},
        ]),
        json!([
            {"role": "assistant", "content": [
                {"type": "tool_call", "id": "a", "name": "f", "arguments": "{\"x\""},
                {"type": "opaque", "dialect": "openai_chat", "value": {"id": "b", "type": "custom", "custom": {"name": "g", "input": "i"}}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "id": "a", "content": [{"type": "text", "text": "1"}]},
                {"type": "tool_result", "id": "b", "content": [{"type": "text", "text": "2"}]},
            ]},
            user,
            {"role": "system", "content": [{"type": "text", "text": "be brief"}]},
        ]),
    );
    // The old form has no ids.
    check(
        json!([
            {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "1"},
        ]),
        json!([
            {"role": "assistant", "content": [{"type": "tool_call", "id": "call_1", "name": "f", "arguments": "{}"}]},
            {"role": "user", "content": [{"type": "tool_result", "id": "call_1", "name": "f", "content": [{"type": "text", "text": "1"}]}]},
        ]),
    );
    check(
        json!([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}], "refusal": null, "annotations": [], "audio": {"id": "audio_1"}}]),
        assistant(json!([
            {"type": "text", "text": "a"},
            {"type": "refusal", "text": "b"},
            {"type": "opaque", "dialect": "openai_chat", "value": {"type": "audio", "audio": {"id": "audio_1"}}},
        ])),
    );
    // Reasoning comes back in many members; the one that says most counts.
    let thought =
        assistant(json!([{"type": "thinking", "text": "hm"}, {"type": "text", "text": "a"}]));
    for members in [
        json!({"reasoning_content": "hm"}),
        json!({"reasoning": "hm"}),
        json!({"reasoning": "hm", "reasoning_content": "hm"}),
        json!({"reasoning": "", "reasoning_content": "hm", "reasoning_details": []}),
        json!({"reasoning_details": "hm"}),
        json!({"reasoning_content": "hm", "thinking_blocks": null}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "hm"}], "reasoning": "hm"}),
        json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "hm", "index": 0}]}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "h", "index": 0}, {"type": "reasoning.text", "text": "m", "index": 0}]}),
        json!({"reasoning_details": [{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text", "text": "m"}]}),
    ] {
        let mut message = json!({"role": "assistant", "content": "a"});
        for (name, value) in members.as_object().unwrap() {
            message[name] = value.clone();
        }
        check(json!([message]), thought.clone());
    }
    let signed = assistant(json!([
        {"type": "thinking", "text": "a", "signature": "1"},
        {"type": "thinking", "text": "b", "signature": "2"},
        {"type": "redacted", "data": "d"},
    ]));
    check(
        json!([{"role": "assistant", "content": null, "reasoning": format!("ab{}", crate::dialects::shared::hidden_reasoning::NOTICE), "reasoning_details": [
            {"type": "reasoning.text", "text": "a", "signature": "1", "index": 0},
            {"type": "reasoning.text", "text": "b", "index": 1},
            {"type": "reasoning.text", "signature": "2", "index": 1},
            {"type": "reasoning.encrypted", "data": "d", "index": 2},
        ]}]),
        signed.clone(),
    );
    check(
        json!([{"role": "assistant", "content": "", "reasoning_content": "ab", "thinking_blocks": [
            {"type": "thinking", "thinking": "a", "signature": "1"},
            {"type": "thinking", "thinking": "b", "signature": "2"},
            {"type": "redacted_thinking", "data": "d"},
        ]}]),
        signed,
    );
    check(
        json!([{"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": true}, {"type": "text", "text": "a"}]}]),
        thought,
    );
    // The notice was for people.
    check(
        json!([{"role": "assistant", "content": "a", "reasoning": crate::dialects::shared::hidden_reasoning::NOTICE}]),
        assistant(json!([{"type": "text", "text": "a"}])),
    );
    for extra in [
        json!({"extra_content": {"google": {"thought_signature": "s"}}}),
        json!({"extra_content": {"vertex": {"thought_signature": "s"}}}),
        json!({"provider_specific_fields": {"thought_signature": "s"}}),
    ] {
        let mut call =
            json!({"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        for (name, value) in extra.as_object().unwrap() {
            call[name] = value.clone();
        }
        check(
            json!([{"role": "assistant", "tool_calls": [call]}]),
            assistant(
                json!([{"type": "tool_call", "id": "a", "name": "f", "arguments": "{}", "signature": "s"}]),
            ),
        );
    }
}

#[test]
fn what_has_no_word_in_a_message_is_a_loss() {
    let (_, losses) = said(&json!([
        {"role": "user", "name": "bob", "content": [
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "image_url", "image_url": {"url": "https://x", "detail": "high"}},
        ]},
        {"role": "assistant", "content": "a", "strange": 1, "annotations": [{}]},
    ]));
    let parts: Vec<String> = losses.iter().map(ToString::to_string).collect();
    assert_eq!(
        parts,
        [
            "part_omitted=message.name;reason=no_word",
            "part_omitted=cache_control;reason=no_word",
            "part_omitted=media.settings;reason=no_word",
            "part_omitted=member;reason=no_word",
            "part_omitted=citations;reason=no_word",
        ]
    );
}

#[test]
fn what_stands_above_is_apart_from_the_conversation() {
    let request = read(&json!({"model": "m", "messages": [
        {"role": "system", "content": "a"},
        {"role": "developer", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
        {"role": "user", "content": "hi"},
    ]}))
    .value;
    assert_eq!(request.system, ["a", "b", "c"]);
    assert_eq!(request.messages.len(), 1);
}

#[test]
fn thinking_is_read_from_every_place() {
    let check = |members: Value, amount: Option<Amount>, show: Option<Show>| {
        let found = read(&with(&members)).value.thinking;
        assert_eq!(found, ThinkingSetting { amount, show }, "{members}");
    };
    let effort = |effort| Some(Amount::Effort { effort });
    let budget = |tokens| Some(Amount::Budget { tokens });
    check(json!({}), None, None);
    check(json!({"reasoning_effort": null}), None, None);
    check(json!({"reasoning_effort": "none"}), Some(Amount::Off), None);
    check(json!({"reasoning_effort": "xhigh"}), effort(Effort::XHigh), None);
    check(json!({"reasoning_effort": "default"}), Some(Amount::On), None);
    check(json!({"thinking": true}), Some(Amount::On), None);
    check(json!({"thinking": false}), Some(Amount::Off), None);
    check(json!({"thinking": {"type": "enabled"}}), Some(Amount::On), None);
    check(
        json!({"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        effort(Effort::Max),
        None,
    );
    check(
        json!({"thinking": {"type": "disabled"}, "reasoning_effort": "max"}),
        Some(Amount::Off),
        None,
    );
    check(json!({"thinking": {"type": "enabled", "budget_tokens": 2000}}), budget(2000), None);
    check(
        json!({"thinking": {"type": "adaptive", "display": "omitted"}}),
        Some(Amount::Adaptive { effort: None }),
        Some(Show::Hidden),
    );
    check(json!({"enable_thinking": true, "thinking_budget": 500}), budget(500), None);
    check(json!({"enable_thinking": false, "thinking_budget": 500}), Some(Amount::Off), None);
    check(json!({"thinking_budget": 0}), Some(Amount::Off), None);
    check(json!({"chat_template_kwargs": {"enable_thinking": false}}), Some(Amount::Off), None);
    check(json!({"reasoning": {"effort": "high"}}), effort(Effort::High), None);
    check(
        json!({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}),
        effort(Effort::High),
        None,
    );
    check(json!({"reasoning": {"max_tokens": 9, "exclude": true}}), budget(9), Some(Show::Hidden));
    check(
        json!({"reasoning": {"enabled": true, "summary": "auto"}}),
        Some(Amount::On),
        Some(Show::Summary),
    );
    check(json!({"include_reasoning": false}), None, Some(Show::Hidden));
}

#[test]
fn settings_are_read_and_what_has_no_word_is_kept() {
    let Lossy { value, losses } = read(&with(&json!({
        "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 5, "max_completion_tokens": 7,
        "temperature": 0.5, "top_p": 1, "top_k": 4, "seed": -3, "presence_penalty": 0.1, "frequency_penalty": 0.2,
        "stop": "END", "user": "u", "prompt_cache_key": "k", "parallel_tool_calls": false, "n": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}},
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}}, {"type": "custom", "custom": {"name": "g"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "verbosity": "low", "logit_bias": null, "metadata": {"a": "b"}, "chat_template_kwargs": {"x": 1},
        "reasoning_fields": ["nope"],
    })));
    assert_eq!(losses, [Loss::SettingAdapted { setting: "n", reason: "one_answer" }]);
    assert_eq!(
        serde_json::to_value(&value).unwrap(),
        json!({
            "model": "m",
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
            "tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true},
                {"type": "opaque", "dialect": "openai_chat", "value": {"type": "custom", "custom": {"name": "g"}}},
            ],
            "tool_choice": {"type": "named", "name": "f"},
            "parallel_calls": false,
            "sampling": {"temperature": 0.5, "top_p": 1.0, "top_k": 4, "seed": -3, "presence_penalty": 0.1, "frequency_penalty": 0.2},
            "max_tokens": 7,
            "stop": ["END"],
            "output": {"type": "schema", "name": "s", "schema": {"type": "object"}, "strict": true},
            "stream": true,
            "user": "u",
            "cache_key": "k",
            "extra": {"openai_chat": {"verbosity": "low", "metadata": {"a": "b"}, "chat_template_kwargs": {"x": 1}, "stream_options": {"include_usage": true}}},
        })
    );
    let request = read(&with(&json!({"response_format": {"type": "json_object"}, "tool_choice": "required", "functions": [{"name": "f"}]}))).value;
    assert_eq!(request.output, Output::Json);
    assert_eq!(request.tool_choice, Some(ToolChoice::Required));
    assert_eq!(request.tools.len(), 1);
    let old =
        read(&with(&json!({"functions": [{"name": "f"}], "function_call": {"name": "f"}}))).value;
    assert_eq!(old.tool_choice, Some(ToolChoice::Named { name: "f".to_owned() }));
    let allowed =
        json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}});
    let request = read(&with(&json!({"tool_choice": allowed}))).value;
    assert_eq!(request.tool_choice, Some(ToolChoice::Required));
    assert_eq!(request.extra["openai_chat"]["tool_choice"], allowed);
}
