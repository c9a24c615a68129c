//! The `[route]` table: which backend answers which request, and that every name in it exists.

use super::address;
use super::diagnostic::{Report, Trouble, one_of, shown};
use super::document::Node;
use super::settings::{Auth, Backend, Route, Rule};
use super::suggest;
use super::values::{Located, Section};

/// Reads the routes. Names are held against those written in the backends, right or wrong, so
/// that one mistake is told once.
pub(super) fn read(top: Section<'_>, report: &mut Report<'_>) -> Route {
    let names: Vec<&str> = top
        .tables("backend")
        .iter()
        .filter_map(|backend| backend.node("name").and_then(Node::as_text))
        .collect();
    let section = top.table("route");
    let known = |written: Located, report: &mut Report<'_>| {
        check_backend(&written, &names, report);
        written.text
    };
    let default: Option<Located> = section.optional("default", report);
    let default = default.map(|written| known(written, report));
    let fallback: Vec<Located> = section.value("fallback", report);
    let fallback = fallback.into_iter().map(|written| known(written, report)).collect();
    let mut patterns: Vec<Located> = Vec::new();
    let mut rules = Vec::new();
    for rule in section.tables("rules") {
        let model: Option<Located> = rule.required("model", report);
        let backend: Option<Located> = rule.required("backend", report);
        let fallback: Vec<Located> = rule.value("fallback", report);
        if let Some(model) = &model {
            check_pattern(model, report);
            if let Some(first) = patterns.iter().find(|other| other.text == model.text) {
                let message = format!("there are two rules for {}", shown(&model.text));
                let hint = format!("the first is at {}", report.refer(&first.spot));
                report.add(
                    &model.spot,
                    Trouble::new(message).expected("one rule per model").hint(hint),
                );
            }
            patterns.push(model.clone());
        }
        rules.push(Rule {
            model: model.map(|model| model.text).unwrap_or_default(),
            backend: backend.map(|written| known(written, report)).unwrap_or_default(),
            fallback: fallback.into_iter().map(|written| known(written, report)).collect(),
        });
    }
    let first = || names.first().map_or(String::new(), |name| (*name).to_owned());
    Route { default: default.unwrap_or_else(first), rules, fallback }
}

/// Fallbacks that will be refused: a caller's key does not go to another origin by itself.
pub(super) fn notes(route: &Route, backends: &[Backend]) -> Vec<String> {
    let rules = route.rules.iter().map(|rule| (&rule.backend, &rule.fallback));
    let mut notes = Vec::new();
    for (from, targets) in std::iter::once((&route.default, &route.fallback)).chain(rules) {
        for to in targets {
            let named = |name: &String| backends.iter().find(|backend| backend.name == *name);
            let (Some(source), Some(target)) = (named(from), named(to)) else {
                continue;
            };
            let origin = |backend: &Backend| {
                backend.base_url.as_deref().map(address::origin).map(str::to_owned)
            };
            let passed_on =
                [source, target].iter().all(|backend| backend.auth == Auth::Passthrough);
            let note = format!(
                "fallback from `{from}` to `{to}` is refused: a caller's key goes to another origin \
                 only with `share_caller_key = true` on `{to}`"
            );
            let refused = passed_on && !target.share_caller_key && origin(source) != origin(target);
            if refused && !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Checks a model pattern: a name, or a prefix that ends in the only `*`.
pub(super) fn check_pattern(pattern: &Located, report: &mut Report<'_>) {
    let text = pattern.text.as_str();
    if text.strip_suffix('*').unwrap_or(text).contains('*') || text.is_empty() {
        let trouble = Trouble::new(format!("model pattern is {}", shown(text))).expected(
            r#"a model's name, or a prefix and one `*` at the end, as in "claude-opus-*""#,
        );
        report.add(&pattern.spot, trouble);
    }
}

fn check_backend(written: &Located, names: &[&str], report: &mut Report<'_>) {
    if names.contains(&written.text.as_str()) {
        return;
    }
    let trouble = Trouble::new(format!("no backend is called {}", shown(&written.text)))
        .expected(one_of(names.iter().copied()))
        .meant(suggest::nearest(&written.text, names.iter().copied()));
    report.add(&written.spot, trouble);
}
