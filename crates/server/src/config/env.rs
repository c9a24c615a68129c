//! Overrides from the environment: `THROUGHLINE_<SECTION>__<KEY>`, and for backends
//! `THROUGHLINE_BACKEND__<NAME>__<KEY>`. A variable puts a value into the tree, which is then checked
//! like a value of the file.

use super::diagnostic::{Problem, Report, list};
use super::document::{Entry, Node, Position, Value};
use super::paths::Environment;
use super::schema::{self, KeyType, Row};
use super::suggest;

const PREFIX: &str = "THROUGHLINE_";
const BACKEND_PREFIX: &str = "THROUGHLINE_BACKEND__";

/// Variables with our prefix that are not configuration keys.
const RESERVED: [&str; 5] = [
    "THROUGHLINE_CONFIG",
    // Scripts and tests name the binary with it.
    "THROUGHLINE_BIN",
    "THROUGHLINE_KEYRING",
    "THROUGHLINE_RECOVERY_CODE",
    "THROUGHLINE_URL",
];

/// Keys that exclude each other. One of them in the environment replaces the others in the file.
const CREDENTIALS: [&str; 3] = ["api_key", "api_key_env", "auth"];

/// Applies the variables that are not about a single backend.
pub(super) fn apply(root: &mut Node, env: &Environment, report: &mut Report<'_>) {
    for (name, text) in own_variables(env).filter(|(name, _)| !name.starts_with(BACKEND_PREFIX)) {
        match settings().find(|row| variable(row.path) == *name) {
            Some(row) => root.set(&parts(row.path), value(text, row, name)),
            None => {
                let known: Vec<String> = settings().map(|row| variable(row.path)).collect();
                report.add(&Position::Variable(name.clone()), unknown(name, &known));
            }
        }
    }
}

/// Applies the variables of single backends. The names of all backends must be known by now.
pub(super) fn apply_to_backends(root: &mut Node, env: &Environment, report: &mut Report<'_>) {
    let names: Vec<String> = root
        .get("backend")
        .map_or(&[][..], Node::elements)
        .iter()
        .map(|backend| backend.get("name").and_then(Node::as_text).unwrap_or_default().to_owned())
        .collect();
    for (name, text) in own_variables(env).filter(|(name, _)| name.starts_with(BACKEND_PREFIX)) {
        let position = Position::Variable(name.clone());
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
                let problem = unknown(name, &known.collect::<Vec<_>>());
                let backends = list(names.iter().map(String::as_str));
                let form =
                    format!("`{BACKEND_PREFIX}<NAME>__<KEY>` with one of the backends {backends}");
                report.add(&position, problem.expected(form));
            }
            several => {
                let backends = list(several.iter().map(|(at, _)| names[*at].as_str()));
                let message = format!("the name matches several backends: {backends}");
                report
                    .add(&position, Problem::new(message).hint("set the key in the file instead"));
            }
        }
    }
}

fn own_variables(env: &Environment) -> impl Iterator<Item = (&String, &String)> {
    env.iter().filter(|(name, _)| name.starts_with(PREFIX) && !RESERVED.contains(&name.as_str()))
}

/// Rows with a variable of their own. Elements of a list have none, because they have no name.
fn settings() -> impl Iterator<Item = &'static Row> {
    let nested = |row: &Row| {
        let mut lists =
            schema::ROWS.iter().filter(|list| matches!(list.key_type, KeyType::TableList));
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

/// Parses a TOML value, or takes the text as a string. For keys that hold a string, everything that is
/// not quoted is a string: an API key may consist of digits.
fn value(text: &str, row: &Row, name: &str) -> Node {
    let position = Position::Variable(name.to_owned());
    let bare = || Node::text(text, position.clone());
    match (Node::of_value(text, &position), row.key_type) {
        (Some(node), KeyType::Text(_) | KeyType::Secret) if node.as_text().is_none() => bare(),
        (Some(node), _) => node,
        (None, _) => bare(),
    }
}

fn unknown(name: &str, known: &[String]) -> Problem {
    let nearest = suggest::nearest(name, known.iter().map(String::as_str));
    Problem::new("no setting has this name").did_you_mean(nearest)
}

fn set_in_backend(backend: &mut Node, row: &Row, node: Node) {
    if let (true, Value::Table(entries)) = (CREDENTIALS.contains(&row.key()), &mut backend.value) {
        let keeps = |entry: &Entry| {
            !CREDENTIALS.contains(&entry.key.as_str()) || is_override(&entry.position)
        };
        entries.retain(keeps);
    }
    backend.set(&parts(row.path.trim_start_matches("backend.")), node);
}

fn is_override(position: &Position) -> bool {
    matches!(position, Position::Variable(name) if name.starts_with(BACKEND_PREFIX))
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
