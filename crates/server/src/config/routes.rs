//! Reads the `[route]` table and the defaults of projects, and checks that every backend in it exists.

use throughline_gateway::backend::Auth;
use throughline_gateway::route::{Routes, Rule};

use super::address;
use super::diagnostic::{Problem, Report, one_of, shown};
use super::document::Node;
use super::settings::{Backend, ProjectDefaults};
use super::suggest;
use super::values::{LocatedText, Section};

/// Reads the routes. Backends with mistakes count as existing, so that one mistake is reported once.
pub(super) fn read(top: Section<'_>, backends: &[Backend], report: &mut Report<'_>) -> Routes {
    let names = backend_names(top);
    let section = top.table("route");
    let known = |written: LocatedText, report: &mut Report<'_>| {
        check_backend(&written, &names, report);
        written.text
    };
    let default: Option<LocatedText> = section.optional("default", report);
    let default = default.map(|written| known(written, report));
    let fallback: Vec<LocatedText> = section.value("fallback", report);
    let fallback = fallback.into_iter().map(|written| known(written, report)).collect();
    let mut patterns: Vec<LocatedText> = Vec::new();
    let mut rules = Vec::new();
    for rule in section.tables("rules") {
        let model: Option<LocatedText> = rule.required("model", report);
        let backend: Option<LocatedText> = rule.required("backend", report);
        let fallback: Vec<LocatedText> = rule.value("fallback", report);
        if let Some(model) = &model {
            check_pattern(model, report);
            if let Some(first) = patterns.iter().find(|other| other.text == model.text) {
                let message = format!("two rules have the model {}", shown(&model.text));
                let hint = format!("the first is at {}", report.refer(&first.position));
                report.add(
                    &model.position,
                    Problem::new(message).expected("one rule per model").hint(hint),
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
    // A backend without its key is off, so it is not the default by chance.
    let on = |backend: &&Backend| !matches!(backend.auth, Auth::Missing(_));
    let first = || {
        let first = backends.iter().find(on).or(backends.first());
        first.map_or(String::new(), |backend| backend.name.clone())
    };
    let cool_down = section.value("cool_down", report);
    Routes { default: default.unwrap_or_else(first), rules, fallback, cool_down }
}

/// Reads the defaults of new projects.
pub(super) fn read_projects(top: Section<'_>, report: &mut Report<'_>) -> ProjectDefaults {
    let section = top.table("projects");
    let provider: Option<LocatedText> = section.optional("provider", report);
    if let Some(written) = &provider {
        check_backend(written, &backend_names(top), report);
    }
    ProjectDefaults {
        provider: provider.map(|written| written.text).unwrap_or_default(),
        model: section.value("model", report),
        mode: section.choice("mode", report),
        previous_response: section.choice("previous_response", report),
        titles: section.value("titles", report),
    }
}

/// The names of all backends, also of those with mistakes.
fn backend_names(top: Section<'_>) -> Vec<&str> {
    let backends = top.tables("backend").into_iter();
    backends.filter_map(|backend| backend.node("name").and_then(Node::as_text)).collect()
}

/// Notes about fallbacks that are never used, because the caller's key may not go to another origin.
pub(super) fn notes(route: &Routes, backends: &[Backend]) -> Vec<String> {
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
            let both_passthrough =
                [source, target].iter().all(|backend| backend.auth == Auth::Passthrough);
            let note = format!(
                "fallback from `{from}` to `{to}` is never used: a caller's key is sent to another origin \
                 only with `share_caller_key = true` on `{to}`"
            );
            let refused =
                both_passthrough && !target.share_caller_key && origin(source) != origin(target);
            if refused && !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    notes
}

/// Checks a model pattern: a name, or a prefix that ends in the only `*`.
pub(super) fn check_pattern(pattern: &LocatedText, report: &mut Report<'_>) {
    let text = pattern.text.as_str();
    if text.strip_suffix('*').unwrap_or(text).contains('*') || text.is_empty() {
        let problem = Problem::new(format!("the model pattern is {}", shown(text))).expected(
            r#"a model's name, or a prefix and one `*` at the end, as in "claude-opus-*""#,
        );
        report.add(&pattern.position, problem);
    }
}

fn check_backend(written: &LocatedText, names: &[&str], report: &mut Report<'_>) {
    if names.contains(&written.text.as_str()) {
        return;
    }
    let problem = Problem::new(format!("no backend is named {}", shown(&written.text)))
        .expected(one_of(names.iter().copied()))
        .did_you_mean(suggest::nearest(&written.text, names.iter().copied()));
    report.add(&written.position, problem);
}
