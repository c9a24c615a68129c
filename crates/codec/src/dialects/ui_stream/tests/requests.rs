//! What a front end says besides its messages.

use serde_json::json;
use throughline_canonical::{Amount, Effort, Loss, Show, ThinkingSetting, Tool, ToolChoice};

use super::*;

fn asked(more: &Value) -> Value {
    let mut body =
        json!({"messages": [{"role": "user", "parts": [{"type": "text", "text": "hi"}]}]});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

#[test]
fn a_bare_body_of_the_default_transport_is_read() {
    let body = asked(&json!({"id": "chat-7", "trigger": "submit-message"}));
    let Lossy { value, losses } = read(&body);
    assert_eq!(losses, []);
    assert_eq!(value.thread.as_deref(), Some("chat-7"));
    assert!(value.stream);
    assert_eq!(value.model, "");
    assert!(value.extra.is_empty());
}

#[test]
fn wishes_stand_in_the_body_or_in_forwarded_props_and_the_body_wins() {
    let wishes = json!({
        "model": "m", "backend": "b", "system": "be brief", "temperature": 0.5, "top_p": 0.9,
        "max_tokens": 99, "stop": ["x"], "tool_choice": "required", "reasoning_effort": "high",
    });
    let direct = read(&asked(&wishes)).value;
    let forwarded = read(&asked(&json!({"forwardedProps": wishes}))).value;
    assert_eq!(direct, forwarded);
    assert_eq!(direct.model, "m");
    assert_eq!(direct.backend.as_deref(), Some("b"));
    assert_eq!(direct.system, ["be brief"]);
    assert_eq!(direct.sampling.temperature, Some(0.5));
    assert_eq!(direct.sampling.top_p, Some(0.9));
    assert_eq!(direct.max_tokens, Some(99));
    assert_eq!(direct.stop, ["x"]);
    assert_eq!(direct.tool_choice, Some(ToolChoice::Required));
    let both =
        asked(&json!({"model": "body", "forwardedProps": {"model": "props", "max_tokens": 5}}));
    let both = read(&both).value;
    assert_eq!((both.model.as_str(), both.max_tokens), ("body", Some(5)));
}

#[test]
fn how_much_to_think_is_said_in_many_ways() {
    let effort = |effort| Some(Amount::Effort { effort });
    let budget = |tokens| Some(Amount::Budget { tokens });
    for (said, amount, show) in [
        (json!({"thinking": true}), Some(Amount::On), None),
        (json!({"thinking": false}), Some(Amount::Off), None),
        (json!({"thinking": "off"}), Some(Amount::Off), None),
        (json!({"thinking": "on"}), Some(Amount::On), None),
        (json!({"thinking": "low"}), effort(Effort::Low), None),
        (json!({"thinking": 5000}), budget(5000), None),
        (json!({"thinking": 0}), Some(Amount::Off), None),
        (
            json!({"thinking": "adaptive", "reasoning_effort": "max"}),
            Some(Amount::Adaptive { effort: Some(Effort::Max) }),
            None,
        ),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}}),
            budget(2048),
            Some(Show::Hidden),
        ),
        (
            json!({"thinking": {"effort": "xhigh", "show": "summary"}}),
            effort(Effort::XHigh),
            Some(Show::Summary),
        ),
        (json!({"thinking": {"budget": 7}}), budget(7), None),
        (
            json!({"thinking": {"amount": {"kind": "effort", "effort": "high"}, "show": "full"}}),
            effort(Effort::High),
            Some(Show::Full),
        ),
        (json!({"reasoning_effort": "none"}), Some(Amount::Off), None),
        (json!({"reasoning_effort": "minimal"}), effort(Effort::Minimal), None),
        (json!({}), None, None),
    ] {
        let found = read(&asked(&said)).value.thinking;
        assert_eq!(found, ThinkingSetting { amount, show }, "{said}");
    }
}

#[test]
fn tools_are_a_list_or_an_object_by_name() {
    let schema = json!({"type": "object", "properties": {"row": {"type": "integer"}}});
    let expected = [Tool::Function {
        name: "lookup".to_owned(),
        description: Some("Finds a row.".to_owned()),
        parameters: schema.clone(),
        strict: None,
    }];
    let about = "Finds a row.";
    for tools in [
        json!([{"name": "lookup", "description": about, "parameters": schema}]),
        json!([{"name": "lookup", "description": about, "inputSchema": schema}]),
        json!([{"name": "lookup", "description": about, "input_schema": schema}]),
        json!([{"type": "function", "function": {"name": "lookup", "description": about, "parameters": schema}}]),
        json!({"lookup": {"description": about, "inputSchema": schema}}),
        // As `jsonSchema(...)` of the AI SDK is written out.
        json!({"lookup": {"description": about, "inputSchema": {"jsonSchema": schema}}}),
    ] {
        let found = read(&asked(&json!({"tools": tools}))).value.tools;
        assert_eq!(found, expected, "{tools}");
    }
    for (choice, expected) in [
        (json!("auto"), ToolChoice::Auto),
        (json!({"type": "none"}), ToolChoice::None),
        (json!({"type": "tool", "toolName": "f"}), ToolChoice::Named { name: "f".to_owned() }),
        (json!({"type": "named", "name": "f"}), ToolChoice::Named { name: "f".to_owned() }),
    ] {
        let found = read(&asked(&json!({"tool_choice": choice}))).value;
        assert_eq!(found.tool_choice, Some(expected));
    }
}

#[test]
fn members_of_the_front_ends_own_server_are_passed_over() {
    let Lossy { value, losses } =
        read(&asked(&json!({"userId": 7, "webSearch": true, "model": ""})));
    assert_eq!(losses, Vec::<Loss>::new());
    assert!(value.extra.is_empty());
    assert_eq!(value.model, "");
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    for (bytes, message) in [
        ("[]", "expected a JSON object"),
        ("{", "the body is not JSON"),
        ("", "the body is not JSON"),
    ] {
        let found = read_bytes(bytes.as_bytes()).unwrap_err();
        assert!(found.message.starts_with(message), "{found}");
        let (status, body) = UiStream.write_fault(&found, "turn_1");
        // A person reads it as it is.
        assert_eq!((status, body), (400, found.message.into_bytes()));
    }
}

#[test]
fn only_paths_of_a_chat_resume() {
    for (path, resumes) in [
        ("/ui/chat/c1/stream", true),
        ("/ui/chat//stream", false),
        ("/ui/chat/stream", false),
        ("/ui/chat/c1", false),
        ("/ui/chat/c1/x/stream", false),
        ("/v1/chat/c1/stream", false),
    ] {
        assert_eq!(crate::dialects::ui_stream::resumes(path), resumes, "{path}");
    }
}
