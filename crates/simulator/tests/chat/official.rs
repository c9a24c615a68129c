//! Refusals of OpenAI only, each with a request that passes.

use serde_json::{Value, json};

use crate::common::Server;
use crate::support::{accept, ask, asking, lookup, message, plain, refuse, set};

#[tokio::test]
async fn only_openai_rejects_unknown_parameters() {
    let server = Server::strict().await;
    for key in [
        "reasoning",
        "thinking",
        "enable_thinking",
        "chat_template_kwargs",
        "top_k",
        "include_reasoning",
    ] {
        let body = set(plain("m", "hi"), key, json!({}));
        let error = refuse(&server, "openai", &body, &format!("Unknown parameter: '{key}'.")).await;
        assert_eq!((&error["param"], &error["code"]), (&json!(key), &json!("unknown_parameter")));
    }
    let odd = set(plain("m", "hi"), "who_knows", 1);
    for variant in ["vllm", "deepseek-v4", "mistral", "openrouter", "groq", "google"] {
        accept(&server, variant, &odd).await;
    }
    let all = json!({"model": "gpt-4o", "messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": "hi", "name": "n"}],
        "stream": false, "max_completion_tokens": 100, "verbosity": "low", "temperature": 1.5, "top_p": 0.5,
        "n": 1, "stop": ["a", "b"], "seed": -4, "presence_penalty": -1, "frequency_penalty": 1, "logit_bias": {},
        "logprobs": true, "top_logprobs": 2, "tools": [lookup()], "tool_choice": "auto", "parallel_tool_calls": true,
        "response_format": {"type": "text"}, "modalities": ["text"], "metadata": {}, "store": false, "service_tier": "fast",
        "prompt_cache_key": "k", "prompt_cache_options": {"mode": "x", "ttl": 1}, "prompt_cache_retention": "24h",
        "safety_identifier": "s", "user": "u", "web_search_options": {}, "moderation": {}, "prediction": null, "audio": null});
    accept(&server, "", &all).await;
}

#[tokio::test]
async fn openai_rejects_tools_with_effort_from_gpt_5_4_on() {
    let server = Server::strict().await;
    for model in ["gpt-5.4", "gpt-5.6-luna", "gpt-6-luna", "gpt-6-sol"] {
        let words = format!(
            "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use function tools, use /v1/responses or set reasoning_effort to 'none'."
        );
        let body = asking(model, "use a tool");
        let error = refuse(&server, "", &body, &words).await;
        assert_eq!((&error["param"], &error["code"]), (&json!("reasoning_effort"), &Value::Null));
        let said = message(&server, "", &set(body.clone(), "reasoning_effort", "none")).await;
        assert!(said["tool_calls"].is_array());
        // Only the newest models think by default.
        let unsaid = ask(&server, "", &set(body.clone(), "reasoning_effort", Value::Null)).await;
        assert_eq!(unsaid.status, if model.starts_with("gpt-6") { 400 } else { 200 }, "{model}");
        accept(&server, "", &set(plain(model, "hi"), "reasoning_effort", "high")).await;
    }
    for model in ["gpt-5", "gpt-5.3", "o3"] {
        accept(&server, "", &asking(model, "use a tool")).await;
    }
    for model in ["gpt-6-astra", "gpt-6.1-sol"] {
        let body = set(asking(model, "use a tool"), "reasoning_effort", "none");
        refuse(&server, "", &body, "use /v1/responses").await;
        accept(&server, "", &plain(model, "hi")).await;
    }
    // With another variant, the same name has other rules.
    accept(&server, "openrouter", &asking("openai/gpt-6-luna", "use a tool")).await;
}

#[tokio::test]
async fn openai_rejects_sampling_with_effort_on_gpt_6() {
    let server = Server::strict().await;
    for (key, value) in [
        ("temperature", json!(0.5)),
        ("top_p", json!(0.5)),
        ("logprobs", json!(true)),
        ("top_logprobs", json!(2)),
    ] {
        let body = set(plain("gpt-6-luna", "hi"), key, value);
        let words = format!("Unsupported parameter: '{key}' is not supported with this model.");
        let error = refuse(&server, "", &body, &words).await;
        assert_eq!(
            (&error["param"], &error["code"]),
            (&json!(key), &json!("unsupported_parameter"))
        );
        refuse(&server, "", &set(body.clone(), "reasoning_effort", "low"), &words).await;
        // The alternatives of a token need its probability.
        let body = if key == "top_logprobs" { set(body, "logprobs", true) } else { body };
        accept(&server, "", &set(body.clone(), "reasoning_effort", "none")).await;
        accept(&server, "", &set(body, "model", "gpt-5.4")).await;
    }
}

#[tokio::test]
async fn o_series_rejects_max_tokens_and_all_models_reject_both_limits() {
    let server = Server::strict().await;
    let body = set(plain("o3", "hi"), "max_tokens", 100);
    refuse(&server, "", &body, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.").await;
    accept(&server, "", &set(plain("o3", "hi"), "max_completion_tokens", 100)).await;
    let body = set(plain("gpt-4o", "hi"), "max_tokens", 100);
    accept(&server, "", &body).await;
    refuse(&server, "", &set(body, "max_completion_tokens", 100), "at the same time").await;
}
