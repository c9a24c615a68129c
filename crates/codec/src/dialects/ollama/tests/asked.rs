//! What is read of a client's request.

use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, Effort, EndReason, Loss, MediaKind, Message, Output, Request, Role, Source,
};

use super::{NAME, Ollama, lines, read, read_at};
use crate::dialects::ClientDialect;

fn with(members: &Value) -> Request {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    read(&body)
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        signature: None,
    }
}

fn result(id: &str, name: Option<&str>, text: &str) -> Block {
    Block::ToolResult {
        id: id.to_owned(),
        name: name.map(str::to_owned),
        content: vec![Block::text(text)],
        is_error: false,
    }
}

#[test]
fn streaming_is_what_is_done_unless_it_is_said_not_to_be() {
    for (members, stream) in [
        (json!({}), true),
        (json!({"stream": null}), true),
        (json!({"stream": true}), true),
        (json!({"stream": false}), false),
    ] {
        assert_eq!(with(&members).stream, stream, "{members}");
    }
}

#[test]
fn a_conversation_keeps_its_order() {
    let request = read(&json!({
        "model": "m",
        "messages": [
            {"role": "System", "content": "Be terse."},
            {"role": "USER", "content": "Look.", "images": ["iVBORw0KGgoAAA", "/9j/4AAQ"]},
            {
                "role": "assistant", "content": "I look.", "thinking": "Both.",
                "tool_calls": [
                    {"id": "c1", "function": {"index": 0, "name": "f", "arguments": {"z": 1, "a": {"y": 2.0, "b": 3}}}},
                    {"id": "c2", "function": {"name": "g", "arguments": {}}},
                ],
            },
            {"role": "tool", "tool_name": "g", "tool_call_id": "c2", "content": "two"},
            {"role": "tool", "tool_name": "f", "tool_call_id": "c1", "content": "one"},
            {"role": "system", "content": "In French."},
        ],
    }));
    let image = |media_type: &str, data: &str| Block::Media {
        kind: MediaKind::Image,
        source: Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() },
        name: None,
    };
    assert_eq!(request.system, ["Be terse."]);
    let said = |role, content| Message { role, content };
    let expected = [
        said(
            Role::User,
            vec![
                Block::text("Look."),
                image("image/png", "iVBORw0KGgoAAA"),
                image("image/jpeg", "/9j/4AAQ"),
            ],
        ),
        said(
            Role::Assistant,
            vec![
                Block::Thinking { text: "Both.".to_owned(), signature: None },
                Block::text("I look."),
                // The order of members is the client's.
                call("c1", "f", r#"{"z":1,"a":{"y":2.0,"b":3}}"#),
                call("c2", "g", "{}"),
            ],
        ),
        said(Role::User, vec![result("c2", Some("g"), "two"), result("c1", Some("f"), "one")]),
        said(Role::System, vec![Block::text("In French.")]),
    ];
    assert_eq!(request.messages, expected);
}

#[test]
fn results_without_an_id_find_their_calls_by_name_and_order() {
    let calls = |calls: &[(&str, &str)]| {
        let call = |(id, name): &(&str, &str)| match *id {
            "" => json!({"function": {"name": name, "arguments": {}}}),
            id => json!({"id": id, "function": {"name": name, "arguments": {}}}),
        };
        let calls: Vec<Value> = calls.iter().map(call).collect();
        json!({"role": "assistant", "content": "", "tool_calls": calls})
    };
    let tool = |name: &str| match name {
        "" => json!({"role": "tool", "content": "x"}),
        name => json!({"role": "tool", "content": "x", "tool_name": name}),
    };
    let asked = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        calls(&[("", "f"), ("", "g"), ("", "f")]),
        tool("g"), tool("f"), tool("f"),
        calls(&[("", "f"), ("their", "g")]),
        tool(""), tool("nobody"),
        // One that answers nothing stays, and harms nobody.
        tool("f"),
    ]});
    let ids: Vec<String> = read(&asked)
        .messages
        .iter()
        .flat_map(|message| &message.content)
        .filter_map(|block| match block {
            Block::ToolCall { id, .. } | Block::ToolResult { id, .. } => Some(id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(
        ids,
        [
            "call_1", "call_2", "call_3", "call_2", "call_1", "call_3", "call_4", "their",
            "call_4", "their", "call_5",
        ]
    );
}

#[test]
fn the_notice_for_people_is_no_thinking() {
    let request = read(&json!({"model": "m", "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes", "thinking": "[Some reasoning was hidden for safety reasons]"},
        {"role": "assistant", "content": "", "thinking": "[Some reasoning was hidden for safety reasons]Hm."},
    ]}));
    assert_eq!(request.messages[1].content, [Block::text("yes")]);
    assert_eq!(
        request.messages[2].content,
        [Block::Thinking { text: "Hm.".to_owned(), signature: None }]
    );
}

#[test]
fn how_much_to_think_is_a_flag_or_a_level() {
    let effort = |effort| Some(Amount::Effort { effort });
    for (think, amount) in [
        (json!(null), None),
        (json!(true), Some(Amount::On)),
        (json!(false), Some(Amount::Off)),
        (json!("low"), effort(Effort::Low)),
        (json!("medium"), effort(Effort::Medium)),
        (json!("high"), effort(Effort::High)),
        (json!("max"), effort(Effort::Max)),
    ] {
        let request = with(&json!({"think": think}));
        assert_eq!(request.thinking.amount, amount, "{think}");
        assert_eq!(request.thinking.show, None);
    }
    for think in ["xhigh", "minimal", "none", "LOW", ""] {
        let body = json!({"model": "m", "messages": [], "think": think});
        assert_eq!(
            read_at("/api/chat", &body).unwrap_err().message,
            format!(
                "invalid think value: {think:?} (must be \"high\", \"medium\", \"low\", \"max\", true, or false)"
            )
        );
    }
}

#[test]
fn options_that_have_a_word_are_read_and_the_rest_is_kept() {
    let request = with(&json!({
        "options": {
            "num_predict": 50, "temperature": 0.5, "top_p": 0.9, "top_k": 40.0, "seed": -3,
            "stop": ["END"], "presence_penalty": 0.1, "frequency_penalty": 0.2,
            "num_ctx": 8192, "min_p": 0.05, "mirostat": null,
        },
        "keep_alive": "5m", "truncate": false, "logprobs": null,
    }));
    assert_eq!(request.max_tokens, Some(50));
    assert_eq!(request.stop, ["END"]);
    let sampling = request.sampling;
    assert_eq!(
        (sampling.temperature, sampling.top_p, sampling.top_k),
        (Some(0.5), Some(0.9), Some(40))
    );
    assert_eq!(sampling.seed, Some(-3));
    assert_eq!(sampling.presence_penalty, Some(0.1));
    assert_eq!(sampling.frequency_penalty, Some(0.2));
    assert_eq!(
        Value::from(request.extra[NAME].clone()),
        json!({
            "keep_alive": "5m", "truncate": false, "options": {"num_ctx": 8192, "min_p": 0.05},
        })
    );
    for limit in [-1, -2, 0] {
        let request = with(&json!({"options": {"num_predict": limit}}));
        assert_eq!(request.max_tokens, None, "{limit}");
    }
}

#[test]
fn the_shape_of_an_answer_is_json_or_a_schema() {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    for (format, output) in [
        (json!(null), Output::Text),
        (json!(""), Output::Text),
        (json!("json"), Output::Json),
        (schema.clone(), Output::Schema { name: None, schema, strict: None }),
    ] {
        assert_eq!(with(&json!({"format": format})).output, output);
    }
}

#[test]
fn a_tag_nobody_chose_is_no_part_of_a_models_name() {
    for (asked, model) in [
        ("qwen3:latest", "qwen3"),
        ("qwen3:8b", "qwen3:8b"),
        ("claude-opus-5", "claude-opus-5"),
        (":latest", ":latest"),
    ] {
        let request = with(&json!({"model": asked}));
        assert_eq!(request.model, model);
        // The client hears the name it used.
        let told =
            lines(&request, &[throughline_canonical::Event::Ended { reason: EndReason::Stop }]);
        assert!(told.contains(&format!("\"model\":\"{asked}\"")), "{told}");
        let mut sent = request;
        Ollama.forget_own_members(&mut sent);
        assert!(sent.extra.is_empty(), "{asked}");
    }
}

#[test]
fn a_single_question_is_a_conversation_of_one_message() {
    let body = json!({
        "model": "m", "prompt": "Why?", "system": "Be terse.", "images": ["iVBORw0KGgo="],
        "context": [1, 2], "raw": true, "template": "{{ .Prompt }}", "suffix": "",
        "think": "low", "format": "json", "options": {"seed": 1}, "keep_alive": 0,
    });
    let read = read_at("/api/generate", &body).unwrap();
    let losses = Loss::header(&read.losses);
    assert_eq!(
        losses,
        "part_omitted=context;reason=no_place, part_omitted=template;reason=no_place, part_omitted=raw;reason=no_place"
    );
    let request = read.value;
    assert_eq!(request.system, ["Be terse."]);
    assert_eq!(request.messages.len(), 1);
    assert_eq!(request.messages[0].content[0], Block::text("Why?"));
    assert_eq!(request.messages[0].content.len(), 2);
    assert_eq!((request.output, request.sampling.seed), (Output::Json, Some(1)));
    let fault = read_at("/api/generate", &json!({"model": "m", "prompt": "a", "suffix": "b"}));
    assert_eq!(fault.unwrap_err().place(), Some("suffix"));
}

#[test]
fn a_request_that_asks_nothing_loads_or_unloads_the_model() {
    for (path, body, word) in [
        ("/api/chat", json!({"model": "m"}), Some("load")),
        ("/api/chat", json!({"model": "m", "messages": []}), Some("load")),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": 0}), Some("unload")),
        ("/api/chat", json!({"model": "m", "messages": [], "keep_alive": "0s"}), Some("unload")),
        ("/api/generate", json!({"model": "m"}), Some("load")),
        ("/api/generate", json!({"model": "m", "prompt": "", "keep_alive": "5m"}), Some("load")),
        ("/api/generate", json!({"model": "m", "prompt": "x"}), None),
        (
            "/api/chat",
            json!({"model": "m", "messages": [{"role": "system", "content": "x"}]}),
            None,
        ),
    ] {
        let request = read_at(path, &body).unwrap().value;
        let reason = word.map(|word| EndReason::Other(word.to_owned()));
        assert_eq!(Ollama.immediate_end(&request), reason, "{path} {body}");
    }
}

#[test]
fn what_has_no_word_in_a_message_is_told() {
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "hi", "mood": "good"},
        {"role": "assistant", "content": "ho", "tool_calls": null, "odd": []},
    ]});
    let losses = read_at("/api/chat", &body).unwrap().losses;
    assert_eq!(Loss::header(&losses), "part_omitted=member;reason=no_word");
}
