//! Requests of the wrong shape, each with one that passes.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::{
    ARGON, FLASH, OLDER, PRO, accept, ask, call, generate, lookup, plain, refuse, user,
    with_contents,
};

fn thinking(config: &Value) -> Value {
    json!({"contents": [user("hi")], "generationConfig": {"thinkingConfig": config}})
}

#[tokio::test]
async fn model_decides_which_levels_and_budgets_are_valid() {
    let server = Server::strict().await;
    const LITE: &str = "gemini-2.5-flash-lite";
    let level = |level: &str| thinking(&json!({ "thinkingLevel": level }));
    let budget = |budget: i64| thinking(&json!({ "thinkingBudget": budget }));
    for model in [ARGON, PRO, FLASH, "gemini-3.8-flash", "gemini-flash-latest", "gemma-4"] {
        for word in ["LOW", "medium", "High", "THINKING_LEVEL_UNSPECIFIED"] {
            accept(&server, model, &level(word)).await;
        }
    }
    for model in [ARGON, FLASH, "gemini-3.8-flash-lite"] {
        accept(&server, model, &level("minimal")).await;
    }
    for model in [PRO, "gemini-3.7-flash", "gemini-3.8-flash", "gemini-flash-latest"] {
        refuse(&server, model, &level("MINIMAL"), "Thinking level MINIMAL is not supported").await;
    }
    for model in [PRO, FLASH, OLDER, LITE, "gemini-2.5-pro"] {
        accept(&server, model, &budget(-1)).await;
        accept(&server, model, &budget(2048)).await;
    }
    for model in [ARGON, "gemini-4-carbon"] {
        for number in [-1, 0, 2048] {
            let text = "Thinking budget is not supported for this model";
            refuse(&server, model, &budget(number), text).await;
        }
    }
    for model in [PRO, FLASH, "gemini-2.5-pro"] {
        refuse(&server, model, &budget(0), "This model only works in thinking mode").await;
        refuse(&server, model, &budget(-2), "The thinking budget -2 is invalid").await;
    }
    for (model, least, most) in
        [("gemini-2.5-pro", 128, 32_768), (OLDER, 0, 24_576), (LITE, 0, 24_576)]
    {
        accept(&server, model, &budget(least)).await;
        accept(&server, model, &budget(most)).await;
        let text = format!("Please choose a value between {least} and {most}.");
        refuse(&server, model, &budget(most + 1), &text).await;
        refuse(&server, model, &level("low"), "Thinking level is not supported for this model")
            .await;
    }
    refuse(&server, "gemini-2.5-pro", &budget(127), "between 128 and 32768").await;
    let both = thinking(&json!({"thinkingLevel": "LOW", "thinking_budget": 2048}));
    for model in [ARGON, PRO, OLDER, "gemma-4"] {
        refuse(&server, model, &both, "only one of thinking budget and thinking level").await;
    }
    let text =
        "type.googleapis.com/google.ai.generativelanguage.v1beta.ThinkingConfig.ThinkingLevel";
    refuse(&server, PRO, &level("XHIGH"), text).await;
    let older = "gemini-2.0-flash";
    accept(&server, older, &budget(0)).await;
    refuse(&server, older, &budget(1024), "Thinking is not supported").await;
    let shown = thinking(&json!({"includeThoughts": true}));
    refuse(&server, older, &shown, "include_thoughts is only enabled").await;
    accept(&server, OLDER, &shown).await;
}

#[tokio::test]
async fn both_spellings_are_accepted_at_every_level() {
    let server = Server::strict().await;
    let snake = json!({
        "system_instruction": {"role": "user", "parts": {"text": "Be terse."}},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}, {"inline_data": {"mime_type": "image/png", "data": "iVBOR_-="}},
                {"file_data": {"file_uri": "https://example.com/a.png"}}]},
            {"role": "model", "parts": [{"function_call": {"name": "lookup", "args": {}},
                "thought_signature": "skip_thought_signature_validator"}]},
            {"parts": [{"function_response": {"name": "lookup", "response": {"a_key": 1}}}]},
        ],
        "tools": [{"function_declarations": [{"name": "lookup", "parameters_json_schema": {"$ref": "#/a"}}]},
            {"google_search": {}}],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["lookup"]}},
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "generation_config": {"max_output_tokens": "4096", "top_p": 0.9, "topK": 40, "seed": null,
            "thinking_config": {"include_thoughts": true, "thinking_level": "LOW"}},
    });
    accept(&server, PRO, &snake).await;
}

#[tokio::test]
async fn unknown_name_is_rejected_with_its_path() {
    let server = Server::strict().await;
    let unknown = |name: &str, place: &str| {
        format!("Invalid JSON payload received. Unknown name \"{name}\"{place}: Cannot find field.")
    };
    for (pointer, name, place) in [
        ("", "foo", ""),
        // The model is in the path; only Vertex has labels.
        ("", "model", ""),
        ("", "messages", ""),
        ("", "labels", ""),
        ("/generationConfig", "max_tokens", " at 'generation_config'"),
        ("/generationConfig/thinkingConfig", "effort", " at 'generation_config.thinking_config'"),
        ("/contents/0", "content", " at 'contents[0]'"),
        ("/contents/0/parts/0", "type", " at 'contents[0].parts[0]'"),
        ("/tools/0/functionDeclarations/0", "strict", " at 'tools[0].function_declarations[0]'"),
        ("/tools/0", "input_schema", " at 'tools[0]'"),
    ] {
        let mut body = ask("hi");
        body.pointer_mut(pointer).unwrap()[name] = "x".into();
        refuse(&server, PRO, &body, &unknown(name, place)).await;
    }
    let mut body = ask("hi");
    body["tools"][0]["functionDeclarations"] = json!([{"name": "f", "parameters":
        {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/x"}}}}}]);
    let place = " at 'tools[0].function_declarations[0].parameters.properties[0].value.items'";
    refuse(&server, PRO, &body, &unknown("$ref", place)).await;
    body["tools"][0]["functionDeclarations"] = json!([{"name": "f", "parameters":
        {"type": "object", "properties": {"$ref": {"type": "string"}}}}]);
    accept(&server, PRO, &body).await;
}

#[tokio::test]
async fn wrong_type_is_rejected_with_path_and_type() {
    let server = Server::strict().await;
    let package = "type.googleapis.com/google.ai.generativelanguage.v1beta";
    for (pointer, name, value, text) in [
        ("", "contents", json!("hi"), format!("'contents' ({package}.Content), \"hi\"")),
        ("", "systemInstruction", json!("x"), format!("'system_instruction' ({package}.Content)")),
        ("/contents/0/parts/0", "text", json!(7), "(TYPE_STRING), 7".to_owned()),
        ("/contents/0/parts/0", "thought", json!("yes"), "(TYPE_BOOL)".to_owned()),
        ("/generationConfig", "temperature", json!("hot"), "(TYPE_FLOAT), \"hot\"".to_owned()),
        ("/generationConfig", "maxOutputTokens", json!(1.5), "(TYPE_INT32), 1.5".to_owned()),
        ("/generationConfig", "maxOutputTokens", json!("many"), "(TYPE_INT32)".to_owned()),
        (
            "/generationConfig",
            "stopSequences",
            json!([1]),
            "'generation_config.stop_sequences[0]'".to_owned(),
        ),
        (
            "",
            "toolConfig",
            json!({"functionCallingConfig": {"mode": "any"}}),
            "FunctionCallingConfig.Mode), \"any\"".to_owned(),
        ),
        (
            "/contents/0",
            "parts",
            json!([{"inlineData": {"mimeType": "image/png", "data": "é"}}]),
            "Base64 decoding failed for \"é\"".to_owned(),
        ),
    ] {
        let mut body = ask("hi");
        body.pointer_mut(pointer).unwrap()[name] = value;
        refuse(&server, PRO, &body, &text).await;
    }
    for body in ["[]", "7"] {
        let path = format!("/v1beta/models/{PRO}:generateContent");
        let answer = server.send("POST", &path, &[], body.as_bytes()).await;
        crate::assert_refused(&answer, "Root element must be a message");
    }
    let answer = server.send("POST", "/v1/models/m:generateContent", &[], b"{").await;
    crate::assert_refused(&answer, "Invalid JSON payload received.");
}

#[tokio::test]
async fn contents_need_a_role_and_parts_with_one_datum_each() {
    let server = Server::strict().await;
    accept(&server, PRO, &with_contents(json!({"parts": {"text": "hi"}}))).await;
    accept(&server, PRO, &with_contents(json!([user("a"), user("b")]))).await;
    for role in ["assistant", "system", "tool", "function"] {
        let contents = json!([{"role": role, "parts": [{"text": "hi"}]}]);
        refuse(&server, PRO, &with_contents(contents), "Please use a valid role: user, model.")
            .await;
    }
    for (contents, text) in [
        (json!([]), "* GenerateContentRequest.contents: contents is not specified"),
        (json!([{"role": "user"}]), "contents[0].parts: contents.parts must not be empty."),
        (
            json!([{"role": "user", "parts": []}]),
            "contents[0].parts: contents.parts must not be empty.",
        ),
        (
            json!([{"role": "user", "parts": [{"thought": true}]}]),
            "contents[0].parts[0].data: required oneof field 'data' must have one initialized field",
        ),
        (
            json!([{"role": "user", "parts": [{"text": "a", "functionCall": {"name": "f"}}]}]),
            "oneof field 'data' is already set. Cannot set 'functionCall'",
        ),
        (
            json!([user("a"), {"role": "model", "parts": [{"functionCall": {"args": {}}}]}]),
            "contents[1].parts[0].function_call.name: Name cannot be empty.",
        ),
    ] {
        refuse(&server, PRO, &with_contents(contents), text).await;
    }
    refuse(&server, PRO, &json!({}), "contents is not specified").await;
}

#[tokio::test]
async fn invalid_tools_and_calling_modes_are_rejected() {
    let server = Server::strict().await;
    let declared = |declarations: Value| {
        let mut body = ask("hi");
        body["tools"] = json!([{ "functionDeclarations": declarations }]);
        body
    };
    accept(&server, PRO, &declared(json!([lookup(), {"name": "a.b:c-d_1"}]))).await;
    for (declarations, text) in [
        (json!([lookup(), lookup()]), "Duplicate function declaration found: lookup"),
        (json!([{}]), "tools[0].function_declarations[0].name: Invalid function name."),
        (json!([{"name": "1st"}]), "Invalid function name."),
        (json!([{"name": "a b"}]), "Invalid function name."),
        (json!([{"name": "a".repeat(65)}]), "Invalid function name."),
        (
            json!([{"name": "f", "parameters": {}, "parametersJsonSchema": {}}]),
            "only one of parameters and parameters_json_schema",
        ),
    ] {
        refuse(&server, PRO, &declared(declarations), text).await;
    }
    let calling = |mut body: Value, config: Value| {
        body["toolConfig"] = json!({ "functionCallingConfig": config });
        body
    };
    let text = "Function calling config is set without function_declarations.";
    refuse(&server, PRO, &calling(plain("hi"), json!({"mode": "ANY"})), text).await;
    accept(&server, PRO, &calling(plain("hi"), json!({"mode": "AUTO"}))).await;
    let unknown = json!({"mode": "ANY", "allowedFunctionNames": ["other"]});
    refuse(&server, PRO, &calling(ask("hi"), unknown), "\"other\" is not a declared function")
        .await;
    let auto = json!({"mode": "AUTO", "allowedFunctionNames": ["lookup"]});
    refuse(&server, PRO, &calling(ask("hi"), auto), "only allowed when mode is ANY").await;
    // Only Vertex has streamed arguments.
    let streamed = json!({"streamFunctionCallArguments": true});
    refuse(&server, PRO, &calling(ask("hi"), streamed), "Unknown name").await;
}

#[tokio::test]
async fn setting_outside_its_range_is_rejected() {
    let server = Server::strict().await;
    let set = |key: &str, value: Value| {
        let mut body = ask("hi");
        body["generationConfig"][key] = value;
        body
    };
    for (key, good, bad, text) in [
        ("temperature", json!(2), json!(2.1), "temperature must be in the range [0, 2]"),
        ("topP", json!(1.0), json!(-0.1), "top_p must be in the range [0, 1]"),
        ("topK", json!(64), json!(0), "top_k must be positive"),
        ("maxOutputTokens", json!(65_536), json!(0), "max_output_tokens must be positive"),
        ("candidateCount", json!(1), json!(2), "Multiple candidates is not enabled"),
        (
            "stopSequences",
            json!(["1", "2", "3", "4", "5"]),
            json!(["", "", "", "", "", ""]),
            "at most 5",
        ),
    ] {
        accept(&server, PRO, &set(key, good)).await;
        refuse(&server, PRO, &set(key, bad), text).await;
    }
}

#[tokio::test]
async fn gemini_accepts_any_json_object_without_strict() {
    let server = Server::start(Options { strict: false, ..Options::default() }).await;
    for body in [
        json!({}),
        json!({"contents": "hi", "foo": 1, "tools": {"a": 1}, "generation_config": []}),
        thinking(&json!({"thinkingLevel": "LOW", "thinkingBudget": 0})),
        with_contents(json!([{"role": "assistant", "parts": [{"functionResponse": 1}, 7]}])),
    ] {
        accept(&server, PRO, &body).await;
        let path = format!("/v1beta/models/{PRO}:countTokens");
        assert_eq!(call(&server, &path, &body, &[]).await.status, 200);
    }
    let loose = json!({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]});
    let answer = generate(&server, PRO, &loose).await.text();
    assert!(answer.contains("“hello”"), "{answer}");
}
