//! Messages, block by block.

use serde_json::{Value, json};
use throughline_canonical::{Amount, Block, Effort, Loss, MediaKind, Message, Role, Source};

use super::super::Anthropic;
use super::crossing::{body, both_ways, message, reads, request, writes};
use super::{TARGET, read_request, read_value, write_request};
use crate::dialects::{Target, UpstreamDialect};

/// One message of this role with these blocks crosses both ways.
fn block_both_ways(role: Role, wire: &Value, block: Block) {
    let word = serde_json::to_value(role).unwrap();
    let messages = json!([{"role": word, "content": [wire, wire]}]);
    both_ways(&json!({"messages": messages}), |request| {
        request.messages = vec![message(role, vec![block.clone(), block])];
    });
}

#[test]
fn every_block_crosses_both_ways() {
    let media = |kind, source, name: Option<&str>| Block::Media {
        kind,
        source,
        name: name.map(str::to_owned),
    };
    let file = || Source::File { dialect: "anthropic".to_owned(), id: "file_1".to_owned() };
    let base64 = |media_type: &str| Source::Base64 {
        media_type: media_type.to_owned(),
        data: "iVBO".to_owned(),
    };
    let url = || Source::Url { url: "https://example.com/a".to_owned(), media_type: None };
    let (user, assistant, system) = (Role::User, Role::Assistant, Role::System);
    for role in [user, assistant, system] {
        block_both_ways(role, &json!({"type": "text", "text": "é\n\"🧠"}), Block::text("é\n\"🧠"));
    }
    let thinking = |text: &str, signature: &str| Block::Thinking {
        text: text.to_owned(),
        signature: Some(signature.to_owned()),
    };
    for (text, signature) in [("so", "EqQB+/="), ("", "EqQB")] {
        let wire = json!({"type": "thinking", "thinking": text, "signature": signature});
        block_both_ways(assistant, &wire, thinking(text, signature));
    }
    let data = "opaque".to_owned();
    let wire = json!({"type": "redacted_thinking", "data": data});
    block_both_ways(assistant, &wire, Block::Redacted { data });
    let wire = json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"b": 1, "a": [1.5, null]}});
    let call = Block::ToolCall {
        id: "toolu_1".to_owned(),
        name: "f".to_owned(),
        arguments: r#"{"b":1,"a":[1.5,null]}"#.to_owned(),
        signature: None,
    };
    block_both_ways(assistant, &wire, call);
    let result = |content, is_error| Block::ToolResult {
        id: "toolu_1".to_owned(),
        name: None,
        content,
        is_error,
    };
    let wire = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"});
    block_both_ways(user, &wire, result(vec![Block::text("ok")], false));
    let wire =
        json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": "", "is_error": true});
    block_both_ways(user, &wire, result(vec![Block::text("")], true));
    let wire = json!({"type": "tool_result", "tool_use_id": "toolu_1"});
    block_both_ways(user, &wire, result(vec![], false));
    let png = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}});
    let wire = json!({"type": "tool_result", "tool_use_id": "toolu_1", "content": [
        {"type": "text", "text": "see"}, png, {"type": "tool_reference", "tool_name": "g"}]});
    let parts = vec![
        Block::text("see"),
        media(MediaKind::Image, base64("image/png"), None),
        Block::Opaque {
            dialect: "anthropic".to_owned(),
            value: json!({"type": "tool_reference", "tool_name": "g"}),
        },
    ];
    block_both_ways(user, &wire, result(parts, false));
    block_both_ways(user, &png, media(MediaKind::Image, base64("image/png"), None));
    for (wire, source) in [
        (json!({"type": "url", "url": "https://example.com/a"}), url()),
        (json!({"type": "file", "file_id": "file_1"}), file()),
    ] {
        let image = json!({"type": "image", "source": wire});
        block_both_ways(user, &image, media(MediaKind::Image, source.clone(), None));
        let document = json!({"type": "document", "source": wire, "title": "t"});
        let block = media(MediaKind::Document, source, Some("t"));
        block_both_ways(user, &document, block);
    }
    for (wire, source) in [
        (
            json!({"type": "base64", "media_type": "application/pdf", "data": "iVBO"}),
            base64("application/pdf"),
        ),
        (
            json!({"type": "text", "media_type": "text/plain", "data": "plain"}),
            Source::Text { text: "plain".to_owned() },
        ),
    ] {
        let wire = json!({"type": "document", "source": wire});
        block_both_ways(user, &wire, media(MediaKind::Document, source, None));
    }
    for wire in [
        json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        json!({"type": "compaction", "content": null, "encrypted_content": "x"}),
        json!({"type": "document", "source": {"type": "content", "content": []}}),
        json!({"type": "from_the_future"}),
    ] {
        let block = Block::Opaque { dialect: "anthropic".to_owned(), value: wire.clone() };
        block_both_ways(assistant, &wire, block);
    }
}

#[test]
fn marks_without_a_word_are_losses() {
    let block = |block: Value| json!({"messages": [{"role": "user", "content": [block]}]});
    let mark = json!({"type": "ephemeral"});
    let check = |wire: Value, losses: &str| {
        let read = read_value(&body(&wire));
        assert_eq!(Loss::header(&read.losses), losses, "{wire}");
    };
    check(
        block(json!({"type": "text", "text": "a", "cache_control": mark, "citations": []})),
        "part_omitted=cache_control;reason=no_word",
    );
    check(
        block(json!({"type": "text", "text": "a", "citations": [{"type": "x"}]})),
        "part_omitted=citations;reason=no_word",
    );
    check(
        block(
            json!({"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}),
        ),
        "",
    );
    check(
        block(
            json!({"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "code_execution_20260120"}}),
        ),
        "part_omitted=caller;reason=no_word",
    );
    check(
        json!({"tools": [{"name": "f", "input_schema": {}, "defer_loading": true, "cache_control": mark}]}),
        "part_omitted=defer_loading;reason=no_word, part_omitted=cache_control;reason=no_word",
    );
    check(
        json!({"system": [{"type": "text", "text": "a", "cache_control": mark}]}),
        "part_omitted=cache_control;reason=no_word",
    );
}

#[test]
fn a_message_may_change_the_effort_from_there_on() {
    let members = json!({"output_config": {"effort": "max"}, "messages": [
        {"role": "user", "content": "q"},
        {"role": "system", "content": [{"type": "text", "text": "s"}], "output_config": {"effort": "low"}},
    ]});
    reads(&members, "", |request| {
        request.thinking.amount = Some(Amount::Effort { effort: Effort::Low });
        let system = message(Role::System, vec![Block::text("s")]);
        request.messages.push(system);
    });
}

/// A conversation of these messages is written so, with these losses.
fn conversation(messages: Vec<Message>, wire: &Value, losses: &str) {
    writes(&json!({"messages": wire}), losses, |request| {
        request.messages = messages;
    });
}

fn call(id: &str, arguments: &str) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: None,
    }
}

fn result(id: &str, text: &str) -> Block {
    Block::ToolResult {
        id: id.to_owned(),
        name: Some("f".to_owned()),
        content: vec![Block::text(text)],
        is_error: false,
    }
}

#[test]
fn neighbours_of_one_speaker_are_joined_and_results_go_first() {
    let use_of = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
    let answer = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "r"});
    let text = |text: &str| json!({"type": "text", "text": text});
    conversation(
        vec![
            message(Role::User, vec![Block::text("q")]),
            message(Role::Assistant, vec![call("a", "{}")]),
            message(Role::Assistant, vec![call("b", "")]),
            message(Role::User, vec![result("a", "r")]),
            message(Role::User, vec![result("b", "r")]),
            message(Role::User, vec![Block::text("and?")]),
            message(Role::System, vec![Block::text("s")]),
            message(Role::System, vec![Block::text("t")]),
            message(Role::User, vec![Block::text("go")]),
        ],
        &json!([
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": [use_of("a"), use_of("b")]},
            {"role": "user", "content": [answer("a"), answer("b"), text("and?")]},
            {"role": "system", "content": "s"},
            {"role": "system", "content": "t"},
            {"role": "user", "content": "go"},
        ]),
        "",
    );
    conversation(
        vec![
            message(Role::Assistant, vec![call("a", "{}")]),
            message(Role::User, vec![Block::text("first"), result("a", "r")]),
        ],
        &json!([
            {"role": "assistant", "content": [use_of("a")]},
            {"role": "user", "content": [answer("a"), text("first")]},
        ]),
        "setting_adapted=tool_result;reason=goes_first",
    );
}

#[test]
fn arguments_stay_as_they_were_spelled() {
    let spelled = r#"{ "n": 1.50e+3, "big": 123456789012345678901234567890, "n": "\u00e9" }"#;
    let request = request(|request| {
        request.messages = vec![message(Role::Assistant, vec![call("a", spelled)])];
    });
    let body = String::from_utf8(write_request(&request).value.body).unwrap();
    assert!(body.contains(&format!(r#""input":{spelled}"#)), "{body}");
    let read = read_request(body.as_bytes()).unwrap().value;
    assert_eq!(read.messages, request.messages);
}

#[test]
fn arguments_that_are_no_object_are_told_as_text() {
    let lost = "setting_adapted=tool_call.arguments;reason=not_an_object";
    for (arguments, input, losses) in [
        ("", json!({}), ""),
        (" ", json!({}), ""),
        ("null", json!({}), ""),
        ("{\"a\": ", json!({"arguments": "{\"a\":"}), lost),
        ("[1]", json!({"arguments": "[1]"}), lost),
        ("{} {}", json!({"arguments": "{} {}"}), lost),
        ("\"\u{0}\"", json!({"arguments": "\"\u{0}\""}), lost),
    ] {
        conversation(
            vec![message(Role::Assistant, vec![call("a", arguments)])],
            &json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": input}]}]),
            losses,
        );
    }
}

#[test]
fn ids_of_others_are_spelled_in_letters_alike_in_call_and_result() {
    conversation(
        vec![
            message(Role::Assistant, vec![call("functions.f:0", "{}")]),
            message(Role::User, vec![result("functions.f:0", "r")]),
        ],
        &json!([
            {"role": "assistant", "content": [{"type": "tool_use", "id": "callfunctions_2ef_3a0", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "callfunctions_2ef_3a0", "content": "r"}]},
        ]),
        "setting_adapted=tool_call.id;reason=characters",
    );
}

#[test]
fn a_document_of_text_goes_as_text() {
    for (media_type, data, text) in
        [("text/plain", "aMOp", "h\u{e9}"), ("text/csv;charset=utf-8", "YSxiCg==", "a,b\n")]
    {
        let document = Block::Media {
            kind: MediaKind::Document,
            source: Source::Base64 { media_type: media_type.to_owned(), data: data.to_owned() },
            name: Some("notes".to_owned()),
        };
        conversation(
            vec![message(Role::User, vec![document])],
            &json!([{"role": "user", "content": [{
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": text},
                "title": "notes",
            }]}]),
            "",
        );
    }
}

#[test]
fn blocks_without_a_place_are_losses() {
    let said = |block: Block, role, losses: &str| {
        conversation(
            vec![message(role, vec![block, Block::text("said")])],
            &json!([{"role": serde_json::to_value(role).unwrap(), "content": "said"}]),
            losses,
        );
    };
    let media = |kind, media_type: &str| Block::Media {
        kind,
        source: Source::Base64 {
            media_type: media_type.to_owned(),
            // No letters of any text.
            data: "/w==".to_owned(),
        },
        name: None,
    };
    let thinking = |signature: Option<&str>| Block::Thinking {
        text: "t".to_owned(),
        signature: signature.map(str::to_owned),
    };
    let (user, assistant) = (Role::User, Role::Assistant);
    said(Block::text(""), user, "");
    said(Block::text(" \n"), user, "part_omitted=text;reason=empty");
    said(thinking(None), assistant, "thinking_omitted=1;reason=shape");
    said(thinking(Some("")), assistant, "thinking_omitted=1;reason=shape");
    said(thinking(Some("s")), user, "part_omitted=thinking;reason=role");
    said(call("a", ""), user, "part_omitted=tool_call;reason=role");
    said(result("a", ""), assistant, "part_omitted=tool_result;reason=role");
    said(media(MediaKind::Audio, "audio/wav"), user, "part_omitted=media;reason=no_place");
    said(media(MediaKind::Video, "video/mp4"), user, "part_omitted=media;reason=no_place");
    said(media(MediaKind::Image, "image/tiff"), user, "part_omitted=media;reason=media_type");
    said(media(MediaKind::Document, "text/csv"), user, "part_omitted=media;reason=media_type");
    said(media(MediaKind::Image, "image/png"), assistant, "part_omitted=media;reason=role");
    let file = Block::Media {
        kind: MediaKind::Image,
        source: Source::File { dialect: "gemini".to_owned(), id: "x".to_owned() },
        name: None,
    };
    said(file, user, "part_omitted=media;reason=foreign_file");
    let foreign = Block::Opaque { dialect: "gemini".to_owned(), value: json!({}) };
    said(foreign, user, "part_omitted=block;reason=foreign_dialect");
    // A message that lost all it had is not sent empty, and its neighbours join.
    conversation(
        vec![
            message(user, vec![Block::text("a")]),
            message(assistant, vec![thinking(None), thinking(None)]),
            message(user, vec![Block::text("b")]),
        ],
        &json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]),
        "thinking_omitted=2;reason=shape, part_omitted=message;reason=empty",
    );
    let refusal = Block::Refusal { text: "no".to_owned() };
    conversation(
        vec![message(assistant, vec![refusal])],
        &json!([{"role": "assistant", "content": "no"}]),
        "setting_adapted=refusal;reason=as_text",
    );
    let signed = Block::ToolCall {
        id: "a".to_owned(),
        name: "f".to_owned(),
        arguments: "{}".to_owned(),
        signature: Some("s".to_owned()),
    };
    conversation(
        vec![message(assistant, vec![signed])],
        &json!([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}]),
        "part_omitted=tool_call.signature;reason=no_place",
    );
}

#[test]
fn servers_that_sign_nothing_get_thinking_without_a_signature() {
    let target = Target { variant: "unsigned", ..TARGET };
    let thinking = Block::Thinking { text: "t".to_owned(), signature: None };
    let request =
        request(|request| request.messages = vec![message(Role::Assistant, vec![thinking])]);
    let written = Anthropic.write_request(&request, &target);
    assert_eq!(written.losses, []);
    let body: Value = serde_json::from_slice(&written.value.body).unwrap();
    let block = json!({"type": "thinking", "thinking": "t"});
    assert_eq!(body["messages"][0]["content"], json!([block]));
}

#[test]
fn unsigned_thinking_is_read_as_such() {
    for wire in [
        json!({"type": "thinking", "thinking": "t"}),
        json!({"type": "thinking", "thinking": "t", "signature": ""}),
        json!({"type": "thinking", "thinking": "t", "signature": null}),
    ] {
        let messages = json!([{"role": "assistant", "content": [wire]}]);
        reads(&json!({"messages": messages}), "", |request| {
            let thinking = Block::Thinking { text: "t".to_owned(), signature: None };
            request.messages = vec![message(Role::Assistant, vec![thinking])];
        });
    }
}
