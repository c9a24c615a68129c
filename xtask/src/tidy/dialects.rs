//! Every dialect has a source folder and a corpus folder of the same name.

use std::collections::BTreeSet;

use super::Finding;

/// The source folder that belongs to no dialect.
const SHARED_SOURCES: &str = "shared";

/// Corpus folders that belong to no dialect.
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
                format!("no dialect is called `{name}`"),
                "name the folder like one in `crates/codec/src/dialects/`",
            )
        });
    without_captures.chain(without_source).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_names(sources: &[&str], corpus: &[&str]) -> Vec<String> {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        check(&set(sources), &set(corpus)).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn folders_of_the_same_name_are_fine() {
        assert!(check_names(&["anthropic"], &["anthropic", "canonical", "text"]).is_empty());
    }

    #[test]
    fn folder_without_its_counterpart_is_found() {
        assert_eq!(
            check_names(&["anthropic", "gemini"], &["anthropic", "ollama"]),
            ["crates/codec/src/dialects/gemini", "corpus/ollama"]
        );
    }
}
