//! Output limits, budgets, what is shown, sampling and tool choice, each at its limits.

use super::*;

const SONNET: At = ("claude-sonnet-4-5", "anthropic", "");
const OPUS: At = ("claude-opus-5", "anthropic", "");
const HOUSE: At = ("house", "anthropic", "");
const FLASH: At = ("gemini-2.5-flash", "gemini", "");
const GEMINI: At = ("gemini-3-pro", "gemini", "");
const GPT: At = ("gpt-5", "openai_responses", "");
const CHAT: At = ("gpt-5.1", "openai_chat", "openai");
const QWEN: At = ("qwen3-32b", "openai_chat", "vllm");
const GROK: At = ("grok-4", "openai_chat", "xai");
const PLAIN: At = ("gpt-4o", "openai_chat", "openai");

/// The model, the setting and the limit; the result, and the losses.
type Room = (At, &'static str, u64, &'static str, u64, &'static str);

/// The smallest budget is 1024, and the model writes 64000 tokens at most.
#[rustfmt::skip]
const ROOM: &[Room] = &[
    (SONNET, "budget 1024", 1025, "budget 1024", 1025, ""),
    (SONNET, "budget 1023", 5000, "budget 1024", 5000, "thinking budget_range"),
    (SONNET, "budget 1", 5000, "budget 1024", 5000, "thinking budget_range"),
    (SONNET, "budget 0", 5000, "off", 5000, ""),
    // The limit stays, and the client's budget shrinks.
    (SONNET, "budget 1024", 1024, "off", 1024, "thinking max_tokens"),
    (SONNET, "budget 1024", 1, "off", 1, "thinking max_tokens"),
    (SONNET, "budget 2000", 1026, "budget 1024", 1026, "thinking max_tokens"),
    (SONNET, "budget 4999", 5000, "budget 4999", 5000, ""),
    (SONNET, "budget 5000", 5000, "budget 4000", 5000, "thinking max_tokens"),
    (SONNET, "budget 60000", 50000, "budget 40000", 50000, "thinking max_tokens"),
    (SONNET, "budget 63999", 64000, "budget 63999", 64000, ""),
    (SONNET, "budget 64000", 64000, "budget 51200", 64000, "thinking max_tokens"),
    (SONNET, "budget 64000", 100, "off", 100, "thinking max_tokens"),
    // A budget that the gateway chose shrinks.
    (SONNET, "on", 10000, "budget 8000", 10000, ""),
    (FLASH, "effort high", 2000, "budget 1600", 2000, "thinking effort_as_budget"),
    (SONNET, "on", 1280, "budget 1024", 1280, ""),
    (SONNET, "on", 1279, "budget 1024", 1279, ""),
    (SONNET, "on", 1024, "off", 1024, "thinking max_tokens"),
    (SONNET, "on", 1, "off", 1, "thinking max_tokens"),
    // Without output there is no thinking.
    (SONNET, "budget 2000", 0, "off", 0, "thinking max_tokens"),
    (SONNET, "on", 0, "off", 0, "thinking max_tokens"),
    // The limit is higher than the model's.
    (SONNET, "-", 64000, "-", 64000, ""),
    (SONNET, "-", 64001, "-", 64000, "max_tokens max_output"),
    // An unknown model.
    (HOUSE, "budget 31999", 100, "off", 100, "thinking max_tokens"),
    (HOUSE, "budget 50000", 60000, "budget 50000", 60000, ""),
    // The rule belongs to the model, also with a proxy in between. Other models have none.
    (("claude-sonnet-4-5", "openai_chat", "litellm"), "budget 5000", 5000, "budget 4000", 5000, "thinking max_tokens"),
    (("qwen3-32b", "openai_chat", "qwen"), "budget 5000", 100, "budget 5000", 100, ""),
    (FLASH, "budget 5000", 100, "budget 5000", 100, ""),
    // A budget of the gateway still leaves room for the answer if both share one limit.
    (FLASH, "effort high", 2000, "budget 1600", 2000, "thinking effort_as_budget"),
    (FLASH, "effort high", 1, "budget 24576", 1, "thinking effort_as_budget"),
    (("gemini-2.5-pro", "openai_chat", "google"), "effort high", 2000, "budget 1600", 2000, "thinking effort_as_budget"),
    (FLASH, "budget 24577", 100, "budget 24576", 100, "thinking budget_range"),
    (("gemini-2.5-pro", "gemini", ""), "budget 127", 100, "budget 128", 100, "thinking budget_range"),
];

/// Covers: S3-12, case 16
#[test]
fn budget_fits_below_the_output_limit() {
    for (at, requested, limit, sent, sent_limit, reported) in ROOM {
        let mut request = asking(amount(requested), None);
        request.max_tokens = Some(*limit);
        let found = adapt_request(&mut request, *at);
        let became = (request.thinking.amount, request.max_tokens);
        let expected = (amount(sent), Some(*sent_limit));
        assert_eq!(became, expected, "{at:?} {requested} {limit}");
        assert_eq!(found, *reported, "{at:?} {requested} {limit}");
    }
}

#[test]
fn budget_without_room_turns_thinking_off() {
    for (off, sent) in [(Off::Disabled, "off"), (Off::Never, "-")] {
        let model = Model { thinking: Some(Form::Budget), off, ..Model::default() };
        let mut request = asking(amount("budget 1024"), None);
        request.max_tokens = Some(500);
        let losses = adapt(&mut request, &model, profile("anthropic", ""));
        assert_eq!((request.thinking.amount, request.max_tokens), (amount(sent), Some(500)));
        let [Loss::SettingAdapted { setting, .. }] = &losses[..] else {
            panic!("{losses:?}");
        };
        assert_eq!(setting.as_str(), "thinking", "{off:?}");
    }
}

#[test]
fn missing_limit_becomes_the_models_own_if_one_is_required() {
    for (at, limit, reported) in [
        (("claude-opus-4-1", "anthropic", ""), Some(32_000), ""),
        (OPUS, Some(128_000), ""),
        (HOUSE, Some(32_000), "max_tokens model_unknown"),
        (("claude-opus-5", "openai_chat", "openrouter"), None, ""),
        (GPT, None, ""),
        (GEMINI, None, ""),
    ] {
        let mut request = Request::default();
        assert_eq!(adapt_request(&mut request, at), reported, "{at:?}");
        assert_eq!(request.max_tokens, limit, "{at:?}");
    }
}

/// The model, the amount and `show` of the request; what is shown, and the losses.
type ShowCase = (At, &'static str, Option<Show>, Option<Show>, &'static str);

use Show::{Full, Hidden, Summary};

#[rustfmt::skip]
const SEEN: &[ShowCase] = &[
    (OPUS, "effort high", None, Some(Summary), ""),
    (OPUS, "effort high", Some(Hidden), Some(Hidden), ""),
    (OPUS, "effort high", Some(Full), Some(Summary), "thinking.show summaries"),
    (OPUS, "off", None, None, ""),
    (OPUS, "off", Some(Summary), None, ""),
    (OPUS, "-", None, None, ""),
    (SONNET, "budget 2000", None, Some(Summary), ""),
    (GEMINI, "effort low", None, Some(Summary), ""),
    (GEMINI, "on", None, Some(Summary), ""),
    (GEMINI, "-", None, None, ""),
    (GPT, "effort high", None, Some(Summary), ""),
    (GPT, "effort high", Some(Full), Some(Full), ""),
    (GPT, "effort high", Some(Hidden), Some(Hidden), ""),
    // Chat Completions shows no reasoning, and the writer reports that.
    (CHAT, "effort high", None, None, ""),
    (CHAT, "effort high", Some(Summary), Some(Summary), ""),
    (QWEN, "on", None, Some(Full), ""),
    (QWEN, "on", Some(Summary), Some(Full), ""),
    (("claude-opus-5", "openai_chat", "openrouter"), "on", None, Some(Summary), ""),
    (GROK, "on", None, None, ""),
    (GROK, "on", Some(Full), None, "thinking.show not_shown"),
    (PLAIN, "on", Some(Full), None, "thinking model_does_not_think"),
    (HOUSE, "on", None, Some(Summary), ""),
    (("house", "gemini", ""), "on", None, Some(Summary), ""),
    (("house", "openai_chat", "vllm"), "on", None, Some(Full), ""),
];

/// Covers: C-2
#[test]
fn asking_for_reasoning_shows_what_the_model_has() {
    for (at, requested, show, shown, reported) in SEEN {
        let mut request = asking(amount(requested), *show);
        if *at == PLAIN {
            request.max_tokens = None;
        }
        assert_eq!(adapt_request(&mut request, *at), *reported, "{at:?} {requested} {show:?}");
        assert_eq!(request.thinking.show, *shown, "{at:?} {requested} {show:?}");
    }
}

#[test]
fn asking_to_see_reasoning_turns_it_on() {
    for (at, sent) in [
        (("claude-opus-4-8", "anthropic", ""), "adaptive"),
        (SONNET, "budget 16384"),
        (GPT, "-"),
        (("gpt-5.1", "openai_responses", ""), "effort medium"),
        (GEMINI, "-"),
    ] {
        let mut request = asking(None, Some(Summary));
        assert_eq!(adapt_request(&mut request, at), "", "{at:?}");
        assert_eq!(request.thinking.amount, amount(sent), "{at:?}");
        assert_eq!(request.thinking.show, Some(Summary), "{at:?}");
    }
    // "Hidden" needs a mode, and a model that does not think hides nothing.
    for (name, sent, show) in
        [("claude-opus-5", "adaptive", Some(Hidden)), ("claude-opus-4-8", "-", None)]
    {
        let mut request = asking(None, Some(Hidden));
        assert_eq!(adapt_request(&mut request, (name, "anthropic", "")), "", "{name}");
        assert_eq!(request.thinking.amount, amount(sent), "{name}");
        assert_eq!(request.thinking.show, show, "{name}");
    }
}

const WHOLE: &str = "temperature, top_p, top_k";

/// The model, the amount and the temperature; what is removed, and why.
type Sampled = (At, &'static str, f64, &'static str, &'static str);

#[rustfmt::skip]
const SAMPLED: &[Sampled] = &[
    (SONNET, "on", 0.2, WHOLE, "thinking"),
    (SONNET, "off", 0.2, "", ""),
    (SONNET, "-", 0.2, "", ""),
    (("claude-opus-4-6", "anthropic", ""), "adaptive", 1.0, WHOLE, "thinking"),
    (("claude-opus-4-7", "anthropic", ""), "off", 1.0, WHOLE, "model"),
    (OPUS, "-", 0.2, WHOLE, "model"),
    (HOUSE, "on", 0.2, WHOLE, "thinking"),
    (HOUSE, "-", 0.2, "", ""),
    (("glm-5", "anthropic", ""), "on", 0.2, "", ""),
    (("gemini-2.5-pro", "gemini", ""), "-", 0.2, "temperature", "thinking"),
    (GEMINI, "effort low", 0.99, "temperature", "thinking"),
    (GEMINI, "effort low", 1.0, "", ""),
    (FLASH, "off", 0.2, "", ""),
    (CHAT, "effort low", 0.2, WHOLE, "thinking"),
    (CHAT, "off", 0.2, "", ""),
    (CHAT, "-", 0.2, "", ""),
    (GPT, "-", 0.2, WHOLE, "thinking"),
    (("gpt-6-sol", "openai_responses", ""), "off", 0.2, "", ""),
    (("gpt-6-sol", "openai_responses", ""), "effort max", 0.2, WHOLE, "thinking"),
    (("gpt-4.1", "openai_chat", "openai"), "-", 0.2, "", ""),
    (("deepseek-v4-pro", "openai_chat", "deepseek-v4"), "on", 0.2, WHOLE, "thinking"),
    (("house", "openai_chat", "vllm"), "on", 0.2, "", ""),
];

/// Covers: S3-12, case 35
#[test]
fn refused_sampling_settings_are_removed() {
    for (at, requested, heat, gone, reason) in SAMPLED {
        let sampling = Sampling {
            temperature: Some(*heat),
            top_p: Some(0.9),
            top_k: Some(5),
            seed: Some(7),
            ..Sampling::default()
        };
        let mut request = asking(amount(requested), None);
        request.max_tokens = Some(20_000);
        request.sampling = sampling;
        let reported = adapt_request(&mut request, *at);
        let expected = Sampling {
            temperature: sampling.temperature.filter(|_| !gone.contains("temperature")),
            top_p: sampling.top_p.filter(|_| !gone.contains("top_p")),
            top_k: sampling.top_k.filter(|_| !gone.contains("top_k")),
            ..sampling
        };
        assert_eq!(request.sampling, expected, "{at:?} {requested}");
        let lost: Vec<String> = gone
            .split(", ")
            .filter(|setting| !setting.is_empty())
            .map(|setting| format!("{setting} {reason}"))
            .collect();
        assert_eq!(reported, lost.join(", "), "{at:?} {requested}");
    }
}

#[test]
fn tool_choice_is_auto_if_it_may_not_be_forced() {
    let named = ToolChoice::Named { name: "f".to_owned() };
    for (name, requested, refused) in [
        ("claude-sonnet-4-5", "budget 2000", true),
        ("claude-sonnet-4-5", "off", false),
        ("claude-sonnet-4-5", "-", false),
        ("claude-opus-4-6", "budget 2000", true),
        ("claude-opus-4-6", "adaptive", false),
        ("claude-opus-4-8", "adaptive", false),
        ("claude-opus-5", "-", false),
        ("claude-fable-5", "-", false),
        ("claude-fable-5-1", "-", true),
        ("claude-opus-5-5", "-", true),
        ("claude-sonnet-5-5", "adaptive", true),
        ("house", "budget 2000", false),
    ] {
        let at = (name, "anthropic", "");
        for choice in [ToolChoice::Required, named.clone()] {
            let mut request = asking(amount(requested), None);
            request.tool_choice = Some(choice.clone());
            let reported = adapt_request(&mut request, at);
            let (sent, lost) = match refused {
                true => (ToolChoice::Auto, "tool_choice thinking"),
                false => (choice, ""),
            };
            assert_eq!(request.tool_choice, Some(sent), "{name} {requested}");
            assert_eq!(reported, lost, "{name} {requested}");
        }
        for choice in [None, Some(ToolChoice::Auto), Some(ToolChoice::None)] {
            let mut request = asking(amount(requested), None);
            request.tool_choice.clone_from(&choice);
            adapt_request(&mut request, at);
            assert_eq!(request.tool_choice, choice, "{name} {requested}");
        }
    }
}
