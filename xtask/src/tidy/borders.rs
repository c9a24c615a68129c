//! Which of our crates may depend on which, checked against `cargo metadata`. A new dependency between
//! crates is a decision: it changes this table, in a commit of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Finding;

/// A crate and those of our crates that it may use in a release build.
const ALLOWED: &[(&str, &[&str])] = &[
    ("throughline-canonical", &[]),
    ("throughline-codec", &["throughline-canonical"]),
    // It will also be built for browsers.
    ("throughline-sealing", &[]),
    ("throughline-tools", &["throughline-canonical"]),
    ("throughline-gateway", &["throughline-canonical", "throughline-codec", "throughline-sealing"]),
    (
        "throughline-conversations",
        &[
            "throughline-canonical",
            "throughline-codec",
            "throughline-gateway",
            "throughline-sealing",
            "throughline-tools",
        ],
    ),
    (
        "throughline-backends",
        &[
            "throughline-canonical",
            "throughline-codec",
            "throughline-gateway",
            "throughline-conversations",
        ],
    ),
    (
        "throughline-server",
        &[
            "throughline-canonical",
            "throughline-codec",
            "throughline-gateway",
            "throughline-conversations",
            "throughline-backends",
            "throughline-sealing",
            "throughline-simulator",
            "throughline-tools",
        ],
    ),
    // The simulator judges the other crates, so it shares no code with them.
    ("throughline-simulator", &[]),
    (
        "throughline-testkit",
        &[
            "throughline-canonical",
            "throughline-codec",
            "throughline-gateway",
            "throughline-backends",
            "throughline-server",
            "throughline-simulator",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that all tests may use.
const TEST_ONLY: &[&str] = &["throughline-testkit", "throughline-simulator", "throughline-sealing"];

/// Crates that must not depend on a runtime, a server or a database, directly or indirectly.
const PURE: &[&str] = &["throughline-canonical", "throughline-codec", "throughline-sealing"];
const IMPURE: &[&str] = &["tokio", "hyper", "axum", "sqlx"];

/// Checks every dependency between our crates, and that pure crates stay pure.
pub(super) fn check(metadata: &Value) -> Vec<Finding> {
    let packages = list(&metadata["packages"]);
    let members: BTreeSet<&str> =
        list(&metadata["workspace_members"]).iter().filter_map(Value::as_str).collect();
    let ours: Vec<&Value> =
        packages.iter().filter(|package| members.contains(text(&package["id"]))).collect();
    let names: BTreeSet<&str> = ours.iter().map(|package| text(&package["name"])).collect();

    let mut findings = Vec::new();
    for package in &ours {
        findings.extend(check_dependencies(package, &names));
    }
    for package in ours.iter().filter(|package| PURE.contains(&text(&package["name"]))) {
        findings.extend(check_purity(package, metadata));
    }
    findings
}

fn check_dependencies(package: &Value, ours: &BTreeSet<&str>) -> Vec<Finding> {
    let name = text(&package["name"]);
    let manifest = manifest(name);
    let Some((_, allowed)) = ALLOWED.iter().find(|(from, _)| *from == name) else {
        return vec![Finding::new(
            manifest,
            1,
            format!("crate `{name}` has no row in the table of dependencies"),
            "list what it may depend on in `xtask/src/tidy/borders.rs`",
        )];
    };
    list(&package["dependencies"])
        .iter()
        .filter_map(|dependency| {
            let to = text(&dependency["name"]);
            let for_tests = dependency["kind"].as_str() == Some("dev");
            let fine = !ours.contains(to)
                || allowed.contains(&to)
                || (for_tests && (TEST_ONLY.contains(&to) || to == name));
            (!fine).then(|| {
                let remedy = if to == "throughline-testkit" {
                    "move it to `[dev-dependencies]`: it is for tests only".to_owned()
                } else {
                    let allowed = if allowed.is_empty() {
                        "none of our crates".to_owned()
                    } else {
                        allowed.join(", ")
                    };
                    format!("`{name}` may use {allowed}; move the code, or turn the need into a trait it defines")
                };
                Finding::new(
                    manifest.clone(),
                    1,
                    format!("`{name}` must not depend on `{to}`"),
                    remedy,
                )
            })
        })
        .collect()
}

/// Follows normal dependencies and shows the path to each impure crate.
fn check_purity(package: &Value, metadata: &Value) -> Vec<Finding> {
    let names: BTreeMap<&str, &str> = list(&metadata["packages"])
        .iter()
        .map(|package| (text(&package["id"]), text(&package["name"])))
        .collect();
    let nodes: BTreeMap<&str, &Value> =
        list(&metadata["resolve"]["nodes"]).iter().map(|node| (text(&node["id"]), node)).collect();
    let start = text(&package["id"]);
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = vec![start];
    let mut findings = Vec::new();
    while let Some(id) = open.pop() {
        let Some(node) = nodes.get(id) else { continue };
        for dependency in list(&node["deps"]) {
            let to = text(&dependency["pkg"]);
            let normal = list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            if !normal || to == start || came_from.contains_key(to) {
                continue;
            }
            came_from.insert(to, id);
            let name = names.get(to).copied().unwrap_or_default();
            if IMPURE.contains(&name) {
                let path = path(start, to, &came_from, &names);
                findings.push(Finding::new(
                    manifest(text(&package["name"])),
                    1,
                    format!("`{name}` is a dependency: {path}"),
                    "take bytes and values instead; the runtime belongs to the crates outside",
                ));
            } else {
                open.push(to);
            }
        }
    }
    findings
}

fn path(
    start: &str,
    end: &str,
    came_from: &BTreeMap<&str, &str>,
    names: &BTreeMap<&str, &str>,
) -> String {
    let mut steps = vec![end];
    while let Some(&before) = steps.last().and_then(|step| came_from.get(step)) {
        steps.push(before);
        if before == start {
            break;
        }
    }
    let words: Vec<&str> =
        steps.iter().rev().map(|id| names.get(id).copied().unwrap_or(id)).collect();
    words.join(" > ")
}

fn manifest(name: &str) -> String {
    match name.strip_prefix("throughline-") {
        Some(folder) => format!("crates/{folder}/Cargo.toml"),
        None => format!("{name}/Cargo.toml"),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A small metadata value: `(from, to, kind)`, where ids are names.
    fn check_edges(members: &[&str], edges: &[(&str, &str, Value)]) -> Vec<String> {
        let mut names: BTreeSet<&str> = members.iter().copied().collect();
        names.extend(edges.iter().flat_map(|(from, to, _)| [*from, *to]));
        let from = |name: &str| -> Vec<&(&str, &str, Value)> {
            edges.iter().filter(|(from, ..)| *from == name).collect()
        };
        let packages: Vec<Value> = names
            .iter()
            .map(|name| {
                let dependencies: Vec<Value> = from(name)
                    .iter()
                    .map(|(_, to, kind)| json!({"name": to, "kind": kind}))
                    .collect();
                json!({"id": name, "name": name, "dependencies": dependencies})
            })
            .collect();
        let nodes: Vec<Value> = names
            .iter()
            .map(|name| {
                let deps: Vec<Value> = from(name)
                    .iter()
                    .map(|(_, to, kind)| json!({"pkg": to, "dep_kinds": [{"kind": kind}]}))
                    .collect();
                json!({"id": name, "deps": deps})
            })
            .collect();
        check(&json!({
            "packages": packages,
            "workspace_members": members,
            "resolve": {"nodes": nodes},
        }))
        .into_iter()
        .map(|finding| finding.what)
        .collect()
    }

    #[test]
    fn dependency_in_the_table_is_fine() {
        let edges = [
            ("throughline-codec", "throughline-canonical", Value::Null),
            ("throughline-codec", "throughline-testkit", json!("dev")),
        ];
        let members = ["throughline-codec", "throughline-canonical", "throughline-testkit"];
        assert!(check_edges(&members, &edges).is_empty());
    }

    #[test]
    fn dependency_outside_the_table_is_found() {
        let edges = [("throughline-canonical", "throughline-codec", Value::Null)];
        let members = ["throughline-canonical", "throughline-codec"];
        assert_eq!(
            check_edges(&members, &edges),
            ["`throughline-canonical` must not depend on `throughline-codec`"]
        );
    }

    #[test]
    fn testkit_in_a_release_build_is_found() {
        let edges = [("throughline-server", "throughline-testkit", Value::Null)];
        let members = ["throughline-server", "throughline-testkit"];
        assert_eq!(check_edges(&members, &edges).len(), 1);
    }

    #[test]
    fn simulator_that_uses_the_gateway_is_found_even_in_tests() {
        let edges = [("throughline-simulator", "throughline-gateway", json!("dev"))];
        let members = ["throughline-simulator", "throughline-gateway"];
        assert_eq!(check_edges(&members, &edges).len(), 1);
    }

    #[test]
    fn indirect_runtime_is_found_with_its_path() {
        let edges =
            [("throughline-codec", "helper", Value::Null), ("helper", "tokio", Value::Null)];
        assert_eq!(
            check_edges(&["throughline-codec"], &edges),
            ["`tokio` is a dependency: throughline-codec > helper > tokio"]
        );
    }

    #[test]
    fn runtime_for_tests_only_is_fine() {
        let edges = [("throughline-codec", "tokio", json!("dev"))];
        assert!(check_edges(&["throughline-codec"], &edges).is_empty());
    }

    #[test]
    fn crate_without_a_row_is_found() {
        assert_eq!(check_edges(&["throughline-utils"], &[]).len(), 1);
    }
}
