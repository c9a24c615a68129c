//! What is written of a request for a provider.

use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, Effort, MediaKind, Message, Request, Role, Show, Source, ThinkingSetting, Tool,
    ToolChoice,
};

use super::{NAME, read, read_at, written};

fn asked() -> Request {
    Request { messages: vec![said(Role::User, vec![Block::text("hi")])], ..Request::default() }
}

fn said(role: Role, content: Vec<Block>) -> Message {
    Message { role, content }
}

#[test]
fn how_much_to_think_is_written_as_a_flag_or_the_nearest_level() {
    let check = |amount, think: Value, losses: &str| {
        let request = Request { thinking: ThinkingSetting { amount, show: None }, ..asked() };
        let (body, told) = written(&request);
        assert_eq!(body["think"], think, "{amount:?}");
        assert_eq!(told, losses, "{amount:?}");
    };
    let effort = |effort| Some(Amount::Effort { effort });
    check(None, Value::Null, "");
    check(Some(Amount::Off), json!(false), "");
    check(Some(Amount::On), json!(true), "");
    check(Some(Amount::Adaptive { effort: None }), json!(true), "");
    check(effort(Effort::Low), json!("low"), "");
    check(effort(Effort::Max), json!("max"), "");
    check(effort(Effort::Minimal), json!("low"), "setting_adapted=thinking;reason=effort");
    check(
        Some(Amount::Budget { tokens: 20_000 }),
        json!("high"),
        "setting_adapted=thinking;reason=budget_as_effort",
    );
    let hidden = Request {
        thinking: ThinkingSetting { amount: Some(Amount::On), show: Some(Show::Hidden) },
        ..asked()
    };
    assert_eq!(written(&hidden).1, "setting_adapted=thinking.show;reason=no_place");
}

#[test]
fn arguments_are_an_object_in_their_order_and_results_name_their_tool() {
    let call = |id: &str, arguments: &str| Block::ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: None,
    };
    let result = |id: &str| Block::ToolResult {
        id: id.to_owned(),
        name: None,
        content: vec![Block::text("done")],
        is_error: false,
    };
    let request = Request {
        messages: vec![
            said(Role::User, vec![Block::text("hi")]),
            said(
                Role::Assistant,
                vec![
                    Block::Thinking { text: "Hm. ".to_owned(), signature: None },
                    Block::Thinking { text: "So.".to_owned(), signature: None },
                    call("c1", "{\"z\": 1, \"a\": 2}"),
                    call("c2", ""),
                ],
            ),
            said(Role::User, vec![Block::text("and?"), result("c1"), result("c2")]),
        ],
        ..Request::default()
    };
    let (body, losses) = written(&request);
    assert_eq!(losses, "");
    let text = body["messages"].to_string();
    assert_eq!(
        text,
        r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"","thinking":"Hm. So.","tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"z":1,"a":2}}},{"id":"c2","function":{"index":1,"name":"f","arguments":{}}}]},{"role":"tool","content":"done","tool_name":"f","tool_call_id":"c1"},{"role":"tool","content":"done","tool_name":"f","tool_call_id":"c2"},{"role":"user","content":"and?"}]"#
    );
}

#[test]
fn pictures_go_as_their_bytes_and_what_is_none_is_told() {
    let media = |kind, source| Block::Media { kind, source, name: None };
    let image = media(
        MediaKind::Image,
        Source::Base64 { media_type: "image/png".to_owned(), data: "AAAA".to_owned() },
    );
    let request =
        |content| Request { messages: vec![said(Role::User, content)], ..Request::default() };
    let (body, losses) = written(&request(vec![Block::text("a"), image.clone()]));
    assert_eq!(body["messages"], json!([{"role": "user", "content": "a", "images": ["AAAA"]}]));
    assert_eq!(losses, "");
    // A text behind a picture stands before it now.
    let (_, losses) = written(&request(vec![image, Block::text("a"), Block::text("b")]));
    assert_eq!(
        losses,
        "setting_adapted=media;reason=moved, setting_adapted=text;reason=texts_joined"
    );
    let link = media(
        MediaKind::Image,
        Source::Url { url: "https://h.example/a.png".to_owned(), media_type: None },
    );
    let (_, losses) = written(&request(vec![Block::text("a"), link]));
    assert_eq!(losses, "part_omitted=media;reason=no_place");
}

#[test]
fn a_choice_among_tools_is_made_by_what_is_offered() {
    let tool = Tool::Function {
        name: "f".to_owned(),
        description: None,
        parameters: Value::Null,
        strict: None,
    };
    for (choice, offered, losses) in [
        (None, true, ""),
        (Some(ToolChoice::Auto), true, ""),
        (Some(ToolChoice::None), false, "setting_adapted=tool_choice;reason=no_tools_offered"),
        (Some(ToolChoice::Required), true, "part_omitted=tool_choice;reason=no_place"),
    ] {
        let request = Request { tools: vec![tool.clone()], tool_choice: choice, ..asked() };
        let (body, told) = written(&request);
        assert_eq!(body.get("tools").is_some(), offered);
        assert_eq!(told, losses);
        if offered {
            let parameters = &body["tools"][0]["function"]["parameters"];
            assert_eq!(*parameters, json!({"type": "object", "properties": {}}));
        }
    }
}

#[test]
fn members_of_our_own_dialect_that_have_no_word_go_on() {
    let body = json!({
        "model": "m:latest", "stream": false, "think": true,
        "messages": [{"role": "user", "content": "hi"}],
        "format": {"type": "object"},
        "options": {"num_predict": 5, "num_ctx": 9},
        "keep_alive": -1, "truncate": false, "logprobs": true, "top_logprobs": 3,
    });
    let (again, losses) = written(&read(&body));
    assert_eq!(losses, "");
    let mut expected = body;
    expected["model"] = "m".into();
    assert_eq!(again, expected);
    // What only we read does not.
    let asked = read_at("/api/generate", &json!({"model": "m", "prompt": "hi"}));
    let (body, _) = written(&asked.unwrap().value);
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["model", "messages", "stream"]);
    let mut foreign = read(&json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]}));
    let members = json!({"a": 1}).as_object().cloned().unwrap();
    foreign.extra.insert("nobody".to_owned(), members);
    assert_ne!(NAME, "nobody");
    assert_eq!(written(&foreign).1, "part_omitted=extra;reason=foreign_dialect");
}
