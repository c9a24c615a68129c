//! A dialect is a source folder and a corpus folder of the same name. Dialects do not import from each
//! other. The corpus test checks the content of the captures.

use std::collections::BTreeSet;

use super::{File, Finding};

/// The folder of the dialects.
const FOLDER: &str = "crates/codec/src/dialects/";

/// The source folder that belongs to no dialect.
const SHARED_SOURCES: &str = "shared";

/// Corpus folders that belong to no dialect: canonical values and model text.
const SHARED: &[&str] = &["canonical", "text"];

/// Compares the dialect folders of the codec with those of the corpus.
pub(super) fn check(sources: &BTreeSet<String>, corpus: &BTreeSet<String>) -> Vec<Finding> {
    let dialects = sources.difference(corpus).filter(|name| *name != SHARED_SOURCES);
    let without_captures = dialects.map(|name| {
        Finding::new(
            format!("crates/codec/src/dialects/{name}"),
            1,
            format!("dialect `{name}` has no captures"),
            format!("add captures in `corpus/{name}/`, then run `cargo xtask bless`"),
        )
    });
    let without_source =
        corpus.difference(sources).filter(|name| !SHARED.contains(&name.as_str())).map(|name| {
            Finding::new(
                format!("corpus/{name}"),
                1,
                format!("captures of `{name}`, which no source folder reads"),
                format!("name the folder after one in `crates/codec/src/dialects/`, not `{name}`"),
            )
        });
    without_captures.chain(without_source).collect()
}

/// Finds imports of one dialect folder in another, or in the shared folder. Tests may import.
pub(super) fn check_imports(sources: &BTreeSet<String>, files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let Some((own, rest)) =
            file.path.strip_prefix(FOLDER).and_then(|path| path.split_once('/'))
        else {
            continue;
        };
        if rest.starts_with("tests") {
            continue;
        }
        let code = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (line, text) in code.lines().enumerate() {
            let others = sources.iter().filter(|name| *name != own && *name != SHARED_SOURCES);
            for other in others.filter(|name| text.contains(&format!("dialects::{name}::"))) {
                findings.push(Finding::new(
                    &file.path,
                    line + 1,
                    format!("`{own}` imports from `{other}`"),
                    format!("move what both need to `{FOLDER}{SHARED_SOURCES}/`"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_names(sources: &[&str], corpus: &[&str]) -> Vec<String> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        check(&set(sources), &set(corpus)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn folders_of_one_name_agree() {
        assert!(check_names(&["anthropic"], &["anthropic", "canonical", "text"]).is_empty());
    }

    #[test]
    fn shared_sources_need_no_captures() {
        assert!(check_names(&["anthropic", "shared"], &["anthropic"]).is_empty());
    }

    #[test]
    fn rejects_an_import_from_another_dialect() {
        let sources =
            ["gemini", "ollama", "shared"].iter().map(|name| (*name).to_owned()).collect();
        let file = |path: &str, text: &str| File {
            path: format!("crates/codec/src/dialects/{path}"),
            text: text.to_owned(),
        };
        let import = "use crate::dialects::gemini::NAME;\n";
        let files = [
            file("ollama/mod.rs", import),
            file("shared/names.rs", import),
            file("gemini/errors.rs", import),
            file("ollama/tests/mod.rs", import),
            file("ollama/errors.rs", "use crate::dialects::shared::names;\n"),
        ];
        let paths: Vec<String> =
            check_imports(&sources, &files).into_iter().map(|finding| finding.path).collect();
        assert_eq!(
            paths,
            [
                "crates/codec/src/dialects/ollama/mod.rs",
                "crates/codec/src/dialects/shared/names.rs"
            ]
        );
    }

    #[test]
    fn either_side_alone_is_found() {
        assert_eq!(
            check_names(&["anthropic", "gemini"], &["anthropic", "ollama"]),
            ["crates/codec/src/dialects/gemini", "corpus/ollama"]
        );
    }
}
