//! Words that make our texts hard to read, and names that say too little.

use super::lexer::{self, Kind, Token, is_word};
use super::{File, Finding};

/// Phrases that do not belong into texts for readers. Each one is put together from two parts, so
/// that this file passes its own check.
const PHRASES: &[(&str, &str)] = &[
    (concat!("is to", "ld"), "say who reports it, and where"),
    (concat!("are to", "ld"), "say who reports it, and where"),
    (concat!("was to", "ld"), "say who reports it, and where"),
    (concat!("who", "ever"), "name the person or the part"),
    (concat!("stands be", "hind"), "write `comes after` or `belongs to`"),
    (concat!("as it ca", "me"), "write `unchanged`"),
    (concat!("as they ca", "me"), "write `unchanged`"),
    (concat!("made to f", "it"), "write `adapted`"),
    (concat!("is sp", "oken"), "write `is supported`"),
    (concat!("has to be", "ar"), "write `must have`"),
    (concat!("what beca", "me of"), "write `the fate of` a block or `the result of` a request"),
    (concat!("what beco", "mes of"), "write `the fate of` a block or `the result of` a request"),
    (concat!("nobo", "dy"), "name the person or the part, as in `no backend`"),
    (concat!("somebo", "dy"), "name the person or the part, as in `a client`"),
    (concat!("so ma", "ny"), "write `this number of`, or `N at most`"),
];

/// Identifiers that say too little.
const NAMES: &[(&str, &str)] = &[
    ("tell", "use a verb that says what is done: emit, record, report"),
    (concat!("to", "ld"), "use a word that says what it is"),
    (concat!("Sa", "id"), "name the type by its content"),
];

/// Identifiers that say too little in a product, but are clear enough within a short test.
const NAMES_OUTSIDE_TESTS: &[(&str, &str)] = &[
    ("asked", "name the request, the question or the setting"),
    ("mark", "write `signature`, `prefix` or `tag`"),
    ("place", "write `index`, `position` or `path`"),
    ("said", "name the content: `text`, `words`, `message`"),
    ("stands", "use a word that says what it is"),
];

/// Beginnings of constants.
const PREFIXES: &[(&str, &str)] = &[
    ("LONGEST_", "begin with `MAX_`"),
    ("MOST_", "begin with `MAX_`"),
    ("LEAST_", "begin with `MIN_`"),
];

/// The files whose whole text is checked. Recordings in JSON are not ours to word.
const TEXTS: &[&str] = &[".md", ".py", ".js", ".mjs", ".ts", ".svelte", ".toml", ".html"];

/// Finds banned phrases in public texts and banned names in sources.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    if TEXTS.iter().any(|ending| file.path.ends_with(ending)) {
        return check_text(&file.path, 1, &file.text);
    }
    if !file.path.ends_with(".rs") {
        return Vec::new();
    }
    let tokens = lexer::tokens(&file.text);
    let mut findings: Vec<Finding> =
        tokens.iter().filter_map(|token| check_name(file, token, banned_name)).collect();
    if lexer::is_test_file(&file.path) {
        return findings;
    }
    for token in lexer::without_tests(&tokens) {
        findings.extend(check_name(file, &token, |name| find(NAMES_OUTSIDE_TESTS, name)));
        if let Kind::Text(text) | Kind::Comment(text) = token.kind {
            findings.extend(check_text(&file.path, token.line, text));
        }
    }
    findings
}

fn check_name(
    file: &File,
    token: &Token<'_>,
    remedy: impl Fn(&str) -> Option<&'static str>,
) -> Option<Finding> {
    let Kind::Name(name) = token.kind else { return None };
    let remedy = remedy(name)?;
    Some(Finding::new(&file.path, token.line, format!("name `{name}`"), remedy))
}

fn banned_name(name: &str) -> Option<&'static str> {
    let prefixed = || PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix));
    find(NAMES, name).or_else(|| prefixed().map(|(_, remedy)| *remedy))
}

fn find(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    names.iter().find(|(banned, _)| *banned == name).map(|(_, remedy)| *remedy)
}

/// Finds phrases in a text that begins in this line. A line end counts as a space.
fn check_text(path: &str, first_line: usize, text: &str) -> Vec<Finding> {
    // One byte for each byte, so that a position gives its line.
    let flat: String = text
        .chars()
        .map(|character| if character == '\n' { ' ' } else { character.to_ascii_lowercase() })
        .collect();
    let mut findings = Vec::new();
    for (phrase, remedy) in PHRASES {
        for (at, _) in flat.match_indices(phrase) {
            let before = flat[..at].chars().next_back();
            let after = flat[at + phrase.len()..].chars().next();
            if before.is_some_and(is_word) || after.is_some_and(is_word) {
                continue;
            }
            let line = first_line + text[..at].matches('\n').count();
            findings.push(Finding::new(path, line, format!("phrase `{phrase}`"), *remedy));
        }
    }
    for at in hidden_subjects(&flat) {
        let line = first_line + text[..at].matches('\n').count();
        findings.push(Finding::new(
            path,
            line,
            "phrase `what ... is`",
            "begin with the subject: not `what was sent is kept` but `sent blocks are kept`",
        ));
    }
    findings
}

/// Where sentences such as `what was sent is kept` begin: a verb after `what`, and a second one within
/// a few words.
fn hidden_subjects(text: &str) -> Vec<usize> {
    let verbs = ["is", "are", "was", "were", "has", "had"];
    let mut found = Vec::new();
    for (at, what) in text.match_indices("what ") {
        let before = text[..at].trim_end();
        let begins =
            before.is_empty() || before.ends_with(['.', ':', '|', '-', ';', '#', '!', '/']);
        let clause = text[at + what.len()..].split(['.', ',', ';', ':', '?', '|']).next();
        let mut words = clause.unwrap_or_default().split_whitespace();
        let first = words.next().is_some_and(|word| verbs.contains(&word));
        if begins && first && words.take(6).skip(1).any(|word| verbs.contains(&word)) {
            found.push(at);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check_file(&file).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn phrase_is_found_across_a_line_end() {
        let text = PHRASES[0].0.replace(' ', "\n");
        let text = format!("A loss {text}. Nothing else.\n");
        assert_eq!(found("README.md", &text), [(1, format!("phrase `{}`", PHRASES[0].0))]);
        assert!(found("README.md", "This soldier is tolderated.\n").is_empty());
    }

    #[test]
    fn sentence_that_hides_its_subject_is_found() {
        let text = "One.\nWhat was sent before is kept. He knows what was sent.\n";
        assert_eq!(found("README.md", text), [(2, "phrase `what ... is`".to_owned())]);
        assert!(found("README.md", "What is it? It is here.\n").is_empty());
    }

    #[test]
    fn phrase_is_found_in_messages_and_comments_of_every_crate() {
        let phrase = PHRASES[3].0;
        let source = format!("// {phrase}\nfn f() {{ error(\"{phrase} asks\") }}\n");
        for path in ["crates/codec/src/lib.rs", "bench/src/main.rs", "fuzz/fuzz_targets/text.rs"] {
            assert_eq!(found(path, &source).len(), 2, "{path}");
        }
        assert!(found("crates/codec/tests/text.rs", &source).is_empty());
        for path in
            ["conformance/run.py", "web/src/strings/en.ts", "web/src/App.svelte", "example.toml"]
        {
            assert_eq!(found(path, &format!("# {phrase}\n")).len(), 1, "{path}");
        }
    }

    #[test]
    fn name_is_found_as_a_whole_word() {
        let [verb, _, type_name] = NAMES else { panic!("three names") };
        let source = format!("fn {}() {{}}\nstruct {};\nfn teller() {{}}\n", verb.0, type_name.0);
        let names: Vec<usize> =
            found("crates/codec/src/lib.rs", &source).iter().map(|(line, _)| *line).collect();
        assert_eq!(names, [1, 2]);
    }

    #[test]
    fn short_name_is_found_outside_of_tests_only() {
        let name = NAMES_OUTSIDE_TESTS[0].0;
        let source = format!("fn {name}() {{}}\n#[cfg(test)]\nmod tests {{ fn {name}() {{}} }}\n");
        assert_eq!(found("crates/codec/src/lib.rs", &source), [(1, format!("name `{name}`"))]);
    }

    #[test]
    fn constant_is_found_by_its_prefix() {
        let source =
            format!("const {}NAME: usize = 1;\nconst ALMOST_ALL: usize = 2;\n", PREFIXES[0].0);
        assert_eq!(found("crates/codec/src/lib.rs", &source).len(), 1);
    }
}
