//! What is no request, and where it is not.

use serde_json::{Value, json};

use super::super::Anthropic;
use super::crossing::body;
use super::read_request;
use crate::dialects::{Asked, ClientDialect};

#[test]
fn a_count_of_tokens_needs_no_limit() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "q"}]}).to_string();
    let ask = |path| {
        Anthropic.read_request(&Asked {
            path,
            query: "beta=true",
            body: body.as_bytes(),
        })
    };
    assert!(ask("/v1/messages/count_tokens").is_ok());
    let fault = ask("/v1/messages").unwrap_err();
    assert_eq!(fault.message, "max_tokens: is required");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let block = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let at = "messages[0].content[0]";
    let tool = |tool: Value| json!({"tools": [tool]});
    let image = |source: Value| block(json!({"type": "image", "source": source}));
    let cases = [
        (
            json!({"model": 7}),
            "model: expected a string, found a number".to_owned(),
        ),
        (json!({"model": null}), "model: is required".to_owned()),
        (
            json!({"max_tokens": "many"}),
            "max_tokens: expected a whole number, found a string".to_owned(),
        ),
        (
            json!({"max_tokens": -1}),
            "max_tokens: expected a whole number, found a number".to_owned(),
        ),
        (
            json!({"messages": null}),
            "messages: is required".to_owned(),
        ),
        (
            json!({"messages": {}}),
            "messages: expected a list, found an object".to_owned(),
        ),
        (
            json!({"messages": []}),
            "messages: at least one message is required".to_owned(),
        ),
        (
            json!({"messages": ["q"]}),
            "messages[0]: expected an object, found a string".to_owned(),
        ),
        (
            json!({"messages": [{"content": "q"}]}),
            "messages[0].role: is required".to_owned(),
        ),
        (
            json!({"messages": [{"role": "tool", "content": "q"}]}),
            "messages[0].role: `tool` is none of user, assistant, system".to_owned(),
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content: is required".to_owned(),
        ),
        (
            json!({"messages": [{"role": "user", "content": 5}]}),
            "messages[0].content: expected a string or a list of blocks, found a number".to_owned(),
        ),
        (
            block(json!("text")),
            format!("{at}: expected an object, found a string"),
        ),
        (
            block(json!({"text": "a"})),
            format!("{at}.type: is required"),
        ),
        (
            block(json!({"type": 5})),
            format!("{at}.type: expected a string, found a number"),
        ),
        (
            block(json!({"type": "text"})),
            format!("{at}.text: is required"),
        ),
        (
            block(json!({"type": "text", "text": ["a"]})),
            format!("{at}.text: expected a string, found a list"),
        ),
        (
            block(json!({"type": "thinking", "signature": "s"})),
            format!("{at}.thinking: is required"),
        ),
        (
            block(json!({"type": "thinking", "thinking": "t", "signature": 1})),
            format!("{at}.signature: expected a string, found a number"),
        ),
        (
            block(json!({"type": "redacted_thinking"})),
            format!("{at}.data: is required"),
        ),
        (
            block(json!({"type": "tool_use", "id": "a", "name": "f"})),
            format!("{at}.input: is required"),
        ),
        (
            block(json!({"type": "tool_use", "id": "a", "name": "f", "input": "{}"})),
            format!("{at}.input: expected an object, found a string"),
        ),
        (
            block(json!({"type": "tool_use", "name": "f", "input": {}})),
            format!("{at}.id: is required"),
        ),
        (
            block(json!({"type": "tool_result"})),
            format!("{at}.tool_use_id: is required"),
        ),
        (
            block(
                json!({"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text"}]}),
            ),
            format!("{at}.content[0].text: is required"),
        ),
        (
            block(json!({"type": "tool_result", "tool_use_id": "a", "is_error": "yes"})),
            format!("{at}.is_error: expected true or false, found a string"),
        ),
        (
            block(json!({"type": "image"})),
            format!("{at}.source: is required"),
        ),
        (
            image(json!({"type": "base64", "data": "x"})),
            format!("{at}.source.media_type: is required"),
        ),
        (
            image(json!({"type": "url"})),
            format!("{at}.source.url: is required"),
        ),
        (
            json!({"system": 5}),
            "system: expected a string or a list of blocks, found a number".to_owned(),
        ),
        (
            json!({"system": [{"type": "image", "source": {"type": "url", "url": "u"}}]}),
            "system: only text blocks can stand here".to_owned(),
        ),
        (
            tool(json!({"name": "f"})),
            "tools[0].input_schema: is required".to_owned(),
        ),
        (
            tool(json!({"name": "f", "input_schema": "x"})),
            "tools[0].input_schema: expected an object, found a string".to_owned(),
        ),
        (
            tool(json!({"input_schema": {}})),
            "tools[0].name: is required".to_owned(),
        ),
        (
            json!({"tool_choice": "auto"}),
            "tool_choice: expected an object, found a string".to_owned(),
        ),
        (
            json!({"tool_choice": {"type": "required"}}),
            "tool_choice.type: `required` is none of auto, any, tool, none".to_owned(),
        ),
        (
            json!({"tool_choice": {"type": "tool"}}),
            "tool_choice.name: is required".to_owned(),
        ),
        (
            json!({"thinking": true}),
            "thinking: expected an object, found a boolean".to_owned(),
        ),
        (
            json!({"thinking": {}}),
            "thinking.type: is required".to_owned(),
        ),
        (
            json!({"thinking": {"type": "on"}}),
            "thinking.type: `on` is none of adaptive, enabled, disabled, between_tools".to_owned(),
        ),
        (
            json!({"thinking": {"type": "enabled"}}),
            "thinking.budget_tokens: is required".to_owned(),
        ),
        (
            json!({"thinking": {"type": "adaptive", "display": "all"}}),
            "thinking.display: `all` is none of summarized, omitted, updates".to_owned(),
        ),
        (
            json!({"output_config": {"effort": "minimal"}}),
            "output_config.effort: `minimal` is none of low, medium, high, xhigh, max".to_owned(),
        ),
        (
            json!({"output_config": {"format": {"type": "json"}}}),
            "output_config.format.type: `json` is none of json_schema".to_owned(),
        ),
        (
            json!({"output_config": {"format": {"type": "json_schema"}}}),
            "output_config.format.schema: is required".to_owned(),
        ),
        (
            json!({"temperature": "hot"}),
            "temperature: expected a number, found a string".to_owned(),
        ),
        (
            json!({"stop_sequences": "x"}),
            "stop_sequences: expected a list, found a string".to_owned(),
        ),
        (
            json!({"stop_sequences": [1]}),
            "stop_sequences[0]: expected a string, found a number".to_owned(),
        ),
        (
            json!({"stream": 1}),
            "stream: expected true or false, found a number".to_owned(),
        ),
        (
            json!({"metadata": {"user_id": 1}}),
            "metadata.user_id: expected a string, found a number".to_owned(),
        ),
    ];
    for (members, message) in cases {
        let read = read_request(body(&members).to_string().as_bytes());
        assert_eq!(read.unwrap_err().message, message, "{members}");
    }
    for odd in ["", "{", "[]", "null", "\"\u{0}\"", "{} {}"] {
        assert!(read_request(odd.as_bytes()).is_err(), "{odd}");
    }
}
