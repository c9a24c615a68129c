//! The gateway knows no vendor: what differs between dialects is data that the codec gives it. So it
//! has neither names of vendors nor words of their protocols.

use super::lexer::{self, Kind};
use super::{File, Finding};

/// Where the rule holds.
const SOURCES: &str = "crates/gateway/src/";

/// Dialects, vendors and model families.
const VENDORS: &[&str] = &[
    "anthropic",
    "bedrock",
    "claude",
    "deepseek",
    "gemini",
    "glm",
    "google",
    "gpt",
    "groq",
    "kimi",
    "llama",
    "minimax",
    "mistral",
    "ollama",
    "openai",
    "openrouter",
    "qwen",
    "vertex",
    "vllm",
];

/// Folders and files with texts like `one_word`, which are no words of a protocol: the shape of blocks that
/// are edited in place, and the keys of the catalog's own file.
const OTHER_WORDS: &[&str] =
    &["crates/gateway/src/plan/outlined/", "crates/gateway/src/catalog/rows.rs"];

/// Texts of the gateway itself that look like words of a protocol: names in its reports and stores, and
/// HTTP headers that no vendor owns.
const OWN_WORDS: &[&str] = &[
    "accept-encoding",
    "active_backend",
    "cache_read",
    "cache_write",
    "caller_key_site",
    "client_gone",
    "content-length",
    "keep-alive",
    "no-cache",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "request-id",
    "retry-after",
    "retry-after-ms",
    "snake_case",
    "transfer-encoding",
    "turn_position",
    "x-request-id",
];

/// Whether a text looks like a word of a protocol: words in lower case, joined by `_` or `-`.
fn is_wire_word(text: &str) -> bool {
    let is_plain = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.contains(['_', '-'])
        && text.split(['_', '-']).all(is_plain)
        && !text.starts_with("x-throughline-")
        && !OWN_WORDS.contains(&text)
}

/// Finds vendor names and words of their protocols in identifiers and texts, outside of tests and
/// comments.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

const MOVE: &str = "move the difference into the dialect's folder in `crates/codec/src/dialects`";

fn check_file(file: &File) -> Vec<Finding> {
    let applies = file.path.starts_with(SOURCES) && file.path.ends_with(".rs");
    if !applies || lexer::is_test_file(&file.path) {
        return Vec::new();
    }
    let checks_words = !OTHER_WORDS.iter().any(|path| file.path.starts_with(path));
    let tokens = lexer::tokens(&file.text);
    let mut findings = Vec::new();
    for token in lexer::without_tests(&tokens) {
        let (Kind::Name(words) | Kind::Text(words)) = token.kind else { continue };
        let lower = words.to_lowercase();
        if let Some(vendor) = VENDORS.iter().find(|vendor| lower.contains(*vendor)) {
            findings.push(Finding::new(
                &file.path,
                token.line,
                format!("vendor name `{vendor}` in the gateway"),
                MOVE,
            ));
        } else if matches!(token.kind, Kind::Text(_)) && checks_words && is_wire_word(words) {
            findings.push(Finding::new(
                &file.path,
                token.line,
                format!("word of a protocol `{words}` in the gateway"),
                MOVE,
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let file = File { path: path.to_owned(), text: text.to_owned() };
        check_file(&file).iter().map(|finding| finding.line).collect()
    }

    const SOURCE: &str = "// As Anthropic does.\nuse codec::openai_chat::NAME;\n\
        fn is_claude() -> bool {\n    name == \"Gemini\"\n}\n#[cfg(test)]\nmod tests { fn gpt() {} }\n";

    #[test]
    fn vendor_is_found_in_names_and_texts() {
        assert_eq!(lines("crates/gateway/src/turn.rs", SOURCE), [2, 3, 4]);
    }

    #[test]
    fn word_of_a_protocol_is_found_in_texts() {
        let source = "fn is_it(text: &str) -> bool {\n    text == \"thinking_dropped\"\n\
            || text.starts_with(\"adaptive-thinking\")\n    || text == \"retry-after\"\n\
            || text == \"x-throughline-loss\"\n    || text == \"no such member\"\n}\n";
        assert_eq!(lines("crates/gateway/src/turn.rs", source), [2, 3]);
        assert!(lines("crates/gateway/src/plan/outlined/mod.rs", source).is_empty());
    }

    #[test]
    fn rule_holds_for_the_gateway_only() {
        assert!(lines("crates/codec/src/lib.rs", SOURCE).is_empty());
        assert!(lines("crates/gateway/src/tests.rs", SOURCE).is_empty());
        assert!(lines("crates/gateway/src/catalog/models.toml", SOURCE).is_empty());
    }
}
