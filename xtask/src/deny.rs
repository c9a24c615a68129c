//! The rules of `deny.toml` for dependencies: licences, duplicate versions and sources.
//!
//! `cargo tree` gives the dependency graph, so no tool has to be compiled first. The file keeps the
//! format of cargo-deny, which is only needed for security advisories.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

use crate::Failure;
use crate::command;
use crate::workspace;

/// The version whose format `deny.toml` follows.
const CARGO_DENY: &str = "0.20.2";

/// How Cargo.lock names the default registry.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks licences, duplicate versions and sources; advisories if cargo-deny is installed.
pub(crate) fn run() -> Result<(), Failure> {
    let rules = Rules::read(&read("deny.toml")?)?;
    let shipped = packages(&rules, "normal,build")?;
    let all = packages(&rules, "normal,build,dev")?;
    let manifests = workspace::metadata()?;

    let mut findings = check_licences(&all, &rules.licences);
    findings.extend(check_versions(&shipped, &rules.skipped));
    findings.extend(check_wildcards(&manifests));
    findings.extend(check_sources(&read("Cargo.lock")?));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        return Err(format!("deny: {} findings", findings.len()));
    }
    println!("deny: {} packages, licences, versions and sources ok", all.len());
    if has_cargo_deny() {
        advisories()
    } else {
        println!(
            "advisories NOT CHECKED: cargo-deny is not installed; `cargo xtask advisories` installs it"
        );
        Ok(())
    }
}

/// Checks security advisories and yanked versions. Installs cargo-deny if it is missing.
pub(crate) fn run_advisories() -> Result<(), Failure> {
    if !has_cargo_deny() {
        println!("installing cargo-deny {CARGO_DENY} (first time only, about three minutes)");
        let mut install = workspace::cargo();
        install.args(["install", "cargo-deny", "--version", CARGO_DENY]);
        command::run(install.args(["--locked", "--no-default-features", "--quiet"]))?;
    }
    advisories()
}

fn has_cargo_deny() -> bool {
    command::answers(workspace::cargo().args(["deny", "--version"]))
}

/// Does not fail when the advisory database cannot be reached: that says nothing about our
/// dependencies.
fn advisories() -> Result<(), Failure> {
    let mut check = workspace::cargo();
    check.args(["deny", "--color", "never", "--locked", "check", "advisories"]);
    match command::output(&mut check) {
        Ok(_) => {
            println!("advisories ok");
            Ok(())
        }
        Err(failure) if failure.contains("failed to fetch advisory database") => {
            println!("advisories NOT CHECKED: their database cannot be reached from here");
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}

fn read(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(workspace::root().join(file))
        .map_err(|error| format!("cannot read `{file}`: {error}"))
}

/// The part of `deny.toml` that we check.
#[derive(Debug, Default)]
struct Rules {
    targets: Vec<String>,
    licences: BTreeSet<String>,
    /// Duplicate versions that are allowed, such as `syn@2`.
    skipped: Vec<String>,
}

impl Rules {
    fn read(text: &str) -> Result<Self, Failure> {
        let table: Table =
            text.parse().map_err(|error| format!("cannot read `deny.toml`: {error}"))?;
        let list = |section: &str, key: &str| -> Vec<Value> {
            let value = table.get(section).and_then(|section| section.get(key));
            value.and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let words = |section: &str, key: &str| -> Vec<String> {
            list(section, key).iter().filter_map(|value| Some(value.as_str()?.to_owned())).collect()
        };
        let skipped = list("bans", "skip");
        let skipped = skipped.iter().filter_map(|entry| entry.get("crate")?.as_str());
        Ok(Self {
            targets: words("graph", "targets"),
            licences: words("licenses", "allow").into_iter().collect(),
            skipped: skipped.map(ToOwned::to_owned).collect(),
        })
    }
}

/// One package of the dependency graph.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    /// An SPDX expression; empty if the package names none.
    licence: String,
}

/// The packages that the targets of `deny.toml` need, over these kinds of dependencies.
fn packages(rules: &Rules, kinds: &str) -> Result<BTreeSet<Package>, Failure> {
    let mut tree = workspace::cargo();
    tree.args(["tree", "--locked", "--workspace", "--all-features", "--edges", kinds]);
    tree.args(["--prefix", "none", "--format", "{p}|{l}"]);
    for target in &rules.targets {
        tree.args(["--target", target]);
    }
    Ok(command::output(&mut tree)?.lines().filter_map(read_package).collect())
}

/// Reads `name v1.2.3 (proc-macro)|MIT OR Apache-2.0 (*)`.
fn read_package(line: &str) -> Option<Package> {
    let (package, licence) = line.split_once('|')?;
    let mut words = package.split_whitespace();
    Some(Package {
        name: words.next()?.to_owned(),
        version: words.next()?.trim_start_matches('v').to_owned(),
        licence: licence.trim_end_matches(" (*)").trim().to_owned(),
    })
}

fn check_licences(packages: &BTreeSet<Package>, allowed: &BTreeSet<String>) -> Vec<String> {
    packages
        .iter()
        .filter(|package| !licence_is_allowed(&package.licence, allowed))
        .map(|Package { name, version, licence }| match licence.as_str() {
            "" => format!("`{name} {version}` names no licence"),
            _ => format!(
                "licence `{licence}` of `{name} {version}` is not allowed; \
                 a new licence is a decision, made in `deny.toml`"
            ),
        })
        .collect()
}

/// Evaluates an SPDX expression: `AND` binds more tightly than `OR`, `/` is an old form of `OR`.
fn licence_is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let value = any_of(&mut words, allowed);
    // An expression with words left over was not understood, so it allows nothing.
    value && words.peek().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut value = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        value |= all_of(words, allowed);
    }
    value
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    let mut value = one_of(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        value &= one_of(words, allowed);
    }
    value
}

fn one_of(words: &mut Words<'_>, allowed: &BTreeSet<String>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let value = any_of(words, allowed);
        return words.next_if_eq(&")").is_some() && value;
    }
    let Some(name) = words.next() else { return false };
    if words.next_if_eq(&"WITH").is_some() {
        let exception = words.next().unwrap_or_default();
        return allowed.contains(&format!("{name} WITH {exception}"));
    }
    allowed.contains(name)
}

/// Finds packages in more than one version. Tests may add versions: only shipped packages count.
fn check_versions(packages: &BTreeSet<Package>, skipped: &[String]) -> Vec<String> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, .. } in packages {
        let skip = skipped.iter().any(|entry| skips(entry, name, version));
        if !skip {
            versions.entry(name).or_default().insert(version);
        }
    }
    versions
        .into_iter()
        .filter(|(_, versions)| versions.len() > 1)
        .map(|(name, versions)| {
            let versions: Vec<&str> = versions.into_iter().collect();
            format!(
                "`{name}` is there in versions {}; `cargo tree --invert {name}@VERSION` shows why",
                versions.join(" and ")
            )
        })
        .collect()
}

/// Whether `name@1.2` names this package: the parts of the version that it gives are equal.
fn skips(entry: &str, name: &str, version: &str) -> bool {
    let (entry_name, entry_version) = entry.split_once('@').unwrap_or((entry, ""));
    entry_name == name
        && entry_version
            .split('.')
            .filter(|part| !part.is_empty())
            .zip(version.split('.'))
            .all(|(left, right)| left == right)
}

/// Finds dependencies of ours that take any version.
fn check_wildcards(metadata: &serde_json::Value) -> Vec<String> {
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let mut findings = Vec::new();
    for package in list(&metadata["packages"]).iter().filter(|package| package["source"].is_null())
    {
        for dependency in list(&package["dependencies"]) {
            if dependency["req"] == "*" && dependency["path"].is_null() {
                findings.push(format!(
                    "{} takes any version of {}; give one",
                    package["name"], dependency["name"]
                ));
            }
        }
    }
    findings
}

/// Finds packages from outside the default registry.
fn check_sources(lock: &str) -> Vec<String> {
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    let foreign: BTreeSet<&str> = sources
        .map(|source| source.trim_matches('"'))
        .filter(|found| *found != CRATES_IO)
        .collect();
    foreign
        .into_iter()
        .map(|source| format!("`{source}` in `Cargo.lock` is not the default registry"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn allowed() -> BTreeSet<String> {
        ["MIT", "Apache-2.0", "Unicode-3.0"].map(ToOwned::to_owned).into()
    }

    fn tree(lines: &[&str]) -> BTreeSet<Package> {
        lines.iter().filter_map(|line| read_package(line)).collect()
    }

    #[test]
    fn package_is_read_from_a_line_of_cargo_tree() {
        let package = Package {
            name: "serde_derive".to_owned(),
            version: "1.0.2".to_owned(),
            licence: "MIT OR Apache-2.0".to_owned(),
        };
        assert_eq!(
            read_package("serde_derive v1.0.2 (proc-macro)|MIT OR Apache-2.0 (*)"),
            Some(package)
        );
        assert_eq!(read_package(""), None);
    }

    #[test]
    fn licence_expression_follows_spdx() {
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "BSL-1.0/MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(licence_is_allowed(good, &allowed()), "{good}");
        }
        for bad in
            ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 WITH LLVM-exception", "MIT)", "(MIT"]
        {
            assert!(!licence_is_allowed(bad, &allowed()), "{bad}");
        }
    }

    #[test]
    fn new_licence_is_found() {
        let findings = check_licences(&tree(&["a v1.0.0|GPL-3.0", "b v1.0.0|MIT"]), &allowed());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("`GPL-3.0` of `a 1.0.0`"), "{findings:?}");
    }

    #[test]
    fn second_version_is_found_unless_it_is_skipped() {
        let packages = tree(&["a v0.2.1|MIT", "a v0.3.0|MIT", "b v1.0.0|MIT"]);
        let findings = check_versions(&packages, &[]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("versions 0.2.1 and 0.3.0"), "{findings:?}");
        assert!(check_versions(&packages, &["a@0.2".to_owned()]).is_empty());
        assert_eq!(check_versions(&packages, &["a@0.20".to_owned()]).len(), 1);
    }

    #[test]
    fn wildcard_is_found_but_not_on_a_path() {
        let metadata = json!({"packages": [
            {"name": "ours", "source": null, "dependencies": [
                {"name": "any", "req": "*"},
                {"name": "sibling", "req": "*", "path": "crates/sibling"},
                {"name": "fixed", "req": "^1"},
            ]},
            {"name": "theirs", "source": CRATES_IO, "dependencies": [{"name": "any", "req": "*"}]},
        ]});
        assert_eq!(check_wildcards(&metadata), ["\"ours\" takes any version of \"any\"; give one"]);
    }

    #[test]
    fn source_outside_the_registry_is_found() {
        let lock = format!("source = \"{CRATES_IO}\"\nsource = \"git+https://example.org/a\"\n");
        let findings = check_sources(&lock);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].contains("git+https://example.org/a"), "{findings:?}");
    }

    #[test]
    fn rules_are_read_from_the_repository() {
        let rules = Rules::read(&read("deny.toml").unwrap()).unwrap();
        assert!(rules.licences.contains("MIT"));
        assert!(rules.targets.iter().any(|target| target.contains("linux")));
        assert!(!rules.skipped.is_empty());
    }
}
