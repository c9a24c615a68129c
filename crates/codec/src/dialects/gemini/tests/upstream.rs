//! What providers are sent.

use serde_json::json;
use throughline_canonical::{Block, Loss, MediaKind, Message, Role, Source, Tool};

use super::*;

fn message(role: Role, content: Vec<Block>) -> Message {
    Message { role, content }
}

fn asking(messages: Vec<Message>) -> Request {
    Request { model: "gemini-3-pro".to_owned(), messages, ..Request::default() }
}

fn check(messages: Vec<Message>, contents: impl Into<Value>, losses: &[(&str, &str)]) {
    let (written, body) = write(&asking(messages), "");
    assert_eq!(body["contents"], contents.into());
    let told: Vec<_> = written
        .losses
        .iter()
        .map(|loss| match loss {
            Loss::PartOmitted { part, reason } => (part.as_ref(), *reason),
            Loss::SettingAdapted { setting, reason } => (*setting, *reason),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(told, losses);
}

fn call(id: &str, arguments: &str, signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: signature.map(str::to_owned),
    }
}

fn result(id: &str, content: Vec<Block>, is_error: bool) -> Block {
    Block::ToolResult { id: id.to_owned(), name: None, content, is_error }
}

fn signed_text() -> Block {
    Block::Text { text: "a".to_owned(), signature: Some("s".to_owned()), citations: Vec::new() }
}

fn user(text: &str) -> Message {
    message(Role::User, vec![Block::text(text)])
}

#[test]
fn a_turn_with_tools_keeps_its_signatures_in_their_places() {
    let thought = Block::Thinking { text: "hm".to_owned(), signature: Some("t-_".to_owned()) };
    let signed =
        Block::Text { text: String::new(), signature: Some("e".to_owned()), citations: Vec::new() };
    check(
        vec![
            user("go"),
            message(
                Role::Assistant,
                vec![
                    thought,
                    Block::text("ok"),
                    signed,
                    call("1", "{\"a\": 1.50}", Some("s+/")),
                    call("2", "", None),
                ],
            ),
            message(
                Role::User,
                vec![result("2", vec![Block::text("x")], true), result("1", vec![], false)],
            ),
        ],
        json!([
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [
                {"text": "hm", "thought": true, "thoughtSignature": "t-_"}, {"text": "ok"}, {"text": "", "thoughtSignature": "e"},
                {"functionCall": {"id": "1", "name": "f", "args": {"a": 1.50}}, "thoughtSignature": "s+/"},
                {"functionCall": {"id": "2", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "2", "name": "f", "response": {"error": "x"}}},
                {"functionResponse": {"id": "1", "name": "f", "response": {}}}]},
        ]),
        &[],
    );
    // Numbers are spelled as the model spelled them.
    let (written, _) =
        write(&asking(vec![message(Role::Assistant, vec![call("1", "{\"a\":1.50e3}", None)])]), "");
    assert!(String::from_utf8(written.value.body).unwrap().contains("\"args\":{\"a\":1.50e3}"));
}

#[test]
fn what_has_no_place_is_told() {
    let media = |source| Block::Media { kind: MediaKind::Image, source, name: None };
    let foreign = media(Source::File { dialect: "anthropic".to_owned(), id: "f".to_owned() });
    let opaque = |dialect: &str| Block::Opaque {
        dialect: dialect.to_owned(),
        value: json!({"toolCall": {}}),
    };
    check(
        vec![
            message(
                Role::User,
                vec![foreign, Block::text("go"), media(Source::Text { text: "doc".to_owned() })],
            ),
            message(Role::Assistant, vec![Block::Redacted { data: "d".to_owned() }]),
            message(
                Role::Assistant,
                vec![
                    Block::Refusal { text: "no".to_owned() },
                    opaque("gemini"),
                    opaque("anthropic"),
                    call("1", "{broken", None),
                    call("2", "[1]", None),
                ],
            ),
            message(Role::User, vec![result("9", vec![signed_text(), Block::text("b")], false)]),
        ],
        json!([
            {"role": "user", "parts": [{"text": "go"}, {"text": "doc"}]},
            {"role": "model", "parts": [{"text": "no"}, {"toolCall": {}},
                {"functionCall": {"id": "1", "name": "f", "args": {"arguments": "{broken"}}},
                {"functionCall": {"id": "2", "name": "f", "args": {"arguments": "[1]"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "9", "name": "9", "response": {"output": "a\nb"}}}]},
        ]),
        &[
            ("media", "foreign_file"),
            ("document", "as_text"),
            ("redacted_thinking", "no_place"),
            ("message", "empty"),
            ("refusal", "as_text"),
            ("block", "foreign_dialect"),
            ("tool_call.arguments", "not_an_object"),
            ("tool_result.name", "no_call"),
            ("text.signature", "no_place"),
            ("tool_result", "texts_joined"),
        ],
    );
    let mut request = asking(vec![user("x")]);
    request.user = Some("u".to_owned());
    request.cache_key = Some("k".to_owned());
    request.parallel_calls = Some(false);
    request.sampling.seed = Some(1 << 40);
    request.extra.insert("anthropic".to_owned(), serde_json::Map::new());
    request.tools = vec![
        Tool::Function {
            name: "f".to_owned(),
            description: None,
            parameters: json!({"type": "object"}),
            strict: Some(true),
        },
        Tool::Opaque { dialect: "anthropic".to_owned(), value: json!({}) },
    ];
    let (written, body) = write(&request, "");
    assert_eq!(written.losses.len(), 7, "{:?}", written.losses);
    assert_eq!(
        body,
        json!({"contents": [{"role": "user", "parts": [{"text": "x"}]}],
            "tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {"type": "object"}}]}]})
    );
}

#[test]
fn system_words_in_the_middle_become_the_persons() {
    let system = |text: &str| message(Role::System, vec![Block::text(text)]);
    let model = |block| message(Role::Assistant, vec![block]);
    let parts = |role: &str, texts: &[&str]| {
        let parts: Vec<_> = texts.iter().map(|text| json!({"text": text})).collect();
        json!({"role": role, "parts": parts})
    };
    let folded = ("system_message", "user_part");
    check(
        vec![user("a"), system("s"), model(Block::text("b"))],
        json!([parts("user", &["a", "s"]), parts("model", &["b"])]),
        &[folded],
    );
    check(
        vec![user("a"), model(Block::text("b")), system("s"), system("t"), user("c")],
        json!([parts("user", &["a"]), parts("model", &["b"]), parts("user", &["s", "t", "c"])]),
        &[folded],
    );
    check(
        vec![user("a"), model(Block::text("b")), system("s")],
        json!([parts("user", &["a"]), parts("model", &["b"]), parts("user", &["s"])]),
        &[folded],
    );
    // Nothing comes between a call and its answer.
    check(
        vec![
            user("a"),
            model(call("1", "{}", None)),
            system("s"),
            message(Role::User, vec![result("1", vec![Block::text("r")], false)]),
        ],
        json!([
            parts("user", &["a"]),
            {"role": "model", "parts": [{"functionCall": {"id": "1", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "1", "name": "f", "response": {"output": "r"}}}, {"text": "s"}]},
        ]),
        &[folded],
    );
    let mut request = asking(vec![system("s"), user("a")]);
    request.system = vec!["first".to_owned()];
    let (written, body) = write(&request, "");
    assert_eq!(body["systemInstruction"], json!({"parts": [{"text": "first"}, {"text": "s"}]}));
    assert_eq!(written.losses.len(), 1);
}

#[test]
fn the_address_depends_on_what_is_asked_and_of_whom() {
    let mut request = asking(vec![user("x")]);
    let address = |request: &Request, variant: &str| {
        let written = write(request, variant).0.value;
        (written.path, written.query)
    };
    let base = "/v1beta/models/gemini-3-pro";
    assert_eq!(address(&request, ""), (format!("{base}:generateContent"), String::new()));
    request.stream = true;
    assert_eq!(
        address(&request, ""),
        (format!("{base}:streamGenerateContent"), "alt=sse".to_owned())
    );
    assert_eq!(
        address(&request, "vertex cumulative").0,
        "/publishers/google/models/gemini-3-pro:streamGenerateContent"
    );
    let extra = json!({"method": "countTokens", "alt": "json", "labels": {"a": "b"}});
    request.extra.insert("gemini".to_owned(), extra.as_object().unwrap().clone());
    let (written, body) = write(&request, "");
    assert_eq!(
        (written.value.path, written.value.query.as_str()),
        (format!("{base}:countTokens"), "")
    );
    let contents = json!([{"role": "user", "parts": [{"text": "x"}]}]);
    assert_eq!(
        body,
        json!({"generateContentRequest": {"model": "models/gemini-3-pro", "contents": contents, "labels": {"a": "b"}}})
    );
    assert_eq!(write(&request, "vertex").1, json!({"contents": contents, "labels": {"a": "b"}}));
}

#[test]
fn one_answer_is_asked_for() {
    let mut request = asking(vec![user("x")]);
    let extra = json!({"generationConfig": {"candidateCount": 3, "mediaResolution": "LOW"}});
    request.extra.insert("gemini".to_owned(), extra.as_object().unwrap().clone());
    let (written, body) = write(&request, "");
    assert_eq!(body["generationConfig"], json!({"mediaResolution": "LOW"}));
    assert_eq!(written.losses.len(), 1);
}

#[test]
fn what_has_a_word_goes_before_what_has_none() {
    let mut request = asking(vec![user("x")]);
    request.max_tokens = Some(7);
    let extra = json!({"generationConfig": {"maxOutputTokens": 9, "audioTimestamp": true}, "contents": [], "store": true});
    request.extra.insert("gemini".to_owned(), extra.as_object().unwrap().clone());
    let (_, body) = write(&request, "");
    assert_eq!(body["generationConfig"], json!({"maxOutputTokens": 7, "audioTimestamp": true}));
    assert_eq!(body["contents"].as_array().unwrap().len(), 1);
    assert_eq!(body["store"], true);
}
