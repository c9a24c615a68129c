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

/// Where Ollama is. Unlike the others' variables it names a server, and that needs no key.
const OLLAMA_HOST: &str = "OLLAMA_HOST";
const OLLAMA_PORT: &str = "11434";
/// Where we listen if nobody says otherwise.
const LISTEN: &str = "127.0.0.1:8484";
/// How models are called that people run there.
const OLLAMA_MODELS: [&str; 6] = ["gpt-oss*", "qwen*", "llama*", "gemma*", "mistral*", "phi*"];

/// Puts backends into a tree that has none; the notes name what was found but cannot be used.
pub(super) fn add_backends(root: &mut Node, env: &Environment) -> Vec<String> {
    // An empty list in the file is no wish for a gateway without backends.
    if root.get("backend").is_some_and(|node| node.value != Value::List(Vec::new())) {
        return Vec::new();
    }
    let found: Vec<(&Provider, &str)> = PROVIDERS
        .iter()
        .filter_map(|provider| {
            let mut keys = provider.keys.iter().copied();
            Some((provider, keys.find(|key| is_there(env, key))?))
        })
        .collect();
    let (ollama, note) = match own_server(env, root) {
        Ok(found) => (found, None),
        Err(note) => (None, Some(note)),
    };
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
        .chain(ollama.as_ref().map(|url| {
            let word = Dialect::Ollama.word();
            let settings = [("name", word), ("dialect", word), ("base_url", url)];
            table(&settings, OLLAMA_HOST)
        }))
        .chain([table(
            &[("name", simulator), ("dialect", simulator), ("default_model", "claude-sonnet-5")],
            "THROUGHLINE_BACKEND__SIMULATOR",
        )]);
    root.set(&["backend"], list(backends.collect()));
    // One provider needs no rules, and without them a switch moves every model. Whoever writes
    // about routes decides about all of them.
    let makers = found.len() + usize::from(ollama.is_some());
    if makers > 1 && root.get("route").is_none() {
        let rule = |model: &str, backend: &str, key: &str| {
            table(&[("model", model), ("backend", backend)], key)
        };
        let of_keys = found.iter().flat_map(|(provider, key)| {
            let models = provider.models.iter();
            models.map(move |model| rule(model, provider.name, key))
        });
        let of_server = OLLAMA_MODELS
            .iter()
            .filter(|_| ollama.is_some())
            .map(|model| rule(model, Dialect::Ollama.word(), OLLAMA_HOST));
        root.set(&["route", "rules"], list(of_keys.chain(of_server).collect()));
    }
    note.into_iter().collect()
}

/// The address of the Ollama server that the environment names. Its clients read the same variable,
/// and find this gateway by it: then there is a note instead.
fn own_server(env: &Environment, root: &Node) -> Result<Option<String>, String> {
    let Some(host) = env.get(OLLAMA_HOST).map(|host| host.trim()).filter(|host| !host.is_empty())
    else {
        return Ok(None);
    };
    let url = server_url(host);
    let listen = match root.get("listen").map(|node| &node.value) {
        Some(Value::Text(listen)) => listen.as_str(),
        _ => LISTEN,
    };
    let here = |url: &str| url.replace("//localhost", "//127.0.0.1");
    if here(&url) == here(&server_url(listen)) {
        return Err(format!(
            "{OLLAMA_HOST} is the address of this gateway, so it makes no backend"
        ));
    }
    Ok(Some(url))
}

/// An address as Ollama reads it: scheme and port may be missing, and a server that listens to all
/// is asked on this machine.
fn server_url(host: &str) -> String {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let (place, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let has_port = |(name, _): &(&str, &str)| !name.contains(':') || name.ends_with(']');
    let (name, port) = match place.rsplit_once(':').filter(has_port) {
        Some((name, port)) => (name, Some(port)),
        None => (place, None),
    };
    let name = match name {
        "" | "0.0.0.0" => "127.0.0.1",
        "[::]" => "[::1]",
        name => name,
    };
    let port = match (port, host.contains("://")) {
        (Some(port), _) => format!(":{port}"),
        // Whoever writes a scheme means its port.
        (None, true) => String::new(),
        (None, false) => format!(":{OLLAMA_PORT}"),
    };
    format!("{scheme}://{name}{port}{}", path.trim_end_matches('/'))
}

fn is_there(env: &Environment, name: &str) -> bool {
    env.get(name).is_some_and(|value| !value.trim().is_empty())
}

fn list(elements: Vec<Node>) -> Node {
    Node { value: Value::List(elements), spot: Spot::File(0..0) }
}

/// What can be wrong with such a table is the key, so that is where it stands.
fn table(settings: &[(&str, &str)], variable: &str) -> Node {
    let spot = || Spot::Variable(variable.to_owned());
    let entries = settings.iter().map(|(key, text)| Entry {
        key: (*key).to_owned(),
        spot: spot(),
        node: Node::text(*text, spot()),
    });
    Node { value: Value::Table(entries.collect()), spot: spot() }
}
