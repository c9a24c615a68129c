//! A dialect folder uses nothing of another one: code that two dialects need is shared code. The files
//! beside the folders are used by all dialects, so they name none either, except for [`REGISTRY`].

use std::collections::BTreeSet;

use super::lexer::{self, Kind, Token};
use super::{File, Finding};

const DIALECTS: &str = "crates/codec/src/dialects/";

/// Folders that hold what dialects share.
const SHARED: &[&str] = &["shared"];

/// The files beside the folders that list dialects or their tables.
const REGISTRY: &[&str] = &["mod.rs", "blocks.rs", "model_paths.rs", "profile.rs", "resumable.rs"];

/// Finds paths from one dialect folder into another, outside of tests.
pub(super) fn check(files: &[File], folders: &BTreeSet<String>) -> Vec<Finding> {
    files.iter().flat_map(|file| check_file(file, folders)).collect()
}

fn check_file(file: &File, folders: &BTreeSet<String>) -> Vec<Finding> {
    let Some(inside) = file.path.strip_prefix(DIALECTS) else { return Vec::new() };
    let (dialect, rest) = inside.split_once('/').unwrap_or(("", inside));
    let exempt = dialect.is_empty() && REGISTRY.contains(&rest);
    if exempt || !rest.ends_with(".rs") || lexer::is_test_file(&file.path) {
        return Vec::new();
    }
    let tokens: Vec<Token<'_>> = lexer::without_tests(&lexer::tokens(&file.text))
        .into_iter()
        .filter(|token| !matches!(token.kind, Kind::Comment(_)))
        .collect();
    let depth = module_depth(inside);
    let user = if dialect.is_empty() { "code of all dialects" } else { dialect };
    let mut findings = Vec::new();
    for at in 0..tokens.len() {
        let Some(after) = path_to_dialects(&tokens[at..], depth) else { continue };
        for token in first_names(&tokens[at + after..]) {
            let Kind::Name(name) = token.kind else { continue };
            if name != dialect && folders.contains(name) && !SHARED.contains(&name) {
                findings.push(Finding::new(
                    &file.path,
                    token.line,
                    format!("dialect `{name}` is used by `{user}`"),
                    "move the code that both need to `dialects/shared`",
                ));
            }
        }
    }
    findings
}

/// How many `super` lead from a file to the module of all dialects: one from the `mod.rs` of a dialect.
fn module_depth(inside: &str) -> usize {
    let parts = inside.split('/').count();
    if inside.ends_with("mod.rs") { parts - 1 } else { parts }
}

/// The length of a path to the module of all dialects: `dialects::`, or as many `super::` as lead
/// there.
fn path_to_dialects(tokens: &[Token<'_>], depth: usize) -> Option<usize> {
    if tokens.first()?.kind == Kind::Name("dialects") {
        return is_separator(&tokens[1..]).then_some(3);
    }
    let is_super = |index: usize| {
        let at = index * 3;
        tokens.get(at).is_some_and(|token| token.kind == Kind::Name("super"))
            && is_separator(&tokens[at + 1..])
    };
    let count = (0..).take_while(|index| is_super(*index)).count();
    (count == depth).then_some(count * 3)
}

fn is_separator(tokens: &[Token<'_>]) -> bool {
    let colon = Kind::Punctuation(':');
    tokens.len() > 1 && tokens[0].kind == colon && tokens[1].kind == colon
}

/// The name that comes next, or the first name of each member of a group in braces.
fn first_names<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let Some(first) = tokens.first() else { return Vec::new() };
    if first.kind != Kind::Punctuation('{') {
        return vec![*first];
    }
    let end = lexer::closing(tokens, '{', '}').unwrap_or(tokens.len());
    let mut names = Vec::new();
    let (mut depth, mut expected) = (0_usize, true);
    for token in &tokens[1..end] {
        match token.kind {
            Kind::Punctuation('{') => depth += 1,
            Kind::Punctuation('}') => depth -= 1,
            Kind::Punctuation(',') if depth == 0 => expected = true,
            Kind::Name(_) if depth == 0 && expected => {
                names.push(*token);
                expected = false;
            }
            _ => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let folders = ["anthropic", "events", "openai_chat"].map(ToOwned::to_owned).into();
        let file = File { path: format!("{DIALECTS}{path}"), text: text.to_owned() };
        check_file(&file, &folders).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn path_into_another_dialect_is_found() {
        let text = "use crate::dialects::openai_chat::read;\n\
            use crate::dialects::{Asked, anthropic::{self, events}, losses};\n\
            use super::super::openai_chat;\nfn f() { crate::dialects::openai_chat::g() }\n";
        assert_eq!(lines("events/client_reply.rs", text), [1, 2, 3, 4]);
        assert_eq!(lines("events/mod.rs", "use super::openai_chat::read;\n"), [1]);
    }

    #[test]
    fn path_from_code_of_all_dialects_is_found() {
        let text = "use super::{anthropic, shared::losses};\nuse crate::dialects::openai_chat;\n";
        assert_eq!(lines("raw_reply.rs", text), [1, 2]);
        assert_eq!(lines("shared/losses.rs", "use super::super::anthropic;\n"), [1]);
        assert!(lines("profile.rs", text).is_empty());
    }

    #[test]
    fn own_and_shared_modules_are_fine() {
        let text = "use crate::dialects::events::write;\nuse crate::dialects::shared::read;\n\
            use super::anthropic;\nuse crate::dialects::losses::Losses;\n";
        assert!(lines("events/client_reply.rs", text).is_empty());
    }

    #[test]
    fn tests_and_comments_may_name_other_dialects() {
        let text = "//! As [`crate::dialects::openai_chat::read`].\n#[cfg(test)]\n\
            mod tests { use crate::dialects::openai_chat; }\n";
        assert!(lines("events/client_reply.rs", text).is_empty());
        assert!(lines("events/tests/mod.rs", "use crate::dialects::openai_chat;\n").is_empty());
    }
}
