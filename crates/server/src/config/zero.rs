//! Zero configuration: backends and rules made from what the environment offers, as if somebody had
//! written them into the file. So the same checks and overrides hold for them.

use super::document::{Entry, Node, Spot, Value};
use super::paths::Environment;
use super::settings::Dialect;

/// A provider that a key in the environment makes a backend of.
struct Provider {
    name: &'static str,
    dialect: Dialect,
    /// Always the real one: `ANTHROPIC_BASE_URL` and its like are what points clients at this
    /// gateway, and to follow them would send every request back to where it came from.
    base_url: &'static str,
    /// The variables that may hold the key; the first that does is taken.
    keys: &'static [&'static str],
    /// How its models are called.
    models: &'static [&'static str],
    /// The one for front ends that name none.
    default_model: &'static str,
}

/// In the order that decides which of them is the default.
const PROVIDERS: &[Provider] = &[
    Provider {
        name: "anthropic",
        dialect: Dialect::Anthropic,
        base_url: "https://api.anthropic.com",
        keys: &["ANTHROPIC_API_KEY"],
        models: &["claude-*"],
        default_model: "claude-sonnet-5",
    },
    Provider {
        name: "openai",
        dialect: Dialect::OpenAiResponses,
        base_url: "https://api.openai.com",
        keys: &["OPENAI_API_KEY"],
        models: &["gpt-*", "o1*", "o3*", "o4*"],
        default_model: "gpt-6.1-sol",
    },
    Provider {
        name: "gemini",
        dialect: Dialect::Gemini,
        base_url: "https://generativelanguage.googleapis.com",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        models: &["gemini-*"],
        default_model: "gemini-3.8-flash",
    },
    Provider {
        name: "deepseek",
        dialect: Dialect::OpenAiChat,
        base_url: "https://api.deepseek.com",
        keys: &["DEEPSEEK_API_KEY"],
        models: &["deepseek-*"],
        default_model: "deepseek-flash",
    },
];

/// Variables that will make backends once their dialects are there.
const LATER: [(&str, &str); 1] = [("OLLAMA_HOST", "the ollama dialect is")];

/// Puts backends into a tree that has none; the notes name what was found but cannot be used.
pub(super) fn add_backends(root: &mut Node, env: &Environment) -> Vec<String> {
    // An empty list in the file is no wish for a gateway without backends.
    if root
        .get("backend")
        .is_some_and(|node| node.value != Value::List(Vec::new()))
    {
        return Vec::new();
    }
    let found: Vec<(&Provider, &str)> = PROVIDERS
        .iter()
        .filter_map(|provider| {
            let mut keys = provider.keys.iter().copied();
            Some((provider, keys.find(|key| is_there(env, key))?))
        })
        .collect();
    let simulator = Dialect::Simulator.word();
    // The first backend is the default route, so real providers go before the simulator.
    let backends = found
        .iter()
        .map(|(provider, key)| {
            let settings = [
                ("name", provider.name),
                ("dialect", provider.dialect.word()),
                ("base_url", provider.base_url),
                ("api_key_env", key),
                ("default_model", provider.default_model),
            ];
            table(&settings, key)
        })
        .chain([table(
            &[
                ("name", simulator),
                ("dialect", simulator),
                ("default_model", "claude-sonnet-5"),
            ],
            "THROUGHLINE_BACKEND__SIMULATOR",
        )]);
    root.set(&["backend"], list(backends.collect()));
    // One provider needs no rules, and without them a switch moves every model. Whoever writes
    // about routes decides about all of them.
    if found.len() > 1 && root.get("route").is_none() {
        let rules = found.iter().flat_map(|(provider, key)| {
            let rule = |model| table(&[("model", model), ("backend", provider.name)], key);
            provider.models.iter().copied().map(rule)
        });
        root.set(&["route", "rules"], list(rules.collect()));
    }
    let unusable = LATER.iter().filter(|(name, _)| is_there(env, name));
    unusable
        .map(|(name, what)| format!("{name} found, but {what} not available yet"))
        .collect()
}

fn is_there(env: &Environment, name: &str) -> bool {
    env.get(name).is_some_and(|value| !value.trim().is_empty())
}

fn list(elements: Vec<Node>) -> Node {
    Node {
        value: Value::List(elements),
        spot: Spot::File(0..0),
    }
}

/// What can be wrong with such a table is the key, so that is where it stands.
fn table(settings: &[(&str, &str)], variable: &str) -> Node {
    let spot = || Spot::Variable(variable.to_owned());
    let entries = settings.iter().map(|(key, text)| Entry {
        key: (*key).to_owned(),
        spot: spot(),
        node: Node::text(*text, spot()),
    });
    Node {
        value: Value::Table(entries.collect()),
        spot: spot(),
    }
}
