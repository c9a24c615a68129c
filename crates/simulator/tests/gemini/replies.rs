//! Replies: their parts and their token counts.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::{
    ARGON, FLASH, OLDER, PRO, accept, append, ask, call, outline, parts, plain, play, with,
};

#[tokio::test]
async fn trigger_words_select_the_parts_and_the_first_call_is_signed() {
    let server = Server::strict().await;
    for (text, expected) in [
        ("hello", "txX"),
        ("hello redacted", "txX"),
        ("think twice", "txtxX"),
        ("only think", "txX"),
        ("use a tool", "txC"),
        ("use a tool in parallel", "txCc"),
        ("use a tool and think twice", "txtC"),
    ] {
        let response = accept(&server, PRO, &ask(text)).await;
        assert_eq!(outline(&response), expected, "{text}");
        assert_eq!(response["candidates"][0]["finishReason"], "STOP");
        assert_eq!(response["modelVersion"], PRO);
        assert!(response["responseId"].is_string());
    }
}

#[tokio::test]
async fn plain_answer_carries_its_signature_on_a_last_empty_text() {
    let server = Server::strict().await;
    let response = accept(&server, PRO, &ask("hello")).await;
    let last = parts(&response).last().unwrap().clone();
    assert_eq!(last["text"], "");
    assert!(last["thoughtSignature"].as_str().unwrap().starts_with("++//"));
}

#[tokio::test]
async fn hidden_thoughts_are_counted_and_signed() {
    let server = Server::strict().await;
    for hidden in [json!({}), json!({"includeThoughts": false}), json!({"thinkingLevel": "low"})] {
        let body = with(&ask("use a tool"), "/generationConfig/thinkingConfig", hidden);
        let response = accept(&server, PRO, &body).await;
        assert_eq!(outline(&response), "xC");
        let usage = &response["usageMetadata"];
        let count = |key: &str| usage[key].as_u64().unwrap();
        assert!(count("thoughtsTokenCount") > 10);
        let sum = count("promptTokenCount") + count("candidatesTokenCount");
        assert_eq!(count("totalTokenCount"), sum + count("thoughtsTokenCount"));
    }
    assert_eq!(outline(&accept(&server, PRO, &plain("hello")).await), "xX");
}

#[tokio::test]
async fn model_without_thinking_signs_nothing() {
    let server = Server::strict().await;
    let body = json!({"contents": [crate::user("use a tool")],
        "tools": [{"functionDeclarations": [crate::lookup()]}],
        "generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}});
    for model in [OLDER, "gemini-2.0-flash"] {
        let response = accept(&server, model, &body).await;
        assert_eq!(outline(&response), "xc", "{model}");
        assert!(response["usageMetadata"]["thoughtsTokenCount"].is_null());
    }
    let lite = accept(&server, "gemini-2.5-flash-lite", &plain("hello")).await;
    assert_eq!(outline(&lite), "x");
}

#[tokio::test]
async fn calls_have_ids_only_from_gemini_3_on() {
    let server = Server::strict().await;
    let mut seen = Vec::new();
    for (model, expected) in [(PRO, true), (ARGON, true), (OLDER, false)] {
        let response = accept(&server, model, &ask("use a tool in parallel")).await;
        for part in parts(&response).iter().filter(|part| part["functionCall"].is_object()) {
            let call = &part["functionCall"];
            assert_eq!(call["id"].is_string(), expected, "{model}");
            assert_eq!(call["name"], "lookup");
            assert!(call["args"]["k"].is_string());
            seen.extend(call["id"].as_str().map(str::to_owned));
        }
    }
    let all = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!((seen.len(), all), (4, 4));
}

#[tokio::test]
async fn tool_loop_completes_on_every_generation() {
    let server = Server::strict().await;
    for model in [ARGON, PRO, FLASH, OLDER, "gemini-2.5-pro", "gemma-4", "gemini-mock"] {
        for text in ["use a tool", "use a tool twice", "use a tool in parallel"] {
            let body = play(&server, model, ask(text)).await;
            let last = body["contents"].as_array().unwrap().last().unwrap().to_string();
            assert!(last.contains("The tool says “21 degrees”"), "{model}: {last}");
        }
    }
}

#[tokio::test]
async fn function_response_text_is_its_output_error_or_whole_object() {
    let server = Server::strict().await;
    for (response, said) in [
        (json!({"output": "blue"}), "“blue”"),
        (json!({"error": "no paint"}), "“no paint”"),
        (json!({"colour": "red"}), "“{\"colour\":\"red\"}”"),
        (json!({"output": {"row": 7}}), "“{\"row\":7}”"),
    ] {
        let mut body = ask("use a tool");
        let called = accept(&server, PRO, &body).await;
        append(&mut body, &called);
        let body = with(&body, "/contents/2/parts/0/functionResponse/response", response);
        let answer = accept(&server, PRO, &body).await.to_string();
        let said = Value::from(said).to_string();
        assert!(answer.contains(said.trim_matches('"')), "{answer} lacks {said}");
    }
}

#[tokio::test]
async fn upper_case_schema_types_fill_arguments() {
    let server = Server::strict().await;
    let mut body = ask("use a tool");
    body["tools"] = json!([{"function_declarations": [{"name": "weather", "parameters":
        {"type": "OBJECT", "required": ["days", "city"], "properties":
            {"days": {"type": "INTEGER"}, "city": {"type": "STRING"}}}}]}]);
    let response = accept(&server, PRO, &body).await;
    let call = &parts(&response).last().unwrap()["functionCall"];
    assert!(call["args"]["days"].is_number() && call["args"]["city"].is_string(), "{call}");
}

#[tokio::test]
async fn calling_mode_decides_the_call() {
    let server = Server::strict().await;
    for (text, config, expected) in [
        ("hello", json!({"mode": "ANY"}), "txC"),
        ("hello", json!({"mode": "ANY", "allowedFunctionNames": ["other"]}), "txC"),
        ("use a tool", json!({"mode": "NONE"}), "txX"),
        ("use a tool", json!({"mode": "VALIDATED"}), "txC"),
        ("hello", json!({"mode": "AUTO"}), "txX"),
    ] {
        let mut body = ask(text);
        body["tools"][0]["functionDeclarations"] = json!([crate::lookup(), {"name": "other"}]);
        body["toolConfig"] = json!({"functionCallingConfig": config});
        let response = accept(&server, PRO, &body).await;
        assert_eq!(outline(&response), expected, "{config}");
        if config["allowedFunctionNames"].is_array() {
            assert_eq!(parts(&response)[2]["functionCall"]["name"], "other");
        }
    }
}

#[tokio::test]
async fn token_limit_and_stop_sequence_end_a_reply() {
    let server = Server::strict().await;
    let limited = |limit: Value| {
        let mut body = ask("hello");
        body["generationConfig"]["maxOutputTokens"] = limit;
        body
    };
    let cut = accept(&server, PRO, &limited("40".into())).await;
    assert_eq!(cut["candidates"][0]["finishReason"], "MAX_TOKENS");
    // The limit was used up by hidden thoughts: the content has no parts.
    let body = with(&limited(json!(3)), "/generationConfig/thinkingConfig", json!({}));
    let empty = accept(&server, PRO, &body).await;
    assert_eq!(empty["candidates"][0]["finishReason"], "MAX_TOKENS");
    assert_eq!(empty["candidates"][0]["content"], json!({"role": "model"}));
    assert!(empty["usageMetadata"]["candidatesTokenCount"].is_null());
    let mut body = ask("hello");
    body["generationConfig"]["stopSequences"] = json!(["hello"]);
    let stopped = accept(&server, PRO, &body).await;
    assert_eq!(stopped["candidates"][0]["finishReason"], "STOP");
    assert!(!parts(&stopped)[1]["text"].as_str().unwrap().contains("hello"));
}

#[tokio::test]
async fn every_path_serves_and_lists_models() {
    let server = Server::strict().await;
    for version in ["/v1beta", "/v1", ""] {
        let path = format!("{version}/models/{PRO}:generateContent");
        assert_eq!(call(&server, &path, &ask("hello"), &[]).await.status, 200, "{path}");
        let key = [("x-goog-api-key", "k")];
        let list = server.send("GET", &format!("{version}/models"), &key, b"").await.json();
        let models = list["models"].as_array().unwrap();
        let named = |name: &str| models.iter().find(|model| model["name"] == name).unwrap();
        let model = named("models/gemini-4-argon");
        assert_eq!(model["inputTokenLimit"], 1_048_576);
        assert_eq!(model["outputTokenLimit"], 65_536);
        assert_eq!(model["thinking"], true);
        assert_eq!(named("models/gemini-2.0-flash")["thinking"], false);
        let path = format!("{version}/models/gemini-4-argon");
        assert_eq!(&server.send("GET", &path, &key, b"").await.json(), model);
    }
}

#[tokio::test]
async fn tokens_are_counted_for_contents_and_for_whole_requests() {
    let server = Server::strict().await;
    let path = format!("/v1beta/models/{PRO}:countTokens");
    let body = ask("hello");
    let alone = call(&server, &path, &json!({"contents": body["contents"]}), &[]).await.json();
    let mut whole = body.clone();
    whole["model"] = format!("models/{PRO}").into();
    let whole = json!({ "generate_content_request": whole });
    let whole = call(&server, &path, &whole, &[]).await.json();
    assert!(alone["totalTokens"].as_u64() < whole["totalTokens"].as_u64(), "{alone} {whole}");
    let response = accept(&server, PRO, &body).await;
    assert_eq!(whole["totalTokens"], response["usageMetadata"]["promptTokenCount"]);
    let both = json!({"contents": body["contents"], "generateContentRequest": {}});
    crate::assert_refused(&call(&server, &path, &both, &[]).await, "Only one of");
    let config = json!({"contents": body["contents"], "generationConfig": {}});
    let config = call(&server, &path, &config, &[]).await;
    crate::assert_refused(&config, "Unknown name \"generationConfig\"");
}

#[tokio::test]
async fn key_is_accepted_in_a_header_or_the_query() {
    let server = Server::start(Options { require_key: true, ..Options::default() }).await;
    let path = format!("/v1beta/models/{PRO}:generateContent");
    let body = ask("hello");
    let none = call(&server, &path, &body, &[]).await;
    assert_eq!((none.status, &none.json()["error"]["status"]), (403, &json!("PERMISSION_DENIED")));
    for header in ["x-goog-api-key", "authorization"] {
        assert_eq!(call(&server, &path, &body, &[(header, "k")]).await.status, 200);
    }
    let query = format!("{path}?key=k");
    assert_eq!(call(&server, &query, &body, &[]).await.status, 200);
}

#[tokio::test]
async fn gemini_applies_scenarios_and_control_headers() {
    let server = Server::scenario(
        "[[step]]\nwhen = { contains = \"21\" }\nsay = [{ text = \"Settled.\" }]\n\
         [[step]]\nsay = [{ thinking = \"Hm.\" }, { redacted = true }, { tool = { name = \"lookup\", input = { k = \"x\" } } }]\n",
    )
    .await;
    let mut body = ask("hello");
    let called = accept(&server, PRO, &body).await;
    assert_eq!(outline(&called), "tC");
    append(&mut body, &called);
    let settled = accept(&server, PRO, &body).await;
    assert_eq!(parts(&settled)[0]["text"], "Settled.");
    let path = format!("/v1beta/models/{PRO}:generateContent");
    let wishes = [("x-simulator-model", "another"), ("x-simulator-deltas", "3")];
    let wished = call(&server, &path, &ask("hello"), &wishes).await.json();
    assert_eq!(wished["modelVersion"], "another");
    assert_eq!(parts(&wished)[0]["text"], "tok tok tok ");
}
