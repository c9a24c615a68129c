//! Thinking in requests: accepted and refused by position, signature, text, prefix and model.

use crate::common::{Server, adaptive, append, assemble, manual, say};
use serde_json::{Value, json};
use throughline_simulator::Options;

const OPUS: &str = "claude-opus-5-5";
const SONNET: &str = "claude-sonnet-4-5";
const INVALID: &str = "Invalid `signature` in `thinking` block";
const BOUND: &str = "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".";
const MODIFIED: &str = "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.";
const BINDING: (&str, &str) = ("anthropic-beta", "thinking-binding-controls-2026-08-01");

/// Two finished turns with tool rounds, and a third question:
/// 0 user, 1 thinking text call, 2 result, 3 thinking text, 4 user, 5 thinking text, 6 user.
async fn history(server: &Server, body: Value) -> Value {
    let mut body = server.play(body).await;
    say(&mut body, "And now?");
    let mut body = server.play(body).await;
    say(&mut body, "And once more?");
    server.accept(&body).await;
    body
}

fn with(body: &Value, pointer: &str, value: Value) -> Value {
    let mut body = body.clone();
    *body.pointer_mut(pointer).unwrap() = value;
    body
}

fn text(body: &Value, pointer: &str) -> String {
    body.pointer(pointer).unwrap().as_str().unwrap().to_owned()
}

fn without(body: &Value, message: usize, block: usize) -> Value {
    let mut body = body.clone();
    body["messages"][message]["content"].as_array_mut().unwrap().remove(block);
    body
}

#[tokio::test]
async fn foreign_identity_is_rejected() {
    let named = |identity: &str| {
        Server::start(Options { identity: identity.to_owned(), ..Options::default() })
    };
    let (one, twin, two) = (named("one").await, named("one").await, named("two").await);
    let body = history(&one, adaptive(OPUS, "use a tool")).await;
    twin.accept(&body).await;
    two.refuse(&body, &format!("messages.1.content.0: {INVALID}")).await;
    let answer = two
        .post_to(
            "/v1/messages/count_tokens",
            &json!({"model": OPUS, "messages": body["messages"], "tools": body["tools"]}),
            &[],
        )
        .await;
    answer.assert_refused(400, "invalid_request_error", INVALID);
}

#[tokio::test]
async fn missing_empty_or_altered_signature_is_rejected() {
    let server = Server::strict().await;
    let body = history(&server, adaptive(OPUS, "use a tool")).await;
    let signature = text(&body, "/messages/3/content/0/signature");
    let url_safe = signature.replace('+', "-").replace('/', "_");
    let other = text(&body, "/messages/5/content/0/signature");
    let middle = signature.len() / 2;
    let mut altered = signature.clone();
    let letter = if &altered[middle..=middle] == "A" { "B" } else { "A" };
    altered.replace_range(middle..=middle, letter);
    for bad in ["", "nonsense", &url_safe, &altered, &signature[..signature.len() - 4]] {
        let bad = with(&body, "/messages/3/content/0/signature", bad.into());
        server.refuse(&bad, &format!("messages.3.content.0: {INVALID}")).await;
    }
    // A valid signature of another block counts as altered text.
    let swapped = with(&body, "/messages/3/content/0/signature", other.into());
    server.refuse(&swapped, &format!("messages.3.content.0: {INVALID}")).await;
    let mut missing = body.clone();
    missing["messages"][3]["content"][0].as_object_mut().unwrap().remove("signature");
    server.refuse(&missing, &format!("messages.3.content.0: {INVALID}")).await;
}

#[tokio::test]
async fn altered_text_is_rejected_and_named_in_the_latest_message() {
    let server = Server::strict().await;
    let body = history(&server, adaptive(OPUS, "use a tool")).await;
    for (message, expected) in [(1, INVALID), (3, INVALID), (5, MODIFIED)] {
        let pointer = format!("/messages/{message}/content/0/thinking");
        let changed = text(&body, &pointer) + " ";
        let bad = with(&body, &pointer, changed.into());
        server.refuse(&bad, &format!("messages.{message}.content.0: {expected}")).await;
        let emptied = with(&body, &pointer, "".into());
        server.refuse(&emptied, expected).await;
    }
}

#[tokio::test]
async fn altered_redacted_data_is_rejected() {
    let server = Server::strict().await;
    let mut body = adaptive(OPUS, "redacted");
    let message = server.accept(&body).await;
    append(&mut body, &message);
    say(&mut body, "next");
    server.accept(&body).await;
    let data = text(&body, "/messages/1/content/0/data");
    let signature = text(&body, "/messages/1/content/1/signature");
    for bad in [&data[..data.len() - 4], "enc", "", &signature] {
        let bad = with(&body, "/messages/1/content/0/data", bad.into());
        server
            .refuse(&bad, "messages.1.content.0: Invalid `data` in `redacted_thinking` block")
            .await;
    }
}

#[tokio::test]
async fn omitted_thinking_is_verified_like_any_other() {
    let server = Server::binding().await;
    let mut body = adaptive(OPUS, "use a tool");
    body["thinking"] = json!({"type": "adaptive"});
    let body = history(&server, body).await;
    assert_eq!(body["messages"][1]["content"][0]["thinking"], "");
    let swapped = with(&body, "/messages/1/content/0", body["messages"][3]["content"][0].clone());
    server.refuse(&swapped, BOUND).await;
    let filled = with(&body, "/messages/5/content/0/thinking", "text".into());
    server.refuse(&filled, MODIFIED).await;
}

#[tokio::test]
async fn changed_prefix_is_rejected_with_prefix_binding() {
    let (free, binding) = (Server::strict().await, Server::binding().await);
    for start in [adaptive(OPUS, "use a tool"), adaptive("glm-5", "use a tool")] {
        let body = history(&binding, start).await;
        let mut moved = body.clone();
        let tools = moved["tools"].as_array_mut().unwrap();
        tools.push(json!({"name": "another", "input_schema": {"type": "object"}}));
        let changes = [
            ("system", with(&body, "/system", "You are verbose.".into()), 1),
            ("tools", with(&body, "/tools/0/description", "Finds two rows".into()), 1),
            ("one more tool", moved, 1),
            ("first message", with(&body, "/messages/0/content", "use a tool!".into()), 1),
            ("tool result", with(&body, "/messages/2/content/0/content", "22 degrees".into()), 3),
            ("answer", with(&body, "/messages/3/content/1/text", "Other words.".into()), 5),
            ("thinking removed from the middle", without(&body, 3, 0), 5),
        ];
        for (what, changed, at) in changes {
            binding.refuse(&changed, &format!("messages.{at}.content.0: {BOUND}")).await;
            let answer = free.post(&changed, &[]).await;
            assert_eq!(answer.status, 200, "{what} is refused without binding");
        }
        // No later block is bound to the last one, and all blocks may be dropped together.
        binding.accept(&without(&body, 5, 0)).await;
        binding.accept(&without(&without(&without(&body, 5, 0), 3, 0), 1, 0)).await;
    }
}

#[tokio::test]
async fn later_thinking_of_a_response_is_bound_to_earlier_thinking() {
    let server = Server::binding().await;
    let mut body = adaptive(OPUS, "think twice");
    let message = server.accept(&body).await;
    append(&mut body, &message);
    say(&mut body, "next");
    server.accept(&body).await;
    server.refuse(&without(&body, 1, 0), &format!("messages.1.content.1: {BOUND}")).await;
    server.accept(&without(&body, 1, 2)).await;
}

#[tokio::test]
async fn equivalent_form_of_the_prefix_is_accepted() {
    let server = Server::binding().await;
    let mut body = adaptive(OPUS, "use a tool");
    let note = json!({"role": "system", "content": "note", "output_config": {"effort": "low"}});
    body["messages"].as_array_mut().unwrap().push(note);
    let beta = [("anthropic-beta", "mid-conversation-output-config-2026-07-01")];
    let message = server.accept_with(&body, &beta).await;
    append(&mut body, &message);
    server.accept_with(&body, &beta).await;
    let mark = json!({"type": "ephemeral"});
    let mut other = body.clone();
    other["system"] = json!([{"type": "text", "text": "You are terse.", "cache_control": mark}]);
    other["tools"][0]["cache_control"] = mark.clone();
    other["messages"][0]["content"] =
        json!([{"text": "use a tool", "type": "text", "cache_control": mark}]);
    other["messages"][1]["content"] = json!([{"type": "text", "text": "note"}]);
    other["messages"][3]["content"][0]["content"] = json!([{"type": "text", "text": "21 degrees"}]);
    other["messages"][3]["content"][0]["cache_control"] = mark;
    server.accept_with(&other, &beta).await;
    let escaped = other.to_string().replace("terse", "\\u0074erse").replace("\":", "\" :\n");
    let headers = [("anthropic-version", "2023-06-01"), beta[0]];
    let answer = server.send("POST", "/v1/messages", &headers, escaped.as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    // Control: the same history with one change is refused.
    let changed = with(&other, "/messages/1/output_config/effort", "high".into());
    server.refuse_with(&changed, &beta, BOUND).await;
}

#[tokio::test]
async fn drop_block_drops_and_reports_mismatched_blocks() {
    let server = Server::binding().await;
    let body = history(&server, adaptive(OPUS, "use a tool")).await;
    let mut changed = with(&body, "/messages/2/content/0/content", "22 degrees".into());
    changed["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "drop_block"});
    let dropped = json!([
        {"type": "thinking_dropped", "path": "messages.3.content.0", "reason": "prefix_binding_mismatch"},
        {"type": "thinking_dropped", "path": "messages.5.content.0", "reason": "prefix_binding_mismatch"},
    ]);
    let message = server.accept_with(&changed, &[BINDING]).await;
    assert_eq!(message["input_transformations"], dropped);
    let streamed =
        with(&changed, "/thinking/block_binding/prefix_mismatch_behavior", "drop_block".into());
    let mut streamed = streamed;
    streamed["stream"] = true.into();
    let events = server.post(&streamed, &[BINDING]).await.events();
    assert_eq!(events[0]["message"]["input_transformations"], dropped);
    assert_eq!(assemble(&events), message);
    // The new thinking stays valid with or without the stale blocks.
    append(&mut changed, &message);
    say(&mut changed, "more");
    let again = server.accept_with(&changed, &[BINDING]).await;
    assert_eq!(again["input_transformations"], dropped);
    let cleaned = without(&without(&changed, 5, 0), 3, 0);
    let again = server.accept_with(&cleaned, &[BINDING]).await;
    assert_eq!(again["input_transformations"], json!([]));
    let error = with(&changed, "/thinking/block_binding/prefix_mismatch_behavior", "error".into());
    server.refuse_with(&error, &[BINDING], BOUND).await;
}

#[tokio::test]
async fn binding_controls_need_their_beta_and_bind_preserved_models() {
    let server = Server::strict().await;
    let body = history(&server, adaptive(OPUS, "use a tool")).await;
    let mut changed = with(&body, "/system", "Other.".into());
    server.accept(&changed).await;
    changed["thinking"]["block_binding"] = json!({"prefix_mismatch_behavior": "error"});
    server.refuse(&changed, "block_binding: Extra inputs are not permitted").await;
    server.refuse_with(&changed, &[BINDING], BOUND).await;
    let wrong = with(&changed, "/thinking/block_binding/prefix_mismatch_behavior", "ignore".into());
    server.refuse_with(&wrong, &[BINDING], "prefix_mismatch_behavior: Input should be").await;
    let plain = server.accept_with(&body, &[BINDING]).await;
    assert_eq!(plain["input_transformations"], json!([]));
    assert_eq!(server.accept(&body).await.get("input_transformations"), None);
}

#[tokio::test]
async fn unreadable_thinking_is_dropped_silently() {
    let server = Server::binding().await;
    let fable = history(&server, adaptive("claude-fable-5-1", "use a tool")).await;
    let on_opus = with(&fable, "/model", OPUS.into());
    let message = server.accept_with(&on_opus, &[BINDING]).await;
    let reasons = message["input_transformations"].as_array().unwrap();
    assert_eq!(reasons.len(), 3);
    assert_eq!(reasons[0]["reason"], "model_binding_mismatch");
    let opus = history(&server, adaptive(OPUS, "use a tool")).await;
    let on_fable =
        server.accept_with(&with(&opus, "/model", "claude-fable-5-1".into()), &[BINDING]).await;
    assert_eq!(on_fable["input_transformations"], json!([]));
}

#[tokio::test]
async fn open_tool_loop_needs_its_thinking_in_manual_mode() {
    let server = Server::strict().await;
    for model in [SONNET, "claude-opus-4-6", "glm-5"] {
        let mut body = manual(model, "use a tool");
        let message = server.accept(&body).await;
        append(&mut body, &message);
        server.accept(&body).await;
        let stripped = without(&body, 1, 0);
        server.refuse(&stripped, "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)").await;
        server
            .refuse(
                &without(&stripped, 1, 0),
                "Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
            )
            .await;
        let mut off = stripped.clone();
        off["thinking"] = json!({"type": "disabled"});
        server.accept(&off).await;
        // After the loop is closed, its thinking is optional.
        let mut closed = server.play(body).await;
        say(&mut closed, "thanks");
        server.accept(&without(&without(&closed, 3, 0), 1, 0)).await;
    }
    let mut body = adaptive(OPUS, "use a tool");
    let message = server.accept(&body).await;
    append(&mut body, &message);
    server.accept(&without(&body, 1, 0)).await;
}

/// All thinking of a loop may be missing in adaptive mode, but not a part of it.
#[tokio::test]
async fn open_tool_loop_needs_all_of_its_thinking_or_none() {
    let server = Server::strict().await;
    let mut body = adaptive("claude-opus-4-6", "use a tool, redacted");
    let message = server.accept(&body).await;
    append(&mut body, &message);
    let half = without(&body, 1, 0);
    server.refuse(&half, &format!("messages.1.content.0: {MODIFIED}")).await;
    server.accept(&without(&half, 1, 0)).await;
    // After the loop is closed, any of it is optional.
    let mut closed = server.play(body).await;
    say(&mut closed, "thanks");
    server.accept(&without(&closed, 1, 0)).await;
}

#[tokio::test]
async fn misplaced_thinking_is_rejected() {
    let server = Server::strict().await;
    let mut body = manual(SONNET, "think twice");
    let message = server.accept(&body).await;
    append(&mut body, &message);
    say(&mut body, "next");
    server.accept(&body).await;
    server.refuse(&without(&body, 1, 0), "If an assistant message contains any thinking blocks, the first block must be thinking or redacted_thinking. Found text.").await;
    server
        .refuse(
            &without(&body, 1, 3),
            "messages.1.content.2: The final block in an assistant message cannot be `thinking`.",
        )
        .await;
    let mut prefilled = body.clone();
    prefilled["messages"].as_array_mut().unwrap().pop();
    server.accept(&prefilled).await;
    prefilled["thinking"] = json!({"type": "disabled"});
    server.refuse(&prefilled, "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`.").await;
}

#[tokio::test]
async fn thinking_block_rejects_other_members() {
    let server = Server::strict().await;
    let body = history(&server, adaptive(OPUS, "use a tool")).await;
    let mut marked = body.clone();
    marked["messages"][1]["content"][0]["cache_control"] = json!({"type": "ephemeral"});
    server
        .refuse(
            &marked,
            "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
        )
        .await;
    let mut textless = body.clone();
    textless["messages"][1]["content"][0].as_object_mut().unwrap().remove("thinking");
    server.refuse(&textless, "messages.1.content.0.thinking.thinking: Field required").await;
}

#[tokio::test]
async fn empty_style_neither_signs_nor_verifies() {
    let style = throughline_simulator::SignatureStyle::Empty;
    let server = Server::start(Options { signature_style: style, ..Options::default() }).await;
    let mut body = server.play(manual("glm-5", "use a tool")).await;
    assert_eq!(body["messages"][1]["content"][0]["signature"], "");
    body["messages"][1]["content"][0]["signature"] = "foreign".into();
    say(&mut body, "next");
    server.accept(&body).await;
    server.refuse_with(&body, &[("x-simulator-signature", "delta")], INVALID).await;
}

#[tokio::test]
async fn every_signed_style_is_accepted_back() {
    let server = Server::binding().await;
    for style in ["delta", "start", "late"] {
        let header = [("x-simulator-signature", style)];
        let mut body = adaptive(OPUS, "use a tool");
        body["stream"] = true.into();
        let message = assemble(&server.post(&body, &header).await.events());
        append(&mut body, &message);
        assert_eq!(server.post(&body, &[]).await.status, 200);
    }
}
