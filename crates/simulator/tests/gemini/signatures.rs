//! Signatures in requests: where they are required, which identity made them, and what they are
//! bound to.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::{
    ARGON, FLASH, OLDER, PRO, accept, append, ask, call, play, refuse, say, signature, with,
    without,
};

const INVALID: &str = "Invalid thought signature";
const MISSING: &str = "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:lookup` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.";
const SKIP: &str = "skip_thought_signature_validator";

/// A question, a call and its result: the call is the last part of content 1.
async fn called(server: &Server, model: &str, text: &str) -> Value {
    let mut body = ask(text);
    let response = accept(server, model, &body).await;
    append(&mut body, &response);
    accept(server, model, &body).await;
    body
}

const CALL: &str = "/contents/1/parts/2";

#[tokio::test]
async fn first_call_of_a_step_needs_its_signature_from_gemini_3_on() {
    let server = Server::strict().await;
    for model in [PRO, FLASH, ARGON, "gemini-3.8-flash"] {
        for text in ["use a tool", "use a tool in parallel"] {
            let body = called(&server, model, text).await;
            let unsigned = without(&body, CALL, "thoughtSignature");
            refuse(&server, model, &unsigned, MISSING).await;
            let empty = with(&body, &format!("{CALL}/thoughtSignature"), "".into());
            refuse(&server, model, &empty, MISSING).await;
        }
    }
    for model in [OLDER, "gemini-2.5-pro", "gemma-4"] {
        let body = called(&server, model, "use a tool").await;
        accept(&server, model, &without(&body, CALL, "thoughtSignature")).await;
    }
}

#[tokio::test]
async fn minimal_level_still_requires_signatures() {
    let server = Server::strict().await;
    let body = called(&server, FLASH, "use a tool").await;
    let minimal = json!({"thinkingLevel": "minimal"});
    let body = with(&body, "/generationConfig/thinkingConfig", minimal);
    accept(&server, FLASH, &body).await;
    refuse(&server, FLASH, &without(&body, CALL, "thoughtSignature"), MISSING).await;
}

#[tokio::test]
async fn every_step_of_the_current_turn_is_checked() {
    let server = Server::strict().await;
    let mut body = called(&server, PRO, "use a tool twice").await;
    let second = accept(&server, PRO, &body).await;
    append(&mut body, &second);
    accept(&server, PRO, &body).await;
    let unsigned = without(&body, "/contents/3/parts/1", "thoughtSignature");
    refuse(&server, PRO, &unsigned, "`default_api:lookup` , position 4.").await;
}

#[tokio::test]
async fn earlier_turns_may_lack_signatures() {
    let server = Server::strict().await;
    let mut body = play(&server, PRO, ask("use a tool")).await;
    say(&mut body, "And now?");
    accept(&server, PRO, &body).await;
    accept(&server, PRO, &without(&body, CALL, "thoughtSignature")).await;
    // Text next to function responses does not start a turn.
    let mut open = called(&server, PRO, "use a tool").await;
    open["contents"][2]["parts"].as_array_mut().unwrap().push(json!({"text": "Be quick."}));
    accept(&server, PRO, &open).await;
    refuse(&server, PRO, &without(&open, CALL, "thoughtSignature"), MISSING).await;
}

#[tokio::test]
async fn text_and_thoughts_need_no_signature_and_are_optional() {
    let server = Server::strict().await;
    let mut body = called(&server, PRO, "use a tool").await;
    let parts = body["contents"][1]["parts"].as_array_mut().unwrap();
    parts.drain(..2);
    accept(&server, PRO, &body).await;
    let mut body = play(&server, PRO, ask("hello")).await;
    say(&mut body, "And now?");
    accept(&server, PRO, &body).await;
    let mut bare = body.clone();
    bare["contents"][1]["parts"].as_array_mut().unwrap().truncate(2);
    accept(&server, PRO, &bare).await;
    // A client may join the last, empty part to the text before it.
    let mut joined = bare.clone();
    joined["contents"][1]["parts"][1]["thoughtSignature"] =
        signature(&body, "/contents/1/parts/2").into();
    accept(&server, PRO, &joined).await;
}

#[tokio::test]
async fn foreign_identity_is_rejected() {
    let named = |identity: &str| {
        Server::start(Options { identity: identity.to_owned(), ..Options::default() })
    };
    let (one, twin, two) = (named("one").await, named("one").await, named("two").await);
    for model in [PRO, OLDER] {
        let mut body = called(&one, model, "use a tool").await;
        accept(&twin, model, &body).await;
        refuse(&two, model, &body, INVALID).await;
        // It is refused on text and in earlier turns too.
        say(&mut body, "And now?");
        refuse(&two, model, &body, INVALID).await;
        let mut body = play(&one, model, ask("hello")).await;
        say(&mut body, "And now?");
        accept(&twin, model, &body).await;
        refuse(&two, model, &body, INVALID).await;
        let path = format!("/v1beta/models/{model}:countTokens");
        let counted = json!({"contents": body["contents"]});
        crate::assert_refused(&call(&two, &path, &counted, &[]).await, INVALID);
    }
}

#[tokio::test]
async fn signature_of_another_dialect_is_rejected() {
    let server = Server::strict().await;
    let other = json!({"model": "claude-opus-5-5", "max_tokens": 4096,
        "messages": [{"role": "user", "content": "hello"}]});
    let other = server.accept(&other).await;
    let thinking = other["content"][0]["signature"].clone();
    let body = called(&server, PRO, "use a tool").await;
    let body = with(&body, &format!("{CALL}/thoughtSignature"), thinking);
    refuse(&server, PRO, &body, INVALID).await;
}

#[tokio::test]
async fn altered_signature_is_rejected_and_either_alphabet_is_accepted() {
    let server = Server::strict().await;
    let body = called(&server, PRO, "use a tool").await;
    let pointer = format!("{CALL}/thoughtSignature");
    let signed = signature(&body, CALL);
    let url_safe = signed.replace('+', "-").replace('/', "_");
    assert_ne!(url_safe, signed);
    for same in [url_safe.as_str(), url_safe.trim_end_matches('=')] {
        accept(&server, PRO, &with(&body, &pointer, same.into())).await;
    }
    for position in [0, signed.len() / 2, signed.trim_end_matches('=').len() - 1] {
        let mut altered = signed.clone();
        let letter = if &altered[position..=position] == "A" { "B" } else { "A" };
        altered.replace_range(position..=position, letter);
        refuse(&server, PRO, &with(&body, &pointer, altered.into()), INVALID).await;
    }
    for bad in ["c2lnbmVk", &signed[4..], &signed[..signed.len() - 4]] {
        refuse(&server, PRO, &with(&body, &pointer, bad.into()), INVALID).await;
    }
    let no_base64 = with(&body, &pointer, "not base64!".into());
    let text = "'contents[1].parts[2].thought_signature' (TYPE_BYTES), Base64 decoding failed";
    refuse(&server, PRO, &no_base64, text).await;
}

#[tokio::test]
async fn signature_is_bound_to_its_call() {
    let server = Server::strict().await;
    let body = called(&server, PRO, "use a tool in parallel").await;
    let signed = signature(&body, CALL);
    let mut copied = body.clone();
    copied["contents"][1]["parts"][3]["thoughtSignature"] = signed.clone().into();
    refuse(&server, PRO, &copied, INVALID).await;
    let mut moved = body.clone();
    moved["contents"][1]["parts"].as_array_mut().unwrap().swap(2, 3);
    refuse(&server, PRO, &moved, MISSING).await;
    let changed = with(&body, &format!("{CALL}/functionCall/args/k"), "else".into());
    refuse(&server, PRO, &changed, INVALID).await;
    // Clients may drop ids.
    let mut bare = without(&body, &format!("{CALL}/functionCall"), "id");
    bare["contents"][2]["parts"][0]["functionResponse"].as_object_mut().unwrap().remove("id");
    accept(&server, PRO, &bare).await;
}

#[tokio::test]
async fn documented_skip_value_replaces_a_lost_signature() {
    let server = Server::strict().await;
    let body = called(&server, PRO, "use a tool").await;
    let pointer = format!("{CALL}/thoughtSignature");
    // Clients that store bytes send the base64 of the skip value.
    for skip in [SKIP, "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="] {
        accept(&server, PRO, &with(&body, &pointer, skip.into())).await;
    }
    refuse(&server, PRO, &with(&body, &pointer, "skip_it".into()), "thought").await;
    let mut foreign = ask("");
    foreign["contents"] = json!([
        crate::user("use a tool"),
        {"role": "model", "parts": [
            {"functionCall": {"name": "lookup", "args": {}}, "thoughtSignature": SKIP},
            {"functionCall": {"name": "lookup", "args": {}}}]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "lookup", "response": {"output": "1"}}},
            {"functionResponse": {"name": "lookup", "response": {"output": "2"}}}]},
    ]);
    accept(&server, PRO, &foreign).await;
}

#[tokio::test]
async fn empty_style_and_strict_off_skip_verification() {
    let lenient = Server::start(Options { strict: false, ..Options::default() }).await;
    let server = Server::strict().await;
    let body = called(&server, PRO, "use a tool").await;
    let unsigned = without(&body, CALL, "thoughtSignature");
    let foreign = with(&body, &format!("{CALL}/thoughtSignature"), "c2lnbmVk".into());
    for body in [unsigned, foreign] {
        accept(&lenient, PRO, &body).await;
        let path = format!("/v1beta/models/{PRO}:generateContent");
        let empty = [("x-simulator-signature", "empty")];
        assert_eq!(call(&server, &path, &body, &empty).await.status, 200);
    }
}
