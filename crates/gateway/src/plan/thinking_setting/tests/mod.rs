//! Every amount for every kind of model, every limit (`borders`), and what the writers make of
//! adapted requests (`written`).

mod borders;
mod written;

use throughline_canonical::{Sampling, ThinkingSetting, Tool};

use super::*;
use crate::catalog::Catalog;

/// A model name of the built-in catalog, the upstream dialect and the variant.
type At = (&'static str, &'static str, &'static str);

fn profile(upstream: &str, variant: &str) -> &'static Profile {
    throughline_codec::dialects::upstream(upstream).unwrap().profile(variant)
}

fn model(name: &str) -> Model {
    Catalog::embedded().find(name)
}

fn asking(amount: Option<Amount>, show: Option<Show>) -> Request {
    Request {
        thinking: ThinkingSetting { amount, show },
        max_tokens: Some(50_000),
        ..Request::default()
    }
}

/// Adapts a request, and returns the losses as `setting reason`.
fn adapt_request(request: &mut Request, (name, upstream, variant): At) -> String {
    let losses = adapt(request, &model(name), profile(upstream, variant));
    let reported = losses.iter().map(|loss| match loss {
        Loss::SettingAdapted { setting, reason } => {
            format!("{} {}", setting.as_str(), reason.as_str())
        }
        other => other.to_string(),
    });
    reported.collect::<Vec<_>>().join(", ")
}

/// An amount from text: `-`, `off`, `on`, `effort high`, `budget 7`, `adaptive`, `adaptive high`.
fn amount(words: &str) -> Option<Amount> {
    let (kind, rest) = words.split_once(' ').unwrap_or((words, ""));
    Some(match kind {
        "-" => return None,
        "off" => Amount::Off,
        "on" => Amount::On,
        "effort" => Amount::Effort { effort: Effort::read(rest).unwrap() },
        "budget" => Amount::Budget { tokens: rest.parse().unwrap() },
        "adaptive" => Amount::Adaptive { effort: Effort::read(rest) },
        _ => panic!("{words}"),
    })
}

/// The amounts that every row of the table covers.
const ASKED: [&str; 9] = [
    "-",
    "off",
    "on",
    "effort minimal",
    "effort high",
    "effort max",
    "budget 5000",
    "adaptive",
    "adaptive low",
];

/// A row: the model, and the result for each amount of [`ASKED`]. The reason of a loss follows `!`.
type Row = (At, [&'static str; ASKED.len()]);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    // Budget models. Only Gemini can express an automatic budget.
    (("claude-sonnet-4-5", "anthropic", ""), [
        "-", "off", "budget 16384",
        "budget 1024 !effort_as_budget", "budget 32768 !effort_as_budget", "budget 40000 !effort_as_budget",
        "budget 5000", "budget 16384 !adaptive_as_budget", "budget 4096 !effort_as_budget",
    ]),
    (("gemini-2.5-flash", "gemini", ""), [
        "-", "off", "adaptive",
        "budget 1024 !effort_as_budget", "budget 24576 !effort_as_budget", "budget 24576 !effort_as_budget",
        "budget 5000", "adaptive", "budget 4096 !effort_as_budget",
    ]),
    (("gemini-2.5-pro", "gemini", ""), [
        "-", "budget 128 !always_thinks", "adaptive",
        "budget 1024 !effort_as_budget", "budget 32768 !effort_as_budget", "budget 32768 !effort_as_budget",
        "budget 5000", "adaptive", "budget 4096 !effort_as_budget",
    ]),
    (("gemini-2.5-pro", "openai_chat", "google"), [
        "-", "budget 128 !always_thinks", "on",
        "budget 1024 !effort_as_budget", "budget 32768 !effort_as_budget", "budget 32768 !effort_as_budget",
        "budget 5000", "on", "budget 4096 !effort_as_budget",
    ]),
    (("gemini-3.5-flash", "openai_chat", "google"), [
        "-", "effort minimal !always_thinks", "on",
        "effort minimal", "effort high", "effort high !effort",
        "effort medium !budget_as_effort", "on", "effort low",
    ]),
    (("qwen/qwen3-32b", "openai_chat", "groq"), [
        "-", "off", "on",
        "on !on_or_off", "on !on_or_off", "on !on_or_off",
        "on !on_or_off", "on", "on !on_or_off",
    ]),
    (("openai/gpt-oss-120b", "openai_chat", "groq"), [
        "-", "effort low !always_thinks", "effort medium",
        "effort low !effort", "effort high", "effort high !effort",
        "effort medium !budget_as_effort", "effort medium", "effort low",
    ]),
    (("qwen3-32b", "openai_chat", "qwen"), [
        "-", "off", "on",
        "budget 1024 !effort_as_budget", "budget 32768 !effort_as_budget", "budget 131072 !effort_as_budget",
        "budget 5000", "on", "budget 4096 !effort_as_budget",
    ]),
    (("qwen3-32b", "openai_chat", "vllm"), [
        "-", "off", "on",
        "on !on_or_off", "on !on_or_off", "on !on_or_off",
        "on !on_or_off", "on", "on !on_or_off",
    ]),
    // Adaptive models: accepts a budget, refuses a budget, cannot be off, can be off except between
    // tools.
    (("claude-opus-4-6", "anthropic", ""), [
        "-", "off", "adaptive",
        "adaptive low !effort", "adaptive high", "adaptive max",
        "budget 5000", "adaptive", "adaptive low",
    ]),
    (("claude-opus-5", "anthropic", ""), [
        "-", "off", "adaptive",
        "adaptive low !effort", "adaptive high", "adaptive max",
        "adaptive medium !budget_as_effort", "adaptive", "adaptive low",
    ]),
    (("claude-opus-5-5", "anthropic", ""), [
        "-", "adaptive low !always_thinks", "adaptive",
        "adaptive low !effort", "adaptive high", "adaptive max",
        "adaptive medium !budget_as_effort", "adaptive", "adaptive low",
    ]),
    (("claude-sonnet-5-5", "anthropic", ""), [
        "-", "off !between_tools", "adaptive",
        "adaptive low !effort", "adaptive high", "adaptive max",
        "adaptive medium !budget_as_effort", "adaptive", "adaptive low",
    ]),
    (("claude-opus-5", "openai_chat", "openrouter"), [
        "-", "off", "on",
        "effort low !effort", "effort high", "effort max",
        "effort medium !budget_as_effort", "on", "effort low",
    ]),
    (("claude-opus-4-6", "openai_chat", "litellm"), [
        "-", "off", "effort medium",
        "effort low !effort", "effort high", "effort max",
        "budget 5000", "effort medium", "effort low",
    ]),
    // It thinks by default but shows it only on request, with a proxy in between.
    (("claude-opus-5", "openai_chat", "litellm"), [
        "-", "off", "effort medium",
        "effort low !effort", "effort high", "effort max",
        "effort medium !budget_as_effort", "effort medium", "effort low",
    ]),
    // Level models. Their default leaves the level to the model.
    (("gemini-3.1-pro", "gemini", ""), [
        "-", "effort low !always_thinks", "-",
        "effort low !effort", "effort high", "effort high !effort",
        "effort medium !budget_as_effort", "-", "effort low",
    ]),
    (("gemini-3.5-flash", "gemini", ""), [
        "-", "effort minimal !always_thinks", "-",
        "effort minimal", "effort high", "effort high !effort",
        "effort medium !budget_as_effort", "-", "effort low",
    ]),
    // Effort models: cannot be off, is off by default, and with a switch.
    (("gpt-5", "openai_responses", ""), [
        "-", "effort minimal !always_thinks", "-",
        "effort minimal", "effort high", "effort high !effort",
        "effort medium !budget_as_effort", "-", "effort low",
    ]),
    (("gpt-5.1", "openai_chat", "openai"), [
        "-", "off", "effort medium",
        "effort low !effort", "effort high", "effort high !effort",
        "effort medium !budget_as_effort", "effort medium", "effort low",
    ]),
    (("deepseek-v4-pro", "openai_chat", "deepseek-v4"), [
        "-", "off", "on",
        "effort low !effort", "effort high", "effort max",
        "effort low !budget_as_effort", "on", "effort low",
    ]),
    (("gpt-oss-120b", "anthropic", ""), [
        "-", "adaptive low !always_thinks", "adaptive medium",
        "adaptive low !effort", "adaptive high", "adaptive high !effort",
        "adaptive medium !budget_as_effort", "adaptive medium", "adaptive low",
    ]),
    // Switch models, and one that is always on.
    (("glm-5", "openai_chat", "glm"), [
        "-", "off", "on",
        "on !on_or_off", "on !on_or_off", "on !on_or_off",
        "on !on_or_off", "on", "on !on_or_off",
    ]),
    (("glm-5", "anthropic", ""), [
        "-", "off", "budget 16384",
        "budget 1024 !effort_as_budget", "budget 32768 !effort_as_budget", "budget 40000 !effort_as_budget",
        "budget 5000", "budget 16384 !adaptive_as_budget", "budget 4096 !effort_as_budget",
    ]),
    (("deepseek-reasoner", "openai_chat", "deepseek-r1"), [
        "-", "- !always_thinks", "-",
        "- !on_or_off", "- !on_or_off", "- !on_or_off",
        "- !on_or_off", "-", "- !on_or_off",
    ]),
    (("grok-4", "openai_chat", "xai"), [
        "-", "- !always_thinks", "-",
        "- !on_or_off", "- !on_or_off", "- !on_or_off",
        "- !on_or_off", "-", "- !on_or_off",
    ]),
    // Models that do not think.
    (("gpt-4", "openai_chat", "openai"), [
        "-", "-", "- !model_does_not_think",
        "- !model_does_not_think", "- !model_does_not_think", "- !model_does_not_think",
        "- !model_does_not_think", "- !model_does_not_think", "- !model_does_not_think",
    ]),
    // Unknown models: everything that the dialect can express.
    (("house", "anthropic", ""), [
        "-", "off", "adaptive",
        "adaptive low !effort", "adaptive high", "adaptive max",
        "budget 5000", "adaptive", "adaptive low",
    ]),
    (("house", "gemini", ""), [
        "-", "off", "adaptive",
        "effort minimal", "effort high", "effort high !effort",
        "budget 5000", "adaptive", "effort low",
    ]),
    (("house", "openai_responses", ""), [
        "-", "off", "effort medium",
        "effort minimal", "effort high", "effort max",
        "effort medium !budget_as_effort", "effort medium", "effort low",
    ]),
    (("house", "openai_chat", "openrouter"), [
        "-", "off", "on",
        "effort minimal", "effort high", "effort max",
        "budget 5000", "on", "effort low",
    ]),
    (("house", "openai_chat", "deepseek-r1"), [
        "-", "- !always_thinks", "-",
        "- !on_or_off", "- !on_or_off", "- !on_or_off",
        "- !on_or_off", "-", "- !on_or_off",
    ]),
    // A switch model in a dialect without a switch.
    (("deepseek-v3.2", "openai_responses", ""), [
        "-", "off", "- !cannot_be_set",
        "- !on_or_off", "- !on_or_off", "- !on_or_off",
        "- !on_or_off", "- !cannot_be_set", "- !on_or_off",
    ]),
    // Ollama always gets a switch, also for a model that cannot be off.
    (("deepseek-r1:8b", "ollama", ""), [
        "on", "- !always_thinks", "on",
        "on !on_or_off", "on !on_or_off", "on !on_or_off",
        "on !on_or_off", "on", "on !on_or_off",
    ]),
];

/// Covers: C-2
#[test]
fn every_amount_becomes_one_that_the_model_accepts() {
    for (at, expected) in TABLE {
        for (requested, expected) in ASKED.iter().zip(expected) {
            let mut request = asking(amount(requested), None);
            let reported = adapt_request(&mut request, *at);
            let (sent, reason) = expected.split_once(" !").unwrap_or((expected, ""));
            assert_eq!(request.thinking.amount, amount(sent), "{at:?} {requested}");
            let lost = match reason {
                "" => String::new(),
                reason => format!("thinking {reason}"),
            };
            assert_eq!(reported, lost, "{at:?} {requested}");
        }
    }
}

#[test]
fn adapting_twice_changes_nothing() {
    for (at, _) in TABLE {
        // A replacement of "off" looks like a request to think. So does the default of a model, where the
        // setting is always written.
        let written = profile(at.1, at.2).thinking.always_written;
        let stable = |requested: &&str| *requested != "off" && !(written && *requested == "-");
        for requested in ASKED.into_iter().filter(stable) {
            for show in [None, Some(Show::Full), Some(Show::Summary), Some(Show::Hidden)] {
                let mut request = asking(amount(requested), show);
                request.sampling =
                    Sampling { temperature: Some(0.5), top_k: Some(3), ..Sampling::default() };
                request.tool_choice = Some(ToolChoice::Required);
                adapt_request(&mut request, *at);
                let mut retry = request.clone();
                let reported = adapt_request(&mut retry, *at);
                assert_eq!((retry, reported), (request, String::new()), "{at:?} {requested}");
            }
        }
    }
}

#[test]
fn tools_use_responses_if_they_must() {
    let tool = Tool::Function {
        name: "f".to_owned(),
        description: None,
        parameters: serde_json::Value::Null,
        strict: None,
    };
    for (name, requested, with_tools) in [
        ("gpt-5.3", "effort high", false),
        ("gpt-5.4", "effort high", true),
        ("gpt-5.4", "-", true),
        ("gpt-5.4", "off", false),
        ("gpt-6-luna", "effort low", true),
        ("gpt-6-luna", "off", false),
        ("gpt-6-astra", "off", true),
        ("gpt-6.1-sol", "-", true),
        ("house", "effort high", false),
    ] {
        let mut request = asking(amount(requested), None);
        assert!(!wants_responses(&request, &model(name)), "{name} {requested}");
        request.tools.push(tool.clone());
        let found = wants_responses(&request, &model(name));
        assert_eq!(found, with_tools, "{name} {requested}");
    }
}
