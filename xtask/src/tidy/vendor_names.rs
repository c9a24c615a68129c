//! The gateway knows no vendor: what differs between dialects is data that the codec gives it.

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

/// Finds vendor names in identifiers and texts, outside of tests and comments.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    files.iter().flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<Finding> {
    let applies = file.path.starts_with(SOURCES) && file.path.ends_with(".rs");
    if !applies || lexer::is_test_file(&file.path) {
        return Vec::new();
    }
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
                "move the difference into the dialect's folder in `crates/codec/src/dialects`",
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
    fn rule_holds_for_the_gateway_only() {
        assert!(lines("crates/codec/src/lib.rs", SOURCE).is_empty());
        assert!(lines("crates/gateway/src/tests.rs", SOURCE).is_empty());
        assert!(lines("crates/gateway/src/catalog/models.toml", SOURCE).is_empty());
    }
}
