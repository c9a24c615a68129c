//! Signed reasoning: it is verified when it comes back, and refused if it was altered.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::support::{
    accept, append, ask, asking, chunks, message, plain, refuse, say, set, streamed,
};

const CLAUDE: &str = "anthropic/claude-sonnet-5";

async fn identity(name: &str) -> Server {
    Server::start(Options { identity: name.to_owned(), ..Options::default() }).await
}

/// A conversation with one reply in it, and another question.
async fn talk(server: &Server, variant: &str, body: Value) -> Value {
    let mut body = body;
    let said = message(server, variant, &body).await;
    append(&mut body, &said);
    if said.get("tool_calls").is_none() {
        say(&mut body, "go on");
    }
    body
}

fn details(body: &mut Value, at: usize) -> &mut Vec<Value> {
    body["messages"][at]["reasoning_details"].as_array_mut().unwrap()
}

#[tokio::test]
async fn openrouter_details_are_signed_and_numbered() {
    let server = Server::strict().await;
    let said = message(&server, "openrouter", &plain(CLAUDE, "think twice, redacted")).await;
    let found = said["reasoning_details"].as_array().unwrap();
    let kinds: Vec<&str> = found.iter().map(|one| one["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning.encrypted", "reasoning.text", "reasoning.text"]);
    let mut texts = String::new();
    for (index, one) in found.iter().enumerate() {
        assert_eq!((&one["index"], &one["format"]), (&json!(index), &json!("anthropic-claude-v1")));
        let mark = one.get("signature").or(one.get("data")).unwrap().as_str().unwrap();
        assert!(mark.starts_with("++//"));
        texts += one["text"].as_str().unwrap_or_default();
    }
    assert_eq!(said["reasoning"], texts);
    let said = message(&server, "openrouter", &plain("openai/gpt-6-luna", "hello")).await;
    let found = &said["reasoning_details"];
    assert_eq!(
        (&found[0]["type"], &found[1]["type"]),
        (&json!("reasoning.summary"), &json!("reasoning.encrypted"))
    );
    assert_eq!(found[1]["format"], "openai-responses-v1");
    assert!(found[1]["id"].as_str().unwrap().starts_with("rs_"));
}

#[tokio::test]
async fn openrouter_accepts_unchanged_details_or_none() {
    let server = Server::strict().await;
    let body = talk(&server, "openrouter", plain(CLAUDE, "think twice, redacted")).await;
    accept(&server, "openrouter", &body).await;
    let changed = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut body = body.clone();
        change(details(&mut body, 1));
        body
    };
    let invalid = "Invalid `signature` in `thinking` block";
    let order = "must be sent back whole, unchanged and in order";
    for (body, words) in [
        (changed(&|all| all[1]["text"] = "Other words.".into()), invalid),
        (changed(&|all| all[1]["signature"] = "AAAA".into()), invalid),
        (changed(&|all| all[1]["signature"] = Value::Null), invalid),
        (
            changed(&|all| {
                all[1].as_object_mut().unwrap().remove("format");
                all[1]["signature"] = "".into();
            }),
            invalid,
        ),
        (
            changed(&|all| all[0]["data"] = "AAAA".into()),
            "Invalid `data` in `redacted_thinking` block",
        ),
        (changed(&|all| all.swap(1, 2)), order),
        (
            changed(&|all| {
                all.remove(0);
            }),
            order,
        ),
        (
            changed(&|all| {
                all.remove(1);
            }),
            order,
        ),
        (
            changed(&|all| all[0]["type"] = "reasoning.loud".into()),
            "Invalid value: 'reasoning.loud'",
        ),
        (
            changed(&|all| all[0] = json!({"type": "reasoning.encrypted"})),
            "Missing required parameter",
        ),
    ] {
        refuse(&server, "openrouter", &body, words).await;
    }
    // The whole list may be dropped.
    let mut none = body.clone();
    none["messages"][1].as_object_mut().unwrap().remove("reasoning_details");
    accept(&server, "openrouter", &none).await;
    let mut text = body.clone();
    text["messages"][1]["reasoning_details"] = "Hm.".into();
    refuse(&server, "openrouter", &text, "Invalid type for 'messages[1].reasoning_details'").await;
    // Details that no provider signs need no signature.
    let unsigned = changed(&|all| {
        *all =
            vec![json!({"type": "reasoning.text", "text": "Hm.", "format": "unknown", "index": 0})];
    });
    accept(&server, "openrouter", &unsigned).await;
}

#[tokio::test]
async fn openrouter_rejects_foreign_and_repeated_details() {
    let one = identity("one").await;
    let two = identity("two").await;
    let body = talk(&one, "openrouter", plain(CLAUDE, "hello")).await;
    refuse(&two, "openrouter", &body, "Invalid `signature` in `thinking` block").await;
    let blocks =
        talk(&one, "litellm", set(plain("claude-sonnet-5", "hello"), "reasoning_effort", "high"))
            .await;
    let block = &blocks["messages"][1]["thinking_blocks"][0];
    let mut foreign = body.clone();
    details(&mut foreign, 1)[0]["text"] = block["thinking"].clone();
    details(&mut foreign, 1)[0]["signature"] = block["signature"].clone();
    refuse(&one, "openrouter", &foreign, "Invalid `signature`").await;
    let mut twice = body.clone();
    let again = twice["messages"][1].clone();
    append(&mut twice, &again);
    say(&mut twice, "and again");
    refuse(&one, "openrouter", &twice, "the same detail is in an earlier message").await;
    let sealed = talk(&one, "openrouter", plain("openai/gpt-6-luna", "hello")).await;
    accept(&one, "openrouter", &sealed).await;
    refuse(
        &two,
        "openrouter",
        &sealed,
        "could not be verified. Reason: Encrypted content could not be decrypted or parsed.",
    )
    .await;
    let mut summary = sealed.clone();
    details(&mut summary, 1)[0]["summary"] = "Other words.".into();
    refuse(&one, "openrouter", &summary, "unchanged and in order").await;
}

#[tokio::test]
async fn empty_style_neither_signs_nor_verifies() {
    let server = Server::scenario("signature = \"empty\"").await;
    for (variant, model) in
        [("openrouter", CLAUDE), ("litellm", "claude-sonnet-5"), ("google", "gemini-3.8-flash")]
    {
        let body = talk(&server, variant, asking(model, "use a tool")).await;
        let text = body["messages"].to_string();
        assert!(!text.contains("++//"), "{variant}");
        accept(&server, variant, &body).await;
    }
}

#[tokio::test]
async fn signature_style_decides_where_the_signature_streams() {
    let server = Server::strict().await;
    for (style, first) in [("delta", false), ("start", true), ("late", false)] {
        let headers = [("x-simulator-variant", "openrouter"), ("x-simulator-signature", style)];
        let body = streamed(&plain(CLAUDE, "hello")).to_string();
        let answer = server.send("POST", "/v1/chat/completions", &headers, body.as_bytes()).await;
        let found = chunks(&answer);
        let marks: Vec<&Value> = found
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning_details"].as_array())
            .flatten()
            .collect();
        let signed: Vec<usize> =
            (0..marks.len()).filter(|at| marks[*at]["signature"].is_string()).collect();
        assert_eq!(signed, [if first { 0 } else { marks.len() - 1 }], "{style}");
        assert!(marks.iter().all(|mark| mark["index"] == 0));
    }
}

#[tokio::test]
async fn litellm_signs_and_verifies_claude_blocks() {
    let server = Server::strict().await;
    let body = set(
        plain("claude-sonnet-5", "hello, redacted"),
        "thinking",
        json!({"type": "enabled", "budget_tokens": 2048}),
    );
    let body = talk(&server, "litellm", body).await;
    let said = &body["messages"][1];
    assert_eq!(said["thinking_blocks"][0]["type"], "redacted_thinking");
    assert_eq!(said["thinking_blocks"][1]["thinking"], said["reasoning_content"]);
    accept(&server, "litellm", &body).await;
    refuse(&identity("two").await, "litellm", &body, "Invalid `data` in `redacted_thinking` block")
        .await;
    for (at, key, words) in [
        (1, "thinking", "Invalid `signature` in `thinking` block"),
        (1, "signature", "Invalid `signature` in `thinking` block"),
        (0, "data", "Invalid `data` in `redacted_thinking` block"),
        (0, "type", "Invalid value: 'other'"),
    ] {
        let mut body = body.clone();
        body["messages"][1]["thinking_blocks"][at][key] = "other".into();
        refuse(&server, "litellm", &body, words).await;
    }
}

#[tokio::test]
async fn litellm_requires_claude_blocks_in_an_open_tool_loop() {
    let server = Server::strict().await;
    let mut body = talk(&server, "litellm", asking("claude-sonnet-5", "use a tool")).await;
    accept(&server, "litellm", &body).await;
    body["messages"][2].as_object_mut().unwrap().remove("thinking_blocks");
    refuse(
        &server,
        "litellm",
        &body,
        "Expected `thinking` or `redacted_thinking`, but found `tool_use`",
    )
    .await;
    accept(&server, "litellm", &set(body.clone(), "reasoning_effort", "none")).await;
    accept(&server, "litellm", &set(body.clone(), "model", "other-model")).await;
    say(&mut body, "and now?");
    accept(&server, "litellm", &body).await;
}

/// The signature of a call, in the member that this variant uses.
fn signature<'a>(body: &'a mut Value, variant: &str) -> &'a mut Value {
    let call = &mut body["messages"][2]["tool_calls"][0];
    match variant {
        "google" => &mut call["extra_content"]["google"]["thought_signature"],
        _ => &mut call["provider_specific_fields"]["thought_signature"],
    }
}

#[tokio::test]
async fn gemini_models_require_a_signature_on_the_first_call_of_each_step() {
    let server = Server::strict().await;
    for variant in ["google", "litellm"] {
        let body =
            talk(&server, variant, asking("gemini-3.8-flash", "use a tool in parallel")).await;
        accept(&server, variant, &body).await;
        let calls = body["messages"][2]["tool_calls"].as_array().unwrap();
        assert!(calls[0].to_string().contains("thought_signature"));
        assert!(!calls[1].to_string().contains("thought_signature"));
        let with = |value: Value| {
            let mut body = body.clone();
            *signature(&mut body, variant) = value;
            // With LiteLLM the id carries it too.
            let id = body["messages"][2]["tool_calls"][0]["id"].as_str().unwrap();
            let id = id.split("__thought__").next().unwrap().to_owned();
            body["messages"][2]["tool_calls"][0]["id"] = id.as_str().into();
            body["messages"][3]["tool_call_id"] = id.into();
            body
        };
        let missing = with(Value::Null);
        refuse(
            &server,
            variant,
            &missing,
            "Function call is missing a thought_signature in functionCall parts.",
        )
        .await;
        refuse(&server, variant, &missing, "function call `default_api:lookup` , position 2.")
            .await;
        refuse(&server, variant, &with("AAAA".into()), "Corrupted thought signature.").await;
        accept(&server, variant, &with("skip_thought_signature_validator".into())).await;
        let issued = signature(&mut body.clone(), variant).as_str().unwrap().to_owned();
        accept(&server, variant, &with(issued.replace('+', "-").replace('/', "_").into())).await;
        refuse(&identity("two").await, variant, &body, "Corrupted thought signature.").await;
        // It is bound to this call, but not to the formatting of its JSON.
        let mut other = body.clone();
        other["messages"][2]["tool_calls"][0]["function"]["arguments"] = "{\"k\":\"other\"}".into();
        refuse(&server, variant, &other, "Invalid thought signature.").await;
        let mut spaced = body.clone();
        let arguments = &mut spaced["messages"][2]["tool_calls"][0]["function"]["arguments"];
        *arguments = arguments.as_str().unwrap().replace(':', " : ").into();
        accept(&server, variant, &spaced).await;
        // Earlier turns and earlier models are not checked.
        let mut later = missing.clone();
        let said =
            message(&server, variant, &with("skip_thought_signature_validator".into())).await;
        append(&mut later, &said);
        say(&mut later, "and now?");
        accept(&server, variant, &later).await;
        accept(&server, variant, &set(missing, "model", "gemini-2.5-flash")).await;
    }
}

#[tokio::test]
async fn litellm_also_signs_gemini_calls_in_their_ids() {
    let server = Server::strict().await;
    let mut body = talk(&server, "litellm", asking("gemini-3.8-flash", "use a tool")).await;
    let call = body["messages"][2]["tool_calls"][0].as_object_mut().unwrap();
    let fields = call.remove("provider_specific_fields").unwrap();
    let id = call["id"].as_str().unwrap();
    assert!(id.ends_with(&format!("__thought__{}", fields["thought_signature"].as_str().unwrap())));
    accept(&server, "litellm", &body).await;
    let claude = talk(&server, "litellm", asking("claude-sonnet-5", "use a tool")).await;
    assert!(!claude.to_string().contains("thought_signature"));
}

#[tokio::test]
async fn redacted_thinking_is_ordinary_thinking_in_other_variants() {
    let server = Server::strict().await;
    let once = message(&server, "sglang", &plain("m", "hello")).await;
    let twice = message(&server, "sglang", &plain("m", "redacted")).await;
    let length = |said: &Value| said["reasoning_content"].as_str().unwrap().len();
    assert!(length(&twice) > length(&once) * 3 / 2);
    assert!(!ask(&server, "sglang", &plain("m", "redacted")).await.text().contains("++//"));
}
