//! Requests, as each kind of server gets them: all but thinking.

use serde_json::json;
use throughline_canonical::{
    Amount, Block, MediaKind, Message, Output, Reason, Role, Source, Tool, ToolChoice,
};

use super::*;
use crate::dialects::openai_chat::variants::VARIANTS;

pub(super) fn assistant(content: Vec<Block>) -> Request {
    Request {
        model: "m".to_owned(),
        messages: vec![Message { role: Role::Assistant, content }],
        ..Request::default()
    }
}

pub(super) fn user(content: Vec<Block>) -> Request {
    let mut request = assistant(content);
    request.messages[0].role = Role::User;
    request
}

pub(super) fn thought(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

fn call(signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: "c".to_owned(),
        name: "f".to_owned(),
        arguments: "{}".to_owned(),
        signature: signature.map(str::to_owned),
    }
}

pub(super) fn words(losses: &[Loss]) -> Vec<String> {
    losses.iter().map(ToString::to_string).collect()
}

#[test]
fn settings_go_under_the_names_each_server_knows() {
    let mut request = user(vec![Block::text("hi")]);
    request.system = vec!["a".to_owned(), "b".to_owned()];
    request.max_tokens = Some(9);
    request.sampling.seed = Some(1);
    request.sampling.top_k = Some(2);
    request.stop = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
    request.user = Some("u".to_owned());
    request.cache_key = Some("k".to_owned());
    request.stream = true;
    request.output =
        Output::Schema { name: Some("s".to_owned()), schema: json!({}), strict: Some(true) };
    let extra = json!({"verbosity": "low", "stream_options": {"include_usage": false, "include_obfuscation": false}, "reasoning_fields": ["reasoning"], "strange": 1});
    request.extra.insert("openai_chat".to_owned(), extra.as_object().unwrap().clone());
    request.extra.insert("gemini".to_owned(), extra.as_object().unwrap().clone());
    let (body, losses) = write(&request, "");
    assert_eq!(
        body,
        json!({
            "model": "m",
            "messages": [{"role": "developer", "content": "a"}, {"role": "developer", "content": "b"}, {"role": "user", "content": "hi"}],
            "max_completion_tokens": 9,
            "seed": 1,
            "stop": ["a", "b", "c", "d"],
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}, "strict": true}},
            "user": "u",
            "prompt_cache_key": "k",
            "stream": true,
            "stream_options": {"include_usage": true, "include_obfuscation": false},
            "verbosity": "low",
        })
    );
    assert_eq!(
        words(&losses),
        [
            "part_omitted=top_k;reason=no_place",
            "setting_adapted=stop;reason=too_many",
            "part_omitted=extra;reason=foreign_dialect",
            "part_omitted=member;reason=no_place"
        ]
    );
    let (body, losses) = write(&request, "mistral");
    assert_eq!(
        body,
        json!({
            "model": "m",
            "messages": [{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "hi"}],
            "max_tokens": 9,
            "random_seed": 1,
            "stop": ["a", "b", "c", "d", "e"],
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}, "strict": true}},
            "stream": true,
        })
    );
    assert_eq!(
        words(&losses),
        [
            "part_omitted=top_k;reason=no_place",
            "part_omitted=user;reason=no_place",
            "part_omitted=cache_key;reason=no_place",
            "part_omitted=extra;reason=foreign_dialect",
            "part_omitted=verbosity;reason=no_place",
            "part_omitted=member;reason=no_place",
        ]
    );
    let (body, losses) = write(&request, "deepseek-v4");
    assert_eq!(body["response_format"], json!({"type": "json_object"}));
    assert!(words(&losses).contains(&"setting_adapted=output;reason=no_place".to_owned()));
    let (body, _) = write(&request, "vllm");
    assert_eq!((&body["top_k"], &body["strange"]), (&json!(2), &json!(1)));
}

#[test]
fn no_server_gets_both_limits_or_a_member_it_refuses() {
    let mut request = user(vec![Block::text("hi")]);
    request.max_tokens = Some(9);
    request.thinking.amount = Some(Amount::On);
    request.stream = true;
    for variant in VARIANTS {
        let (body, _) = write(&request, variant.name);
        let members = body.as_object().unwrap();
        assert!(
            members.contains_key("max_tokens") != members.contains_key("max_completion_tokens")
        );
        for member in members.keys() {
            assert!(variant.takes(member), "{}: {member}", variant.name);
        }
    }
}

#[test]
fn tools_are_written_and_those_of_others_are_lost() {
    let mut request = user(vec![Block::text("hi")]);
    let function = Tool::Function {
        name: "f".to_owned(),
        description: None,
        parameters: Value::Null,
        strict: None,
    };
    request.tools = vec![
        function,
        Tool::Opaque { dialect: "openai_chat".to_owned(), value: json!({"type": "custom"}) },
        Tool::Opaque { dialect: "anthropic".to_owned(), value: json!({"type": "web_search"}) },
    ];
    request.tool_choice = Some(ToolChoice::Named { name: "f".to_owned() });
    request.parallel_calls = Some(false);
    let (body, losses) = write(&request, "openai");
    assert_eq!(
        body["tools"],
        json!([{"type": "function", "function": {"name": "f"}}, {"type": "custom"}])
    );
    assert_eq!(body["tool_choice"], json!({"type": "function", "function": {"name": "f"}}));
    assert_eq!(body["parallel_tool_calls"], false);
    assert_eq!(words(&losses), ["part_omitted=tool;reason=foreign_dialect"]);
    let (body, _) = write(&request, "mistral");
    assert_eq!(
        body["tools"][0]["function"]["parameters"],
        json!({"type": "object", "properties": {}})
    );
    request.tools.clear();
    let (body, losses) = write(&request, "openai");
    assert_eq!((body.get("tool_choice"), body.get("parallel_tool_calls")), (None, None));
    assert_eq!(losses.len(), 2);
}

#[test]
fn results_are_messages_of_their_own() {
    let image = Block::Media {
        kind: MediaKind::Image,
        source: Source::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() },
        name: None,
    };
    let result = |content, is_error| Block::ToolResult {
        id: "c".to_owned(),
        name: Some("f".to_owned()),
        content,
        is_error,
    };
    let mut request = assistant(vec![call(None)]);
    request.messages.push(Message {
        role: Role::User,
        content: vec![
            Block::text("and"),
            result(vec![Block::text("1"), image], true),
            result(vec![], false),
        ],
    });
    let (body, losses) = write(&request, "openai");
    assert_eq!(
        body["messages"],
        json!([
            {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": "1"},
            {"role": "tool", "tool_call_id": "c", "content": ""},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "text", "text": "and"}]},
        ])
    );
    assert_eq!(
        words(&losses),
        [
            "part_omitted=tool_result.is_error;reason=no_place",
            "setting_adapted=tool_result.media;reason=moved"
        ]
    );
}

#[test]
fn calls_carry_their_signature_where_there_is_a_place() {
    let check = |variant: &str, place: &str, losses: usize| {
        let (body, lost) = write(&assistant(vec![call(Some("s"))]), variant);
        let found = body["messages"][0]["tool_calls"][0].pointer(place);
        assert_eq!(found, Some(&json!("s")), "{variant}");
        assert_eq!(lost.len(), losses);
    };
    check("google", "/extra_content/google/thought_signature", 0);
    check("litellm", "/provider_specific_fields/thought_signature", 0);
    let (_, losses) = write(&assistant(vec![call(Some("s"))]), "openai");
    assert_eq!(words(&losses), ["part_omitted=tool_call.signature;reason=no_place"]);
}

#[test]
fn broken_arguments_are_wrapped_where_they_would_be_refused() {
    let broken = |arguments: &str| Block::ToolCall {
        id: "c".to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: None,
    };
    let check = |variant: &str, arguments: &str, written: &str, losses: usize| {
        let (body, lost) = write(&assistant(vec![broken(arguments)]), variant);
        assert_eq!(body["messages"][0]["tool_calls"][0]["function"]["arguments"], written);
        assert_eq!(lost.len(), losses);
    };
    check("openai", "{\"a\"", "{\"a\"", 0);
    check("openai", "", "{}", 0);
    check("vllm", "{\"a\"", r#"{"arguments":"{\"a\""}"#, 1);
    check("vllm", "5", r#"{"arguments":"5"}"#, 1);
    check("vllm", "{ \"a\": 1 }", "{ \"a\": 1 }", 0);
}

#[test]
fn what_has_no_place_is_lost_and_said_to_be() {
    let media = |kind, source| Block::Media { kind, source, name: None };
    let url = || Source::Url { url: "https://x".to_owned(), media_type: None };
    let check = |request: Request, variant: &str, losses: &[&str]| {
        assert_eq!(words(&write(&request, variant).1), losses);
    };
    let foreign = Block::Opaque { dialect: "gemini".to_owned(), value: json!({}) };
    check(user(vec![foreign.clone()]), "openai", &["part_omitted=block;reason=foreign_dialect"]);
    check(assistant(vec![foreign]), "openai", &["part_omitted=block;reason=foreign_dialect"]);
    check(
        user(vec![media(MediaKind::Document, url())]),
        "openai",
        &["part_omitted=media;reason=no_place"],
    );
    check(
        user(vec![media(MediaKind::Video, url())]),
        "openai",
        &["part_omitted=media;reason=no_place"],
    );
    check(user(vec![media(MediaKind::Video, url())]), "qwen", &[]);
    check(
        user(vec![media(
            MediaKind::Document,
            Source::File { dialect: "gemini".to_owned(), id: "x".to_owned() },
        )]),
        "openai",
        &["part_omitted=media;reason=no_place"],
    );
    check(
        user(vec![media(MediaKind::Document, Source::Text { text: "t".to_owned() })]),
        "openai",
        &["setting_adapted=document;reason=as_text"],
    );
    check(user(vec![thought("x", None)]), "openai", &["thinking_omitted=1;reason=shape"]);
    check(
        assistant(vec![media(MediaKind::Image, url())]),
        "openai",
        &["part_omitted=media;reason=role"],
    );
    check(
        assistant(vec![Block::Text {
            text: "a".to_owned(),
            signature: Some("s".to_owned()),
            citations: Vec::new(),
        }]),
        "openai",
        &["part_omitted=text.signature;reason=no_place"],
    );
    let lost = Loss::ThinkingOmitted { blocks: 2, reason: Reason::Shape };
    assert_eq!(write(&assistant(vec![thought("a", None), thought("b", None)]), "openai").1, [lost]);
}

#[test]
fn text_in_parts_is_joined_where_parts_are_refused() {
    let request = user(vec![Block::text("a"), Block::text("b")]);
    assert_eq!(write(&request, "deepseek-v4").0["messages"][0]["content"], "a\nb");
    assert_eq!(
        write(&request, "openai").0["messages"][0]["content"],
        json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    );
    // Nothing of this kind makes the writer stumble.
    let odd = Block::Opaque { dialect: "openai_chat".to_owned(), value: json!({"a": 1, "b": 2}) };
    assert_eq!(
        write(&user(vec![odd]), "openai").0["messages"][0]["content"],
        json!([{"a": 1, "b": 2}])
    );
}

#[test]
fn what_only_openai_has_goes_nowhere_else() {
    let refusal = || Block::Refusal { text: "no".to_owned() };
    let (body, losses) = write(&assistant(vec![refusal()]), "openai");
    let message = json!({"role": "assistant", "content": null, "refusal": "no"});
    assert_eq!((&body["messages"][0], losses), (&message, vec![]));
    let (body, losses) = write(&assistant(vec![refusal()]), "mistral");
    let message = json!({"role": "assistant", "content": "no"});
    assert_eq!(body["messages"][0], message);
    assert_eq!(words(&losses), ["setting_adapted=refusal;reason=as_text"]);
    let allowed = json!({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}});
    let request = read(&json!({
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "tool_choice": allowed,
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }))
    .value;
    assert_eq!(write(&request, "openai").0["tool_choice"], allowed);
    let (body, losses) = write(&request, "vllm");
    assert_eq!(body["tool_choice"], "auto");
    assert_eq!(words(&losses), ["setting_adapted=tool_choice;reason=no_place"]);
}

#[test]
fn requests_go_to_the_path_of_their_server() {
    let path = |variant| {
        let target = Target { model: "m", variant };
        OpenAiChat.write_request(&user(vec![]), &target).value.path
    };
    assert_eq!(path(""), "/v1/chat/completions");
    assert_eq!(path("google"), "/v1beta/openai/chat/completions");
}
