//! Default backends and rules from the environment. They are added to the tree as if they were in the
//! file, so that the same checks and overrides apply.

use throughline_codec::dialects::{anthropic, gemini, ollama, openai_chat, openai_responses};

use super::config_enum::ConfigEnum;
use super::document::{Entry, Node, Position, Value};
use super::paths::Environment;
use super::settings::Dialect;

/// A provider that becomes a backend if its API key is in the environment.
struct Provider {
    name: &'static str,
    dialect: &'static str,
    /// Always the provider's own address. `ANTHROPIC_BASE_URL` and similar variables point clients at
    /// this gateway; a backend that used them would send every request back to the gateway.
    base_url: &'static str,
    /// Variables that may hold the key; the first one that is set is used.
    keys: &'static [&'static str],
    /// Patterns of its model names.
    models: &'static [&'static str],
    /// The model for requests that name none.
    default_model: &'static str,
}

/// The first provider with a key becomes the default backend.
const PROVIDERS: &[Provider] = &[
    Provider {
        name: "anthropic",
        dialect: anthropic::NAME,
        base_url: "https://api.anthropic.com",
        keys: &["ANTHROPIC_API_KEY"],
        models: &["claude-*"],
        default_model: "claude-sonnet-5",
    },
    Provider {
        name: "openai",
        dialect: openai_responses::NAME,
        base_url: "https://api.openai.com",
        keys: &["OPENAI_API_KEY"],
        models: &["gpt-*", "o1*", "o3*", "o4*"],
        default_model: "gpt-6.1-sol",
    },
    Provider {
        name: "gemini",
        dialect: gemini::NAME,
        base_url: "https://generativelanguage.googleapis.com",
        keys: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        models: &["gemini-*"],
        default_model: "gemini-3.8-flash",
    },
    Provider {
        name: "deepseek",
        dialect: openai_chat::NAME,
        base_url: "https://api.deepseek.com",
        keys: &["DEEPSEEK_API_KEY"],
        models: &["deepseek-*"],
        default_model: "deepseek-flash",
    },
];

/// The address of an Ollama server, which needs no key.
const OLLAMA_HOST: &str = "OLLAMA_HOST";
const OLLAMA_PORT: &str = "11434";
/// The default of `listen`.
const DEFAULT_LISTEN: &str = "127.0.0.1:8484";
/// Patterns of model names that are common on Ollama.
const OLLAMA_MODELS: [&str; 6] = ["gpt-oss*", "qwen*", "llama*", "gemma*", "mistral*", "phi*"];

/// Adds backends to a tree without any. Returns notes about variables that cannot be used.
pub(super) fn add_backends(root: &mut Node, env: &Environment) -> Vec<String> {
    // An empty list counts as none: a gateway needs a backend.
    if root.get("backend").is_some_and(|node| node.value != Value::List(Vec::new())) {
        return Vec::new();
    }
    let found: Vec<(&Provider, &str)> = PROVIDERS
        .iter()
        .filter_map(|provider| {
            let mut keys = provider.keys.iter().copied();
            Some((provider, keys.find(|key| is_set(env, key))?))
        })
        .collect();
    let (ollama, note) = match ollama_url(env, root) {
        Ok(found) => (found, None),
        Err(note) => (None, Some(note)),
    };
    let simulator = Dialect::SIMULATOR.name();
    // The first backend is the default route, so real providers come before the simulator.
    let backends = found
        .iter()
        .map(|(provider, key)| {
            let settings = [
                ("name", provider.name),
                ("dialect", provider.dialect),
                ("base_url", provider.base_url),
                ("api_key_env", key),
                ("default_model", provider.default_model),
            ];
            table(&settings, key)
        })
        .chain(ollama.as_ref().map(|url| {
            let settings = [("name", ollama::NAME), ("dialect", ollama::NAME), ("base_url", url)];
            table(&settings, OLLAMA_HOST)
        }))
        .chain([table(
            &[("name", simulator), ("dialect", simulator), ("default_model", "claude-sonnet-5")],
            "THROUGHLINE_BACKEND__SIMULATOR",
        )]);
    root.set(&["backend"], list(backends.collect()));
    // One provider needs no rules, and without rules a switch affects every model. A `[route]` in the
    // file replaces all rules.
    let provider_count = found.len() + usize::from(ollama.is_some());
    if provider_count > 1 && root.get("route").is_none() {
        let rule = |model: &str, backend: &str, key: &str| {
            table(&[("model", model), ("backend", backend)], key)
        };
        let provider_rules = found.iter().flat_map(|(provider, key)| {
            let models = provider.models.iter();
            models.map(move |model| rule(model, provider.name, key))
        });
        let ollama_rules = OLLAMA_MODELS
            .iter()
            .filter(|_| ollama.is_some())
            .map(|model| rule(model, ollama::NAME, OLLAMA_HOST));
        root.set(&["route", "rules"], list(provider_rules.chain(ollama_rules).collect()));
    }
    note.into_iter().collect()
}

/// The URL of the Ollama server in the environment. Ollama's clients read the same variable, so it may
/// name this gateway; then a note is returned instead.
fn ollama_url(env: &Environment, root: &Node) -> Result<Option<String>, String> {
    let Some(host) = env.get(OLLAMA_HOST).map(|host| host.trim()).filter(|host| !host.is_empty())
    else {
        return Ok(None);
    };
    let url = server_url(host);
    let listen = match root.get("listen").map(|node| &node.value) {
        Some(Value::Text(listen)) => listen.as_str(),
        _ => DEFAULT_LISTEN,
    };
    let normalize = |url: &str| url.replace("//localhost", "//127.0.0.1");
    if normalize(&url) == normalize(&server_url(listen)) {
        return Err(format!(
            "{OLLAMA_HOST} is the address of this gateway, so it is not used as a backend"
        ));
    }
    Ok(Some(url))
}

/// Reads an address as Ollama does: scheme and port are optional, and `0.0.0.0` means this machine.
fn server_url(host: &str) -> String {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let has_port = |(name, _): &(&str, &str)| !name.contains(':') || name.ends_with(']');
    let (name, port) = match authority.rsplit_once(':').filter(has_port) {
        Some((name, port)) => (name, Some(port)),
        None => (authority, None),
    };
    let name = match name {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        name => name,
    };
    let port = match (port, host.contains("://")) {
        (Some(port), _) => format!(":{port}"),
        // With a scheme, the port is that of the scheme.
        (None, true) => String::new(),
        (None, false) => format!(":{OLLAMA_PORT}"),
    };
    format!("{scheme}://{name}{port}{}", path.trim_end_matches('/'))
}

fn is_set(env: &Environment, name: &str) -> bool {
    env.get(name).is_some_and(|value| !value.trim().is_empty())
}

fn list(elements: Vec<Node>) -> Node {
    Node { value: Value::List(elements), position: Position::File(0..0) }
}

/// Builds a table whose position is the variable with the key: only the key can be wrong.
fn table(settings: &[(&str, &str)], variable: &str) -> Node {
    let position = || Position::Variable(variable.to_owned());
    let entries = settings.iter().map(|(key, text)| Entry {
        key: (*key).to_owned(),
        position: position(),
        node: Node::text(*text, position()),
    });
    Node { value: Value::Table(entries.collect()), position: position() }
}
