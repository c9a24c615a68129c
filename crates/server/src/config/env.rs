//! Overrides from the environment: `THROUGHLINE_<SECTION>__<KEY>`, and for backends
//! `THROUGHLINE_BACKEND__<NAME>__<KEY>`. A variable only puts a value into the tree; whether the
//! value is right is judged together with the file's.

use super::diagnostic::{Report, Trouble, list};
use super::document::{Entry, Node, Spot, Value};
use super::paths::Environment;
use super::schema::{self, Kind, Row};
use super::suggest;

const PREFIX: &str = "THROUGHLINE_";
const BACKEND_PREFIX: &str = "THROUGHLINE_BACKEND__";

/// Variables of ours that are no configuration keys.
const RESERVED: [&str; 4] = [
    "THROUGHLINE_CONFIG",
    // Scripts and tests point at a binary with it.
    "THROUGHLINE_BIN",
    "THROUGHLINE_KEYRING",
    "THROUGHLINE_URL",
];

/// Ways to say whose key is used. Saying one in the environment unsays the others of the file.
const CREDENTIALS: [&str; 3] = ["api_key", "api_key_env", "auth"];

/// Lays everything over the tree that is not about a single backend.
pub(super) fn apply(root: &mut Node, env: &Environment, report: &mut Report<'_>) {
    for (name, text) in ours(env).filter(|(name, _)| !name.starts_with(BACKEND_PREFIX)) {
        match settings().find(|row| variable(row.path) == *name) {
            Some(row) => root.set(&parts(row.path), value(text, row, name)),
            None => {
                let known: Vec<String> = settings().map(|row| variable(row.path)).collect();
                report.add(&Spot::Variable(name.clone()), unknown(name, &known));
            }
        }
    }
}

/// Lays the rest over the backends, whose names have to be known by now.
pub(super) fn apply_to_backends(root: &mut Node, env: &Environment, report: &mut Report<'_>) {
    let names: Vec<String> = root
        .get("backend")
        .map_or(&[][..], Node::elements)
        .iter()
        .map(|backend| backend.get("name").and_then(Node::as_text).unwrap_or_default().to_owned())
        .collect();
    for (name, text) in ours(env).filter(|(name, _)| name.starts_with(BACKEND_PREFIX)) {
        let spot = Spot::Variable(name.clone());
        let targets: Vec<(usize, &Row)> = names
            .iter()
            .enumerate()
            .filter_map(|(at, backend)| {
                let mut rows = backend_settings();
                Some((at, rows.find(|row| backend_variable(backend, row) == *name)?))
            })
            .collect();
        match targets.as_slice() {
            [(at, row)] => {
                if let Some(backend) = element_mut(root, *at) {
                    set_in_backend(backend, row, value(text, row, name));
                }
            }
            [] => {
                let known = names.iter().flat_map(|backend| {
                    backend_settings().map(|row| backend_variable(backend, row))
                });
                let trouble = unknown(name, &known.collect::<Vec<_>>());
                let backends = list(names.iter().map(String::as_str));
                let form =
                    format!("`{BACKEND_PREFIX}<NAME>__<KEY>` with one of the backends {backends}");
                report.add(&spot, trouble.expected(form));
            }
            several => {
                let backends = list(several.iter().map(|(at, _)| names[*at].as_str()));
                let message = format!("the name fits several backends: {backends}");
                report.add(&spot, Trouble::new(message).hint("set the key in the file instead"));
            }
        }
    }
}

fn ours(env: &Environment) -> impl Iterator<Item = (&String, &String)> {
    env.iter().filter(|(name, _)| name.starts_with(PREFIX) && !RESERVED.contains(&name.as_str()))
}

/// Rows that have a variable of their own. Elements of a list have none: they have no name.
fn settings() -> impl Iterator<Item = &'static Row> {
    let nested = |row: &Row| {
        let mut lists = schema::ROWS.iter().filter(|list| matches!(list.kind, Kind::Tables));
        lists.any(|list| row.path.strip_prefix(list.path).is_some_and(|rest| rest.starts_with('.')))
    };
    schema::ROWS.iter().filter(move |row| !nested(row))
}

fn backend_settings() -> impl Iterator<Item = &'static Row> {
    schema::ROWS.iter().filter(|row| row.path.starts_with("backend."))
}

fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.to_ascii_uppercase().replace('.', "__"))
}

fn backend_variable(backend: &str, row: &Row) -> String {
    let key = row.path.trim_start_matches("backend.").to_ascii_uppercase().replace('.', "__");
    format!("{BACKEND_PREFIX}{}__{key}", backend.to_ascii_uppercase().replace('-', "_"))
}

fn parts(path: &str) -> Vec<&str> {
    path.split('.').collect()
}

/// A TOML value, or a bare word. Where text is wanted, everything but a quoted text is taken as
/// it stands: a key of digits is still a key.
fn value(text: &str, row: &Row, name: &str) -> Node {
    let spot = Spot::Variable(name.to_owned());
    let bare = || Node::text(text, spot.clone());
    match (Node::of_value(text, &spot), row.kind) {
        (Some(node), Kind::Text(_) | Kind::Secret) if node.as_text().is_none() => bare(),
        (Some(node), _) => node,
        (None, _) => bare(),
    }
}

fn unknown(name: &str, known: &[String]) -> Trouble {
    let meant = suggest::nearest(name, known.iter().map(String::as_str));
    Trouble::new("no setting has this name").meant(meant)
}

fn set_in_backend(backend: &mut Node, row: &Row, node: Node) {
    if let (true, Value::Table(entries)) = (CREDENTIALS.contains(&row.key()), &mut backend.value) {
        let stays =
            |entry: &Entry| !CREDENTIALS.contains(&entry.key.as_str()) || is_override(&entry.spot);
        entries.retain(stays);
    }
    backend.set(&parts(row.path.trim_start_matches("backend.")), node);
}

fn is_override(spot: &Spot) -> bool {
    matches!(spot, Spot::Variable(name) if name.starts_with(BACKEND_PREFIX))
}

fn element_mut(root: &mut Node, at: usize) -> Option<&mut Node> {
    let Value::Table(entries) = &mut root.value else {
        return None;
    };
    let backend = entries.iter_mut().find(|entry| entry.key == "backend")?;
    let Value::List(elements) = &mut backend.node.value else {
        return None;
    };
    elements.get_mut(at)
}
