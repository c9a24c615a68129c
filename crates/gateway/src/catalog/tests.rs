//! The content of the built-in table, and which layer wins.

use serde_json::json;
use throughline_canonical::Effort::{High, Low, Max, Medium, Minimal, XHigh};

use super::*;

/// Learns from the model list of a server.
fn learn(catalog: &Catalog, dialect: &str, answer: &serde_json::Value) {
    for card in throughline_codec::dialects::upstream(dialect).unwrap().read_models(answer) {
        catalog.learn(&card.name, &card);
    }
}

#[test]
fn embedded_table_is_consistent() {
    let rows = rows::read(include_str!("models.toml")).unwrap();
    assert!(rows.len() > 60);
    let found = Catalog::embedded();
    for pattern in rows.iter().flat_map(|row| &row.patterns) {
        let model = found.find(&pattern.replace('*', "-"));
        let by_effort = [Some(Form::Level), Some(Form::Effort), Some(Form::Adaptive)];
        if by_effort.contains(&model.thinking) {
            assert!(!model.efforts.is_empty(), "{pattern} has no efforts");
            assert!(model.efforts.is_sorted(), "{pattern}");
        }
        if model.thinking == Some(Form::None) {
            assert!(!model.unasked, "{pattern} does not think, and does");
        } else {
            // A model that cannot be turned off thinks by default.
            assert!(model.off == Off::Disabled || model.unasked, "{pattern}");
            assert!(model.shows.is_some(), "{pattern}");
        }
    }
}

/// The name, the form of its thinking setting, how it is turned off, whether it thinks by default.
#[test]
fn every_known_model_has_its_form() {
    use Form::{Adaptive, Budget, Effort, Level, Switch};
    use Off::{BetweenTools, Disabled, Never};
    let none = Some(Form::None);
    let catalog = Catalog::embedded();
    for (name, thinking, off, unasked) in [
        ("claude-3-opus-20240229", none, Disabled, false),
        ("claude-3-5-haiku-latest", none, Disabled, false),
        ("claude-3-7-sonnet-20250219", Some(Budget), Disabled, false),
        ("claude-opus-4-20250514", Some(Budget), Disabled, false),
        ("claude-sonnet-4-5", Some(Budget), Disabled, false),
        ("anthropic/claude-sonnet-4.5", Some(Budget), Disabled, false),
        ("claude-haiku-4-5-20251001", Some(Budget), Disabled, false),
        ("claude-opus-4-5", Some(Budget), Disabled, false),
        ("claude-opus-4-6", Some(Adaptive), Disabled, false),
        ("claude-sonnet-4-6", Some(Adaptive), Disabled, false),
        ("claude-opus-4-7", Some(Adaptive), Disabled, false),
        ("claude-opus-4-8", Some(Adaptive), Disabled, false),
        ("claude-sonnet-5", Some(Adaptive), Disabled, true),
        ("claude-opus-5", Some(Adaptive), Disabled, true),
        ("claude-haiku-5-5", Some(Adaptive), Disabled, true),
        ("claude-fable-5", Some(Adaptive), Never, true),
        ("claude-mythos-5", Some(Adaptive), Never, true),
        ("claude-fable-5-1", Some(Adaptive), Never, true),
        ("claude-fable-5-2", Some(Adaptive), Never, true),
        ("claude-mythos-5-2", Some(Adaptive), Never, true),
        ("claude-opus-5-5", Some(Adaptive), Never, true),
        ("claude-sonnet-5-5", Some(Adaptive), BetweenTools, true),
        ("gemini-2.0-flash", none, Disabled, false),
        ("gemini-2.5-flash", Some(Budget), Disabled, true),
        ("gemini-2.5-flash-lite", Some(Budget), Disabled, false),
        ("models/gemini-2.5-pro", Some(Budget), Never, true),
        ("gemini-3-pro-preview", Some(Level), Never, true),
        ("gemini-3.8-flash", Some(Level), Never, true),
        ("gemini-4-argon", Some(Level), Never, true),
        ("gpt-4o-mini", none, Disabled, false),
        ("gpt-4.1", none, Disabled, false),
        ("o3", Some(Effort), Never, true),
        ("o1-mini", Some(Switch), Never, true),
        ("gpt-5", Some(Effort), Never, true),
        ("openai/gpt-5-mini", Some(Effort), Never, true),
        ("gpt-5-chat-latest", none, Disabled, false),
        ("gpt-5.1", Some(Effort), Disabled, false),
        ("gpt-5.1-codex", Some(Effort), Never, true),
        ("gpt-5.6-luna", Some(Effort), Disabled, false),
        ("gpt-6-sol", Some(Effort), Disabled, true),
        ("gpt-6.1-sol", Some(Effort), Disabled, true),
        ("gpt-oss:20b", Some(Effort), Never, true),
        ("deepseek-reasoner", Some(Switch), Never, true),
        ("deepseek-ai/DeepSeek-R1-0528", Some(Switch), Never, true),
        ("deepseek-ai/DeepSeek-V3-0324", none, Disabled, false),
        ("deepseek-v3.2", Some(Switch), Disabled, false),
        ("deepseek-v4-pro", Some(Effort), Disabled, true),
        ("Qwen/Qwen3-32B", Some(Budget), Disabled, true),
        ("qwen3-coder-plus", none, Disabled, false),
        ("qwen3.7-plus", Some(Budget), Disabled, true),
        ("qwen3-235b-a22b-thinking-2507", Some(Budget), Never, true),
        ("glm-4.6", Some(Switch), Disabled, true),
        ("glm-5", Some(Switch), Disabled, true),
        ("glm-5.3", Some(Effort), Never, true),
        ("kimi-k2-0905-preview", none, Disabled, false),
        ("kimi-k2-thinking", Some(Switch), Never, true),
        ("kimi-k2.7-code", Some(Switch), Disabled, true),
        ("magistral-medium-latest", Some(Switch), Never, true),
        ("mistral-large-2512", none, Disabled, false),
        ("grok-4", Some(Switch), Never, true),
        ("grok-4-1-fast-non-reasoning", none, Disabled, false),
        ("grok-3-mini", Some(Effort), Never, true),
        ("MiniMax-M2", Some(Switch), Never, true),
        ("llama3.2:1b", none, Disabled, false),
        ("SmolLM2-135M-Instruct", none, Disabled, false),
        ("house-model", None, Disabled, false),
    ] {
        let model = catalog.find(name);
        let found = (model.thinking, model.off, model.unasked);
        assert_eq!(found, (thinking, off, unasked), "{name}");
    }
}

#[test]
fn longest_pattern_wins() {
    let find = |name: &str| Catalog::embedded().find(name);
    assert!(find("claude-opus-5-5").preserved);
    assert!(find("anthropic.claude-opus-5-5-20261001-v1:0").preserved);
    assert!(!find("claude-opus-5").preserved);
    assert!(find("claude-opus-5").refuses_budget);
    assert!(!find("claude-opus-4-6").refuses_budget);
    assert!(find("claude-haiku-5-5").account_bound);
    assert!(!find("glm-5").refuses_budget);

    for (name, efforts) in [
        ("claude-opus-4-6", &[Low, Medium, High, Max][..]),
        ("claude-opus-5-5", &[Low, Medium, High, XHigh, Max]),
        ("gemini-3-pro-preview", &[Low, High]),
        ("gemini-3.5-flash", &[Minimal, Low, Medium, High]),
        ("gemini-3.8-flash", &[Low, Medium, High]),
        ("gemini-3.8-flash-lite", &[Minimal, Low, Medium, High]),
        ("gemini-flash-latest", &[Low, Medium, High]),
        ("gpt-5", &[Minimal, Low, Medium, High]),
        ("deepseek-v4-flash", &[Low, High, Max]),
    ] {
        assert_eq!(find(name).efforts, efforts, "{name}");
    }
    for (name, most) in [
        ("claude-3-haiku-20240307", Some(4096)),
        ("claude-opus-4-1-20250805", Some(32000)),
        ("claude-opus-4-20250514", Some(32000)),
        ("claude-opus-4-5-20251101", Some(64000)),
        ("claude-opus-4-6", Some(128_000)),
        ("claude-sonnet-4-5", Some(64000)),
        ("claude-fable-5-2", Some(128_000)),
        ("claude-mythos-5-2", Some(128_000)),
        ("claude-next", Some(128_000)),
        ("gpt-4o", Some(16384)),
        ("house-model", None),
    ] {
        assert_eq!(find(name).max_output, most, "{name}");
    }
    for name in ["claude-fable-5-2", "claude-mythos-5-2-20261109"] {
        let model = find(name);
        assert_eq!((model.context, model.preserved), (Some(1_000_000), true), "{name}");
    }
    for (name, context) in [
        ("claude-haiku-4-5", Some(200_000)),
        ("claude-opus-4-8", Some(1_000_000)),
        ("claude-sonnet-5", Some(1_000_000)),
        ("claude-haiku-5-5", Some(1_000_000)),
        ("gpt-4", Some(8_192)),
        ("gpt-4o", Some(128_000)),
        ("gpt-5.4-mini", Some(400_000)),
        ("gpt-5.5", Some(1_050_000)),
        ("gpt-6-sol", Some(400_000)),
        ("deepseek-v3.2", Some(128_000)),
        ("deepseek-v4-pro", Some(1_000_000)),
        ("qwen3-coder-plus", Some(262_144)),
        ("glm-4.5-air", Some(131_072)),
        ("glm-5", Some(200_000)),
        ("glm-5.3", Some(1_000_000)),
        ("kimi-k2-thinking", Some(262_144)),
        ("kimi-k2.7-code", Some(262_144)),
        ("MiniMax-M2", Some(200_000)),
        ("grok-3-mini", Some(131_072)),
        ("grok-4", Some(256_000)),
        ("magistral-medium-latest", Some(128_000)),
        ("house-model", None),
    ] {
        assert_eq!(find(name).context, context, "{name}");
    }
    for (name, lacks_tools) in [("o1-mini", true), ("o1", false), ("claude-sonnet-5", false)] {
        assert_eq!(find(name).lacks_tools, lacks_tools, "{name}");
    }
    for (name, when) in [
        ("gpt-5.3", ResponsesForTools::Never),
        ("gpt-5.4", ResponsesForTools::Thinking),
        ("gpt-6-luna", ResponsesForTools::Thinking),
        ("gpt-6-astra", ResponsesForTools::Always),
        ("gpt-6.1-sol", ResponsesForTools::Always),
        ("glm-5", ResponsesForTools::Never),
    ] {
        assert_eq!(find(name).responses_for_tools, when, "{name}");
    }
    for (name, enforced) in
        [("gemini-2.5-pro", false), ("gemini-3-pro", true), ("gemini-4-carbon", true)]
    {
        assert_eq!(find(name).signatures_enforced, enforced, "{name}");
    }
}

#[test]
fn unknown_model_has_default_values() {
    let model = Catalog::embedded().find("house-model");
    assert_eq!(model, Model::default());
    assert!(!model.refuses_budget && !model.only_thinks());
    assert_eq!(model.sampling, Sampling::Free);
    assert_eq!(model.forced_tools, ForcedTools::Free);
}

#[test]
fn operator_file_wins_and_holds_only_differences() {
    let catalog = Catalog::with(
        "[[model]]\npattern = 'Claude-Opus-4-6'\nmax_output = 5\n[[model]]\npattern = '*'\ncontext = 7\n",
    )
    .unwrap();
    let report = ModelCard {
        max_output: Some(6),
        context: Some(8),
        budget: Some(false),
        ..ModelCard::default()
    };
    catalog.learn("CLAUDE-opus-4-6", &report);
    let model = catalog.find("claude-opus-4-6");
    // The operator's value wins although the pattern is shorter than the built-in one.
    assert_eq!((model.max_output, model.context), (Some(5), Some(7)));
    // The server's value, because the operator has none.
    assert!(model.refuses_budget);
    // The built-in value.
    assert_eq!(model.forced_tools, ForcedTools::NotWithBudget);

    let error = Catalog::with("[[model]]\npattern = 'a'\nthinking = 'much'").unwrap_err();
    assert!(error.to_string().starts_with("line 3: `thinking`: "), "{error}");
}

#[test]
fn reports_of_servers_are_learnt() {
    let catalog = Catalog::embedded();
    let types = |adaptive: bool, enabled: bool, disabled: bool| {
        json!({"adaptive": {"supported": adaptive}, "enabled": {"supported": enabled},
            "disabled": {"supported": disabled}, "between_tools": {"supported": false}})
    };
    learn(
        &catalog,
        "anthropic",
        &json!({"data": [
            {"id": "house-a", "max_tokens": 10, "max_input_tokens": 20, "capabilities": {
                "thinking": {"supported": true, "types": types(true, false, false)},
                "effort": {"low": {"supported": true}, "high": {"supported": true}}}},
            {"id": "house-b", "capabilities": {"thinking": {"types": types(false, true, true)}}},
            {"id": "house-c", "capabilities": {"thinking": {"types": types(false, false, true)}}},
            {"id": "house-d"},
        ]}),
    );
    let model = catalog.find("House-A");
    assert_eq!(model.thinking, Some(Form::Adaptive));
    assert_eq!(model.efforts, [Low, High]);
    assert_eq!(model.off, Off::Never);
    assert!(model.refuses_budget);
    assert_eq!((model.max_output, model.context), (Some(10), Some(20)));
    assert_eq!(catalog.find("house-b").thinking, Some(Form::Budget));
    assert_eq!(catalog.find("house-b").off, Off::Disabled);
    assert_eq!(catalog.find("house-c").thinking, Some(Form::None));
    assert_eq!(catalog.find("house-d"), Model::default());

    learn(
        &catalog,
        "gemini",
        &json!({"models": [
            {"name": "models/gemini-3-pro", "outputTokenLimit": 9, "thinking": true},
            {"name": "models/gemini-tiny", "thinking": false},
        ]}),
    );
    let model = catalog.find("gemini-3-pro");
    assert_eq!(model.max_output, Some(9));
    assert_eq!(model.thinking, Some(Form::Level));
    assert_eq!(catalog.find("gemini-tiny").thinking, Some(Form::None));
}

#[test]
fn learnt_values_outlive_a_new_file() {
    let card = ModelCard { max_output: Some(10), ..ModelCard::default() };
    let before = Catalog::embedded();
    before.learn("house", &card);
    let after = Catalog::with("[[model]]\npattern = 'house'\ncontext = 5").unwrap();
    assert_eq!(after.find("house").max_output, None);
    let after = after.sharing(&before);
    assert_eq!(after.find("house").max_output, Some(10));
    assert_eq!(after.find("house").context, Some(5));
}

#[test]
fn list_of_names_removes_nothing_that_was_learnt() {
    let catalog = Catalog::embedded();
    let named = ModelCard { name: "house".to_owned(), ..ModelCard::default() };
    let report = ModelCard { thinks: Some(false), ..named.clone() };
    for card in [&report, &named] {
        catalog.learn_at("b", card);
    }
    let model = catalog.find_at("b", "house");
    assert_eq!(model.thinking, Some(Form::None));
}

#[test]
fn number_of_learnt_models_is_limited() {
    let catalog = Catalog::embedded();
    let card = ModelCard { max_output: Some(10), ..ModelCard::default() };
    for model in 0..5000 {
        catalog.learn(&format!("house-{model}"), &card);
    }
    assert_eq!(catalog.find("house-0").max_output, Some(10));
    assert_eq!(catalog.find("house-4999").max_output, None);
    catalog.learn(&"x".repeat(300), &card);
    assert_eq!(catalog.find(&"x".repeat(300)).max_output, None);
}

#[test]
fn backend_report_counts_only_for_its_own_models() {
    let catalog = Catalog::embedded();
    let report = |most| ModelCard {
        name: "Shared".to_owned(),
        max_output: Some(most),
        ..ModelCard::default()
    };
    catalog.learn_at("one", &report(10));
    catalog.learn_at("other", &report(20));
    assert_eq!(catalog.find_at("one", "shared").max_output, Some(10));
    assert_eq!(catalog.find_at("other", "SHARED").max_output, Some(20));
    assert_eq!(catalog.find_at("third", "shared").max_output, None);
    assert_eq!(catalog.find("shared").max_output, None);
}
