//! Zero configuration: backends made from what the environment offers, as if somebody had
//! written them into the file. So the same checks and overrides hold for them.

use super::document::{Entry, Node, Spot, Value};
use super::paths::Environment;
use super::settings::Dialect;

/// Always the real one: `ANTHROPIC_BASE_URL` is what points clients at this gateway, and to
/// follow it would send every request back to where it came from.
const ANTHROPIC_URL: &str = "https://api.anthropic.com";
const ANTHROPIC_KEY: &str = "ANTHROPIC_API_KEY";

/// Variables that will make backends once their dialects are there.
const LATER: [(&str, &str); 4] = [
    ("OPENAI_API_KEY", "the openai dialects are"),
    ("GEMINI_API_KEY", "the gemini dialect is"),
    ("DEEPSEEK_API_KEY", "the openai dialects are"),
    ("OLLAMA_HOST", "the ollama dialect is"),
];

/// Puts backends into a tree that has none; the notes name what was found but cannot be used.
pub(super) fn add_backends(root: &mut Node, env: &Environment) -> Vec<String> {
    // An empty list in the file is no wish for a gateway without backends.
    if root
        .get("backend")
        .is_some_and(|node| node.value != Value::List(Vec::new()))
    {
        return Vec::new();
    }
    let mut backends = Vec::new();
    // The first backend is the default route, so the real provider goes before the simulator.
    if is_there(env, ANTHROPIC_KEY) {
        backends.push(backend(&[
            ("name", "anthropic"),
            ("dialect", Dialect::Anthropic.word()),
            ("base_url", ANTHROPIC_URL),
            ("api_key_env", ANTHROPIC_KEY),
        ]));
    }
    let simulator = Dialect::Simulator.word();
    backends.push(backend(&[("name", simulator), ("dialect", simulator)]));
    root.set(
        &["backend"],
        Node {
            value: Value::List(backends),
            spot: spot(),
        },
    );
    let unusable = LATER.iter().filter(|(name, _)| is_there(env, name));
    unusable
        .map(|(name, what)| format!("{name} found, but {what} not available yet"))
        .collect()
}

fn is_there(env: &Environment, name: &str) -> bool {
    env.get(name).is_some_and(|value| !value.trim().is_empty())
}

fn backend(settings: &[(&str, &str)]) -> Node {
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

/// What can be wrong with these backends is the key, and that is where it stands.
fn spot() -> Spot {
    Spot::Variable(ANTHROPIC_KEY.to_owned())
}
