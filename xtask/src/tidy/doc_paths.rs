//! Paths and links in the pages for contributors lead to files that exist.

use std::collections::BTreeSet;

use super::lexer::is_word;
use super::{File, Finding};

/// A page, and the folders from which its paths are read.
struct Page {
    path: &'static str,
    folders: &'static [&'static str],
    /// Sections with folders of their own.
    sections: &'static [(&'static str, &'static [&'static str])],
}

const PAGES: &[Page] = &[
    Page {
        path: "ARCHITECTURE.md",
        folders: &["", "crates/", "crates/gateway/src/"],
        sections: &[("The stores", &["", "crates/", "crates/conversations/src/"])],
    },
    Page {
        path: "CONTRIBUTING.md",
        folders: &[
            "",
            "crates/",
            "crates/gateway/src/",
            "crates/codec/src/",
            "crates/codec/tests/",
        ],
        sections: &[],
    },
];

/// Endings of the files that the pages name.
const ENDINGS: &[&str] = &[".rs", ".md", ".toml", ".txt", ".py"];

/// Finds paths in backticks and targets of links that do not exist.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let known = known_paths(files);
    let pages = PAGES
        .iter()
        .filter_map(|page| Some((page, files.iter().find(|file| file.path == page.path)?)));
    pages.flat_map(|(page, file)| check_page(page, &file.text, &known)).collect()
}

/// All files and folders.
fn known_paths(files: &[File]) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for file in files {
        let ends = file.path.match_indices('/').map(|(at, _)| at);
        known.extend(ends.map(|end| file.path[..end].to_owned()));
        known.insert(file.path.clone());
    }
    known
}

fn check_page(page: &Page, text: &str, known: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut folders = page.folders;
    // The folders of earlier paths in the same paragraph, for the files beside them.
    let mut nearby: Vec<String> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(heading) = line.strip_prefix("## ") {
            let section = page.sections.iter().find(|(name, _)| *name == heading);
            folders = section.map_or(page.folders, |(_, folders)| folders);
        }
        if line.is_empty() {
            nearby.clear();
        }
        let mut report = |path: &str| {
            let remedy = "name a file or a folder that exists, as the page's first lines explain";
            findings.push(Finding::new(page.path, index + 1, format!("no `{path}`"), remedy));
        };
        for target in link_targets(line).filter(|target| !known.contains(*target)) {
            report(target);
        }
        for path in paths_in_backticks(line) {
            let all = folders.iter().copied().chain(nearby.iter().map(String::as_str));
            let found = all.map(|folder| format!("{folder}{path}")).find(|all| known.contains(all));
            match found {
                Some(found) => {
                    let folder = found.rsplit_once('/').map_or("", |(folder, _)| folder);
                    nearby.extend([format!("{folder}/"), format!("{found}/")]);
                }
                None => report(path),
            }
        }
    }
    findings
}

/// The targets of links into the repository, without their anchors.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://"))
}

/// The words in backticks that are paths of files or folders.
fn paths_in_backticks(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split('`').skip(1).step_by(2).map(|word| word.trim_end_matches('/'));
    words.filter(|word| {
        let plain = word.chars().all(|next| is_word(next) || matches!(next, '/' | '.' | '-'));
        let is_path = word.contains('/') || ENDINGS.iter().any(|ending| word.ends_with(ending));
        plain && is_path && !word.starts_with(['/', '.'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str, text: &str) -> Vec<(usize, String)> {
        let others = ["docs/a.md", "crates/gateway/src/plan/b.rs", "crates/gateway/src/plan/c.rs"]
            .into_iter()
            .chain(["crates/conversations/src/store/d.rs", "crates/gateway/src/e.rs"]);
        let mut files: Vec<File> =
            others.map(|path| File { path: path.to_owned(), text: String::new() }).collect();
        files.push(File { path: page.to_owned(), text: text.to_owned() });
        check(&files).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn existing_paths_are_fine() {
        let text = "[a](docs/a.md#part), [b](https://example.com/b), `plan/b.rs`, `c.rs` and `plan/`.\n\
            `gateway/src/e.rs`, `GET /admin/turns`, `/readyz`, `Profile.headers`, `a <- b`\n\n\
            ## The stores\n`store/d.rs`\n";
        assert_eq!(found("ARCHITECTURE.md", text), []);
    }

    #[test]
    fn missing_file_and_missing_target_are_found() {
        let text = "`plan/x.rs`, [a](docs/b.md)\n`plan/b.rs`\n\n`c.rs`\n## The stores\n`e.rs`, `store.rs`\n";
        let missing =
            [(1, "docs/b.md"), (1, "plan/x.rs"), (4, "c.rs"), (6, "e.rs"), (6, "store.rs")];
        let missing = missing.map(|(line, path)| (line, format!("no `{path}`")));
        assert_eq!(found("ARCHITECTURE.md", text), missing);
        assert_eq!(found("README.md", text), []);
    }
}
