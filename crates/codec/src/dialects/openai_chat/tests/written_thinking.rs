//! Thinking, and the setting for it, as each kind of server gets them.

use serde_json::json;
use throughline_canonical::{Amount, Block, Effort, Show, ThinkingSetting};

use super::written::{assistant, thought, user, words};
use super::*;

#[test]
fn thinking_goes_back_as_each_server_wants_it() {
    let signed = || {
        vec![thought("hm", Some("s")), Block::Redacted { data: "d".to_owned() }, Block::text("a")]
    };
    let open = || vec![thought("hm", None), Block::text("a")];
    let check = |variant: &str, blocks: Vec<Block>, message: Value, losses: &[&str]| {
        let (body, lost) = write(&assistant(blocks), variant);
        assert_eq!(body["messages"], json!([message]), "{variant}");
        assert_eq!(words(&lost), losses, "{variant}");
    };
    let plain = json!({"role": "assistant", "content": "a"});
    for variant in ["openai", "deepseek-r1", "xai", "google"] {
        check(variant, open(), plain.clone(), &["thinking_omitted=1;reason=shape"]);
    }
    for variant in ["deepseek-v4", "sglang", "llamacpp", "qwen", "glm"] {
        check(
            variant,
            open(),
            json!({"role": "assistant", "content": "a", "reasoning_content": "hm"}),
            &[],
        );
    }
    for variant in ["vllm", "groq"] {
        check(
            variant,
            open(),
            json!({"role": "assistant", "content": "a", "reasoning": "hm"}),
            &[],
        );
    }
    check(
        "deepseek-v4",
        vec![Block::text("a")],
        json!({"role": "assistant", "content": "a", "reasoning_content": ""}),
        &[],
    );
    check("glm", vec![Block::text("a")], plain.clone(), &[]);
    check(
        "vllm",
        signed(),
        json!({"role": "assistant", "content": "a", "reasoning": "hm"}),
        &["part_omitted=thinking.signature;reason=no_place", "thinking_omitted=1;reason=shape"],
    );
    check(
        "think-tags",
        open(),
        json!({"role": "assistant", "content": "<think>\nhm\n</think>\n\na"}),
        &[],
    );
    check(
        "mistral",
        open(),
        json!({"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": true}, {"type": "text", "text": "a"}]}),
        &[],
    );
    check(
        "openrouter",
        signed(),
        json!({"role": "assistant", "content": "a", "reasoning": "hm", "reasoning_details": [
            {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"},
            {"type": "reasoning.encrypted", "index": 1, "data": "d"},
        ]}),
        &[],
    );
    // Those who sign refuse what is not signed.
    check("openrouter", open(), plain, &["thinking_omitted=1;reason=shape"]);
    check(
        "litellm",
        signed(),
        json!({"role": "assistant", "content": "a", "reasoning_content": "hm", "thinking_blocks": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
        ]}),
        &[],
    );
}

#[test]
fn what_openrouter_gave_it_gets_back() {
    let details = json!([
        {"type": "reasoning.summary", "index": 0, "format": "openai-responses-v1", "id": "rs_1", "summary": "s"},
        {"type": "reasoning.encrypted", "index": 1, "format": "openai-responses-v1", "id": "rs_1", "data": "gAAA"},
        {"type": "reasoning.text", "index": 2, "format": "unknown", "text": "t"},
        {"type": "reasoning.text", "index": 3, "text": "u", "signature": "EqQB"},
    ]);
    let body = json!({"id": "c", "model": "x", "choices": [{"message": {"content": "a", "reasoning": "stu", "reasoning_details": details}, "finish_reason": "stop"}]});
    let reply = read_reply("openrouter", false, body.to_string().as_bytes());
    let (sent, losses) = write(&assistant(reply.content), "openrouter");
    assert_eq!(sent["messages"][0]["reasoning_details"], details);
    assert_eq!(losses, []);
}

#[test]
fn deepseek_needs_no_reasoning_while_it_does_not_think() {
    let mut request = assistant(vec![Block::text("a")]);
    request.thinking.amount = Some(Amount::Off);
    let (body, _) = write(&request, "deepseek-v4");
    assert_eq!(body["messages"][0].get("reasoning_content"), None);
    assert_eq!(body["thinking"], json!({"type": "disabled"}));
}

#[test]
fn the_thinking_setting_is_written_as_each_server_reads_it() {
    let check = |variant: &str, amount: Amount, members: Value, losses: &[&str]| {
        let mut request = user(vec![Block::text("hi")]);
        request.thinking.amount = Some(amount);
        let (mut body, lost) = write(&request, variant);
        let body = body.as_object_mut().unwrap();
        body.shift_remove("model");
        body.shift_remove("messages");
        assert_eq!(Value::Object(body.clone()), members, "{variant} {amount:?}");
        assert_eq!(words(&lost), losses, "{variant} {amount:?}");
    };
    let effort = |effort| Amount::Effort { effort };
    let budget = Amount::Budget { tokens: 5000 };
    let adapted: &[&str] = &["setting_adapted=thinking;reason=on_or_off"];
    check("openai", Amount::Off, json!({"reasoning_effort": "none"}), &[]);
    check("openai", Amount::On, json!({"reasoning_effort": "medium"}), &[]);
    check("openai", effort(Effort::XHigh), json!({"reasoning_effort": "xhigh"}), &[]);
    check(
        "openai",
        budget,
        json!({"reasoning_effort": "medium"}),
        &["setting_adapted=thinking;reason=budget_as_effort"],
    );
    check(
        "google",
        effort(Effort::Max),
        json!({"reasoning_effort": "high"}),
        &["setting_adapted=thinking;reason=effort"],
    );
    check(
        "google",
        budget,
        json!({"extra_body": {"google": {"thinking_config": {"thinking_budget": 5000}}}}),
        &[],
    );
    check("google", Amount::On, json!({}), &[]);
    check("groq", Amount::On, json!({"reasoning_effort": "default"}), &[]);
    check("groq", effort(Effort::High), json!({"reasoning_effort": "high"}), &[]);
    check("mistral", Amount::On, json!({"reasoning_effort": "high"}), &[]);
    check("deepseek-r1", Amount::On, json!({}), &[]);
    check(
        "deepseek-r1",
        Amount::Off,
        json!({}),
        &["setting_adapted=thinking;reason=cannot_be_set"],
    );
    check("deepseek-v4", Amount::On, json!({"thinking": {"type": "enabled"}}), &[]);
    check(
        "deepseek-v4",
        effort(Effort::Max),
        json!({"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
        &[],
    );
    check("glm", Amount::Off, json!({"thinking": {"type": "disabled"}}), &[]);
    check("qwen", budget, json!({"enable_thinking": true, "thinking_budget": 5000}), &[]);
    check("qwen", Amount::Off, json!({"enable_thinking": false}), &[]);
    check("qwen", effort(Effort::Low), json!({"enable_thinking": true}), adapted);
    for variant in ["vllm", "sglang", "llamacpp", "think-tags"] {
        check(
            variant,
            Amount::Off,
            json!({"chat_template_kwargs": {"enable_thinking": false}}),
            &[],
        );
        check(
            variant,
            effort(Effort::Low),
            json!({"chat_template_kwargs": {"enable_thinking": true}, "reasoning_effort": "low"}),
            &[],
        );
        check(variant, budget, json!({"chat_template_kwargs": {"enable_thinking": true}}), adapted);
    }
    check("openrouter", Amount::Off, json!({"reasoning": {"effort": "none"}}), &[]);
    check("openrouter", Amount::On, json!({"reasoning": {"enabled": true}}), &[]);
    check("openrouter", budget, json!({"reasoning": {"max_tokens": 5000}}), &[]);
    check(
        "openrouter",
        Amount::Adaptive { effort: Some(Effort::High) },
        json!({"reasoning": {"effort": "high"}}),
        &[],
    );
    check("litellm", budget, json!({"thinking": {"type": "enabled", "budget_tokens": 5000}}), &[]);
    check("litellm", effort(Effort::High), json!({"reasoning_effort": "high"}), &[]);
    check("groq", effort(Effort::High), json!({"reasoning_effort": "high"}), &[]);
    check("xai", effort(Effort::High), json!({"reasoning_effort": "high"}), &[]);
    let mut request = user(vec![]);
    request.thinking = ThinkingSetting { amount: None, show: Some(Show::Hidden) };
    let (body, losses) = write(&request, "openrouter");
    assert_eq!((&body["reasoning"], losses), (&json!({"exclude": true}), vec![]));
    assert_eq!(
        words(&write(&request, "vllm").1),
        ["setting_adapted=thinking.show;reason=no_place"]
    );
    assert_eq!(write(&request, "openai").1, []);
}
