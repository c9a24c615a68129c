//! Every source file is part of its crate. The compiler does not read a file that no `mod` names, so
//! nothing else would notice it.

use std::collections::BTreeMap;

use super::lexer::{self, Kind};
use super::{File, Finding};

/// Files that Cargo finds by their name.
const ROOTS: &[&str] = &["lib.rs", "main.rs"];

/// Finds source files under `src`, and test files beside a `main.rs`, that their parent module does not
/// name.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let sources: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .map(|file| (file.path.as_str(), file.text.as_str()))
        .collect();
    let modules = sources.keys().filter_map(|path| Some((*path, module_of(path)?)));
    let findings = modules.filter_map(|(path, (name, folder))| {
        let parents: Vec<String> =
            parents(folder).into_iter().filter(|parent| sources.contains_key(&**parent)).collect();
        let is_target = parents.is_empty() && folder.ends_with("/tests");
        let is_declared = parents.iter().any(|parent| declares(sources[&**parent], name));
        (!is_target && !is_declared).then(|| {
            let parents = if parents.is_empty() { folder.to_owned() } else { parents.join("`, `") };
            let remedy = format!("delete it, or write `mod {name};` in `{parents}`");
            Finding::new(path, 1, "no module has this file, so it is never compiled", remedy)
        })
    });
    findings.collect()
}

/// The name of the module in a file, and the folder that its parent module belongs to.
fn module_of(path: &str) -> Option<(&str, &str)> {
    let in_a_crate = path.contains("/src/") || path.contains("/tests/");
    let (folder, file) = path.rsplit_once('/').filter(|_| in_a_crate)?;
    if file == "mod.rs" {
        let (parent, name) = folder.rsplit_once('/')?;
        return Some((name, parent));
    }
    (!ROOTS.contains(&file)).then_some((file.strip_suffix(".rs")?, folder))
}

/// The files that may hold the module of a folder.
fn parents(folder: &str) -> Vec<String> {
    let roots = ROOTS.iter().map(|root| format!("{folder}/{root}"));
    roots.chain([format!("{folder}/mod.rs"), format!("{folder}.rs")]).collect()
}

fn declares(source: &str, module: &str) -> bool {
    let tokens = lexer::tokens(source);
    tokens.windows(3).any(|three| {
        three[0].kind == Kind::Name("mod")
            && three[1].kind == Kind::Name(module)
            && three[2].kind == Kind::Punctuation(';')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        check(&files).into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn declared_modules_are_fine() {
        let files = [
            ("crates/a/src/lib.rs", "pub mod b;\nmod c;\n"),
            ("crates/a/src/b/mod.rs", "mod d;\n"),
            ("crates/a/src/b/d.rs", ""),
            ("crates/a/src/c.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/c/tests.rs", ""),
            ("crates/a/tests/one.rs", ""),
            ("crates/a/tests/two/main.rs", "mod three;\n"),
            ("crates/a/tests/two/three.rs", ""),
        ];
        assert!(found(&files).is_empty(), "{:?}", found(&files));
    }

    #[test]
    fn file_that_no_module_names_is_found() {
        let files = [
            ("crates/a/src/lib.rs", "mod b;\n// mod orphan;\n"),
            ("crates/a/src/b/mod.rs", "fn mod_left() { \"mod left;\"; }\n"),
            ("crates/a/src/b/left.rs", ""),
            ("crates/a/src/orphan.rs", ""),
            ("crates/a/tests/two/main.rs", ""),
            ("crates/a/tests/two/unread.rs", ""),
        ];
        assert_eq!(
            found(&files),
            ["crates/a/src/b/left.rs", "crates/a/src/orphan.rs", "crates/a/tests/two/unread.rs"]
        );
    }
}
