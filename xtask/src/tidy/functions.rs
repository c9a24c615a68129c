//! Functions and structs that are too large to read at once.

use super::lexer::{self, Kind, Token};
use super::{File, Finding};

/// Lines of a function, from its name to its closing brace.
const MAX_LINES: usize = 80;

/// Fields of a struct, unless its comment gives the reason for more.
const MAX_FIELDS: usize = 15;

/// Finds functions that are too long and structs with too many fields, outside of tests.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    if !file.path.ends_with(".rs") || lexer::is_test_file(&file.path) {
        return Vec::new();
    }
    let all = lexer::tokens(&file.text);
    let tokens = lexer::without_tests(&all);
    let mut findings = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at..];
        match token.kind {
            Kind::Name("fn") => findings.extend(check_function(file, rest)),
            Kind::Name("struct") => findings.extend(check_struct(file, &tokens[..at], rest)),
            _ => {}
        }
    }
    findings
}

fn check_function(file: &File, tokens: &[Token<'_>]) -> Option<Finding> {
    let Kind::Name(name) = tokens.get(1)?.kind else { return None };
    let body = body(tokens)?;
    let end = body + lexer::closing(&tokens[body..], '{', '}')?;
    let lines = tokens[end].line - tokens[0].line + 1;
    (lines > MAX_LINES).then(|| {
        Finding::new(
            &file.path,
            tokens[0].line,
            format!("function `{name}` has {lines} lines, more than {MAX_LINES}"),
            "split it into steps that have names",
        )
    })
}

fn check_struct(file: &File, before: &[Token<'_>], tokens: &[Token<'_>]) -> Option<Finding> {
    let Kind::Name(name) = tokens.get(1)?.kind else { return None };
    let body = body(tokens)?;
    let end = body + lexer::closing(&tokens[body..], '{', '}')?;
    let fields = count_fields(&tokens[body + 1..end]);
    (fields > MAX_FIELDS && !gives_a_reason(before)).then(|| {
        Finding::new(
            &file.path,
            tokens[0].line,
            format!("struct `{name}` has {fields} fields, more than {MAX_FIELDS}"),
            "group them, or give the reason in a comment sentence that begins with `Many fields:`",
        )
    })
}

/// Where the block of an item begins; none if it ends without one.
fn body(tokens: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Punctuation('(' | '[') => depth += 1,
            Kind::Punctuation(')' | ']') => depth = depth.checked_sub(1)?,
            Kind::Punctuation(';') if depth == 0 => return None,
            Kind::Punctuation('{') if depth == 0 => return Some(index),
            _ => {}
        }
    }
    None
}

/// Fields are names before a single colon, outside of brackets.
fn count_fields(tokens: &[Token<'_>]) -> usize {
    let colon = Kind::Punctuation(':');
    let kind = |at: usize| tokens.get(at).map(|token| token.kind);
    let (mut depth, mut count) = (0_i32, 0);
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Punctuation('(' | '[' | '{' | '<') => depth += 1,
            Kind::Punctuation('>') if at > 0 && kind(at - 1) == Some(Kind::Punctuation('-')) => {}
            Kind::Punctuation(')' | ']' | '}' | '>') => depth -= 1,
            Kind::Name(_) if depth == 0 && kind(at + 1) == Some(colon) => {
                let is_path = kind(at + 2) == Some(colon) || at > 0 && kind(at - 1) == Some(colon);
                count += usize::from(!is_path);
            }
            _ => {}
        }
    }
    count
}

/// Whether the comment right before an item says why it has more fields.
fn gives_a_reason(before: &[Token<'_>]) -> bool {
    let end_of_last_item =
        before.iter().rposition(|token| matches!(token.kind, Kind::Punctuation('}' | ';')));
    let own = &before[end_of_last_item.map_or(0, |at| at + 1)..];
    own.iter()
        .any(|token| matches!(token.kind, Kind::Comment(text) if text.contains("Many fields:")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let file = File { path: "crates/codec/src/lib.rs".to_owned(), text: text.to_owned() };
        check_file(&file).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn long_function_is_found() {
        let body = "    step();\n".repeat(MAX_LINES - 2);
        let fits = format!("fn fits(x: [u8; 2]) -> u8 {{\n{body}}}\n");
        assert!(found(&fits).is_empty());
        let long = format!("impl A {{\nfn long() {{\n{body}    step();\n}}\n}}\n");
        assert_eq!(found(&long), ["function `long` has 81 lines, more than 80"]);
        assert!(found(&format!("#[cfg(test)]\nmod tests {{\n{long}}}\n")).is_empty());
    }

    #[test]
    fn function_without_a_body_is_fine() {
        let text = format!("trait T {{ fn f(&self); }}\n{}", "// line\n".repeat(100));
        assert!(found(&text).is_empty());
    }

    fn wide(comment: &str) -> String {
        let fields: String =
            (0..=MAX_FIELDS).map(|index| format!("a{index}: Option<fn(u8) -> b::C>,\n")).collect();
        format!("fn f() {{}}\n{comment}\nstruct Wide {{\n{fields}}}\n")
    }

    #[test]
    fn wide_struct_needs_a_reason() {
        assert_eq!(
            found(&wide("/// Wide, by its fields.")),
            ["struct `Wide` has 16 fields, more than 15"]
        );
        assert!(found(&wide("/// Many fields: it mirrors the wire object.")).is_empty());
    }
}
